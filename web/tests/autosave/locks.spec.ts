// The cases of Project lock states 4 (docs/sources.md), under their numbers.

import { expect, test } from 'vitest';
import type { ProjectLockError } from '../../src/index.js';
import { settled } from '../../src/testing.js';
import { OTHER, Tab, codeOf, story } from '../helpers.js';

test('1 the normal course with a Web Lock: acquire, renew, release', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  expect(lease).toMatchObject({ ttlMillis: 25_000, viaFallback: false, nextHeartbeatAt: tab.clock.now() + 20_000 });
  await tab.clock.advance(20_000);
  await tab.run(tab.lock.releaseProjectLock({ lease }));
  const wanted = ['lock:acquired', 'lock:renewed', 'lock:released'];
  expect(tab.heard().types().filter((type) => wanted.includes(type))).toEqual(wanted);
  expect(tab.opfs.files()).toEqual(['project/.lock.guard']);
  expect((await tab.locks.query()).held).toEqual([]);
  expect(story(tab)).toMatchSnapshot();
});

test('2 the fallback: .lock is made, and it is told once', async () => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  expect(lease).toMatchObject({ viaFallback: true, strategy: 'file-lock', ttlMillis: 30_000 });
  expect(tab.record()).toMatchObject({ leaseId: lease.leaseId, owner: lease.owner, ttlSeconds: 30, fence: lease.fence });
  expect(tab.heard().of('lock:warning').map(({ warning }) => warning)).toEqual(['fallback-engaged']);
  expect(story(tab)).toMatchSnapshot();
});

test('3 two waits of 500 and 1000 ms, and the third failure is read-only', async () => {
  const tab = new Tab({ webLocks: false });
  tab.opfs.write('project/.lock', JSON.stringify({
    version: 1, leaseId: OTHER, owner: 'other', updatedAt: new Date(tab.clock.now()).toISOString(), ttlSeconds: 30,
  }));
  const start = tab.clock.now();
  expect(await codeOf(tab.run(tab.lock.acquireProjectLock(), 3))).toBe('acquire-timeout');
  expect(tab.clock.now() - start).toBeLessThanOrEqual(2_000);
  expect(tab.heard().of('lock:waiting').map(({ delayMs }) => delayMs)).toEqual([500, 1_000]);
  expect(tab.heard().of('lock:readonly-entered').map(({ reason }) => reason)).toEqual(['acquire-timeout']);
  expect(story(tab)).toMatchSnapshot();
});

test('4 a renewal extends .lock by 30 s; after two failed heartbeats it is over', async () => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  await tab.clock.advance(5_000);
  const renewed = await tab.run(tab.lock.renewProjectLock({ lease }));
  expect(renewed.expiresAt).toBe(tab.clock.now() + 30_000);
  expect(tab.record()).toMatchObject({ expiresAt: tab.clock.now() + 30_000 });
  tab.opfs.fail({ operation: 'move', path: 'project/.lock.tmp', error: 'UnknownError', times: 100 });
  await tab.clock.advance(30_000);
  expect(tab.heard().of('lock:readonly-entered')).toHaveLength(1);
  expect(await codeOf(tab.run(tab.lock.renewProjectLock({ lease: renewed })))).toBe('renew-failed');
  expect(story(tab)).toMatchSnapshot();
});

test.each(['renew-failed', 'lease-stale', 'release-failed'])('5 read-only because of %s', async (reason) => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  if (reason === 'renew-failed') {
    tab.opfs.fail({ operation: 'move', path: 'project/.lock.tmp', error: 'QuotaExceededError', times: 100 });
    await tab.clock.advance(30_000);
  } else if (reason === 'lease-stale') {
    tab.opfs.write('project/.lock', JSON.stringify({ ...tab.record(), leaseId: OTHER, fence: lease.fence + 1 }));
    await tab.clock.advance(20_000);
  } else {
    tab.opfs.fail({ operation: 'removeEntry', path: 'project/.lock', error: 'UnknownError', times: 100 });
    await codeOf(tab.run(tab.lock.releaseProjectLock({ lease })));
    await tab.clock.advance(5_000);
  }
  expect(tab.heard().of('lock:readonly-entered').map((event) => event.reason)).toEqual([reason]);
  expect(story(tab)).toMatchSnapshot();
});

test('6 withProjectLock: heartbeats keep a long task, and a loss interrupts it', async () => {
  const tab = new Tab();
  const readonly: string[] = [];
  let interrupted: unknown;
  const work = tab.lock.withProjectLock({ onReadonly: ({ reason }) => readonly.push(reason ?? '') }, (lease, signal) =>
    new Promise<never>(() => {
      expect(lease.ttlMillis).toBe(25_000);
      signal.addEventListener('abort', () => { interrupted = signal.reason; });
    }));
  const code = codeOf(work);
  await tab.clock.advance(65_000);
  expect(tab.heard().of('lock:renewed')).toHaveLength(3);
  tab.opfs.write('project/.lock', JSON.stringify({ ...tab.record(), leaseId: OTHER, fence: 2 ** 50 }));
  await tab.clock.advance(20_000);
  expect(await code).toBe('lease-stale');
  expect((interrupted as ProjectLockError).code).toBe('lease-stale');
  expect(readonly).toEqual(['lease-stale']);
  expect(story(tab)).toMatchSnapshot();
});

test('6 withProjectLock is not interrupted by the loss of another project', async () => {
  const tab = new Tab();
  const other = await tab.run(tab.lock.acquireProjectLock({ root: 'other', lockName: 'other' }));
  let finish = (_: string) => {};
  const work = tab.lock.withProjectLock({}, () => new Promise<string>((resolve) => { finish = resolve; }));
  await settled();
  const [fence, expiresAt] = [other.lease.fence + 1, tab.clock.now() + 60_000];
  tab.opfs.write('other/.lock', JSON.stringify({ leaseId: OTHER, fence, expiresAt }));
  await tab.clock.advance(30_000);
  expect(tab.heard().of('lock:readonly-entered')).toHaveLength(1);
  finish('done');
  expect(await tab.run(work)).toBe('done');
});

test('6 withProjectLock gives the project back, whatever the work comes to', async () => {
  const tab = new Tab();
  expect(await tab.run(tab.lock.withProjectLock({}, async () => 42))).toBe(42);
  const failed = tab.lock.withProjectLock({}, () => Promise.reject(new RangeError('no')));
  await expect(tab.run(failed)).rejects.toThrow(RangeError);
  expect(tab.opfs.read('project/.lock')).toBeNull();
  expect(story(tab)).toMatchSnapshot();
});

test('7 who has unsubscribed hears nothing, and may do so twice', async () => {
  const tab = new Tab();
  const heard: string[] = [];
  const subscription = tab.lock.subscribeLockEvents(({ type }) => heard.push(type));
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const before = heard.length;
  expect(before).toBeGreaterThan(0);
  subscription.unsubscribe();
  subscription.unsubscribe();
  await tab.run(tab.lock.releaseProjectLock({ lease }));
  await settled();
  expect(heard).toHaveLength(before);
  expect(story(tab)).toMatchSnapshot();
});
