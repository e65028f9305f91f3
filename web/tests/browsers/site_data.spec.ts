// Two things that users do to a site: they duplicate the tab that has the project, and they delete the site's data meanwhile.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { TestServer } from './server.js';

/** One attempt that does not wait for the Web Lock. */
const ONCE = { retryPolicy: { maxAttempts: 1 }, webLockTimeoutMs: 30 };

/** A page that has opened a copy of itself. */
interface Original {
  copy: typeof globalThis & Window;
}

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let server: TestServer;
  beforeAll(async () => { if (isInstalled(kind)) browser = await start(kind); });
  afterAll(async () => { await browser?.close(); });
  beforeEach(async () => { server = await TestServer.start(); });
  afterEach(async () => { await server.stop(); });

  // A duplicated tab begins with a copy of the first one's session storage: a lease that was kept there would be both tabs'.
  test.skipIf(!isInstalled(kind))('a tab that is duplicated is another holder', async () => {
    const tab = await browser.open(server.page('duplicated'));
    await tab.run(() => sessionStorage.setItem('mark', 'of the first tab'), null);
    expect(await attempt(tab)).toBe('owner');
    const stored = await tab.run(async () => {
      const copy = globalThis.open(location.href) as Original['copy'];
      Object.assign(globalThis, { copy });
      while (!copy.tab) await new Promise((resolve) => setTimeout(resolve, 20));
      return { ...copy.sessionStorage };
    }, null);
    expect(stored).toEqual({ mark: 'of the first tab' });
    const copyAttempts = () =>
      tab.run((options) => (globalThis as unknown as Original).copy.tab.attempt({ options }), ONCE);
    const copySaves = () => tab.run(() => (globalThis as unknown as Original).copy.tab.save('by the copy'), null);
    expect([await copyAttempts(), await copySaves()]).toEqual(['acquire-timeout', 'no lease']);
    expect(await tab.run(() => globalThis.tab.save('by the first'), null)).toBe('saved');
    expect(await tab.run(() => globalThis.tab.leave(), null)).toBe('released');
    expect([await copyAttempts(), await copySaves()]).toEqual(['owner', 'saved']);
    expect(await attempt(tab)).toBe('acquire-timeout');
  });

  // Chromium's private files stall after that, for other sites too, and each call takes many seconds: with `SOAK` alone.
  if (kind === 'chromium' && !process.env['SOAK']) return;
  test.skipIf(!isInstalled(kind))('a tab whose site\'s data is deleted cannot save any more', async () => {
    const [holder, other] = [await browser.open(server.page('deleted')), await browser.open(server.page('deleted'))];
    const save = (tab: Tab, text: string) => tab.run((text) => globalThis.tab.save(text), text);
    expect([await attempt(holder), await save(holder, 'before')]).toEqual(['owner', 'saved']);
    await other.run(async () => { await fetch('/clear'); }, null);
    expect(await other.run(() => globalThis.tab.files(), null)).toEqual([]);
    expect(['lease-stale', 'fallback-write-failed']).toContain(await save(holder, 'into the void'));
    if (kind === 'chromium') return;
    const left = await other.run(() => globalThis.tab.files('project'), null);
    expect(left.filter((name) => name.startsWith('.lock.draft.'))).toHaveLength(1);
    expect([await attempt(other), await save(other, 'after')]).toEqual(['owner', 'saved']);
    expect(await save(holder, 'too late')).toBe('lease-stale');
    expect(await other.run(() => globalThis.tab.read('current.json'), null)).toBe('after');
  });
});

async function attempt(tab: Tab): Promise<string> {
  return tab.run((options) => globalThis.tab.attempt({ options }), ONCE);
}
