// A page on which the tests put the elements, as they are shipped, with an autosave and a time that the tests move.

import * as elements from '/dist/elements-define.js';
import type { DocumentLockElement } from '/dist/document-lock-define.js';
import '/dist/document-lock-define.js';
import { FakeClock } from '/dist/testing.js';
import type { AutoSaveSnapshot } from '../../src/autosave/state.js';
import { DOCUMENTS, FixtureDocument } from '../../gallery/document-fixture.js';
import { AT, ENTRIES, FixtureStore, SNAPSHOTS, snapshotOf } from '../../gallery/fixture.js';

type Name = 'autosave-indicator' | 'autosave-history';

let store = new FixtureStore(SNAPSHOTS['disabled']!);
let clock = new FakeClock(AT);
let shownDocument = new FixtureDocument(DOCUMENTS['free']!);
let element: elements.AutoSaveIndicatorElement | elements.AutoSaveHistoryElement | DocumentLockElement = document.createElement('autosave-indicator');

const stage = {
  AT, ENTRIES, SNAPSHOTS, FakeClock, FixtureStore, snapshotOf, elements,
  get store() { return store; },
  get clock() { return clock; },
  get element() { return element; },
  get document() { return shownDocument; },

  /** Puts the lock of a document on the page, instead of the last element. */
  async showDocument(state: string, lang = 'en'): Promise<void> {
    shownDocument = new FixtureDocument(DOCUMENTS[state]!);
    clock = new FakeClock(AT);
    element = Object.assign(document.createElement('document-lock'), { clock, document: shownDocument, lang });
    document.querySelector('#here')!.replaceChildren(element);
    while (!stage.texts('[part=text]')[0]) await new Promise((resolve) => { setTimeout(resolve); });
  },

  becomeDocument(state: string): void {
    shownDocument.become(DOCUMENTS[state]!);
  },

  /** Puts an element on the page, instead of the last one. */
  async show(name: Name, state: string | AutoSaveSnapshot, attributes: Record<string, string> = {}): Promise<void> {
    store = new FixtureStore(typeof state === 'string' ? SNAPSHOTS[state]! : state);
    clock = new FakeClock(AT);
    element = document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
    Object.assign(element, { clock, autosave: store });
    document.querySelector('#here')!.replaceChildren(element);
    await stage.settle();
  },

  /** Becomes another state. */
  become(state: string | AutoSaveSnapshot): void {
    store.become(typeof state === 'string' ? SNAPSHOTS[state]! : state);
  },

  /** A node of the element. */
  find(selector: string): HTMLElement {
    const found = element.shadowRoot!.querySelector<HTMLElement>(selector);
    if (!found) throw new Error(`there is no ${selector}`);
    return found;
  },

  /** The texts of all such nodes, as they are drawn. */
  texts(selector: string): string[] {
    return [...element.shadowRoot!.querySelectorAll<HTMLElement>(selector)].map((node) => node.innerText.trim());
  },

  /** What has the focus: a part of the element, or the id of a node of the page. */
  focused(): string {
    const inside = element.shadowRoot!.activeElement;
    return inside ? (inside.getAttribute('part') ?? '') : (document.activeElement?.id ?? '');
  },

  /** Keeps every text that a region gets. */
  listen(role: 'status' | 'alert'): string[] {
    const heard: string[] = [];
    const region = stage.find(`[role=${role}]`);
    new MutationObserver(() => { if (region.textContent) heard.push(region.textContent); }).observe(region, { childList: true });
    return heard;
  },

  /** Resolves when every promise that could go on has gone on. */
  settle(): Promise<void> {
    return clock.advance(0);
  },
};

declare global {
  var stage: Stage;
}
export type Stage = typeof stage;
globalThis.stage = stage;
