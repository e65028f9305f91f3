// `<autosave-indicator>`: shows where an autosave stands, and what the user can do about it. It belongs at the right of a
// toolbar. It draws snapshots and passes presses on; it decides nothing about saving or locking.

import type { AutoSaveNotice, AutoSaveSnapshot } from '../autosave/state.js';
import { AutoSaveElement } from './autosave-element.js';
import { button, dialog, disable, drawing, make, redraw, set, setAll, write } from './dom.js';
import { machineTime, timeOfDay } from './format.js';
import { Narrator } from './narrator.js';
import { INDICATOR } from './style.js';
import { PATHS, SLOW_MS, viewOf, type Action, type View } from './view.js';
import { Voice } from './voice.js';

/** How long a toast stays. */
const TOAST_MS = 8_000;
/** A notice from before the element was there is shown if it is not older than this. */
const RECENT_MS = 10_000;

/** What the autosave is asked to do. */
type Call = Exclude<Action, 'edit' | 'steps'>;

/** What the dialog is about. */
type Topic = 'takeOver' | 'skew' | 'steps';

/** A status line for an autosave, with the actions that fit it. */
export class AutoSaveIndicatorElement extends AutoSaveElement {
  readonly #icon = drawing();
  readonly #text = make('span', { part: 'text', class: 'text' });
  readonly #time = make('time', { part: 'time', class: 'time' });
  readonly #detail = make('span', { part: 'detail', class: 'detail' });
  readonly #line = make(
    'span', { part: 'line', class: 'line' }, this.#icon.node, make('span', {}, this.#text, ' ', this.#time, ' ', this.#detail),
  );
  readonly #actions = make('span', { part: 'actions', class: 'actions' });
  readonly #voice = new Voice(this);
  readonly #toast = make('div', { part: 'toast', class: 'toast', hidden: '' });
  readonly #toastText = make('span', { part: 'toast-text' });
  readonly #dismiss = button('dismiss', '×', () => this.#hideToast());
  readonly #title = make('h2', { id: 'title', part: 'dialog-title' });
  readonly #said = make('p', { id: 'said', part: 'dialog-text' });
  readonly #choices = make('div', { class: 'row', part: 'dialog-actions' });
  readonly #dialog = dialog('dialog', this.#title, this.#said, this.#choices);

  #narrator = new Narrator();
  #lastNotice = -1;
  #pending: Call | null = null;
  #savingSince: number | null = null;
  #request: { readonly by: string; readonly until: number } | null = null;
  #topic: Topic | null = null;
  #drawnActions = '';

  constructor() {
    super(INDICATOR);
    setAll(this.frame, { role: 'group', tabindex: '-1' });
    setAll(this.#icon.node, { part: 'icon', 'aria-hidden': 'true' });
    this.#toast.append(this.#toastText, this.#dismiss);
    setAll(this.#dialog, { role: 'alertdialog', 'aria-labelledby': 'title', 'aria-describedby': 'said' });
    this.#dialog.addEventListener('close', () => { this.#topic = null; });
    for (const stay of ['pointerenter', 'focusin']) this.#toast.addEventListener(stay, () => this.cancel('toast'));
    for (const go of ['pointerleave', 'focusout']) this.#toast.addEventListener(go, () => this.#hideToastLater());
    this.frame.append(this.#line, this.#actions, this.#voice.status, this.#voice.alert, this.#toast, this.#dialog);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#hush();
  }

  protected reset(): void {
    this.#hush();
    this.#narrator = new Narrator();
    this.#lastNotice = -1;
    this.#pending = this.#savingSince = this.#request = null;
  }

  /** Without timers, nothing would take these away. */
  #hush(): void {
    this.#voice.hush();
    this.#dialog.close();
    this.#hideToast();
  }

  protected draw(snapshot: AutoSaveSnapshot | null): void {
    const view = viewOf(snapshot, this.words, this.#isSlow(snapshot));
    set(this.frame, 'data-state', snapshot?.state.kind ?? 'disabled');
    set(this.frame, 'data-tone', view.tone);
    set(this.frame, 'data-icon', this.#pending ? 'busy' : view.icon);
    this.#icon.draw(PATHS[this.#pending ? 'busy' : view.icon]);
    write(this.#text, this.#pending ? this.words.pending[this.#pending] : view.text);
    write(this.#detail, this.#countdown(snapshot) || view.detail);
    this.#drawTime(view);
    set(this.frame, 'aria-label', this.words.autosave);
    set(this.#dismiss, 'aria-label', this.words.close);
    // Before the buttons: a dialog that is closed gives the focus back to one of them.
    if (snapshot?.state.kind !== 'readonly') this.#dialog.close();
    else if (this.#topic) this.#fill(this.#topic);
    this.#drawActions(view.actions);
    if (snapshot) {
      this.#narrate(snapshot);
      this.#notify(snapshot.notice);
    }
  }

  #drawTime({ at, atText }: View): void {
    const time = at === null ? '' : timeOfDay(at, this.locale);
    write(this.#time, time && atText ? `${atText} ${time}` : time);
    set(this.#time, 'datetime', at === null ? '' : machineTime(at));
  }

  /** The buttons, made anew where others are wanted. */
  #drawActions(actions: readonly Action[]): void {
    const wanted = `${this.words.lang} ${actions.join()}`;
    if (this.#drawnActions !== wanted) {
      this.#drawnActions = wanted;
      const buttons = actions.map((action) => button(action, this.words[action], () => this.#press(action)));
      redraw(this.shadowRoot!, this.frame, () => this.#actions.replaceChildren(...buttons));
    }
    for (const child of this.#actions.children) disable(child as HTMLButtonElement, this.#pending !== null);
  }

  #press(action: Action): void {
    const state = this.snapshot?.state;
    if (action === 'steps') return this.#show('steps');
    if (action === 'takeOver') return this.#show(state?.kind === 'readonly' && state.clockSkew !== null ? 'skew' : 'takeOver');
    void this.#run(action === 'edit' ? 'retry' : action);
  }

  /** Has the autosave do something. What comes of it is in the next snapshot. */
  async #run(action: Call, options?: { seen?: number; acceptClockSkew?: boolean }): Promise<void> {
    const { autosave } = this;
    if (!autosave || this.#pending) return;
    this.#pending = action;
    this.refresh();
    await (action === 'takeOver' ? autosave.takeOver(options) : autosave[action]()).catch(() => {});
    // Another autosave may be shown by now.
    if (this.autosave !== autosave) return;
    this.#pending = null;
    if (!this.isConnected) return;
    this.refresh();
    const { state } = autosave.getSnapshot();
    if (state.kind !== 'readonly') return;
    if (action === 'takeOver' && state.clockSkew !== null && !options?.acceptClockSkew) return this.#show('skew');
    const failed = { retry: this.words.stillReadonly, ask: this.words.notHandedOver, takeOver: this.words.notTakenOver };
    if (action in failed) this.#tell(failed[action as keyof typeof failed]);
  }

  #show(topic: Topic): void {
    this.#topic = topic;
    this.#fill(topic);
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  /** Writes the dialog. A take-over names the holder that the user saw. */
  #fill(topic: Topic): void {
    const { words, snapshot } = this;
    const state = snapshot?.state;
    if (state?.kind !== 'readonly') return;
    if (topic === 'steps' && state.manualSteps === null) return this.#dialog.close();
    write(this.#title, words[`${topic}Title`]);
    write(this.#said, topic === 'steps' ? words.manualSteps(state.manualSteps ?? '') : words[`${topic}Text`]);
    const wanted = `${words.lang} ${topic} ${state.owner?.fence}`;
    if (this.#choices.dataset['for'] === wanted) return;
    this.#choices.dataset['for'] = wanted;
    const close = button('cancel', topic === 'steps' ? words.close : words.cancel, () => this.#dialog.close());
    close.autofocus = true;
    this.#choices.replaceChildren(close);
    if (topic !== 'steps') {
      const seen = state.owner ? { seen: state.owner.fence } : {};
      const options = topic === 'skew' ? { ...seen, acceptClockSkew: true } : seen;
      const go = button('confirm', topic === 'skew' ? words.takeOverAnyway : words.takeOver.replace('…', ''), () => {
        this.#dialog.close();
        void this.#run('takeOver', options);
      });
      go.className = 'primary';
      this.#choices.append(go);
    }
    if (this.#dialog.open) close.focus();
  }

  /** Whether the save takes long. Asks to be drawn again when it begins to. */
  #isSlow(snapshot: AutoSaveSnapshot | null): boolean {
    if (snapshot?.state.kind !== 'saving') {
      this.#savingSince = null;
      this.cancel('slow');
      return false;
    }
    this.#savingSince ??= this.clock.monotonic();
    const left = this.#savingSince + SLOW_MS - this.clock.monotonic();
    if (left > 0 && !this.isDue('slow')) this.later('slow', left, () => this.refresh());
    return left <= 0;
  }

  /** How long another tab waits for an answer, and what silence means. Drawn again every second. */
  #countdown(snapshot: AutoSaveSnapshot | null): string {
    const request = snapshot?.request;
    if (!request) {
      this.#request = null;
      this.cancel('countdown');
      return '';
    }
    const now = this.clock.monotonic();
    if (this.#request?.by !== request.owner) this.#request = { by: request.owner, until: now + request.countdownMs };
    const left = Math.max(0, this.#request.until - now);
    if (left > 0 && !this.isDue('countdown')) this.later('countdown', left % 1_000 || 1_000, () => this.refresh());
    return this.words.silence(Math.ceil(left / 1_000), request.onSilence);
  }

  #narrate(snapshot: AutoSaveSnapshot): void {
    const speech = this.#narrator.next(snapshot, this.words);
    if (!speech) return;
    if (speech.isAlert) this.#voice.alarm(speech.text);
    else if (speech.canWait || this.#voice.isFree) this.#voice.announce(speech.text);
  }

  #notify(notice: AutoSaveNotice | null): void {
    if (!notice || notice.number <= this.#lastNotice) return;
    const isFirst = this.#lastNotice < 0;
    this.#lastNotice = notice.number;
    if (isFirst && this.clock.now() - notice.at >= RECENT_MS) return;
    // The state that follows failed retries is an alert, which says the same.
    this.#tell(this.words.notice(notice, this.locale), notice.kind !== 'retries-failed');
  }

  /** A toast. */
  #tell(text: string, isAnnounced = true): void {
    write(this.#toastText, text);
    this.#toast.hidden = false;
    this.#hideToastLater();
    if (isAnnounced) this.#voice.announce(text);
  }

  #hideToastLater(): void {
    if (!this.#toast.hidden) this.later('toast', TOAST_MS, () => this.#hideToast());
  }

  #hideToast(): void {
    const hadFocus = this.#toast.contains(this.shadowRoot!.activeElement);
    this.#toast.hidden = true;
    this.cancel('toast');
    if (hadFocus) this.frame.focus();
  }
}
