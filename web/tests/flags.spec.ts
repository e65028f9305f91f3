// Flags in a page: which of them count, and an autosave that they turn on and off.

import { expect, test } from 'vitest';
import { createAutoSave, init } from '../src/autosave.js';
import { initAutoSave, switchAutoSave, watchFlags, type Flags, type FlagsOptions } from '../src/flags.js';
import { Tab } from './helpers.js';

init({ wasmUrl: new URL('../dist/leasehold-autosave.wasm', import.meta.url) });

const CURRENT = 'project/autosave/current.json';

/** A server with a flag file, a page with its storage, and an application in it. */
class Page {
  readonly tab = new Tab();
  readonly stored = new Map<string, string>();
  readonly storage = {
    getItem: (name: string) => this.stored.get(name) ?? null,
    setItem: (name: string, value: string) => { this.stored.set(name, value); },
  };
  /** What the server answers; null if it cannot be reached. */
  answer: unknown = { phase: 'beta', autosave: true };
  status = 200;
  asked = 0;
  begun = 0;
  document = { text: '' };

  watch(options: FlagsOptions = {}) {
    const fetch = async () => {
      this.asked += 1;
      if (this.answer === null) throw new TypeError('Failed to fetch');
      return new Response(JSON.stringify(this.answer), { status: this.status });
    };
    return watchFlags({ fetch, storage: this.storage, clock: this.tab.clock, ...options });
  }

  autosave(flags = this.watch()) {
    return switchAutoSave(flags, () => {
      this.begun += 1;
      return createAutoSave(this.tab, () => this.document);
    });
  }

  /** Time passes, in which the application has new text. */
  async types(text: string): Promise<void> {
    this.document = { text };
    await this.tab.clock.advance(10_000);
  }

  saved(): string | undefined {
    return JSON.parse(this.tab.opfs.read(CURRENT) ?? '{}').text;
  }
}

test('autosave off: no lock is taken and nothing is written, whatever is called', async () => {
  const page = new Page();
  page.answer = { phase: 'off', autosave: false };
  const autosave = page.autosave();
  await page.types('one');
  autosave.markDirty();
  await autosave.flushNow();
  await autosave.retry();
  await autosave.takeOver();
  expect(await autosave.history.list()).toEqual([]);
  expect(await autosave.history.restore('2026-01-01T00:00:00.000Z')).toBe(false);
  await page.types('two');
  expect(autosave.getSnapshot().state.kind).toBe('disabled');
  await autosave();
  expect(autosave.getSnapshot().state.kind).toBe('stopped');
  expect(page.tab.opfs.files()).toEqual([]);
  expect(page.begun).toBe(0);
});

test('autosave on: it saves, and a rollback ends it within a minute', async () => {
  const page = new Page();
  const autosave = page.autosave();
  let changes = 0;
  autosave.subscribe(() => { changes += 1; });
  await page.tab.clock.advance(2_000);
  await page.types('one');
  expect([page.saved(), autosave.getSnapshot().state.kind]).toEqual(['one', 'saved']);
  page.answer = { phase: 'off', autosave: false };
  const before = changes;
  await page.tab.clock.advance(60_000);
  expect(autosave.getSnapshot().state.kind).toBe('disabled');
  expect(changes).toBeGreaterThan(before);
  expect(page.tab.opfs.read('project/.lock')).toBe(null);
  const files = page.tab.opfs.files().map((path) => [path, page.tab.opfs.read(path)]);
  await page.types('two');
  autosave.markDirty();
  await autosave.flushNow();
  expect(page.tab.opfs.files().map((path) => [path, page.tab.opfs.read(path)])).toEqual(files);
  // And the next phase begins it again.
  page.answer = { phase: 'beta', autosave: true };
  await page.tab.clock.advance(60_000);
  await page.types('three');
  expect([page.saved(), page.begun]).toEqual(['three', 2]);
  await page.tab.run(autosave());
});

test('what counts: an option, the server, its last answer, the fallback', async () => {
  const page = new Page();
  const resolved = async (options: FlagsOptions = {}) => {
    const watch = page.watch(options);
    const flags = await page.tab.run(watch.ready);
    watch.stop();
    return flags;
  };
  page.answer = null;
  expect(await resolved()).toEqual({ phase: 'default', autosave: true });
  expect(await resolved({ fallback: { phase: 'none', autosave: false } })).toEqual({ phase: 'none', autosave: false });
  page.answer = { phase: 'off', autosave: false, other: 1 };
  expect(await resolved()).toEqual({ phase: 'off', autosave: false });
  page.answer = null;
  expect(await resolved(), 'a page that cannot reach the server keeps what it said').toEqual({ phase: 'off', autosave: false });
  const asked = page.asked;
  expect(await resolved({ flags: { phase: 'me', autosave: true } })).toEqual({ phase: 'me', autosave: true });
  expect(page.asked).toBe(asked);
});

test.each<[string, unknown, number]>([
  ['another shape', { phase: 7, autosave: 'yes' }, 200],
  ['no object', null, 200],
  ['a refusal', { phase: 'off', autosave: false }, 429],
])('an answer that cannot be used changes nothing: %s', async (_, answer, status) => {
  const page = new Page();
  const watch = page.watch();
  await page.tab.run(watch.ready);
  const heard: Flags[] = [];
  watch.subscribe((flags) => heard.push(flags));
  [page.answer, page.status] = [answer, status];
  expect(await page.tab.run(watch.refresh())).toEqual({ phase: 'beta', autosave: true });
  expect(heard).toEqual([]);
  watch.stop();
});

test('storage that is full or damaged is no trouble', async () => {
  const page = new Page();
  page.stored.set('leasehold:flags', '{"phase":');
  const storage = { getItem: page.storage.getItem, setItem: () => { throw new DOMException('full', 'QuotaExceededError'); } };
  expect(await page.tab.run(page.watch({ storage, refreshMs: 0 }).ready)).toEqual({ phase: 'beta', autosave: true });
  page.answer = null;
  expect(await page.tab.run(page.watch({ storage, refreshMs: 0 }).ready)).toEqual({ phase: 'default', autosave: true });
});

test('an answer that does not come in time is none, and the next one counts', async () => {
  const page = new Page();
  let isSlow = true;
  const slow: typeof fetch = (_, init) => new Promise((resolve, reject) => {
    init?.signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
    if (!isSlow) resolve(new Response('{"phase":"all","autosave":true}'));
  });
  const watch = page.watch({ fetch: slow });
  await page.tab.clock.advance(3_000);
  expect(await watch.ready).toEqual({ phase: 'default', autosave: true });
  isSlow = false;
  await page.tab.clock.advance(60_000);
  expect(watch.current()).toEqual({ phase: 'all', autosave: true });
  watch.stop();
});

test('an autosave that cannot be loaded says so, and is loaded again when asked', async () => {
  const page = new Page();
  let isBroken = true;
  const autosave = switchAutoSave(page.watch(), async () => {
    if (isBroken) throw new TypeError('Failed to fetch dynamically imported module');
    return createAutoSave(page.tab, () => page.document);
  });
  await page.types('one');
  expect(autosave.getSnapshot().state).toMatchObject({ kind: 'unavailable', reason: 'not-loaded' });
  isBroken = false;
  await page.tab.run(autosave.retry());
  await page.types('two');
  expect(page.saved()).toBe('two');
  await page.tab.run(autosave());
});

test('the call of a page begins with its flags, and ends before them if it is disposed of at once', async () => {
  const page = new Page();
  page.answer = { phase: 'off', autosave: false };
  const autosave = initAutoSave(() => page.document, { flags: page.watch({ refreshMs: 0 }) });
  await page.tab.run(autosave());
  expect(autosave.getSnapshot().state.kind).toBe('stopped');
});
