// The lines of docs/autosave.md, as they stand there, in real tabs: what was quiet for 2.5 s is saved, every version comes back,
// one tab saves, and a renderer that is killed leaves whole files.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { firstLines, serveGuide } from './guide.js';

const LINES = firstLines('../docs/autosave.md').replace("'leasehold/autosave'", "'./dist/autosave.js'");
const CRASHES = Number(process.env['CRASHES'] ?? 30);

const BEFORE = `
import * as autosaves from './dist/autosave.js';
document.body.innerHTML = '<textarea id="editor"></textarea><p id="status"></p>';
const [editor, status] = [document.querySelector('#editor'), document.querySelector('#status')];
globalThis.page = {
  autosaves,
  acknowledged: '',
  made: (name) => name + ' ' + (name + ',').repeat(40_000),
  type(text) { editor.value = text; editor.oninput(); },
  state: () => status.textContent,
  text: () => editor.value,
  async file(path) {
    let folder = await navigator.storage.getDirectory();
    const names = ('project/autosave/' + path).split('/');
    for (const name of names.slice(0, -1)) folder = await folder.getDirectoryHandle(name);
    return (await (await folder.getFileHandle(names.at(-1))).getFile()).text();
  },
};
`;
const AFTER = 'globalThis.page.autosave = autosave;\n';
/** A page that only reads has no autosave. */
const READS = "if (location.search === '?reads') throw new Error('this page only reads');\n";

type Page = {
  autosaves: typeof import('../../src/autosave.js');
  autosave: import('../../src/autosave.js').AutoSave;
  acknowledged: string;
  /** A text of some 200 KB that shows whether it is whole. */
  made(name: string): string;
  type(text: string): void;
  state(): string;
  text(): string;
  file(path: string): Promise<string>;
};
declare global { var page: Page }

/** Waits until this is so in the page. */
async function until(tab: Tab, what: 'saved' | 'readonly' | 'unavailable' | 'text' | 'ready', text = ''): Promise<number> {
  return tab.run(async ([what, text]) => {
    const began = performance.now();
    const is = async () => {
      const page = globalThis.page;
      if (what === 'ready') return page?.autosave !== undefined;
      if (what === 'text') return page?.text() === text;
      if (what === 'readonly' || what === 'unavailable') return page?.autosave !== undefined && page.state() === what;
      return JSON.parse(await page.file('current.json').catch(() => '{}')).text === text;
    };
    while (!await is()) await new Promise((resolve) => { setTimeout(resolve, 10); });
    return performance.now() - began;
  }, [what, text] as const);
}

/** The versions, as soon as there are so many: one follows its save, or the next start if the tab ended before. */
async function versions(tab: Tab, count: number): Promise<{ ts: string; bytes: number }[]> {
  return tab.run(async (count) => {
    for (;;) {
      const list = await globalThis.page.autosaves.listHistory();
      if (list.length >= count) return list;
      await new Promise((resolve) => { setTimeout(resolve, 10); });
    }
  }, count);
}

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let server: Awaited<ReturnType<typeof serveGuide>>;
  beforeAll(async () => {
    server = await serveGuide(LINES, BEFORE, AFTER);
    if (isInstalled(kind)) browser = await start(kind);
  });
  afterAll(async () => {
    await browser?.close();
    await server.remove();
  });
  const open = async (origin: string): Promise<Tab> => {
    const tab = await browser.open(server.page(origin, 'index.html'));
    await until(tab, 'ready');
    return tab;
  };

  test.skipIf(!isInstalled(kind))('what was quiet is saved, is there after a reload, and comes back from the history', async () => {
    const tab = await open('one');
    await tab.run(() => globalThis.page.type('first'), null);
    const took = await until(tab, 'saved', 'first');
    expect(took).toBeLessThan(2_500 + 500); // the looks of this test, and a busy machine
    await tab.run(() => globalThis.page.type('second'), null);
    await tab.run(() => globalThis.page.autosave.flushNow(), null);
    await tab.reload();
    await until(tab, 'text', 'second');
    const history = await versions(tab, 2);
    expect(history.map(({ bytes }) => bytes)).toEqual([17, 16]);
    expect(await tab.run((ts) => globalThis.page.autosaves.restoreFrom(ts), history[1]!.ts)).toBe(true);
    await until(tab, 'text', 'first');
    await until(tab, 'saved', 'first');
    await versions(tab, 3);
    await tab.close();
  });

  test.skipIf(!isInstalled(kind))('one tab saves, and the next has what it saved', async () => {
    const first = await open('two');
    await first.run(() => globalThis.page.type('theirs'), null);
    await first.run(() => globalThis.page.autosave.flushNow(), null);
    const second = await open('two');
    await until(second, 'readonly');
    expect(await second.run(() => globalThis.page.autosave.snapshot().state, null)).toMatchObject({ kind: 'readonly', reason: 'conflict' });
    await first.close();
    await until(second, 'text', 'theirs');
    await second.run(() => globalThis.page.type('mine'), null);
    await until(second, 'saved', 'mine');
    await second.close();
  });
});

test.skipIf(!isInstalled('firefox'))('a private window says that nothing can be saved', async () => {
  const server = await serveGuide(LINES, BEFORE, AFTER);
  const browser = await start('firefox', { isPrivate: true });
  try {
    const tab = await browser.open(server.page('private', 'index.html'));
    await until(tab, 'unavailable');
    const { state } = await tab.run(() => globalThis.page.autosave.snapshot(), null);
    expect(state).toMatchObject({ kind: 'unavailable', reason: 'private-window-or-blocked-storage' });
  } finally {
    await browser.close();
    await server.remove();
  }
});

test.skipIf(!isInstalled('chromium'))('a renderer that is killed in a save leaves whole files, and what was acknowledged', async () => {
  const server = await serveGuide(LINES, BEFORE + READS, AFTER);
  const browser = await start('chromium');
  try {
    const reader = await browser.open(server.page('killed', 'index.html?reads'));
    await reader.run(() => {
      new BroadcastChannel('acknowledged').onmessage = ({ data }) => { globalThis.page.acknowledged = data; };
    }, null);
    let inTheMiddle = 0;
    for (let crash = 0; crash < CRASHES; crash += 1) {
      const tab = await browser.open(server.page('killed', 'index.html'));
      await until(tab, 'ready');
      const saving = tab.run(async (crash) => {
        const acknowledged = new BroadcastChannel('acknowledged');
        for (let number = 0; ; number += 1) {
          const name = `${crash}.${number}`;
          globalThis.page.type(globalThis.page.made(name));
          await globalThis.page.autosave.flushNow();
          if (globalThis.page.autosave.snapshot().isDirty) throw new Error(JSON.stringify(globalThis.page.autosave.snapshot()));
          acknowledged.postMessage(name);
        }
      }, crash);
      let failure: unknown;
      let isKilled = false;
      saving.catch((error) => { if (!isKilled) failure = error; });
      // Until the first save has found its way, every crash is the same.
      await reader.run(async (crash) => {
        while (!globalThis.page.acknowledged.startsWith(`${crash}.`)) await new Promise((resolve) => { setTimeout(resolve, 5); });
      }, crash);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 200));
      isKilled = true;
      await tab.crash();
      const { acknowledged, current, names, broken } = await reader.run(async () => {
        const { page } = globalThis;
        const { listHistory } = page.autosaves;
        const files = (await listHistory()).map(({ ts }) => `history/${ts.replaceAll(':', '-')}.json`);
        const read = async (file: string) => {
          const { text } = JSON.parse(await page.file(file)) as { text: string };
          const name = text.slice(0, text.indexOf(' '));
          return { name, isWhole: text === page.made(name) };
        };
        const [current, ...history] = await Promise.all(['current.json', ...files].map(read));
        const broken = [current!, ...history].filter(({ isWhole }) => !isWhole).map(({ name }) => name);
        return { acknowledged: page.acknowledged, current: current!.name, names: history.map(({ name }) => name), broken };
      }, null);
      expect(failure).toBeUndefined();
      expect(broken).toEqual([]);
      // The save after the acknowledged one may have been made, too.
      const [at, last] = [current, acknowledged].map((name) => Number(name.split('.')[1]));
      expect(current.split('.')[0]).toBe(String(crash));
      expect([last, last! + 1]).toContain(at);
      if (at !== last || names[0] !== current) inTheMiddle += 1;
    }
    console.log(`${CRASHES} renderers were killed, ${inTheMiddle} of them between a save and its version`);
    expect(inTheMiddle).toBeGreaterThan(0);
  } finally {
    await browser.close();
    await server.remove();
  }
}, Math.max(120_000, CRASHES * 4_000));
