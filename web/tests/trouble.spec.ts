// What goes wrong beside the lock itself: saves that cannot be checked, listeners that throw, the options of others.

import { expect, test, vi } from 'vitest';
import { LockRenewalError, ProjectLockError } from '../src/index.js';
import { createProjectLock } from '../src/local.js';
import { Tab, codeOf, stickGuard } from './helpers.js';

// An app saved while a frozen tab had the guard, and got an error of the inside of the package: no code, nothing to tell
// the user. Every refusal is a ProjectLockError.
test('a save against a stuck guard is refused in the words of the table, and can be tried again', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const stuck = await stickGuard(tab);
  const save = tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' }));
  await expect(save).rejects.toBeInstanceOf(LockRenewalError);
  await expect(save).rejects.toMatchObject({ code: 'fallback-read-failed', retryable: true, cause: 'unavailable(guard-busy)' });
  expect(tab.opfs.files().filter((name) => name.includes('.tmp'))).toEqual([]);
  stuck.close();
  expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })))).toBe('none');
});

// An app whose `.lock` could not be read for a moment was told that somebody else had taken the project, and threw its
// work away.
test('a save whose .lock cannot be read says so, and does not blame anybody', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  tab.opfs.fail({ operation: 'getFile', path: 'project/.lock', error: 'NotReadableError' });
  const save = tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' }));
  await expect(save).rejects.toBeInstanceOf(ProjectLockError);
  await expect(save).rejects.toMatchObject({ code: 'fallback-read-failed', retryable: true });
  expect(tab.heard().of('lock:readonly-entered')).toEqual([]);
  expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })))).toBe('none');
});

// An app's onReadonly threw, and its acquire was never answered: the rest of what was to be done was left undone.
test('an onReadonly that throws keeps nobody from hearing, and the acquire is answered', async () => {
  const tab = new Tab({ webLocks: false, folder: false });
  const order: string[] = [];
  tab.lock.subscribeLockEvents(({ type }) => { if (type === 'lock:readonly-entered') order.push('subscriber'); });
  const thrown: unknown[] = [];
  const original = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException').once('uncaughtException', (error) => thrown.push(error));
  const onReadonly = () => {
    order.push('onReadonly');
    throw new Error('mine');
  };
  expect(await codeOf(tab.run(tab.lock.acquireProjectLock({ onReadonly })))).toBe('fallback-open-failed');
  await vi.waitUntil(() => thrown.length > 0);
  original.forEach((listener) => process.on('uncaughtException', listener));
  expect(String(thrown)).toBe('Error: mine');
  expect(order).toEqual(['subscriber', 'onReadonly']);
});

// Two projects on one page. While one was opened with a folder that is refused, a save of the other failed with a TypeError
// about a folder that it had nothing to do with.
test('what is wrong with one project is not told to the save of another', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const refused = () => tab.lock.acquireProjectLock({ root: '../elsewhere' }).catch((error: unknown) => error);
  const [error, code] = await Promise.all([
    refused(), codeOf(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })),
  ]);
  expect([error instanceof TypeError, code]).toEqual([true, 'none']);
  await Promise.all([refused(), tab.lock.freeze()]);
  expect(tab.heard().of('lock:readonly-entered')).toHaveLength(1);
});

// A page was frozen while a second project was still being opened: the first one was not given back, because all were told
// together.
test('a project that is still being opened keeps no other from being frozen', async () => {
  const { clock, opfs } = new Tab();
  const folders = [Promise.resolve(opfs.root), new Promise(() => {})];
  vi.stubGlobal('isSecureContext', true);
  vi.stubGlobal('navigator', { storage: { getDirectory: () => folders.shift() } });
  const lock = createProjectLock({ locks: null, clock, channel: null });
  await lock.acquireProjectLock();
  void lock.acquireProjectLock({ root: 'slow' });
  void lock.freeze();
  await clock.advance(100);
  vi.unstubAllGlobals();
  // Its held file is closed: the next tab has the project at once.
  const next = createProjectLock({ locks: null, clock, channel: null, folder: opfs.tab().root });
  await expect(next.acquireProjectLock()).resolves.toMatchObject({ lease: { strategy: 'file-lock' } });
});

test('a root that is refused leaves no channel open', async () => {
  const opened: string[] = [];
  const channel = () => {
    opened.push('one');
    return { onmessage: null, postMessage: () => {} };
  };
  const tab = new Tab({ channel });
  await expect(tab.lock.acquireProjectLock({ root: '../elsewhere' })).rejects.toThrow(TypeError);
  expect(opened).toEqual([]);
  await tab.run(tab.lock.acquireProjectLock());
  expect(opened).toEqual(['one']);
});

test('why a project was given back is told, and must be one of the reasons', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const nonsense = tab.lock.releaseProjectLock({ lease, reason: 'bored' as never });
  await expect(nonsense).rejects.toThrow(/reason.*completed, aborted, expired/);
  await tab.run(tab.lock.releaseProjectLock({ lease, reason: 'aborted' }));
  expect(tab.heard().of('lock:release-requested')).toMatchObject([{ reason: 'aborted' }]);
});
