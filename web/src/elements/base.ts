// What all elements share: a shadow tree that is made once, a store to follow, a language and a clock. A subclass draws.

import { systemClock } from '../clock.js';
import type { Clock } from '../ports.js';
import { make, set } from './dom.js';
import { languageFor, localeFor, type Language } from './language.js';

/** What an element follows. */
export interface Followed {
  subscribe(listener: () => void): () => void;
}

// Where there is no document, as on a server that renders pages, the classes can be imported all the same.
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

/** An element that shows a store. */
export abstract class StoreElement<Store extends Followed> extends Base {
  static readonly observedAttributes: readonly string[] = ['lang'];
  /** The name of the property that takes the store. */
  static readonly property: string;

  /** Where the subclass puts its nodes. */
  protected readonly frame: HTMLElement;
  /** Time, for tests. */
  clock: Clock = systemClock;
  /** Known from the first drawing on. */
  protected declare locale: string;
  #store: Store | null = null;
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

  /** What is shown. */
  protected get store(): Store | null {
    return this.#store;
  }

  protected set store(store: Store | null) {
    if (store === this.#store) return;
    this.#stop();
    this.#store = store;
    this.reset();
    if (this.isConnected) this.#start();
  }

  connectedCallback(): void {
    // A property that was set before the element was registered hides the one of the class.
    const self = this as Record<string, unknown>;
    const { property } = this.constructor as typeof StoreElement;
    const store = self[property];
    delete self[property];
    self[property] = store;
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

  /** Draws all of it anew. */
  protected refresh(): void {
    const tag = languageOf(this);
    const language = languageFor(tag);
    this.locale = localeFor(tag);
    // The page may be in a third language, for which there are no words.
    set(this.frame, 'lang', language);
    this.drawIn(language);
  }

  protected abstract drawIn(language: Language): void;

  /** Another store follows: forgets what was known of the last one. */
  protected abstract reset(): void;

  /** Runs `work` after `ms`, instead of what was to run under that name. Nothing runs once the element is removed. */
  later(name: string, ms: number, work: () => void): void {
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
    this.#unsubscribe ??= this.#store?.subscribe(() => this.refresh()) ?? null;
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
