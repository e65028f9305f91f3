// Base versions and drafts, on the doubles: a tab that comes back cannot put its old memory over what another one saved, and
// what it could not save is kept.

import { expect, test } from 'vitest';
import { Tab, codeOf, stickGuard } from './helpers.js';

const PATH = 'autosave/current.json';
const FILE = `project/${PATH}`;
/** As `printf v1 | sha256sum` prints it. */
const V1 = '3bfc269594ef649228e9a74bab00f042efc91d5acc6fbee31a382e80d42388fe';

/** A tab that holds the project, and has read `v1`. */
async function holder(): Promise<{ tab: Tab; save: (data: string, more?: object) => Promise<string> }> {
  const tab = new Tab();
  tab.opfs.write(FILE, 'v1');
  await tab.run(tab.lock.readProjectFile(PATH));
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const save = (data: string, more = {}) => codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: PATH, data, ...more })));
  return { tab, save };
}

async function drafts(tab: Tab): Promise<unknown[]> {
  return (await tab.run(tab.lock.listProjectDrafts())).map(({ path, data }) => [path, data]);
}

// Tab B had loaded "v1"; A saved "v2" and was closed; B became editable, and one key in B stored "v1!": v2 was gone.
test('a tab that gets the project later is told that it changed, and cannot overwrite it', async () => {
  const { tab, save } = await holder();
  const other = new Tab({ beside: tab });
  expect(await other.run(other.lock.readProjectFile(PATH))).toEqual({ data: 'v1', version: V1 });
  await codeOf(other.run(other.lock.acquireProjectLock({ autoResume: true, webLockTimeoutMs: 50, retryPolicy: { maxAttempts: 1 } })));
  expect(await save('v2')).toBe('none');
  tab.crash();
  await other.clock.advance(5_000);
  const [event] = other.heard().of('lock:acquired');
  expect(event).toMatchObject({ changed: true });
  const lease = event!.lease;
  const late = other.lock.commitProjectFile({ lease, path: PATH, data: 'v1!' });
  await expect(other.run(late)).rejects.toMatchObject({ name: 'LockConflictError', code: 'stale-base', retryable: false, cause: PATH });
  expect(other.opfs.read(FILE)).toBe('v2');
  expect(await drafts(other)).toEqual([[PATH, 'v1!']]);
  // It still holds the project, and goes on from what is there.
  expect(await other.run(other.lock.readProjectFile(PATH))).toMatchObject({ data: 'v2' });
  const { version } = await other.run(other.lock.commitProjectFile({ lease, path: PATH, data: 'v3' }));
  expect(await other.run(other.lock.readProjectFile(PATH))).toEqual({ data: 'v3', version });
  expect(await drafts(other)).toEqual([[PATH, 'v1!']]);
});

test.each([
  ['what this tab read', {}, 'v1', 'none'],
  ['another version', {}, 'v2', 'stale-base'],
  ['another version, said so', { overwrite: true }, 'v2', 'none'],
  ['the version that is named', { base: V1 }, 'v1', 'none'],
  ['another than the version that is named', { base: 'nonsense' }, 'v1', 'stale-base'],
  ['a file, where there was to be none', { base: null }, 'v1', 'stale-base'],
  ['nothing, as was said', { base: null }, null, 'none'],
  ['nothing, where there was a file', {}, null, 'stale-base'],
  ['what is to be saved', {}, 'new', 'none'],
])('a save finds %s', async (_, more, there, expected) => {
  const { tab, save } = await holder();
  if (there === null) tab.opfs.remove(FILE);
  else tab.opfs.write(FILE, there);
  expect(await save('new', more)).toBe(expected);
  expect(tab.opfs.read(FILE)).toBe(expected === 'none' ? 'new' : there);
});

test('a tab that never read an existing file cannot replace it, and can make a new one', async () => {
  const tab = new Tab();
  tab.opfs.write('project/old.json', 'old');
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'old.json', data: 'x' })))).toBe('stale-base');
  expect(await tab.run(tab.lock.readProjectFile('new.json'))).toEqual({ data: null, version: null });
  expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'new.json', data: 'x' })))).toBe('none');
  expect(await codeOf(tab.run(tab.lock.readProjectFile('../outside')))).toContain('TypeError');
});

test('bytes stay bytes, and a text that is none is refused', async () => {
  const tab = new Tab();
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  const data = new Uint8Array([0xff, 0, 10]);
  await tab.run(tab.lock.commitProjectFile({ lease, path: 'image', data }));
  expect((await tab.run(tab.lock.readProjectFile('image', { as: 'bytes' }))).data).toEqual(data);
  await expect(tab.run(tab.lock.readProjectFile('image'))).rejects.toBeInstanceOf(TypeError);
  await tab.run(tab.lock.keepProjectDraft({ path: 'image', data: data.slice(1) }));
  expect(await drafts(tab)).toEqual([['image', data.slice(1)]]);
});

// The page asked for a save, and then had the newer file before the save had its turn: it counted as made from what was read.
test('a save is made from what was read before it was asked for', async () => {
  const { tab, save } = await holder();
  tab.opfs.write(FILE, 'v2');
  const late = save('v1!');
  const read = tab.lock.readProjectFile(PATH);
  expect(await late).toBe('stale-base');
  await tab.run(read);
  expect(await save('v3')).toBe('none');
  const both = [save('v4'), save('v5')];
  expect(await Promise.all(both)).toEqual(['none', 'none']);
});

test('what a lost lease could not save is kept, until it is saved after all', async () => {
  const { tab, save } = await holder();
  tab.opfs.write('project/.lock', '{}'); // another program's, and damaged
  expect(await save('v1!')).toBe('lease-stale');
  expect(await save('v1!!')).toBe('lease-stale');
  expect(await drafts(tab)).toEqual([[PATH, 'v1!!']]);
  tab.opfs.remove('project/.lock');
  const { lease } = await tab.run(tab.lock.acquireProjectLock());
  await tab.run(tab.lock.commitProjectFile({ lease, path: PATH, data: 'v1!!!' }));
  expect(await drafts(tab)).toEqual([]);
});

// Three tabs at random in Chromium: a frozen tab kept the guard, six saves of another were refused with an error that allows to
// try again, and then its page was reloaded. What it had typed was neither in the file nor offered.
test('a save that may be tried again is kept until then', async () => {
  const { tab, save } = await holder();
  const guard = await stickGuard(tab);
  expect(await save('v1!')).toBe('fallback-read-failed');
  expect(await drafts(tab)).toEqual([[PATH, 'v1!']]);
  guard.close();
  expect(await save('v1!!')).toBe('none');
  expect(await drafts(tab)).toEqual([]);
});

// Drafts were called by the time and by the hash of their content: two files that could not be saved in the same millisecond, with the
// same content, had one draft between them.
test('drafts of two files with the same content are two', async () => {
  const { tab } = await holder();
  for (const path of ['a', 'b']) await tab.run(tab.lock.keepProjectDraft({ path, data: 'x' }));
  expect(await drafts(tab)).toEqual(expect.arrayContaining([['a', 'x'], ['b', 'x']]));
});

test('drafts are the project\'s, are bounded, and go when they are discarded', async () => {
  const { tab } = await holder();
  for (const data of ['v1', '']) await tab.run(tab.lock.keepProjectDraft({ path: PATH, data }));
  expect(await drafts(tab), 'nothing that could be lost').toEqual([]);
  for (let page = 0; page < 25; page += 1) {
    await tab.run(tab.lock.keepProjectDraft({ path: `pages/${page}`, data: 'x' }));
    await tab.clock.advance(1);
  }
  tab.opfs.write('project/.lock.draft.1.cut', '{"path":"a","base":"","isText":true,"size":9}\nshort');
  const other = new Tab({ beside: tab });
  const all = await other.run(other.lock.listProjectDrafts());
  // The oldest are dropped; what was cut off is not offered.
  expect(all.map(({ path }) => path)).toEqual([...Array(20).keys()].map((page) => `pages/${page + 5}`));
  expect(all[0]).toMatchObject({ root: 'project', lockName: 'imgponic:project', base: null, at: tab.clock.now() - 20 });
  for (const draft of all) await other.run(other.lock.discardProjectDraft(draft));
  await other.run(other.lock.discardProjectDraft({ id: PATH }));
  expect(await drafts(tab)).toEqual([]);
  expect(tab.opfs.read(FILE)).toBe('v1');
});
