// The lines of docs/elements.md, as they stand there, in two real tabs: the elements show the real autosave, and its user edits, asks
// for the project, hands it over and brings a version back by their buttons alone. And the page of the repository's first page.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { TestServer } from './server.js';

const web = fileURLToPath(new URL('../..', import.meta.url));
/** The first page on a page of the documentation. */
const firstPage = (name: string) => /```html\n(.*?)```/s.exec(readFileSync(join(web, '..', name), 'utf8'))?.[1] ?? '';

const HEAD = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Storyboard</title>
<script type="importmap">{"imports": {"leasehold/elements/define": "./dist/elements-define.js", "leasehold/autosave": "./dist/autosave.js"}}</script>
`;

/** An application around the lines. */
const PAGE = `${HEAD}<script>
  var storyboard = { text: '' };
  function type(text) { storyboard = { text }; }
</script>
${firstPage('docs/elements.md')}
<script type="module">
  const { autosave } = document.querySelector('autosave-indicator');
  globalThis.states = [];
  autosave.subscribe(() => globalThis.states.push(autosave.getSnapshot().state));
</script>`;

declare global {
  var states: { kind: string; owner?: object | null; message?: string }[];
  var type: (text: string) => void;
  var storyboard: { text: string };
}

/** Waits until the text of an element's part has this in it. */
async function shows(tab: Tab, element: string, part: string, text: string): Promise<void> {
  await tab.run(async ([element, part, text]) => {
    const shown = () => document.querySelector(element)?.shadowRoot?.querySelector<HTMLElement>(`[part~=${part}]`)?.innerText ?? '';
    while (!shown().includes(text)) await new Promise((resolve) => { setTimeout(resolve, 20); });
  }, [element, part, text] as const);
}

/** Presses a button of an element, as soon as it is there: the last one, if there are several. */
async function press(tab: Tab, element: string, part: string): Promise<void> {
  await tab.run(async ([element, part]) => {
    const button = () => [...document.querySelector(element)?.shadowRoot?.querySelectorAll<HTMLElement>(`button[part~=${part}]`) ?? []].at(-1);
    while (!button() || button()!.ariaDisabled === 'true') await new Promise((resolve) => { setTimeout(resolve, 20); });
    button()!.click();
  }, [element, part] as const);
}

/** Waits until the application has this text. */
async function has(tab: Tab, text: string): Promise<void> {
  await tab.run(async (text) => {
    while (globalThis.storyboard.text !== text) await new Promise((resolve) => { setTimeout(resolve, 20); });
  }, text);
}

const INDICATOR = 'autosave-indicator';
const HISTORY = 'autosave-history';

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let server: TestServer;
  const root = mkdtempSync(join(tmpdir(), 'leasehold-elements-'));
  beforeAll(async () => {
    cpSync(join(web, 'dist'), join(root, 'dist'), { recursive: true });
    writeFileSync(join(root, 'index.html'), PAGE);
    writeFileSync(join(root, 'readme.html'), HEAD + firstPage('README.md'));
    server = await TestServer.start({ root });
    if (isInstalled(kind)) browser = await start(kind);
  });
  afterAll(async () => {
    await browser?.close();
    await server.stop();
    rmSync(root, { recursive: true, force: true });
  });

  test.skipIf(!isInstalled(kind))('two tabs edit one after the other, by the buttons of the elements', async () => {
    const open = () => browser.open(server.page('elements', 'index.html'));
    const first = await open();
    await first.run(() => globalThis.type('first'), null);
    await shows(first, INDICATOR, 'line', 'Saved');

    // It said "No changes yet" until its attempts were over, 4.5 s later. Only then there is a message.
    const second = await open();
    await shows(second, INDICATOR, 'line', 'Another tab is editing');
    const { kind: state, owner, message } = (await second.run(() => globalThis.states.find(({ kind }) => kind === 'readonly'), null))!;
    expect([state, owner === null, message]).toEqual(['readonly', false, '']);

    await press(second, INDICATOR, 'ask');
    await press(first, INDICATOR, 'handOver');
    await has(second, 'first');
    await shows(first, INDICATOR, 'line', 'Another tab is editing');

    await second.run(() => globalThis.type('second, and longer'), null);
    await shows(second, INDICATOR, 'line', 'Saved');
    // A version comes into the history a moment after its save.
    await second.run(async () => {
      const { history } = document.querySelector('autosave-indicator')!.autosave!;
      while (!(await history.list())[0]?.isCurrent) await new Promise((resolve) => { setTimeout(resolve, 20); });
    }, null);
    await press(second, HISTORY, 'open');
    await shows(second, HISTORY, 'body', 'Current');
    await press(second, HISTORY, 'preview');
    await shows(second, HISTORY, 'preview', '"first"');
    await press(second, HISTORY, 'restore');
    await has(second, 'first');
    await press(second, HISTORY, 'undo');
    await has(second, 'second, and longer');
  });

  // After a reload the page was once empty, although what it had saved was there.
  test.skipIf(!isInstalled(kind))('the page of the repository\'s first page saves, has its text after a reload, and a second tab goes on with it', async () => {
    const open = () => browser.open(server.page('readme', 'readme.html'));
    const edit = (tab: Tab, text: string) => tab.run((text) => {
      const editor = document.querySelector('textarea')!;
      editor.value = text;
      editor.dispatchEvent(new Event('input'));
    }, text);
    const reads = (tab: Tab, text: string) => tab.run(async (text) => {
      while (document.querySelector('textarea')!.value !== text) await new Promise((resolve) => { setTimeout(resolve, 20); });
    }, text);
    const first = await open();
    await edit(first, 'of the first tab');
    await shows(first, INDICATOR, 'line', 'Saved');
    await first.reload();
    await reads(first, 'of the first tab');
    const second = await open();
    await shows(second, INDICATOR, 'line', 'Another tab is editing');
    await first.close();
    await reads(second, 'of the first tab');
    await second.close();
  });
});
