// The case table of Project lock service 6 (docs/sources.md), through the package and on its doubles. The same
// table is tried on the rules alone in crates/leasehold-project-rules/tests/rules/tables.rs.

import { expect, test } from 'vitest';
import { EventProbe, MockNavigatorLocks, MockOPFS, FakeClock } from '../src/testing.js';
import { OTHER, Tab, codeOf, story } from './helpers.js';

const SERVICE = { profile: 'service' } as const;

test('TC-01 a Web Lock that is granted', async () => {
  const tab = new Tab();
  const { lease, didFallback } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  expect(didFallback).toBe(false);
  expect(lease).toMatchObject({ source: 'web-lock', ttlMillis: 15_000, expiresAt: tab.clock.now() + 15_000 });
  expect(lease.leaseId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(JSON.parse(JSON.stringify(lease))).toEqual(lease);
  expect(tab.heard('service').types()).toEqual(['acquired']);
  expect(story(tab)).toMatchSnapshot();
});

test('TC-02 no Web Locks: it falls back', async () => {
  const tab = new Tab();
  tab.locks.queue.push('unsupported');
  const { lease, didFallback } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  expect(didFallback).toBe(true);
  expect(lease.source).toBe('opfs-lock');
  expect(tab.record()).toMatchObject({ version: 1, leaseId: lease.leaseId, ttlSeconds: 15, expiresAt: lease.expiresAt });
  expect(tab.heard('service').types()).toEqual(['switch-to-fallback', 'acquired']);
  expect(story(tab)).toMatchSnapshot();
});

test('TC-03 a conflict backs off exponentially', async () => {
  const tab = new Tab({ webLocks: false });
  // The shape of Project lock service 7. It was written 26 s ago and is free at 28 s.
  await tab.opfs.file('project/.lock').write(JSON.stringify({ leaseId: OTHER, expiresAt: tab.clock.now() + 4_000 }));
  tab.opfs.setMtime('project/.lock', tab.clock.now() - 26_000);
  const start = tab.clock.now();
  const { lease } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  expect(lease.acquiredAt - start).toBe(3_000);
  expect(tab.heard('service').of('backoff').map(({ delayMs }) => delayMs)).toEqual([200, 400, 800, 1_600]);
  expect(story(tab)).toMatchSnapshot();
});

test('TC-04 an aborted signal ends the acquire, and never falls back', async () => {
  const holder = new Tab();
  const tab = new Tab({ beside: holder });
  await holder.run(holder.lock.acquireProjectLock(SERVICE));
  const abort = new AbortController();
  const call = tab.lock.acquireProjectLock({ ...SERVICE, signal: abort.signal });
  const code = codeOf(call);
  await tab.clock.advance(100);
  abort.abort();
  expect(await code).toBe('web-lock-aborted');
  await tab.clock.advance(20_000);
  expect(tab.heard('service').types()).toEqual(['acquire-failed']);
  expect((await tab.locks.query()).pending).toEqual([]);
  expect(story(tab)).toMatchSnapshot();
});

test('TC-05 a renewal extends the lease', async () => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  await tab.clock.advance(2_000);
  const renewed = await tab.run(tab.lock.renewProjectLock({ lease }));
  expect(renewed).toMatchObject({ leaseId: lease.leaseId, fence: lease.fence, expiresAt: lease.expiresAt + 2_000 });
  expect(tab.record()).toMatchObject({ expiresAt: renewed.expiresAt, seq: 2 });
  expect(tab.heard('service').types()).toEqual(['switch-to-fallback', 'acquired', 'renewed']);
  expect(story(tab)).toMatchSnapshot();
});

test('TC-06 a .lock that cannot be deleted', async () => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  tab.opfs.fail({ operation: 'removeEntry', path: 'project/.lock', error: 'NoModificationAllowedError' });
  expect(await codeOf(tab.run(tab.lock.releaseProjectLock({ lease })))).toBe('fallback-write-failed');
  expect(tab.heard('service').types()).toEqual(['switch-to-fallback', 'acquired', 'release-failed']);
  await tab.clock.advance(500);
  expect(tab.heard('service').types().at(-1)).toBe('released');
  expect(tab.opfs.files()).toEqual(['project/.lock.guard']);
  expect(story(tab)).toMatchSnapshot();
});

test('TC-07 an expired lease is noticed, and must be acquired anew', async () => {
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  tab.clock.jump(16_000);
  expect(await codeOf(tab.run(tab.lock.renewProjectLock({ lease })))).toBe('lease-expired');
  expect(tab.heard('service').types()).toEqual(['switch-to-fallback', 'acquired', 'expired']);
  const { lease: next } = await tab.run(tab.lock.acquireProjectLock(SERVICE));
  expect(next.fence).toBeGreaterThan(lease.fence);
  expect(story(tab)).toMatchSnapshot();
});

test('the four doubles are there under their names', () => {
  for (const Double of [MockNavigatorLocks, MockOPFS, FakeClock, EventProbe]) expect(new Double()).toBeDefined();
});
