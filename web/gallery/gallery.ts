// The gallery: every state of all elements side by side, in English and Japanese, light and dark. Time stands still in it, so
// that toasts stay.

import '../src/elements/autosave-history-define.js';
import '../src/elements/autosave-indicator-define.js';
import '../src/elements/document-lock-define.js';
import { FakeClock } from '../src/testing/clock.js';
import { DOCUMENTS, FixtureDocument } from './document-fixture.js';
import { AT, FixtureStore, SNAPSHOTS, snapshotOf } from './fixture.js';

const COLUMNS = [['en', 'light'], ['en', 'dark'], ['ja', 'light'], ['ja', 'dark']] as const;

function element<Tag extends keyof HTMLElementTagNameMap>(tag: Tag, ...children: (Node | string)[]): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}

/** Four cells with the same state. */
function row(name: string, show: (cell: HTMLElement) => Promise<void>): Promise<void>[] {
  const line = element('tr', Object.assign(element('th', name), { scope: 'row' }));
  // The tests look at these less often.
  if (name.startsWith('document')) line.className = 'document';
  document.querySelector('tbody')!.append(line);
  return COLUMNS.map(([lang, scheme]) => {
    const cell = Object.assign(element('td'), { lang, className: scheme });
    line.append(cell);
    return show(cell);
  });
}

async function indicator(cell: HTMLElement, name: string): Promise<HTMLElement> {
  const clock = new FakeClock(AT);
  const autosave = new FixtureStore(SNAPSHOTS[name]!);
  const made = Object.assign(document.createElement('autosave-indicator'), { clock, autosave });
  cell.append(made);
  // A save that takes long is shown as one.
  await clock.advance(400);
  return made;
}

/** The dialogs of the indicator: in which state, and which button opens it. */
const DIALOGS: Readonly<Record<string, readonly [string, string]>> = {
  'take over': ['readonly', 'takeOver'],
  'clock skew': ['readonly: clock skew', 'takeOver'],
  'manual steps': ['readonly: not released', 'steps'],
};

/** A dialog as a part of the page: only one can be modal at a time. */
async function dialog(
  cell: HTMLElement, [state, part]: readonly [string, string], show: typeof indicator = indicator,
): Promise<void> {
  const made = await show(cell, state);
  made.shadowRoot!.querySelector<HTMLElement>(`button[part~=${part}]`)!.click();
  const opened = made.shadowRoot!.querySelector('dialog')!;
  opened.close();
  opened.show();
}

const THIRD = 'tbody tr:nth-child(3) button';
const RESTORE = 'button[part~=restore]';

/** What a history shows after some presses. */
const HISTORIES: Readonly<Record<string, { prepare?(store: FixtureStore): void; press?: readonly string[] }>> = {
  'list': {},
  'empty': { prepare: (store) => { store.entries = []; } },
  'loading': { prepare: (store) => { store.answer = () => new Promise(() => {}); } },
  'failed': { prepare: (store) => { store.answer = () => Promise.reject(new Error('no')); } },
  'preview': { press: [THIRD] },
  'preview, shortened': { prepare: (store) => { store.text = 'A harbour at night. '.repeat(4_000); }, press: [THIRD] },
  'preview, gone': { prepare: (store) => { store.answer = (name) => (name === 'preview' ? null : undefined); }, press: [THIRD] },
  'preview, read-only': { prepare: (store) => store.become(SNAPSHOTS['readonly']!), press: [THIRD] },
  'restored': {
    prepare: (store) => {
      store.answer = (name, ts) => {
        const notice = { number: 1, at: AT, kind: 'restored', ts: String(ts), before: store.entries[0]!.ts } as const;
        if (name === 'restore') store.become(snapshotOf({ kind: 'saved', at: AT }, { notice }));
      };
    },
    press: [THIRD, RESTORE],
  },
  'not restored': { prepare: (store) => { store.answer = (name) => (name === 'restore' ? false : undefined); }, press: [THIRD, RESTORE] },
};

async function history(cell: HTMLElement, name: string): Promise<void> {
  const { prepare, press = [] } = HISTORIES[name]!;
  const store = new FixtureStore(snapshotOf({ kind: 'saved', at: AT }));
  prepare?.(store);
  const made = document.createElement('autosave-history');
  made.setAttribute('inline', '');
  made.autosave = store;
  cell.append(made);
  for (const which of press) {
    await turn();
    made.shadowRoot!.querySelector<HTMLElement>(which)!.click();
  }
  await turn();
}

/** The dialogs of the document's lock: in which state, and which button opens it. */
const DOCUMENT_DIALOGS: Readonly<Record<string, readonly [string, string]>> = {
  'take over': ['held: may take over', 'takeOver'],
  'draft': ['mine, with a draft', 'show'],
};

async function documentLock(cell: HTMLElement, name: string): Promise<HTMLElement> {
  const made = Object.assign(document.createElement('document-lock'), { clock: new FakeClock(AT), document: new FixtureDocument(DOCUMENTS[name]!) });
  cell.append(made);
  // The texts of a language may have to be loaded.
  while (!made.shadowRoot!.querySelector('[part=text]')!.textContent) await turn();
  return made;
}

function turn(): Promise<void> {
  return new Promise((resolve) => { setTimeout(resolve, 0); });
}

document.querySelector('thead tr')!.append(element('td'), ...COLUMNS.map((names) => element('th', names.join(', '))));
await Promise.all([
  ...Object.keys(SNAPSHOTS).flatMap((name) => row(name, async (cell) => { await indicator(cell, name); })),
  ...Object.entries(DIALOGS).flatMap(([name, how]) => row(`dialog: ${name}`, (cell) => dialog(cell, how))),
  ...Object.keys(DOCUMENTS).flatMap((name) => row(`document: ${name}`, async (cell) => { await documentLock(cell, name); })),
  ...Object.entries(DOCUMENT_DIALOGS).flatMap(([name, how]) => row(`document dialog: ${name}`, (cell) => dialog(cell, how, documentLock))),
  ...Object.keys(HISTORIES).flatMap((name) => row(`history: ${name}`, (cell) => history(cell, name))),
]);
document.documentElement.dataset['ready'] = 'yes';
