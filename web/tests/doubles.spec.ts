// What a test can make the doubles do, beyond what a browser does.

import { expect, test } from 'vitest';
import { MockNavigatorLocks, MockOPFS, settled } from '../src/testing.js';

test('a Web Lock can be given to the next one, and a request that waits be ended', async () => {
  const first = new MockNavigatorLocks();
  const [second, third] = [first.tab(), first.tab()];
  const granted: string[] = [];
  const hold = (who: string) => () => {
    granted.push(who);
    return new Promise<never>(() => {});
  };
  void first.request('project', hold('first'));
  await settled();
  const waiting = second.request('project', hold('second')).catch(({ name }: Error) => name);
  void third.request('project', hold('third'));
  await settled();
  second.abort('project');
  expect(await waiting).toBe('AbortError');
  expect(granted).toEqual(['first']);
  first.release('project');
  expect(granted).toEqual(['first', 'third']);
});

test('every call of the file system can be made to fail', async () => {
  const opfs = new MockOPFS();
  const file = await opfs.root.getFileHandle('file', { create: true });
  const error = 'UnknownError';
  opfs.fail({ operation: 'keys', path: '', error });
  opfs.fail({ operation: 'getSize', path: 'file', error });
  opfs.fail({ operation: 'close', path: 'file', error });
  await expect(opfs.root.keys().next()).rejects.toThrow('keys');
  const handle = await file.createSyncAccessHandle();
  expect(() => handle.getSize()).toThrow('getSize');
  handle.close();
  const stream = await file.createWritable();
  await stream.write('lost');
  await expect(stream.close()).rejects.toThrow('close');
  expect(opfs.read('file')).toBe('');
});

test('a write can come short', async () => {
  const opfs = new MockOPFS();
  const handle = await (await opfs.root.getFileHandle('file', { create: true })).createSyncAccessHandle();
  opfs.fail({ operation: 'write', short: 2 });
  const bytes = new TextEncoder().encode('lease');
  expect([handle.write(bytes), opfs.read('file'), handle.write(bytes), opfs.read('file')]).toEqual([2, 'le', 5, 'lease']);
});
