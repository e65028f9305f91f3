// `withProjectLock` when its lease is lost: the work ends, and nothing is held, kept or taken for it afterwards.

import { describe, expect, test } from 'vitest';
import { settled } from '../src/testing.js';
import { OTHER, Tab, codeOf } from './helpers.js';

/** Work that goes on until it is told to end. */
function endless(tab: Tab, options = {}): { answer: Promise<string>; finish(value: string): void } {
  let finish = (_: string) => {};
  const work = () => new Promise<string>((resolve) => { finish = resolve; });
  const answer = tab.lock.withProjectLock(options, work);
  answer.catch(() => {});
  return { answer, finish: (value) => finish(value) };
}

/** Another program takes the folder of a project. */
function takeAway(tab: Tab, root = 'project'): void {
  const record = { leaseId: OTHER, fence: 2 ** 50, expiresAt: tab.clock.now() + 60_000 };
  tab.opfs.write(`${root}/.lock`, JSON.stringify(record));
}

// A page that works with `withProjectLock` went into the back/forward cache and came back. Its work was rejected, and the
// tab took the project anew for nobody: it renewed `.lock` for ever, no other tab got in, and its own next call failed with
// lease-mismatch.
describe.each([[{}], [{ autoResume: true }]])('withProjectLock(%j)', (options) => {
  test('does not take the project anew after a freeze: nobody would use it', async () => {
    const tab = new Tab();
    const { answer } = endless(tab, options);
    await settled();
    await tab.lock.freeze();
    await tab.clock.advance(100);
    expect(await codeOf(answer)).toBe('lease-stale');
    await tab.lock.resume();
    await tab.clock.advance(60_000);
    expect(tab.heard().of('lock:acquired')).toHaveLength(1);
    expect(tab.record()).toBeNull();
    expect(await tab.run(tab.lock.withProjectLock(options, async () => 'again'))).toBe('again');
  });

  test('does not take it after a loss, nor after an acquire that failed', async () => {
    const tab = new Tab({ webLocks: false });
    const { answer } = endless(tab, options);
    await settled();
    takeAway(tab);
    await tab.clock.advance(20_000);
    expect(await codeOf(answer)).toBe('lease-stale');
    expect(await codeOf(tab.run(tab.lock.withProjectLock(options, async () => 'no')))).toBe('acquire-timeout');
    await tab.clock.advance(120_000);
    expect(tab.heard().of('lock:acquired')).toHaveLength(1);
    expect(tab.heard().types().at(-1)).toBe('lock:available');
    expect(await tab.run(tab.lock.withProjectLock(options, async () => 'again'))).toBe('again');
  });
});

// The question whether its lease was still good was a renewal, and a command shows that the page lives: a page that was
// about to be frozen acquired the project again at once, and was frozen with it.
test('a page that is frozen stays so, whatever withProjectLock asks', async () => {
  const tab = new Tab();
  const { answer } = endless(tab);
  await settled();
  await tab.lock.freeze();
  await tab.clock.advance(60_000);
  expect(await codeOf(answer)).toBe('lease-stale');
  expect(tab.heard().of('lock:acquired')).toHaveLength(1);
});

// Two projects on one page. One was taken over while the disk of the other failed a single heartbeat: the work on the
// other was ended with an error that was not its own, and its `.lock` was renewed for ever.
test('a loss of one project does not end the work on another whose disk fails at the same time', async () => {
  const tab = new Tab({ webLocks: false });
  await tab.run(tab.lock.acquireProjectLock({ root: 'other', lockName: 'other' }));
  const { answer, finish } = endless(tab);
  await settled();
  takeAway(tab, 'other');
  tab.opfs.fail({ operation: 'move', path: 'project/.lock.tmp', error: 'UnknownError', times: 3 });
  await tab.clock.advance(17_600);
  expect(tab.heard().of('lock:readonly-entered')).toHaveLength(1);
  finish('done');
  expect(await tab.run(answer)).toBe('done');
  expect(tab.opfs.read('project/.lock')).toBeNull();
});

describe('a freeze', () => {
  // One freeze turned autoResume on for good: a tab that was taken over a week later took the project back.
  test('makes a tab take the project anew once, and not after other losses', async () => {
    const tab = new Tab({ webLocks: false });
    await tab.run(tab.lock.acquireProjectLock());
    await tab.lock.freeze();
    await tab.clock.advance(100);
    await tab.lock.resume();
    await tab.clock.advance(1_000);
    expect(tab.heard().of('lock:acquired')).toHaveLength(2);
    takeAway(tab);
    await tab.clock.advance(120_000);
    expect(tab.heard().of('lock:readonly-entered')).toHaveLength(2);
    expect(tab.heard().of('lock:acquired')).toHaveLength(2);
    expect(tab.heard().types().at(-1)).toBe('lock:available');
  });

  test('is the end for who said that it never resumes by itself', async () => {
    const tab = new Tab();
    await tab.run(tab.lock.acquireProjectLock({ autoResume: false }));
    await tab.lock.freeze();
    await tab.clock.advance(100);
    await tab.lock.resume();
    await tab.clock.advance(60_000);
    expect(tab.heard().of('lock:acquired')).toHaveLength(1);
  });
});
