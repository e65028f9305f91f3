// `<document-lock>`: who edits a document and since when; asking, answering with a countdown, taking over with a reason; why it is
// read-only, what was unsaved, and who else is there. It draws states and passes presses on; it decides nothing about the lock.

import type { DocumentLock, DocumentState } from '../documents/types.js';
import { StoreElement } from './base.js';
import { documentView, type DocumentAction, type DocumentView } from './document-view.js';
import { documentWords, type DocumentWords } from './document-words.js';
import { button, dialog, disable, drawing, make, redraw, set, setAll, write } from './dom.js';
import { machineTime, timeOfDay } from './format.js';
import type { Language } from './language.js';
import { COMMON, LINE } from './style-common.js';
import { PATHS } from './view.js';
import { Voice } from './voice.js';

const STYLE = `${COMMON}${LINE}
:host{display:block}
.base,[part=draft]{display:flex;flex-wrap:wrap;align-items:center;gap:.4em .8em}
[part=people]{margin-inline-start:auto}
[part=draft]{flex:1 0 100%;padding-inline-start:.75em;border-inline-start:.25em solid var(--autosave-warn,var(--warn))}
textarea,pre{display:block;font:inherit;color:inherit;background:transparent;width:100%;padding:.5em;margin:.25em 0 1em;border:1px solid var(--autosave-line,var(--line));border-radius:var(--autosave-radius,.35em)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;max-height:50vh;overflow:auto}
`;

/** The longest reason that a server takes, in bytes of UTF-8; a character has at most three of them here. */
const LONGEST_REASON = '170';

/** A line that shows the lock of a document, with the actions that fit it. */
export class DocumentLockElement extends StoreElement<DocumentLock> {
  static override readonly property = 'document';

  readonly #icon = drawing();
  readonly #text = make('span', { part: 'text' });
  readonly #time = make('time', { part: 'time', class: 'time' });
  readonly #detail = make('span', { part: 'detail', class: 'detail' });
  readonly #actions = make('span', { part: 'actions', class: 'actions' });
  readonly #people = make('span', { part: 'people' });
  readonly #draftText = make('span', { part: 'draft-text' });
  readonly #draftActions = make('span', { class: 'actions' });
  readonly #draft = make('div', { part: 'draft' }, this.#draftText, this.#draftActions);
  readonly #title = make('h2', { id: 'title', part: 'dialog-title' });
  readonly #body = make('div', { part: 'dialog-body' });
  readonly #choices = make('div', { class: 'row', part: 'dialog-actions' });
  readonly #dialog = dialog('dialog', this.#title, this.#body, this.#choices);
  readonly #voice = new Voice(this);
  #words!: DocumentWords;
  #drawn = '';
  #spoken: string | null = null;

  constructor() {
    super(STYLE);
    setAll(this.frame, { role: 'group', tabindex: '-1' });
    setAll(this.#icon.node, { part: 'icon', 'aria-hidden': 'true' });
    set(this.#dialog, 'aria-labelledby', 'title');
    const line = make('span', { part: 'line', class: 'line' }, this.#icon.node, make('span', {}, this.#text, ' ', this.#time, ' ', this.#detail));
    this.frame.append(line, this.#actions, this.#people, this.#draft, this.#voice.status, this.#voice.alert, this.#dialog);
  }

  /** The document to show: what `openDocument` returned, or any object with the same calls. */
  get document(): DocumentLock | null {
    return this.store;
  }

  set document(document: DocumentLock | null) {
    this.store = document;
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.reset();
  }

  protected reset(): void {
    this.#voice.hush();
    this.#dialog.close();
    this.#spoken = null;
  }

  protected drawIn(language: Language): void {
    const words = documentWords(language, () => { if (this.isConnected) this.refresh(); });
    const state = this.store?.getState();
    this.frame.hidden = !words || !state;
    if (!words || !state) return;
    this.#words = words;
    const view = documentView(state, words);
    const icon = state.pending ? 'busy' : view.icon;
    setAll(this.frame, { 'data-state': state.status, 'data-tone': view.tone, 'data-icon': icon, 'aria-label': words.label });
    this.#icon.draw(PATHS[icon]);
    write(this.#text, view.text);
    const since = view.since ?? NaN;
    const time = timeOfDay(since, this.locale);
    write(this.#time, time && `${words.since} ${time}`);
    set(this.#time, 'datetime', machineTime(since));
    write(this.#detail, this.#countdown(view, state) || view.detail);
    this.#drawPeople(state);
    if (!state.mayTakeOver && this.#dialog.dataset['about'] === 'takeOver') this.#dialog.close();
    this.#drawActions(view, state);
    this.#narrate(view, state);
  }

  #drawPeople({ presence: { editing, asking, looking } }: DocumentState): void {
    const names = [...new Map([...editing, ...asking, ...looking].map(({ id, name }) => [id, name])).values()].join(', ');
    write(this.#people, names && this.#words.here(names));
  }

  /** The buttons, made anew where others are wanted. */
  #drawActions(view: DocumentView, { draft, pending }: DocumentState): void {
    const words = this.#words;
    const wanted = [words.label, ...view.actions, draft?.at].join();
    if (this.#drawn !== wanted) {
      this.#drawn = wanted;
      const draftButtons = [button('show', words.show, () => this.#showDraft()), button('discard', words.discard, () => this.store?.discardDraft())];
      redraw(this.shadowRoot!, this.frame, () => {
        this.#actions.replaceChildren(...view.actions.map((action) => button(action, words[action], () => this.#press(action))));
        this.#draftActions.replaceChildren(...draftButtons);
      });
    }
    write(this.#draftText, words.draft);
    this.#draft.hidden = !draft;
    for (const child of this.#actions.children) disable(child as HTMLButtonElement, pending !== null && !view.actions.includes('withdraw'));
  }

  readonly #failed = () => this.#voice.alarm(this.#words.failed(''));

  #press(action: DocumentAction): void {
    const { store } = this;
    if (!store) return;
    if (action === 'takeOver') return this.#confirmTakeOver();
    const work = action === 'edit' ? store.acquire()
      : action === 'done' ? store.release()
      : action === 'handOver' ? store.answer('hand-over')
      : action === 'refuse' ? store.answer('refuse')
      : store[action]();
    work.catch(this.#failed);
  }

  #confirmTakeOver(): void {
    const words = this.#words;
    const field = make('textarea', { id: 'reason', part: 'reason', maxlength: LONGEST_REASON, required: '' });
    const go = button('confirm', words.takeOver.replace('…', ''), () => {
      const reason = field.value.trim();
      if (!reason) return field.focus();
      this.#dialog.close();
      this.store?.takeOver(reason).catch(this.#failed);
    });
    go.className = 'primary';
    const text = make('p', { part: 'dialog-text' }, words.takeOverText(this.store?.getState().holder?.name ?? ''));
    this.#open('takeOver', words.takeOverTitle, [text, make('label', { for: 'reason' }, words.reason), field], [this.#closing(words.cancel), go]);
    field.focus();
  }

  #showDraft(): void {
    const words = this.#words;
    const state = this.store?.getState();
    if (!state?.draft) return;
    const { text } = state.draft;
    const use = button('use', words.use, () => {
      this.#dialog.close();
      // The page puts the text where it belongs, and says so by preventing the default: only then is the draft not needed any more.
      const event = new CustomEvent('use-draft', { detail: { text }, bubbles: true, composed: true, cancelable: true });
      if (!this.dispatchEvent(event)) this.store?.discardDraft();
    });
    use.className = 'primary';
    const buttons = [this.#closing(words.close), ...(state.status === 'mine' ? [use] : [])];
    this.#open('draft', words.draftTitle, [make('pre', { part: 'draft-content', tabindex: '0' }, text)], buttons);
  }

  #closing(text: string): HTMLButtonElement {
    return button('cancel', text, () => this.#dialog.close());
  }

  #open(about: string, title: string, body: readonly Node[], choices: readonly Node[]): void {
    this.#dialog.dataset['about'] = about;
    write(this.#title, title);
    this.#body.replaceChildren(...body);
    this.#choices.replaceChildren(...choices);
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  /** What is left of a countdown, and what its end means. Drawn again every second. */
  #countdown({ endsAt }: DocumentView, { request }: DocumentState): string {
    if (endsAt === null) return '';
    const left = Math.max(0, endsAt - this.clock.now());
    if (left > 0 && !this.isDue('countdown')) this.later('countdown', left % 1_000 || 1_000, () => this.refresh());
    const seconds = Math.ceil(left / 1_000);
    return request ? this.#words.silence(seconds, request.onSilence) : this.#words.waiting(seconds);
  }

  /** Says who edits when that changes, and what did not work; a request and a loss at once. The first state is nothing new. */
  #narrate({ text, tone, detail }: DocumentView, { status, holder, request, lost, problem }: DocumentState): void {
    if (status === 'connecting') return;
    const news = [status, holder?.id, request?.id, lost?.reason, problem?.code].join();
    const isFirst = this.#spoken === null;
    if (this.#spoken === news) return;
    this.#spoken = news;
    const words = detail && (lost || problem) ? `${text}. ${detail}` : text;
    if (tone === 'bad' || request || (lost && status !== 'mine')) this.#voice.alarm(words);
    else if (!isFirst) this.#voice.announce(words);
  }
}
