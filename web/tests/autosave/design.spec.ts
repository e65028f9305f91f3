// The cases of AutoSave 8 (docs/sources.md).

import { expect, test } from 'vitest';
import { EventCollector, FakeTimer, MockOPFS } from '../../src/testing.js';
import { OTHER, Tab, codeOf, story } from '../helpers.js';

/** The record of a tab that lives. */
function foreign(tab: Tab): string {
  return JSON.stringify({
    version: 1, leaseId: OTHER, owner: 'other', updatedAt: new Date(tab.clock.now()).toISOString(), ttlSeconds: 30,
  });
}

test('normal: Web Lock, lease renewed, released', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  await tab.clock.advance(21_000);
  const renewed = tab.heard().of('lock:renewed').map((event) => event.lease);
  expect(renewed[0]).toMatchObject({ leaseId: lease.leaseId, expiresAt: lease.expiresAt + 20_000 });
  await tab.run(tab.lock.releaseProjectLock({ lease }));
  const states = tab.heard('autosave').of('autosave.lock.stateChanged').map(({ state }) => state);
  expect(states).toEqual(['acquired', 'renewed', 'released']);
  expect(story(tab)).toMatchSnapshot();
});

test('conflict: Web Lock denied, and another UUID in project/.lock: read-only', async () => {
  const tab = new Tab();
  tab.locks.queue.push('denied', 'denied', 'denied');
  tab.opfs.write('project/.lock', foreign(tab));
  expect(await codeOf(tab.run(tab.lock.acquireProjectLock()))).toBe('acquire-timeout');
  const types = tab.heard('autosave').types();
  expect(types.at(-1)).toBe('autosave.lock.readonly');
  expect(types.at(-2)).toBe('autosave.lock.retry');
  expect(tab.heard('autosave').events.at(-1)).toMatchObject({ type: 'autosave.lock.readonly', reason: 'conflict' });
  expect(tab.heard().of('lock:readonly-entered')).toMatchObject([
    { reason: 'acquire-timeout', lastError: { code: 'fallback-conflict' } },
  ]);
  expect(story(tab)).toMatchSnapshot();
});

test('conflict: a live second tab, with Web Locks and without', async () => {
  for (const webLocks of [true, false]) {
    const holder = new Tab({ webLocks });
    await holder.lock.acquireProjectLock();
    const tab = new Tab({ beside: holder, webLocks });
    expect(await codeOf(tab.run(tab.lock.acquireProjectLock()))).toBe('acquire-timeout');
    expect(tab.heard('autosave').events.at(-1)).toMatchObject({ type: 'autosave.lock.readonly', reason: 'conflict' });
  }
});

test.each(['the tab slept', '.lock and its mtime are old'])(
  'the TTL is over (%s): LockRenewalError, then read-only', async (why) => {
    const tab = new Tab({ webLocks: false });
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    if (why === 'the tab slept') {
      tab.clock.jump(27_000);
      await tab.clock.advance(1);
    } else {
      const old = tab.clock.now() - 30_000;
      const record = { ...tab.record(), updatedAt: new Date(old).toISOString(), expiresAt: old + 30_000 };
      tab.opfs.write('project/.lock', JSON.stringify(record), old);
      await codeOf(tab.run(tab.lock.renewProjectLock({ lease })));
    }
    const [error] = tab.heard().of('lock:error').map((event) => event.error);
    expect([error?.name, error?.code]).toEqual(['LockRenewalError', 'lease-expired']);
    expect(tab.heard('autosave').types().slice(-2)).toEqual(['autosave.lock.retry', 'autosave.lock.readonly']);
    expect(story(tab)).toMatchSnapshot();
  });

test('an old mtime alone does not end a lease: .lock says that it lives', async () => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  tab.opfs.setMtime('project/.lock', tab.clock.now() - 30_000);
  await expect(tab.run(tab.lock.renewProjectLock({ lease }))).resolves.toMatchObject({ fence: lease.fence });
});

test('free after 28 s of 30, by content and by mtime', async () => {
  const tab = new Tab({ webLocks: false });
  tab.opfs.write('project/.lock', foreign(tab));
  const once = { retryPolicy: { maxAttempts: 1 } };
  await tab.clock.advance(27_999);
  expect(await codeOf(tab.run(tab.lock.acquireProjectLock(once)))).toBe('acquire-timeout');
  tab.opfs.setMtime('project/.lock', tab.clock.now());
  await tab.clock.advance(1);
  expect(await codeOf(tab.run(tab.lock.acquireProjectLock(once)))).toBe('acquire-timeout');
  expect(tab.heard().of('lock:warning').map(({ warning }) => warning)).toContain('clock-skew');
  tab.opfs.setMtime('project/.lock', tab.clock.now() - 28_000);
  await expect(tab.run(tab.lock.acquireProjectLock(once))).resolves.toMatchObject({ didFallback: true });
  expect(story(tab)).toMatchSnapshot();
});

test('a browser that crashed: the next start finds the old leaseId and takes the project at once', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  tab.crash();
  const next = new Tab({ beside: tab });
  expect(next.record()).toMatchObject({ leaseId: lease.leaseId, held: true });
  const start = next.clock.now();
  const { lease: taken } = await next.run(next.lock.acquireProjectLock());
  expect(next.clock.now()).toBe(start);
  expect(taken.fence).toBeGreaterThan(lease.fence);
  expect(next.opfs.files()).not.toContain(`project/.lock.held.${lease.fence}`);
  expect(story(next)).toMatchSnapshot();
});

test('nothing is written outside of project/, and nothing into a log', async () => {
  const tab = new Tab();
  tab.opfs.write('workflow-cookbook/logs/day8.jsonl', '{"event":"x"}\n');
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  await tab.clock.advance(60_000);
  await tab.run(tab.lock.commitProjectFile({ lease, path: 'autosave/current.json', data: '{}' }));
  await tab.run(tab.lock.releaseProjectLock({ lease }));
  expect(tab.opfs.writes.filter((path) => !path.startsWith('project/'))).toEqual([]);
  expect(tab.opfs.read('workflow-cookbook/logs/day8.jsonl')).toBe('{"event":"x"}\n');
});

test.each(['collector', 'analyzer/x', 'workflow-cookbook/logs', 'my/logs', '../project', '', '/project'])(
  'the root %j is refused', async (root) => {
    const tab = new Tab();
    await expect(tab.run(tab.lock.acquireProjectLock({ root }))).rejects.toThrow('root');
    expect(tab.opfs.writes).toEqual([]);
  });

const NO_PLACES = ['../outside.json', 'a/../../x', '', '/x', '.lock', '.lock.guard'];

test.each(NO_PLACES)('the path %j is no place to save', async (path) => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const before = tab.opfs.writes.length;
  await expect(tab.run(tab.lock.commitProjectFile({ lease, path, data: '' }))).rejects.toThrow(TypeError);
  expect(tab.opfs.writes).toHaveLength(before);
});

test('the helpers are there under their names', () => {
  for (const Helper of [MockOPFS, FakeTimer, EventCollector]) expect(new Helper()).toBeDefined();
});
