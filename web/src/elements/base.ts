// What both elements share: a shadow tree that is made once, an autosave to follow, a language and a clock. A subclass draws.

import { systemClock } from '../clock.js';
import type { Clock } from '../ports.js';
import type { AutoSaveSnapshot, AutoSaveStore } from '../autosave/state.js';
import { make, set } from './dom.js';
import { localeFor, wordsFor, type Words } from './words.js';

// Where there is no document, as on a server that renders pages, the classes can be imported all the same.
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

/** An element that shows an autosave. */
export abstract class AutoSaveElement extends Base {
  static readonly observedAttributes: readonly string[] = ['lang'];

  /** Where the subclass puts its nodes. */
  protected readonly frame: HTMLElement;
  /** Time, for tests. */
  clock: Clock = systemClock;
  protected words: Words = wordsFor('');
  protected locale = 'en';
  #autosave: AutoSaveStore | null = null;
  #unsubscribe: (() => void) | null = null;
  #timers = new Map<string, () => void>();
  #languages: MutationObserver | null = null;

  constructor(css: string) {
    super();
    const root = this.attachShadow({ mode: 'open' });
    adopt(root, css);
    this.frame = make('div', { part: 'base', class: 'base' });
    root.append(this.frame);
  }

  /** The autosave to show: what `initAutoSave` returned, or any object with the same calls. */
  get autosave(): AutoSaveStore | null {
    return this.#autosave;
  }

  set autosave(store: AutoSaveStore | null) {
    if (store === this.#autosave) return;
    this.#stop();
    this.#autosave = store;
    this.reset();
    if (this.isConnected) this.#start();
  }

  connectedCallback(): void {
    // A property that was set before the element was registered hides the one of the class.
    if (Object.hasOwn(this, 'autosave')) {
      const { autosave } = this;
      delete (this as Partial<this>).autosave;
      this.autosave = autosave;
    }
    this.#languages ??= new MutationObserver(() => this.refresh());
    this.#languages.observe(document.documentElement, { attributes: true, attributeFilter: ['lang'] });
    this.#start();
  }

  disconnectedCallback(): void {
    this.#languages?.disconnect();
    this.#stop();
  }

  attributeChangedCallback(): void {
    if (this.isConnected) this.refresh();
  }

  protected get snapshot(): AutoSaveSnapshot | null {
    return this.#autosave?.getSnapshot() ?? null;
  }

  /** Draws all of it anew. */
  protected refresh(): void {
    const tag = languageOf(this);
    this.words = wordsFor(tag);
    this.locale = localeFor(tag);
    // The page may be in a third language, for which there are no words.
    set(this.frame, 'lang', this.words.lang);
    this.draw(this.snapshot);
  }

  protected abstract draw(snapshot: AutoSaveSnapshot | null): void;

  /** Another autosave follows: forgets what was known of the last one. */
  protected abstract reset(): void;

  /** Runs `work` after `ms`, instead of what was to run under that name. Nothing runs once the element is removed. */
  protected later(name: string, ms: number, work: () => void): void {
    this.cancel(name);
    this.#timers.set(name, this.clock.after(ms, () => {
      this.#timers.delete(name);
      work();
    }));
  }

  protected cancel(name: string): void {
    this.#timers.get(name)?.();
    this.#timers.delete(name);
  }

  /** Whether something is to run under that name. */
  protected isDue(name: string): boolean {
    return this.#timers.has(name);
  }

  #start(): void {
    this.#unsubscribe ??= this.#autosave?.subscribe(() => this.refresh()) ?? null;
    this.refresh();
  }

  #stop(): void {
    this.#unsubscribe?.();
    this.#unsubscribe = null;
    for (const name of [...this.#timers.keys()]) this.cancel(name);
  }
}

/** A style sheet that a strict Content-Security-Policy allows; a style element where a browser has none (Safari before 16.4). */
function adopt(root: ShadowRoot, css: string): void {
  try {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    root.adoptedStyleSheets = [sheet];
  } catch {
    root.append(make('style', {}, css));
  }
}

/** The language tag that applies to an element: its own, that of the nearest element around it, or the browser's. */
function languageOf(from: Element): string {
  for (let element: Element | null = from; element; element = around(element)) {
    const tag = element.getAttribute('lang');
    if (tag) return tag;
  }
  return navigator.language;
}

function around(element: Element): Element | null {
  const root = element.getRootNode();
  return element.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}
