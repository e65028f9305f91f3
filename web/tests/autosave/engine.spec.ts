// The autosave of a page, on the doubles: what the rules say is done, and what is shown of it. Named after the sections of the
// AutoSave design; the rules themselves are tested in crates/leasehold-project-rules/tests/rules/autosave.rs.

import { expect, test } from 'vitest';
import { createAutoSave, init, type AutoSave, type AutoSaveOptions } from '../../src/autosave.js';
import { Tab } from '../helpers.js';

init({ wasmUrl: new URL('../../dist/leasehold-autosave.wasm', import.meta.url) });

const CURRENT = 'project/autosave/current.json';

/** An application with its autosave. */
class App {
  readonly tab: Tab;
  readonly autosave: AutoSave;
  document: { text: string };
  readonly applied: string[] = [];

  constructor(options: AutoSaveOptions<{ text: string }> & { beside?: App; tab?: Tab } = {}) {
    const { beside, tab, ...rest } = options;
    this.tab = tab ?? new Tab(beside ? { beside: beside.tab } : {});
    this.document = { text: '' };
    this.autosave = createAutoSave(this.tab, () => this.document, {
      apply: (document) => {
        this.applied.push(document.text);
        this.document = document;
      },
      ...rest,
    });
  }

  static async start(options: ConstructorParameters<typeof App>[0] = {}): Promise<App> {
    const app = new App(options);
    await app.pass(2_000);
    return app;
  }

  type(text: string): void {
    this.document = { text };
  }

  pass(ms: number): Promise<void> {
    return this.tab.clock.advance(ms);
  }

  async saves(text: string): Promise<void> {
    this.type(text);
    await this.tab.run(this.autosave.flushNow());
  }

  saved(): string | undefined {
    return JSON.parse(this.tab.opfs.read(CURRENT) ?? '{}').text;
  }

  get state() {
    return this.autosave.getSnapshot().state;
  }

  async history(): Promise<string[]> {
    const entries = await this.tab.run(this.autosave.history.list());
    const texts = await Promise.all(entries.map(({ ts }) => this.tab.run(this.autosave.history.preview(ts))));
    return texts.map((text) => JSON.parse(text!).text);
  }
}

test('section 7: current.json is new within 2.5 s after the input stops, without a call of the application', async () => {
  const app = await App.start();
  app.type('a');
  await app.pass(300);
  app.type('ab');
  await app.pass(2_500);
  expect(app.saved()).toBe('ab');
  expect(app.state).toEqual({ kind: 'saved', at: expect.any(Number) });
});

test('a document that stays the same object is saved after markDirty', async () => {
  const app = await App.start();
  app.document.text = 'changed in place';
  await app.pass(5_000);
  expect(app.saved()).toBeUndefined();
  app.autosave.markDirty();
  expect(app.state.kind).toBe('dirty');
  await app.pass(2_000);
  expect(app.saved()).toBe('changed in place');
});

test('section 7: 21 saves drop the first', async () => {
  const app = await App.start();
  for (let number = 1; number <= 21; number += 1) await app.saves(`version ${number}`);
  const history = await app.history();
  expect(history).toHaveLength(20);
  expect([history[0], history[19]]).toEqual(['version 21', 'version 2']);
  const index = JSON.parse(app.tab.opfs.read('project/autosave/index.json')!);
  expect(index.generations).toHaveLength(20);
});

test('a history that is opened the moment something was saved has that version', async () => {
  // A dialog that was opened within milliseconds of a save listed the folder before the version was written into it, and
  // showed the version before as the newest one until it was opened again.
  const app = await App.start();
  await app.saves('one');
  app.type('two');
  let opened: ReturnType<AutoSave['history']['list']> | undefined;
  app.autosave.subscribe(() => { if (app.state.kind === 'saved') opened ??= app.autosave.history.list(); });
  await app.tab.run(app.autosave.flushNow());
  expect((await app.tab.run(opened!)).map(({ isCurrent }) => isCurrent)).toEqual([true, false]);
});

test('a current.json of another program that is no text is kept as a version, and saving goes on', async () => {
  // A program had left a file that is no UTF-8. It could not be read as a text, so that no save was made from it: each was
  // refused because there was a newer version, and a reload did not help.
  const tab = new Tab({});
  const folder = await (await tab.folder.getDirectoryHandle('project', { create: true })).getDirectoryHandle('autosave', { create: true });
  const handle = await (await folder.getFileHandle('current.json', { create: true })).createSyncAccessHandle!();
  handle.write(new Uint8Array([0xff, 0xfe, 0x7b]));
  handle.close();
  const app = await App.start({ tab });
  await app.saves('mine');
  expect([app.saved(), app.state.kind]).toEqual(['mine', 'saved']);
  expect((await app.tab.run(app.autosave.history.list())).map(({ bytes }) => bytes)).toEqual([15, 3]);
});

test('a current.json that could not be read once is not locked for the next save', async () => {
  // A save compares the version of the file that it replaces. When that read failed, the file stayed open, and no later save
  // could take its place.
  const app = await App.start();
  await app.saves('one');
  app.tab.opfs.fail({ operation: 'read', path: CURRENT, error: 'UnknownError' });
  app.type('two');
  await app.pass(2_200);
  expect(app.state).toMatchObject({ kind: 'retrying', attempt: 1 });
  await app.pass(500);
  expect([app.saved(), app.state.kind]).toEqual(['two', 'saved']);
});

test('unchanged content is not written again', async () => {
  const app = await App.start();
  await app.saves('same');
  const writes = app.tab.opfs.writes.length;
  app.document = { text: 'same' };
  await app.pass(9_000);
  expect(app.state.kind).toBe('saved');
  expect(app.tab.opfs.writes.slice(writes).filter((path) => path.includes('autosave'))).toEqual([]);
});

test('section 6.1: a failed write is tried again after 0.5, 1 and 2 s, then it goes on', async () => {
  const app = await App.start();
  app.tab.opfs.fail({ operation: 'getDirectoryHandle', path: 'project/autosave', error: 'UnknownError', times: 4 });
  app.type('text');
  const seen: string[] = [];
  app.autosave.subscribe(() => {
    const { state } = app.autosave.getSnapshot();
    if (state.kind === 'retrying') seen.push(`${state.attempt}/${state.maxAttempts}`);
  });
  await app.pass(6_500);
  expect(new Set(seen)).toEqual(new Set(['1/3', '2/3', '3/3']));
  expect(app.state.kind).toBe('error');
  expect(app.autosave.getSnapshot().notice).toMatchObject({ kind: 'retries-failed', operation: 'save' });
  app.tab.opfs.heal();
  app.type('more');
  await app.pass(2_500);
  expect([app.saved(), app.state.kind]).toEqual(['more', 'saved']);
});

test('section 6.1: without space the oldest version goes and the user is told', async () => {
  const app = await App.start();
  for (const text of ['one', 'two', 'three']) await app.saves(text);
  app.tab.opfs.fail({ operation: 'write', error: 'QuotaExceededError', times: 1 });
  await app.saves('four');
  expect(app.saved()).toBe('four');
  expect(app.autosave.getSnapshot().notice).toMatchObject({ kind: 'history-dropped', generations: 1 });
  expect(await app.history()).toEqual(['four', 'three', 'two']);
});

test('section 8, conflict: a second tab is read-only, names the holder and writes nothing', async () => {
  const first = await App.start({ label: 'the first tab' });
  await first.saves('theirs');
  const second = await App.start({ beside: first });
  await second.pass(10_000);
  expect(second.state).toMatchObject({ kind: 'readonly', reason: 'conflict', owner: { label: 'the first tab' } });
  second.type('mine');
  await second.pass(10_000);
  expect(first.saved()).toBe('theirs');
  expect(second.autosave.getSnapshot().isDirty).toBe(true);
});

// A second tab showed "No changes yet" for 4.5 s, as long as its attempts went on: users began to type.
test('a second tab shows the holder while it still tries, and loads what was saved if the project becomes free meanwhile', async () => {
  const first = await App.start({ label: 'the first tab' });
  await first.saves('theirs');
  const second = new App({ beside: first });
  await second.pass(500);
  expect(second.state).toMatchObject({ kind: 'readonly', reason: 'conflict', isFree: false, owner: { label: 'the first tab' } });
  await first.tab.run(first.autosave());
  await second.pass(2_000);
  expect([second.state.kind, second.applied]).toEqual(['saved', ['theirs']]);
});

test('a second tab that still tries can take over at once', async () => {
  const first = await App.start();
  await first.saves('theirs');
  const second = new App({ beside: first });
  await second.pass(500);
  await second.tab.run(second.autosave.takeOver());
  await second.pass(1_000);
  expect([second.state.kind, second.applied]).toEqual(['saved', ['theirs']]);
});

test('a tab that takes over loads what was saved, and its own work becomes a draft', async () => {
  const first = await App.start();
  await first.saves('theirs');
  const second = await App.start({ beside: first });
  await second.pass(10_000);
  second.type('mine');
  await second.pass(1_000);
  await second.tab.run(second.autosave.takeOver());
  await second.pass(1_000);
  expect(second.applied).toEqual(['theirs']);
  expect(second.autosave.getSnapshot()).toMatchObject({ state: { kind: 'saved' }, hasDraft: true, notice: { kind: 'draft-kept' } });
  const [draft] = await second.tab.run(second.tab.lock.listProjectDrafts());
  expect(JSON.parse(String(draft!.data))).toEqual({ text: 'mine' });
  await second.saves('mine again');
  expect(second.saved()).toBe('mine again');
  expect(second.autosave.getSnapshot().hasDraft).toBe(true);
  // The page offered the draft and discarded it, and the indicator went on to say that there was one.
  await second.tab.run(second.tab.lock.discardProjectDraft(draft!));
  await second.saves('and again');
  await second.pass(100);
  expect(second.autosave.getSnapshot().hasDraft).toBe(false);
  await first.pass(20_000);
  expect(first.state.kind).toBe('readonly');
});

test('section 8, forced release: a tab that crashed is offered what it saved', async () => {
  const app = await App.start();
  await app.saves('before the crash');
  app.tab.crash();
  const next = await App.start({ beside: app });
  expect(next.document.text).toBe('');
  expect(await next.tab.run(next.autosave.restoreFromCurrent())).toBe(true);
  expect(next.document.text).toBe('before the crash');
  expect(next.state.kind).toBe('saved');
});

// A page asked for what was there before, and there was nothing. What its user typed meanwhile was taken for what had been restored,
// and was not saved until the next change.
test('what is typed while there is nothing to restore is saved', async () => {
  const app = await App.start();
  const restored = app.autosave.restoreFromCurrent();
  app.type('typed at once');
  expect(await app.tab.run(restored)).toBe(false);
  await app.pass(3_000);
  expect(app.saved()).toBe('typed at once');
});

test('a restore keeps the present state, and can be undone', async () => {
  const app = await App.start();
  await app.saves('one');
  await app.saves('two');
  app.type('two, unsaved');
  const entries = await app.tab.run(app.autosave.history.list());
  expect(await app.tab.run(app.autosave.history.restore(entries[1]!.ts))).toBe(true);
  await app.pass(100);
  expect([app.document.text, app.saved()]).toEqual(['one', 'one']);
  expect(await app.history()).toEqual(['one', 'two, unsaved', 'two', 'one']);
  const { notice } = app.autosave.getSnapshot();
  expect(notice).toMatchObject({ kind: 'restored', ts: entries[1]!.ts });
  const before = (notice as { before: string }).before;
  expect(await app.tab.run(app.autosave.history.restore(before))).toBe(true);
  expect(app.document.text).toBe('two, unsaved');
  expect(await app.tab.run(app.autosave.history.restore('no time'))).toBe(false);
});

// A renderer that was killed left an empty file in the history: the new file was there before its content.
test('a version is never there without its content, whenever the tab dies', async () => {
  for (let steps = 1, isOver = false; !isOver; steps += 1) {
    const app = await App.start();
    await app.saves('one');
    app.tab.crashAfter(steps);
    app.type('two');
    void app.autosave.flushNow(); // of a tab that died it is never answered
    await app.pass(1_000);
    const { opfs } = app.tab;
    const root = opfs.tab().root;
    const history = await (await (await root.getDirectoryHandle('project')).getDirectoryHandle('autosave')).getDirectoryHandle('history');
    for await (const name of history.keys()) {
      if (name.endsWith('.json')) expect(['one', 'two'], `${steps}: ${name}`).toContain(JSON.parse(opfs.read(`project/autosave/history/${name}`)!).text);
    }
    expect(['one', 'two']).toContain(app.saved());
    // The index is written last.
    isOver = JSON.parse(opfs.read('project/autosave/index.json')!).generations.length === 2;
    expect(steps).toBeLessThan(500);
  }
});

test('dispose saves and releases, and tells what it does', async () => {
  const app = await App.start();
  app.type('last words');
  const kinds: string[] = [];
  app.autosave.subscribe(() => kinds.push(app.state.kind));
  await app.tab.run(app.autosave());
  expect(app.saved()).toBe('last words');
  expect(kinds).toContain('releasing');
  expect(app.state).toEqual({ kind: 'stopped' });
  expect(app.tab.opfs.read('project/.lock')).toBeNull();
});

test('where there are no files it says so', async () => {
  const app = await App.start({ tab: new Tab({ folder: false }) });
  await app.pass(5_000);
  expect(app.state).toMatchObject({ kind: 'unavailable' });
});

test('turned off, it does nothing', async () => {
  const app = await App.start({ enabled: false });
  app.type('text');
  await app.pass(10_000);
  expect([app.state.kind, app.tab.opfs.writes]).toEqual(['disabled', []]);
  await app.autosave();
});

test('a document that is no JSON is an error, and not a loss', async () => {
  const app = await App.start();
  await app.saves('fine');
  const cyclic: { text: string; self?: unknown } = { text: 'cyclic' };
  cyclic.self = cyclic;
  app.document = cyclic;
  await app.pass(3_000);
  expect(app.state).toMatchObject({ kind: 'error', code: 'not-serialisable' });
  expect(app.saved()).toBe('fine');
});

test('the snapshot stays the same object until something changes', async () => {
  const app = await App.start();
  const before = app.autosave.getSnapshot();
  await app.pass(5_000);
  expect(app.autosave.getSnapshot()).toBe(before);
  app.type('x');
  await app.pass(600);
  expect(app.autosave.getSnapshot()).not.toBe(before);
});

test('section 8, logs: nothing is written outside of the project', async () => {
  const app = await App.start();
  await app.saves('text');
  await app.tab.run(app.autosave());
  expect(app.tab.opfs.writes.filter((path) => !path.startsWith('project/'))).toEqual([]);
});
