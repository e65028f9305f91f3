// `<autosave-history>`: a button, and a dialog with the saved versions: when, how large, how much larger or smaller than the
// current one. A version is looked at before it is restored, and restoring can be undone. With the attribute `inline`, the
// list is part of the page. It asks the autosave for everything, and decides nothing about saving.

import type { AutoSaveHistoryEntry, AutoSaveSnapshot } from '../autosave/state.js';
import { AutoSaveElement } from './autosave-element.js';
import { button, dialog, disable, focus, make, redraw, set, setAll, write } from './dom.js';
import { dateAndTime, dayAndTime, difference, machineTime, momentOf, size } from './format.js';
import { HISTORY } from './style.js';

/** More of a version is not shown: a browser takes seconds to lay out megabytes. */
const PREVIEW_CHARACTERS = 50_000;

/** What the panel is where it is not a dialog. */
const GROUP = { role: 'group', 'aria-labelledby': 'title' };

/** What is shown. */
type Page =
  | { readonly kind: 'loading' }
  | { readonly kind: 'list'; readonly entries: readonly AutoSaveHistoryEntry[] }
  | { readonly kind: 'failed' }
  | { readonly kind: 'preview'; readonly entry: AutoSaveHistoryEntry; readonly text: string };

/** The saved versions of a project. */
export class AutoSaveHistoryElement extends AutoSaveElement {
  static override readonly observedAttributes = [...AutoSaveElement.observedAttributes, 'inline'];

  readonly #open = button('open', '', () => this.show());
  readonly #title = make('h2', { id: 'title', part: 'title', tabindex: '-1' });
  readonly #close = button('close', '×', () => this.close());
  readonly #alert = make('div', { role: 'alert', class: 'alert', part: 'error' });
  readonly #status = make('div', { role: 'status', part: 'status' });
  readonly #note = make('div', { class: 'note', part: 'note' }, this.#status);
  readonly #body = make('div', { class: 'scroll', part: 'body' });
  readonly #buttons = make('div', { class: 'row', part: 'actions' });
  readonly #panel: HTMLElement = make(
    'div', { class: 'panel', part: 'panel' },
    make('div', { class: 'head' }, this.#title, this.#close), this.#alert, this.#note, this.#body, this.#buttons,
  );
  readonly #dialog = dialog('dialog', this.#panel);

  #page: Page = { kind: 'loading' };
  /** Answers to earlier questions are not shown. */
  #asked = 0;
  /** How often the panel was emptied: what was begun before is not told. */
  #emptied = 0;
  #isBusy = false;
  #undo: string | null = null;
  #savedAt: number | null = null;
  #drawn: readonly unknown[] = [];

  constructor() {
    super(HISTORY);
    set(this.#dialog, 'aria-labelledby', 'title');
    // The event comes a moment later: the dialog may be open again.
    this.#dialog.addEventListener('close', () => { if (!this.#isShown) this.#forget(); });
    this.frame.append(this.#open, this.#dialog);
  }

  /** Opens the dialog. */
  show(): void {
    if (this.#isShown) return;
    this.#forget();
    this.#dialog.showModal();
    void this.#list();
    this.#title.focus();
  }

  /** Closes it. */
  close(): void {
    this.#dialog.close();
  }

  override connectedCallback(): void {
    super.connectedCallback();
    if (this.#isInline) void this.#list();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.close();
  }

  override attributeChangedCallback(): void {
    super.attributeChangedCallback();
    if (this.isConnected && this.#isInline && this.#page.kind === 'loading') void this.#list();
  }

  get #isInline(): boolean {
    return this.hasAttribute('inline');
  }

  get #isShown(): boolean {
    return this.#isInline || this.#dialog.open;
  }

  protected reset(): void {
    this.close();
    this.#forget();
    if (this.isConnected && this.#isInline) void this.#list();
  }

  protected draw(snapshot: AutoSaveSnapshot | null): void {
    const { words } = this;
    write(this.#open, words.open);
    this.#open.hidden = this.#close.hidden = this.#isInline;
    set(this.#close, 'aria-label', words.close);
    this.#layOut();
    const savedAt = snapshot?.savedAt ?? null;
    if (savedAt !== this.#savedAt) {
      this.#savedAt = savedAt;
      if (this.#isShown && this.#page.kind === 'list' && !this.#isBusy) void this.#list(true);
    }
    if (this.#isShown) this.#drawPage(snapshot?.state.kind === 'readonly');
  }

  /** Puts the panel into the dialog, or onto the page. */
  #layOut(): void {
    const place = this.#isInline ? this.frame : this.#dialog;
    if (this.#panel.parentNode === place) return;
    this.#dialog.close();
    place.append(this.#panel);
    setAll(this.#panel, GROUP);
    if (!this.#isInline) for (const name of Object.keys(GROUP)) this.#panel.removeAttribute(name);
  }

  #forget(): void {
    this.#asked += 1;
    this.#emptied += 1;
    this.#isBusy = false;
    this.#undo = null;
    this.#say('');
    this.#page = { kind: 'loading' };
    this.#drawn = [];
  }

  /** Asks for the versions and shows them. Quietly: what is shown stays until then. */
  async #list(isQuiet = false): Promise<void> {
    const { history } = this.autosave ?? {};
    if (!isQuiet) this.#turn({ kind: 'loading' });
    const asked = ++this.#asked;
    const entries = await (history?.list() ?? Promise.resolve([])).catch(() => null);
    if (asked !== this.#asked) return;
    this.#turn(entries ? { kind: 'list', entries } : { kind: 'failed' });
  }

  async #preview(entry: AutoSaveHistoryEntry): Promise<void> {
    const { history } = this.autosave ?? {};
    this.#say('');
    const asked = ++this.#asked;
    const text = await (history?.preview(entry.ts) ?? Promise.resolve(null)).catch(() => undefined);
    if (asked !== this.#asked) return;
    if (typeof text !== 'string') return this.#fail(text === null ? this.words.gone : this.words.failed);
    this.#turn({ kind: 'preview', entry, text });
    this.#title.focus();
  }

  /** Restores a version, or undoes that. */
  async #restore(ts: string, done: string, isUndo = false): Promise<void> {
    const { autosave } = this;
    if (!autosave || this.#isBusy) return;
    this.#isBusy = true;
    this.#undo = null;
    this.#say(this.words.restoring);
    this.refresh();
    const emptied = this.#emptied;
    const isDone = await autosave.history.restore(ts).catch(() => false);
    if (emptied !== this.#emptied) return;
    this.#isBusy = false;
    if (!isDone) return this.#fail(this.words.notRestored);
    const { notice } = autosave.getSnapshot();
    this.#undo = !isUndo && notice?.kind === 'restored' && notice.ts === ts ? notice.before : null;
    this.#say(done);
    await this.#list(true);
    this.#focus('undo');
  }

  #fail(text: string): void {
    this.#say('');
    write(this.#alert, text);
    this.refresh();
  }

  #say(text: string): void {
    write(this.#alert, '');
    write(this.#status, text);
  }

  #turn(page: Page): void {
    this.#page = page;
    this.refresh();
  }

  /** Draws the page anew where something about it is new. */
  #drawPage(isReadonly: boolean): void {
    const page = this.#page;
    const wanted = [this.locale, page, isReadonly, this.#isBusy, this.#undo];
    if (wanted.every((value, at) => value === this.#drawn[at])) return;
    this.#drawn = wanted;
    write(this.#title, page.kind === 'preview' ? this.words.versionOf(this.#moment(page.entry.ts)) : this.words.history);
    redraw(this.shadowRoot!, this.#title, () => {
      this.#note.replaceChildren(this.#status, ...this.#undoButton());
      this.#body.replaceChildren(...this.#content(page));
      this.#buttons.replaceChildren(...(page.kind === 'preview' ? this.#choices(page.entry, isReadonly) : []));
    });
  }

  #undoButton(): Node[] {
    const { words } = this;
    const undo = this.#undo;
    return undo === null ? [] : [button('undo', words.undo, () => void this.#restore(undo, words.undone, true))];
  }

  #content(page: Page): Node[] {
    const { words } = this;
    switch (page.kind) {
      case 'loading': return [make('p', { part: 'loading' }, words.loading)];
      case 'failed': {
        const again = button('retry', words.retry, () => void this.#list());
        return [make('p', { role: 'alert', part: 'error' }, words.failed), again];
      }
      case 'list': return [page.entries.length ? this.#table(page.entries) : make('p', { part: 'empty' }, words.empty)];
      case 'preview': return this.#text(page.entry, page.text);
    }
  }

  #table(entries: readonly AutoSaveHistoryEntry[]): Node {
    const { words } = this;
    const columns = [[words.time], [words.bytes, 'number'], [words.difference, 'number'], [words.action, 'unseen']] as const;
    const head = columns.map(([text, style]) => make('th', { scope: 'col' }, make('span', { class: style ?? '' }, text)));
    const rows = entries.map((entry) => this.#row(entry));
    return make(
      'table', { 'aria-labelledby': 'title', part: 'table' }, make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...rows),
    );
  }

  #row(entry: AutoSaveHistoryEntry): Node {
    const { words, locale } = this;
    const moment = this.#moment(entry.ts);
    const look = button('preview', '', () => void this.#preview(entry), `look ${entry.ts}`);
    look.append(make('span', { class: 'wide' }, words.preview), make('span', { class: 'narrow' }, '›'));
    set(look, 'aria-label', `${words.preview}: ${moment}`);
    const at = momentOf(entry.ts);
    const time = make('time', { datetime: machineTime(at) }, dayAndTime(at, locale) || entry.ts);
    return make(
      'tr', { part: entry.isCurrent ? 'row current' : 'row', class: entry.isCurrent ? 'current' : '' },
      make('th', { scope: 'row' }, time),
      make('td', { class: 'number' }, size(entry.bytes, locale)),
      make('td', { class: 'number' }, this.#difference(entry)),
      make('td', {}, look),
    );
  }

  #text(entry: AutoSaveHistoryEntry, text: string): Node[] {
    const { words, locale } = this;
    const number = new Intl.NumberFormat(locale);
    const facts = make('p', { part: 'facts' }, `${size(entry.bytes, locale)} · ${this.#compared(entry)}`);
    const shown = text.slice(0, PREVIEW_CHARACTERS);
    // What scrolls must be reachable by keyboard.
    const content = make('pre', { part: 'preview', role: 'group', tabindex: '0', 'aria-labelledby': 'title' }, shown);
    const isCut = shown.length < text.length;
    const cut = make('p', { part: 'shortened' }, words.shortened(number.format(shown.length), number.format(text.length)));
    return isCut ? [facts, cut, content] : [facts, content];
  }

  #choices(entry: AutoSaveHistoryEntry, isReadonly: boolean): Node[] {
    const { words } = this;
    const back = button('back', words.back, () => void this.#back(entry));
    if (entry.isCurrent) return [back];
    const done = words.restored(this.#moment(entry.ts));
    const restore = button('restore', words.restore, () => void this.#restore(entry.ts, done));
    restore.className = 'primary';
    set(restore, 'aria-describedby', 'why');
    disable(restore, isReadonly || this.#isBusy);
    return [make('span', { id: 'why', part: 'hint' }, isReadonly ? words.noRestore : words.restoreText), back, restore];
  }

  /** Back to the list, and to the button of the version that was shown. */
  async #back(entry: AutoSaveHistoryEntry): Promise<void> {
    this.#say('');
    await this.#list(true);
    this.#focus(`look ${entry.ts}`);
  }

  /** Gives the focus to the button with this name, or else to the title. */
  #focus(name: string): void {
    focus(this.shadowRoot!, name, this.#title);
  }

  /** When a version was saved; its name, if that is not a time. */
  #moment(ts: string): string {
    return dateAndTime(momentOf(ts), this.locale) || ts;
  }

  #compared(entry: AutoSaveHistoryEntry): string {
    const difference = this.#difference(entry);
    return entry.isCurrent ? difference : this.words.compared(difference);
  }

  #difference(entry: AutoSaveHistoryEntry): string {
    if (entry.isCurrent) return this.words.current;
    return entry.difference === 0 ? this.words.same : difference(entry.difference, this.locale);
  }
}
