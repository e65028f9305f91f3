// A tab asks the holder to save and hand the project over: two real tabs, with the package as it is shipped.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { TestServer } from './server.js';

const PATH = 'current.json';

/** What the user at the holder does about a request. */
type Habit = 'saves and releases' | 'refuses' | 'is silent';

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let server: TestServer;
  beforeAll(async () => {
    server = await TestServer.start();
    if (isInstalled(kind)) browser = await start(kind);
  });
  afterAll(async () => {
    await browser?.close();
    await server.stop();
  });

  /** Two tabs: the first one has the project, and unsaved work. */
  async function two(origin: string, habit: Habit): Promise<{ holder: Tab; asker: Tab }> {
    const [holder, asker] = await Promise.all(['holder', 'asker'].map((who) => browser.open(`${server.page(origin)}?who=${who}`)));
    await holder!.run(async ({ habit, path }) => {
      const { acquireProjectLock, commitProjectFile, refuseProjectHandover, releaseProjectLock, subscribeLockEvents } = globalThis.tab.leasehold;
      const { lease } = await acquireProjectLock({ label: 'Anna' });
      await commitProjectFile({ lease, path, data: 'v1' });
      subscribeLockEvents(async (event) => {
        if (event.type !== 'lock:handover-requested') return;
        if (habit === 'refuses') await refuseProjectHandover({ lease, reason: 'one moment' });
        if (habit !== 'saves and releases') return;
        await commitProjectFile({ lease, path, data: `v2, for ${event.request.label}` });
        await releaseProjectLock({ lease });
      });
    }, { habit, path: PATH });
    return { holder: holder!, asker: asker! };
  }

  /** Asks; answers what came of it, and when. */
  function ask(tab: Tab, options: object) {
    return tab.run(async ({ options, path }) => {
      const { readProjectFile, requestProjectHandover } = globalThis.tab.leasehold;
      const answer = await requestProjectHandover({ label: 'Ben', reason: 'a typo', ...options }).then(
        ({ lease }) => ({ fence: lease.fence, code: 'granted', cause: '', holder: '' }),
        (error) => ({ fence: 0, code: error.code as string, cause: String(error.cause), holder: error.holder?.label as string }),
      );
      const told = globalThis.tab.events.find(({ type }) => type === 'lock:handover-told');
      return { ...answer, told: told?.event, took: Date.now() - (told?.at ?? NaN), file: (await readProjectFile(path)).data };
    }, { options, path: PATH });
  }

  /** Whether the holder can still save. */
  const save = (tab: Tab) => tab.run(async (path) => {
    const { leasehold, events } = globalThis.tab;
    const found = events.map(({ event }) => event).find((event) => event.type === 'lock:acquired');
    const { lease } = found as Extract<typeof found, { type: 'lock:acquired' }>;
    return leasehold.commitProjectFile({ lease, path, data: 'v3' }).then(() => 'saved', (error) => error.code as string);
  }, PATH);

  const close = (...tabs: Tab[]) => Promise.all(tabs.map((tab) => tab.close()));

  test.skipIf(!isInstalled(kind))('asked, saved, handed over, and nothing is lost', async () => {
    const { holder, asker } = await two('handed', 'saves and releases');
    const answer = await ask(asker, { countdownMs: 20_000 });
    expect(answer).toMatchObject({ code: 'granted', file: 'v2, for Ben', told: { countdownMs: 20_000, root: 'project', holder: { label: 'Anna' } } });
    expect(answer.took).toBeLessThan(15_000);
    await close(holder, asker);
  });

  test.skipIf(!isInstalled(kind))('refused, with a reason, and the holder goes on', async () => {
    const { holder, asker } = await two('refused', 'refuses');
    const answer = await ask(asker, { onSilence: 'grant', countdownMs: 20_000 });
    expect(answer).toMatchObject({ code: 'fallback-conflict', cause: 'one moment', holder: 'Anna', file: 'v1' });
    expect(await save(holder)).toBe('saved');
    await close(holder, asker);
  });

  test.skipIf(!isInstalled(kind))('silent, where that is a refusal', async () => {
    const { holder, asker } = await two('silent', 'is silent');
    const answer = await ask(asker, { countdownMs: 700 });
    expect(answer).toMatchObject({ code: 'fallback-conflict', holder: 'Anna', cause: expect.stringContaining('silent') });
    expect(answer.took).toBeGreaterThanOrEqual(690);
    expect(await save(holder)).toBe('saved');
    await close(holder, asker);
  });

  test.skipIf(!isInstalled(kind))('silent, where that is consent: the holder had its time, and cannot save any more', async () => {
    const { holder, asker } = await two('consent', 'is silent');
    const answer = await ask(asker, { onSilence: 'grant', countdownMs: 700 });
    expect(answer).toMatchObject({ code: 'granted', file: 'v1' });
    expect(answer.took).toBeGreaterThanOrEqual(690);
    expect(await save(holder)).toBe('lease-stale');
    await close(holder, asker);
  });

  // The Worker of such a tab answers other tabs, and its user sees nothing.
  test.skipIf(!isInstalled(kind))('a page that cannot be told in time loses nothing by its silence', async () => {
    const { holder, asker } = await two('busy', 'is silent');
    const busy = holder.run(() => { for (const end = Date.now() + 4_000; Date.now() < end;); }, null);
    const answer = await ask(asker, { onSilence: 'grant', countdownMs: 100 });
    expect(answer).toMatchObject({ code: 'fallback-conflict', told: undefined, cause: expect.stringContaining('did not answer') });
    await busy;
    expect(await save(holder)).toBe('saved');
    await close(holder, asker);
  });

  test.skipIf(!isInstalled(kind))('the holder hears that the asker has left', async () => {
    const { holder, asker } = await two('left', 'is silent');
    const code = await asker.run(async () => {
      const leaves = new AbortController();
      const asked = globalThis.tab.leasehold.requestProjectHandover({ onSilence: 'grant', countdownMs: 500, signal: leaves.signal });
      await globalThis.tab.heard('lock:handover-told');
      leaves.abort();
      return asked.then(() => 'granted', (error) => error.code as string);
    }, null);
    expect(code).toBe('web-lock-aborted');
    await holder.run(() => globalThis.tab.heard('lock:handover-withdrawn'), null);
    expect(await save(holder)).toBe('saved');
    await close(holder, asker);
  });
});
