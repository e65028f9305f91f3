// An autosave that does nothing: it shows the snapshot that it was given, and notes what it was asked. One snapshot for every
// state; a type sees to it that none is missing.

import type {
  AutoSaveHistory, AutoSaveHistoryEntry, AutoSaveSnapshot, AutoSaveState, AutoSaveStateKind, AutoSaveStore,
} from '../src/autosave/state.js';

/** When the fixtures happen. */
export const AT = Date.UTC(2026, 10, 16, 9, 41, 7);

const OWNER = { owner: '9f2c', label: 'Ann', fence: 7, since: AT - 60_000, expiresAt: AT + 20_000 };

const READONLY = {
  kind: 'readonly', reason: 'conflict', owner: OWNER, isFree: false, clockSkew: null, manualSteps: null, message: '',
} as const;

/** What the rules say when a release failed for good. */
const STEPS = 'Close every tab and program that has the project open, then open it again: a lock whose holder is gone is taken '
  + 'over by itself, at the latest when its time has run out. If that does not help, delete the file `.lock` in the project '
  + 'folder, and leave `.lock.guard` where it is.';

/** A snapshot in some state. */
export function snapshotOf(state: AutoSaveState, rest: Partial<AutoSaveSnapshot> = {}): AutoSaveSnapshot {
  return { state, savedAt: AT, isDirty: false, notice: null, request: null, hasDraft: false, ...rest };
}

const ONE_EACH: { readonly [Kind in AutoSaveStateKind]: AutoSaveState & { kind: Kind } } = {
  disabled: { kind: 'disabled' },
  dirty: { kind: 'dirty' },
  saving: { kind: 'saving' },
  saved: { kind: 'saved', at: AT },
  retrying: { kind: 'retrying', attempt: 2, maxAttempts: 3, nextAt: AT + 1_000 },
  error: { kind: 'error', code: 'write-failed', message: '' },
  unavailable: { kind: 'unavailable', reason: 'private-window-or-blocked-storage', message: '' },
  readonly: READONLY,
  releasing: { kind: 'releasing' },
  stopped: { kind: 'stopped' },
};

const REQUEST = { owner: '9f2c', label: 'Ann', reason: 'the title is wrong', countdownMs: 10_000, onSilence: 'refuse' } as const;

/** Every state, and the variants of those that have some. */
export const SNAPSHOTS: Readonly<Record<string, AutoSaveSnapshot>> = {
  ...Object.fromEntries(Object.entries(ONE_EACH).map(([name, state]) => [name, snapshotOf(state)])),
  'saved: nothing yet': snapshotOf({ kind: 'saved', at: null }, { savedAt: null }),
  'error: no space': snapshotOf({ kind: 'error', code: 'no-space', message: '' }),
  'error: not serialisable': snapshotOf({ kind: 'error', code: 'not-serialisable', message: '' }),
  'error: newer version': snapshotOf({ kind: 'error', code: 'stale-base', message: '' }),
  'unavailable: insecure context': snapshotOf({ kind: 'unavailable', reason: 'insecure-context', message: '' }),
  'unavailable: other': snapshotOf({ kind: 'unavailable', reason: 'no-private-file-system', message: '' }),
  'readonly: nameless holder, unsaved': snapshotOf({ ...READONLY, owner: { ...OWNER, label: '' } }, { isDirty: true }),
  'readonly: free': snapshotOf({ ...READONLY, owner: null, isFree: true }),
  'readonly: timeout': snapshotOf({ ...READONLY, reason: 'timeout', owner: null }),
  'readonly: irrecoverable': snapshotOf({ ...READONLY, reason: 'irrecoverable', owner: null }),
  'readonly: clock skew': snapshotOf({ ...READONLY, clockSkew: 'project/.lock and its modification time disagree' }),
  'readonly: not released': snapshotOf({ ...READONLY, reason: 'irrecoverable', owner: null, manualSteps: STEPS }),
  'another tab asks': snapshotOf({ kind: 'dirty' }, { isDirty: true, request: REQUEST }),
  'notice: recovered': snapshotOf({ kind: 'saved', at: AT }, { notice: { number: 1, at: AT, kind: 'recovered', operation: 'save' } }),
  'notice: history dropped': snapshotOf(
    { kind: 'saved', at: AT }, { notice: { number: 1, at: AT, kind: 'history-dropped', generations: 4 } },
  ),
  'notice: space low': snapshotOf({ kind: 'dirty' }, { notice: { number: 1, at: AT, kind: 'space-low', freeBytes: 4_200_000 } }),
  'saved, with a draft': snapshotOf({ kind: 'saved', at: AT }, { hasDraft: true }),
  'notice: draft kept': snapshotOf({ kind: 'saved', at: AT }, { notice: { number: 1, at: AT, kind: 'draft-kept' } }),
};

const second = (ago: number) => new Date(AT - ago * 1_000).toISOString();

/** Saved versions: the current one, smaller and larger ones, one whose name is not a time. */
export const ENTRIES: readonly AutoSaveHistoryEntry[] = [
  { ts: second(0), bytes: 48_213, difference: 0, isCurrent: true },
  { ts: second(5), bytes: 48_213, difference: 0, isCurrent: false },
  { ts: second(65), bytes: 47_990, difference: -223, isCurrent: false },
  { ts: second(4_000), bytes: 1_250_400, difference: 1_202_187, isCurrent: false },
  { ts: 'not-a-time', bytes: 1, difference: -48_212, isCurrent: false },
];

const TEXT = '{"title":"The storm","scenes":[{"id":1,"text":"A harbour at night. Rain."},{"id":2,"text":"<b>Ann</b> & the captain"}]}';

/** The store. What it is asked ends when a test says so, or at once. */
export class FixtureStore implements AutoSaveStore {
  /** What it was asked. */
  readonly asked: unknown[][] = [];
  /** What happens when it is asked. */
  answer: (name: string, ...rest: unknown[]) => unknown = () => undefined;
  entries: readonly AutoSaveHistoryEntry[] = ENTRIES;
  text = TEXT;
  readonly #listeners = new Set<() => void>();

  constructor(private snapshot: AutoSaveSnapshot) {}

  readonly getSnapshot = (): AutoSaveSnapshot => this.snapshot;

  /** How many follow it. */
  get listeners(): number {
    return this.#listeners.size;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => { this.#listeners.delete(listener); };
  }

  /** Becomes another state. */
  become(snapshot: AutoSaveSnapshot): void {
    this.snapshot = snapshot;
    for (const listener of this.#listeners) listener();
  }

  retry(): Promise<void> { return this.#ask('retry'); }
  takeOver(options?: object): Promise<void> { return this.#ask('takeOver', options); }
  ask(): Promise<void> { return this.#ask('ask'); }
  handOver(): Promise<void> { return this.#ask('handOver'); }
  refuse(): Promise<void> { return this.#ask('refuse'); }
  flushNow(): Promise<void> { return this.#ask('flushNow'); }

  readonly history: AutoSaveHistory = {
    list: async () => (await this.#ask('list') as unknown as AutoSaveHistoryEntry[] | undefined) ?? [...this.entries],
    preview: async (ts) => {
      const said = await this.#ask('preview', ts) as unknown as string | null | undefined;
      return said === undefined ? this.text : said;
    },
    restore: async (ts) => (await this.#ask('restore', ts) as unknown as boolean | undefined) ?? true,
  };

  async #ask(name: string, ...rest: unknown[]): Promise<void> {
    this.asked.push([name, ...rest]);
    return await this.answer(name, ...rest) as void;
  }
}
