// The storyboard of this tab with its two locks: the project in this browser's files, which the autosave holds, and the document at
// the server. It knows what is edited and whether it may be; it draws nothing.

import { initAutoSave, type AutoSave } from '/demo/leasehold/autosave.js';
import { lookProjectLock, subscribeLockEvents } from '/demo/leasehold/index.js';
import type { DocumentLock } from '/demo/leasehold/documents.js';
import { actionAfter, mayEdit, type Document, type Standing } from './standing.js';
import { asText, storyboardOf, type Storyboard } from './storyboard.js';

/** How often a tab that may not edit looks for what another one has saved. */
const LOOKS_EVERY_MS = 1_000;

/** What the workplace is made of. */
export interface Parts {
  readonly label: string;
  readonly first: Storyboard;
  /** Opens the document. `unsaved` is what is lost with the lock. */
  open(how: { reload(): Promise<void>; save(): Promise<void>; unsaved(): string | null }): DocumentLock;
  changed(): void;
}

export class Workplace {
  readonly autosave: AutoSave;
  readonly document: DocumentLock;
  readonly #changed: () => void;
  /** What is shown, and what is this tab's own to save: while another tab edits, its work is shown. */
  #board: Storyboard;
  #own: Storyboard;
  /** How often the project was lost, and when it was got and loaded last. */
  #loses = 0;
  #loadedAfter = -1;
  #standing: Standing = { project: 'unknown', document: 'unknown', hasLost: false };

  constructor({ label, first, open, changed }: Parts) {
    this.#board = this.#own = first;
    this.#changed = changed;
    this.autosave = initAutoSave(() => this.#own, {
      root: 'project', label,
      apply: (saved) => this.#take(storyboardOf(saved)),
    });
    subscribeLockEvents(({ type }) => {
      if (type === 'lock:acquired') void this.#load();
      if (type === 'lock:released' || type === 'lock:readonly-entered') this.#loses += 1;
    });
    this.document = open({
      reload: () => this.#showSaved(),
      save: () => this.autosave.flushNow(),
      unsaved: () => (this.autosave.snapshot().isDirty ? asText(this.#own) : null),
    });
    this.autosave.subscribe(() => this.#look());
    this.document.subscribe(() => this.#look());
    setInterval(() => { if (!this.#hasProject) void this.#followOther(); }, LOOKS_EVERY_MS);
    void this.#showSaved();
  }

  get board(): Storyboard {
    return this.#board;
  }

  get standing(): Standing {
    return this.#standing;
  }

  get mayEdit(): boolean {
    return mayEdit(this.#standing);
  }

  /** Replaces the storyboard by what the user made of it. */
  edit(board: Storyboard): void {
    if (!this.mayEdit || board === this.#board) return;
    this.#board = this.#own = board;
    this.autosave.markDirty();
    this.#changed();
  }

  /** Saves, and gives both locks back. */
  async leave(): Promise<void> {
    await this.autosave();
    await this.document.close();
  }

  /** Whether this tab holds the project and has what was saved last. */
  get #hasProject(): boolean {
    return this.#loadedAfter === this.#loses;
  }

  /** Loads what was saved last before the user may go on: what was typed meanwhile would become a draft. */
  async #load(): Promise<void> {
    const loses = this.#loses;
    if (!this.autosave.snapshot().isDirty) await this.autosave.restoreFromCurrent();
    this.#loadedAfter = loses;
    this.#look();
  }

  /** Goes on with what was saved. */
  #take(board: Storyboard | null): boolean {
    if (!board) return false;
    this.#board = this.#own = board;
    this.#changed();
    return true;
  }

  /** Shows what was saved last, unless this tab has something newer. */
  async #showSaved(): Promise<void> {
    const text = await readSaved().catch(() => null);
    if (text === null || this.autosave.snapshot().isDirty || text === JSON.stringify(this.#board)) return;
    this.#board = storyboardOf(JSON.parse(text)) ?? this.#board;
    this.#changed();
  }

  /** Shows what the other tab saves, and waits in its line: a tab that gave the project away knows nothing of the next holder. */
  async #followOther(): Promise<void> {
    await this.#showSaved();
    const { state } = this.autosave.snapshot();
    if (state.kind === 'readonly' && state.isFree && await lookProjectLock({ root: 'project' })) await this.autosave.retry();
  }

  /** Draws where the tab stands, and has the other lock follow the one that changed. */
  #look(): void {
    const before = this.#standing;
    const { kind } = this.autosave.snapshot().state;
    const isOut = kind === 'readonly' || kind === 'unavailable' || kind === 'stopped';
    const { status, lost } = this.document.getState();
    this.#standing = {
      project: isOut ? 'readonly' : this.#hasProject ? 'held' : 'unknown',
      document: DOCUMENTS[status] ?? 'unknown',
      hasLost: lost !== null,
    };
    const action = actionAfter(before, this.#standing);
    if (action === 'acquire-document') void this.document.acquire();
    if (action === 'release-document') void this.document.release();
    if (action === 'release-project') void this.autosave.handOver();
    if (action === 'retry-project') void this.autosave.retry();
    this.#changed();
  }
}

const DOCUMENTS: Partial<Record<string, Document>> = { mine: 'mine', free: 'free', 'read-only': 'others' };

/** What the autosave has written, read without any claim to it. */
async function readSaved(): Promise<string> {
  const project = await (await navigator.storage.getDirectory()).getDirectoryHandle('project');
  const file = await (await project.getDirectoryHandle('autosave')).getFileHandle('current.json');
  return (await file.getFile()).text();
}
