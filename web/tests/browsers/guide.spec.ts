// The first lines of the guide, as they stand there, in real tabs: a tab that comes back does not overwrite what another one has
// saved, and what it could not save is offered.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { firstLines, inFile, mayEdit, offers, serveGuide, shows, type } from './guide.js';

const LINES = firstLines('../docs/browser.md');

test('the lines of the package\'s own page are those of the guide', () => {
  expect(firstLines('README.md')).toBe(LINES);
});

/** Around the lines of the repository's first page: an edit, and what becomes of them. */
const README = `
globalThis.app = globalThis.tab = { result: 'open' };
addEventListener('error', ({ error }) => { globalThis.app.result = error.code ?? String(error); });
addEventListener('unhandledrejection', ({ reason }) => { globalThis.app.result = reason.code ?? String(reason); });
const edited = (data) => (data ?? '') + '+';
`;

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let server: Awaited<ReturnType<typeof serveGuide>>;
  beforeAll(async () => {
    server = await serveGuide(LINES);
    // With tabs that are hidden when another one is opened: only such a tab can be frozen.
    if (isInstalled(kind)) browser = await start(kind, { hides: true });
  });
  afterAll(async () => {
    await browser?.close();
    await server.remove();
  });
  const open = (origin: string): Promise<Tab> => browser.open(server.page(origin, 'index.html'));

  /** Two tabs: the second one has typed something that it has not saved. */
  async function two(origin: string): Promise<{ a: Tab; b: Tab }> {
    const b = await open(origin);
    await type(b, 'v1');
    await type(b, 'v1 and more', false);
    return { a: await open(origin), b };
  }

  /** The first tab gets the project, saves and is closed. */
  async function saveAndClose(a: Tab): Promise<void> {
    await mayEdit(a);
    await type(a, 'v2');
    expect(await inFile(a)).toBe('v2');
    await a.close();
  }

  /** The second tab comes back: it shows what was saved, offers what it had, and goes on from there. */
  async function comesBack(b: Tab, drafts = ['v1 and more']): Promise<void> {
    await shows(b, 'v2');
    await mayEdit(b);
    await offers(b, drafts);
    expect(await inFile(b)).toBe('v2');
    await type(b, 'v2!');
    expect(await inFile(b)).toBe('v2!');
    await b.close();
  }

  // "v1!" was stored, and v2 was gone.
  test.skipIf(!isInstalled(kind))('tab B loads v1, A saves v2 and is closed, B becomes editable and types', async () => {
    const a = await open('closed');
    await type(a, 'v1');
    const b = await open('closed');
    await shows(b, 'v1');
    await a.front();
    await type(a, 'v2');
    await a.close();
    // A key as soon as there is a cursor.
    const typed = await b.run(async () => {
      const { editor } = globalThis.app;
      while (editor.readOnly) await new Promise((resolve) => { setTimeout(resolve); });
      editor.text += '!';
      await globalThis.app.save();
      return { text: editor.text, shown: editor.shown, commits: globalThis.app.commits.filter(({ result }) => result !== 'kept'), drafts: editor.drafts };
    }, null);
    expect(typed).toEqual({ text: 'v2!', shown: expect.anything(), commits: [{ data: 'v2!', result: 'saved' }], drafts: [] });
    expect(await inFile(b)).toBe('v2!');
    await b.close();
  });

  test.skipIf(!isInstalled(kind))('tab B types, A takes the project over, saves v2 and is closed', async () => {
    const { a, b } = await two('taken');
    await a.run(() => globalThis.app.leasehold.takeOverProjectLock({ reason: 'I was here first' }), null);
    await saveAndClose(a);
    await b.front();
    await comesBack(b);
  });

  // Firefox has no command that freezes a tab: there the page hears of a freeze, and goes on running.
  test.skipIf(!isInstalled(kind))('tab B types and is frozen, A saves v2 and is closed, B goes on', async () => {
    const { a, b } = await two('frozen');
    if (kind === 'chromium') await b.freeze();
    else await b.run(() => { document.dispatchEvent(new Event('freeze')); }, null);
    await saveAndClose(a);
    if (kind === 'chromium') await b.thaw();
    else await b.run(() => { document.dispatchEvent(new Event('resume')); }, null);
    await b.front();
    await comesBack(b);
  });

  // Firefox keeps no page in its cache that has a Web Lock, or waits for one, and Chromium not always: then the page is loaded
  // anew, and has no memory that it could save or lose. Whichever it is, v2 stays; and in Chromium the page is kept at least once.
  test.skipIf(!isInstalled(kind))('tab B types and is left, A saves v2 and is closed, B comes back from the cache', async () => {
    for (let round = 1; ; round += 1) {
      const origin = `left${round}`;
      const { a, b } = await two(origin);
      await b.away(server.page(origin, 'away/index.html'));
      await a.front();
      await saveAndClose(a);
      await b.back();
      const wasKept = await b.run(() => globalThis.app.wasKept, null);
      await b.front();
      await comesBack(b, wasKept ? ['v1 and more'] : []);
      if (wasKept || kind === 'firefox') return;
      expect(round, 'Chromium kept the page in none of the rounds').toBeLessThan(8);
    }
  }, 60_000);

  test.skipIf(!isInstalled(kind))('the lines of the repository\'s first page: one tab has it, in the others they throw, and nothing is lost', async () => {
    const readme = await serveGuide(firstLines('../README.md'), README, 'globalThis.app.result = "saved";');
    const run = async () => {
      const tab = await browser.open(readme.page('readme', 'index.html'));
      const result = await tab.run(async () => {
        while (globalThis.app.result === 'open') await new Promise((resolve) => { setTimeout(resolve, 10); });
        return globalThis.app.result;
      }, null);
      return { tab, result };
    };
    const first = await run();
    expect([first.result, await inFile(first.tab)]).toEqual(['saved', '+']);
    const second = await run();
    expect([second.result, await inFile(first.tab)]).toEqual(['acquire-timeout', '+']);
    await first.tab.close();
    const third = await run();
    expect([third.result, await inFile(third.tab)]).toEqual(['saved', '++']);
    await Promise.all([second.tab.close(), third.tab.close()]);
    await readme.remove();
  });

  test.skipIf(!isInstalled(kind))('what a tab could not save is offered to the next one, whatever becomes of the tab', async () => {
    const { a, b } = await two('crashed');
    await a.run(() => globalThis.app.leasehold.takeOverProjectLock(), null);
    await type(a, 'v2');
    // The lines know that the lease is over; a save that is under way does not.
    const refused = await b.run(async () => {
      const { leasehold, editor, commits } = globalThis.app;
      const lease = { leaseId: '3f1c0b1e-0000-4000-8000-000000000001', fence: 1, root: 'project', lockName: 'imgponic:project' } as never;
      await leasehold.commitProjectFile({ lease, path: 'autosave/current.json', data: editor.text }).catch(() => {});
      return commits.filter(({ result }) => result !== 'kept').map(({ result }) => result);
    }, null);
    expect(refused).toEqual(['saved']);
    await b.close();
    const c = await open('crashed');
    await shows(c, 'v2');
    await offers(c, ['v1 and more']);
    await Promise.all([a.close(), c.close()]);
  });
});
