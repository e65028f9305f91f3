// The built package in node, without any setting: what docs/testing-doubles.md shows.

import { expect, test } from 'vitest';

type Lock = typeof import('../src/local.js');
type Doubles = typeof import('../src/testing.js');

const built = (name: string) => new URL(`../dist/${name}`, import.meta.url).href;
const { createProjectLock } = await import(/* @vite-ignore */ built('local.js')) as Lock;
const { EventProbe, FakeClock, MockNavigatorLocks, MockOPFS } = await import(/* @vite-ignore */ built('testing.js')) as Doubles;

test('the example of the guide', async () => {
  const clock = new FakeClock();
  const opfs = new MockOPFS(clock);
  const lock = createProjectLock({ locks: new MockNavigatorLocks(), folder: opfs.root, clock, channel: null });
  const probe = new EventProbe();
  lock.subscribeLockEvents(probe.listener);

  const { lease } = await lock.acquireProjectLock();
  await clock.advance(20_000);
  expect(probe.types()).toContain('lock:renewed');
  expect(JSON.parse(opfs.read('project/.lock') ?? '').leaseId).toBe(lease.leaseId);
});

test('a call that waits, while another tab holds', async () => {
  const clock = new FakeClock();
  const opfs = new MockOPFS(clock);
  const locks = new MockNavigatorLocks();
  const lock = createProjectLock({ locks, folder: opfs.root, clock, channel: null });
  const other = createProjectLock({ locks: locks.tab(), folder: opfs.tab().root, clock, channel: null });
  await lock.acquireProjectLock();
  const code = other.acquireProjectLock().catch((error) => error.code);
  await clock.advance(5_000);
  expect(await code).toBe('acquire-timeout');
});
