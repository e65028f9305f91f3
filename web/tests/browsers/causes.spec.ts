// Each real cause by which a lock cannot be had, or is lost, and what a page can rely on all the same, in real browsers.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import type { ProjectLockLease } from '../../src/index.js';
import { TestServer } from './server.js';

let server: TestServer;
beforeAll(async () => { server = await TestServer.start(); });
afterAll(() => server.stop());

/** One attempt, which does not wait long. */
const ONCE = { retryPolicy: { maxAttempts: 1 }, webLockTimeoutMs: 50 };

/** How long a tab is hidden: several leases. Ten minutes is long enough for Chromium to let its timers come once a minute. */
const HIDDEN_SECONDS = Number(process.env['HIDDEN_SECONDS'] ?? (process.env['SOAK'] ? 600 : 20));
const TTL = 6_000;

/** Acquires, and answers what came of it. */
function acquire(tab: Tab, options: object = {}): Promise<Record<string, unknown>> {
  return tab.run((options) => globalThis.tab.leasehold.acquireProjectLock(options).then(
    ({ lease }) => ({ lease, guarantee: lease.guarantee }),
    (error) => ({ code: error.code, cause: String(error.cause), name: error.name, message: error.message }),
  ), options) as Promise<Record<string, unknown>>;
}

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  beforeAll(async () => { if (isInstalled(kind)) browser = await start(kind); });
  afterAll(async () => { await browser?.close(); });
  const open = (origin: string, worker = ''): Promise<Tab> =>
    browser.open(`${server.page(origin)}?who=x${worker && `&worker=${worker}`}`);

  test.skipIf(!isInstalled(kind))('an abort of the caller\'s own ends a wait', async () => {
    const [holder, tab] = [await open('abort'), await open('abort')];
    await acquire(holder);
    const code = await tab.run(async () => {
      const abort = new AbortController();
      const call = globalThis.tab.leasehold.acquireProjectLock({ signal: abort.signal, webLockTimeoutMs: 60_000 });
      await globalThis.tab.heard('lock:attempt');
      abort.abort();
      return call.then(() => 'none', (error) => error.code as string);
    }, null);
    expect(code).toBe('web-lock-aborted');
  });

  test.skipIf(!isInstalled(kind))('a stolen Web Lock does not end the lease', async () => {
    const [holder, thief] = [await open('stolen'), await open('stolen')];
    expect(await holder.run(() => globalThis.tab.attempt({ options: {} }), null)).toBe('owner');
    await thief.run(() => navigator.locks.request('imgponic:project', { steal: true }, () => 'mine'), null);
    expect(await holder.run(() => globalThis.tab.save('still mine'), null)).toBe('saved');
    expect(await acquire(thief, ONCE)).toMatchObject({ code: 'acquire-timeout' });
  });

  test.skipIf(!isInstalled(kind))('a refusal tells who, within 250 ms, while the attempts go on', async () => {
    const [holder, tab] = [await open('who'), await open('who')];
    const held = await acquire(holder, { label: 'Ann' }) as { lease: ProjectLockLease };
    // The Worker and the rules are loaded by then.
    expect(await tab.run(() => globalThis.tab.leasehold.lookProjectLock(), null)).toMatchObject({ fence: held.lease.fence });
    const refused = await tab.run(async () => {
      const began = Date.now();
      let over = 0;
      const call = globalThis.tab.leasehold.acquireProjectLock().finally(() => { over = Date.now(); });
      const error = call.then(() => null, (error) => ({ code: error.code, holder: error.holder }));
      const told = await globalThis.tab.heard('lock:held');
      const isOver = over > 0;
      return { ms: told - began, isOver, ...await error };
    }, null);
    expect(refused).toMatchObject({
      isOver: false, code: 'acquire-timeout', holder: { label: 'Ann', fence: held.lease.fence, since: held.lease.acquiredAt },
    });
    expect(refused.ms).toBeLessThanOrEqual(250);
  });

  test.skipIf(!isInstalled(kind))('a take-over: the other tab hears of it, and cannot save', async () => {
    const [holder, taker] = [await open('take'), await open('take')];
    expect(await holder.run(() => globalThis.tab.attempt({ options: {} }), null)).toBe('owner');
    await taker.run(() => globalThis.tab.leasehold.takeOverProjectLock({ reason: 'a test' }), null);
    await holder.run(() => globalThis.tab.heard('lock:readonly-entered'), null);
    expect(await holder.run(() => globalThis.tab.save('too late'), null)).toBe('lease-stale');
  });

  test.skipIf(!isInstalled(kind))('a page that was left does not hold the project, and cannot save', async () => {
    const [tab, next] = [await open('left'), await open('left')];
    expect(await tab.run(() => globalThis.tab.attempt({ options: {} }), null)).toBe('owner');
    await tab.away(server.page('elsewhere', 'leave'));
    expect(await next.run(() => globalThis.tab.attempt({ options: { webLockTimeoutMs: 2_000 } }), null)).toBe('owner');
    await tab.back();
    expect(await tab.run(() => globalThis.tab.save('too late'), null)).toMatch(/^(lease-stale|no lease)$/);
    expect(await next.run(() => globalThis.tab.save('mine'), null)).toBe('saved');
  });

  // Each project had an instance of WebAssembly of its own, and the 126th was a RangeError.
  test.skipIf(!isInstalled(kind))('a page can have 150 projects', async () => {
    const tab = await open('many');
    const held = await tab.run(async () => {
      const roots = Array.from({ length: 150 }, (_, number) => `many/${number}`);
      const acquired = roots.map((root) => globalThis.tab.leasehold.acquireProjectLock({ root, lockName: root }));
      const grants = await Promise.all(acquired);
      return new Set(grants.map(({ lease }) => lease.leaseId)).size;
    }, null);
    expect(held).toBe(150);
  });

  test.skipIf(!isInstalled(kind))('no access handles: refused, unless advice is enough', async () => {
    const tab = await open('advisory', 'no-access-handles');
    expect(await acquire(tab)).toMatchObject({ cause: expect.stringContaining('allowAdvisory') });
    expect(await acquire(tab, { allowAdvisory: true })).toMatchObject({ guarantee: 'advisory' });
  });

  test.skipIf(!isInstalled(kind))('no private files: the Web Lock alone', async () => {
    const [tab, other] = [await open('nofiles', 'no-files'), await open('nofiles', 'no-files')];
    expect(await acquire(tab)).toMatchObject({ guarantee: 'tab-exclusive' });
    expect(await acquire(other, ONCE)).toMatchObject({ code: 'acquire-timeout' });
  });

  test.skipIf(!isInstalled(kind))('an opaque origin: unavailable', async () => {
    const headers = { 'content-security-policy': 'sandbox allow-scripts', 'access-control-allow-origin': '*' };
    const sandboxed = await TestServer.start({ headers });
    const tab = await browser.open(`${sandboxed.page('opaque')}?who=x`);
    expect(await acquire(tab)).toMatchObject({ code: 'fallback-open-failed', cause: 'unavailable(opaque-origin)' });
    await sandboxed.stop();
  });

  test.skipIf(!isInstalled(kind))('a Worker that fails: the tab is read-only, and the next call has a new one', async () => {
    const tab = await open('failing', 'failing');
    expect(await tab.run(() => globalThis.tab.attempt({ options: {} }), null)).toBe('owner');
    await tab.run(() => new BroadcastChannel('fail').postMessage('now'), null);
    await tab.run(() => globalThis.tab.heard('lock:readonly-entered'), null);
    expect(await tab.run(() => globalThis.tab.save('too late'), null)).toBe('lease-stale');
    expect(await acquire(tab, { webLockTimeoutMs: 5_000 })).toMatchObject({ guarantee: 'exclusive' });
  });

  test.skipIf(!isInstalled(kind))('nothing is written outside of project/', async () => {
    const tab = await open('inside');
    expect(await tab.run(() => globalThis.tab.attempt({ options: {} }), null)).toBe('owner');
    expect(await tab.run(() => globalThis.tab.save('something'), null)).toBe('saved');
    expect(await tab.run(() => globalThis.tab.files(), null)).toEqual(['project']);
    await tab.run(() => globalThis.tab.leave(), null);
    expect(await tab.run(() => globalThis.tab.files('project'), null)).toEqual(['.lock.guard', 'current.json']);
  });

  test.skipIf(!isInstalled(kind))('saves of one file at the same time: all are made, and the last call stays', async () => {
    const tab = await open('at-once');
    expect(await tab.run(() => globalThis.tab.attempt({ options: {} }), null)).toBe('owner');
    const texts = ['x'.repeat(1_000_000), 'two', '', 'the last words'];
    expect(await tab.run((texts) => globalThis.tab.saveAtOnce(texts), texts)).toEqual(texts.map(() => 'saved'));
    expect(await tab.run(() => globalThis.tab.read('current.json'), null)).toBe('the last words');
  });

  test.skipIf(!isInstalled(kind))('a Worker of the application can have the project', async () => {
    const tab = await open('nested');
    const guarantee = await tab.run(() => new Promise<unknown>((resolve) => {
      const worker = new Worker('/bundle/nested.worker.js', { type: 'module' });
      worker.onerror = ({ message }) => resolve(message);
      worker.onmessage = ({ data }) => resolve(data);
      worker.postMessage('go');
    }), null);
    expect(guarantee).toBe('exclusive');
    expect(await tab.run(() => globalThis.tab.read('current.json'), null)).toBe('from a Worker');
  });

  test.skipIf(!isInstalled(kind))('a Worker that is not there: the call fails and says what to do', async () => {
    const tab = await open('gone', 'there-is-no-such');
    expect(await acquire(tab)).toMatchObject({ message: expect.stringContaining('init({ workerUrl })') });
  });
});

describe.skipIf(!isInstalled('chromium'))('chromium alone', () => {
  let browser: Browser;
  beforeAll(async () => { browser = await start('chromium'); });
  afterAll(async () => { await browser.close(); });
  const open = (origin: string): Promise<Tab> => browser.open(`${server.page(origin)}?who=x`);

  test('an insecure context: unavailable', async () => {
    const tab = await browser.open(`${server.insecurePage()}?who=x`);
    expect(await acquire(tab)).toMatchObject({ code: 'fallback-open-failed', cause: 'unavailable(insecure-context)' });
  });

  test('a page that is told that it will be frozen has lost the project, and acquires it anew', async () => {
    const tab = await open('told');
    const { lease } = await acquire(tab) as { lease: { fence: number } };
    await tab.run(() => { document.dispatchEvent(new Event('freeze')); }, null);
    await tab.run(() => globalThis.tab.heard('lock:readonly-entered'), null);
    await tab.run(() => { document.dispatchEvent(new Event('resume')); }, null);
    expect(await tab.run((before) => globalThis.tab.acquiredAfter(before), lease.fence)).toBeGreaterThan(lease.fence);
  });

  test('a page from the back/forward cache has lost the project, and acquires it anew', async () => {
    const tab = await open('cached');
    const { lease } = await acquire(tab) as { lease: { fence: number } };
    await tab.away(server.page('cached', 'leave'));
    await tab.back();
    expect(await tab.run((before) => globalThis.tab.acquiredAfter(before), lease.fence)).toBeGreaterThan(lease.fence);
    expect(await tab.run(() => globalThis.tab.events.map(({ type }) => type), null)).toEqual([
      'lock:attempt', 'lock:acquired', 'lock:renew-scheduled', 'lock:error', 'lock:readonly-entered', 'lock:acquired',
      'lock:renew-scheduled',
    ]);
  });
});

/** How often a tab is frozen. */
const FREEZES = Number(process.env['FREEZES'] ?? (process.env['SOAK'] ? 60 : 3));

// In 3 of 60 freezes the Worker stopped while it held the guard, and nobody got the project for as long as the tab was frozen.
test.skipIf(!isInstalled('chromium'))('a tab that is frozen, and its Worker with it, has lost the project, and acquires it anew', async () => {
  const browser = await start('chromium', { hides: true });
  const waits: number[] = [];
  try {
    for (let freeze = 0; freeze < FREEZES; freeze += 1) {
      const open = (who: string) => browser.open(`${server.page(`frozen${freeze}`)}?who=${who}`);
      const tab = await open('tab');
      const { lease } = await acquire(tab, { ttlMs: TTL }) as { lease: ProjectLockLease };
      const other = await open('other');
      await tab.freeze();
      const frozen = Date.now();
      const { lease: next } = await acquire(other, { webLockTimeoutMs: 2_000, retryPolicy: { maxAttempts: 10 } }) as { lease: ProjectLockLease };
      expect(next?.fence, `freeze ${freeze}`).toBeGreaterThan(lease.fence);
      waits.push(Date.now() - frozen);
      await tab.thaw();
      await tab.run(() => globalThis.tab.heard('lock:readonly-entered'), null);
      const save = (lease: ProjectLockLease) =>
        globalThis.tab.leasehold.commitProjectFile({ lease, path: 'a', data: '' }).catch(({ code }) => code as string);
      expect(await tab.run(save, lease)).toBe('lease-stale');
      // A hidden tab holds back.
      await tab.front();
      await other.run((lease) => globalThis.tab.leasehold.releaseProjectLock({ lease }), next);
      expect(await tab.run((before) => globalThis.tab.acquiredAfter(before), next.fence)).toBeGreaterThan(next.fence);
      await Promise.all([tab.close(), other.close()]);
    }
    console.log(`${FREEZES} freezes: the next tab had the project after ${waits.sort((a, b) => a - b).join(', ')} ms`);
  } finally {
    await browser.close();
  }
});

// The user reloaded the tab that held the project, and a tab in the background had it 30 ms later.
test.for(['chromium', 'firefox'] as Kind[])('in %s a reload keeps the project, although a hidden tab waits for it', async (kind, { skip }) => {
  skip(!isInstalled(kind), 'it is not installed');
  const browser = await start(kind, { hides: true });
  try {
    const open = (who: string) => browser.open(`${server.page('reload')}?who=${who}`);
    const holder = await open('holder');
    expect(await acquire(holder, { autoResume: true })).toMatchObject({ guarantee: 'exclusive' });
    const waiting = await open('waiting');
    expect(await acquire(waiting, { ...ONCE, autoResume: true })).toMatchObject({ code: 'acquire-timeout' });
    await holder.front();
    const seen = () => document.visibilityState;
    for (let turn = 0; turn < 3; turn += 1) {
      expect([await holder.run(seen, null), await waiting.run(seen, null)]).toEqual(['visible', 'hidden']);
      await holder.reload();
      expect(await acquire(holder, { autoResume: true })).toMatchObject({ guarantee: 'exclusive' });
    }
    expect(await waiting.run(() => globalThis.tab.events.map(({ type }) => type), null)).not.toContain('lock:acquired');
    // The user closes the tab and goes to the other one.
    await holder.close();
    const closed = Date.now();
    await waiting.front();
    const came = await waiting.run(() => globalThis.tab.heard('lock:acquired'), null);
    expect(came - closed).toBeLessThanOrEqual(1_000);
  } finally {
    await browser.close();
  }
});

describe.concurrent('a tab that is hidden', () => {
  // It is mostly waiting, so both browsers do it at once.
  const patience = { timeout: (HIDDEN_SECONDS + 120) * 1000 };
  test.for(['chromium', 'firefox'] as Kind[])('in %s keeps its lease, timers or not', patience, async (kind, { skip }) => {
    skip(!isInstalled(kind), 'it is not installed');
    const browser = await start(kind, { hides: true });
    try {
      const tab = await browser.open(`${server.page('hidden')}?who=${kind}`);
      expect(await tab.run((options) => globalThis.tab.attempt({ options }), { ttlMs: TTL })).toBe('owner');
      await browser.open(server.page('front'));
      const { ticks, seen } = await tab.run((ms) => globalThis.tab.tickFor(ms), HIDDEN_SECONDS * 1000);
      console.log(`${kind}, hidden for ${HIDDEN_SECONDS} s: its timer of 100 ms came ${ticks} times`);
      expect(seen).toEqual(['hidden']);
      expect(ticks).toBeLessThan(HIDDEN_SECONDS * 2);
      const types = await tab.run(() => globalThis.tab.events.map(({ type }) => type), null);
      expect(types).toContain('lock:renewed');
      expect(types).not.toContain('lock:readonly-entered');
      expect(await tab.run(() => globalThis.tab.save('still mine'), null)).toBe('saved');
    } finally {
      await browser.close();
    }
  });
});

test.skipIf(!isInstalled('firefox'))('a private window of Firefox: unavailable', async () => {
  const browser = await start('firefox', { isPrivate: true });
  const tab = await browser.open(`${server.page('private')}?who=x`);
  expect(await acquire(tab)).toMatchObject({ code: 'fallback-open-failed', cause: 'unavailable(private-window-or-blocked-storage)' });
  await browser.close();
});
