// What is written, on the doubles: whole, in the order of the calls, and nothing stays behind.

import { afterEach, describe, expect, test, vi } from 'vitest';
import { createProjectLock } from '../src/local.js';
import { MockNavigatorLocks, MockOPFS } from '../src/testing.js';
import { NO_SPACE, Tab, codeOf } from './helpers.js';

const ONCE = { retryPolicy: { maxAttempts: 1 }, webLockTimeoutMs: 50 };

/** What saves have left behind. */
function leftBehind(opfs: MockOPFS): string[] {
  return opfs.files().filter((name) => name.includes('.lock.save.'));
}

describe('a write that comes short', () => {
  // An access handle may write less than it is given, and only says how much. The rest of a user's project was filled up
  // with zeros, and took the place of the good file.
  test('is gone on with', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    tab.opfs.fail({ operation: 'write', path: `project/.lock.save.${lease.fence}`, short: 3, times: 2 });
    await tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'all of it' }));
    expect(tab.opfs.read('project/a')).toBe('all of it');
  });

  test('and does not go on: no space, and the old file stays', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    await tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'old' }));
    const path = `project/.lock.save.${lease.fence}`;
    tab.opfs.fail({ operation: 'write', path, short: 3 });
    tab.opfs.fail({ operation: 'write', path, short: 0 });
    const save = tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'all of it' }));
    await expect(save).rejects.toMatchObject(NO_SPACE);
    expect(tab.opfs.read('project/a')).toBe('old');
    expect(leftBehind(tab.opfs)).toEqual([]);
  });

  test('of .lock: it is not there, rather than damaged', async () => {
    const tab = new Tab({ webLocks: false });
    tab.opfs.fail({ operation: 'write', path: 'project/.lock.tmp', short: 0 });
    const call = tab.run(tab.lock.acquireProjectLock(ONCE));
    await expect(call).rejects.toMatchObject({ cause: { code: 'fallback-write-failed' } });
    expect(tab.opfs.read('project/.lock')).toBeNull();
  });
});

describe('saves of one file at the same time', () => {
  // Two saves of one file shared what they were written to. The second one was refused by the browser, or the first one
  // took the place of the second, and the user's last words were gone.
  test('are all made, and the last call stays', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const texts = ['x'.repeat(100_000), 'two', '', 'the last words'];
    const save = (data: string) => tab.lock.commitProjectFile({ lease, path: 'deep/file', data });
    await tab.run(Promise.all(texts.map(save)));
    expect(tab.opfs.read('project/deep/file')).toBe('the last words');
    expect(leftBehind(tab.opfs)).toEqual([]);
  });

  test('one that fails keeps none of the others back', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    tab.opfs.fail({ operation: 'move', path: `project/.lock.save.${lease.fence}`, error: 'UnknownError' });
    const save = (data: string) => tab.lock.commitProjectFile({ lease, path: 'a', data });
    const [first, second] = await tab.run(Promise.allSettled([save('one'), save('two')]));
    expect([first.status, second.status]).toEqual(['rejected', 'fulfilled']);
    expect(tab.opfs.read('project/a')).toBe('two');
  });
});

test('a release that fails lets the next one have the project at once', async () => {
  // A tab could not delete `.lock`, and kept its held file open: all others took it for alive, for 23 more seconds.
  const tab = new Tab({ webLocks: false });
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  tab.opfs.fail({ operation: 'removeEntry', path: 'project/.lock', error: 'UnknownError', times: 100 });
  expect(await codeOf(tab.lock.releaseProjectLock({ lease }))).toBe('release-failed');
  const other = new Tab({ beside: tab, webLocks: false });
  const { lease: next } = await other.lock.acquireProjectLock(ONCE);
  const held = tab.opfs.files().filter((name) => name.includes('.held.'));
  expect(held).toEqual([`project/.lock.held.${next.fence}`]);
});

describe('what a save was written to', () => {
  // Every save that met a full disk left a file of its full size behind, for ever, and made the disk fuller.
  test.each(['createSyncAccessHandle', 'write', 'truncate', 'flush', 'move'] as const)(
    'is removed when %s fails', async (operation) => {
      const tab = new Tab();
      const { lease } = await tab.run(tab.lock.acquireProjectLock());
      tab.opfs.fail({ operation, path: `project/.lock.save.${lease.fence}`, error: 'QuotaExceededError' });
      const save = tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'new' }));
      await expect(save).rejects.toMatchObject(NO_SPACE);
      expect(tab.opfs.files().filter((name) => !name.startsWith('project/.lock'))).toEqual([]);
      expect(leftBehind(tab.opfs)).toEqual([]);
    });

  test('is removed by the next owner when its tab has crashed', async () => {
    let [crashes, left] = [0, 0];
    for (let over = false; !over; crashes += 1) {
      const tab = new Tab();
      const { lease } = await tab.run(tab.lock.acquireProjectLock());
      tab.crashAfter(crashes);
      const save = tab.lock.commitProjectFile({ lease, path: 'a', data: 'new' });
      save.then(() => { over = true; }, () => {});
      await tab.clock.advance(10);
      tab.crash();
      left += leftBehind(tab.opfs).length;
      const next = new Tab({ beside: tab });
      await next.run(next.lock.acquireProjectLock(ONCE));
      expect(leftBehind(tab.opfs)).toEqual([]);
    }
    expect(left).toBeGreaterThan(3);
  });

  test('is not removed while it is being written by the one who holds', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const save = tab.lock.commitProjectFile({ lease, path: 'a', data: 'mine' });
    await tab.run(Promise.all([save, tab.lock.acquireProjectLock({ reentrant: true })]));
    expect(tab.opfs.read('project/a')).toBe('mine');
  });
});

describe('private files that cannot be had', () => {
  afterEach(() => { vi.unstubAllGlobals(); });

  /** A browser whose private files fail so often. */
  function browser(error: string, times: number): MockOPFS {
    const opfs = new MockOPFS();
    let left = times;
    const getDirectory = async () => {
      if (left-- > 0) throw new DOMException('not now', error);
      return opfs.root;
    };
    vi.stubGlobal('isSecureContext', true);
    vi.stubGlobal('navigator', { locks: new MockNavigatorLocks(), storage: { getDirectory } });
    return opfs;
  }

  // A passing error of the browser counted as "no private files here": the tab was given the Web Lock alone for as long as
  // it lived, beside another tab that held `.lock`. Both saved.
  test('are no reason to go without: it is refused, and had the next time', async () => {
    browser('UnknownError', 1);
    const lock = createProjectLock({ channel: null });
    const refused = lock.acquireProjectLock(ONCE);
    await expect(refused).rejects.toMatchObject({ code: 'fallback-open-failed', cause: 'unavailable(UnknownError: not now)' });
    const { lease } = await lock.acquireProjectLock(ONCE);
    expect(lease.guarantee).toBe('exclusive');
    await lock.releaseProjectLock({ lease });
  });

  test('because the browser refuses them: it says so', async () => {
    browser('SecurityError', 1);
    const refused = createProjectLock({ channel: null }).acquireProjectLock(ONCE);
    await expect(refused).rejects.toMatchObject({ cause: 'unavailable(private-window-or-blocked-storage)' });
  });

  test('because there is no such thing: the Web Lock alone is a lease', async () => {
    vi.stubGlobal('isSecureContext', true);
    vi.stubGlobal('navigator', { locks: new MockNavigatorLocks() });
    const lock = createProjectLock({ channel: null });
    const { lease } = await lock.acquireProjectLock(ONCE);
    expect(lease.guarantee).toBe('tab-exclusive');
    await lock.releaseProjectLock({ lease });
  });
});
