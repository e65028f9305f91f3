// What a page counts and sends, on the doubles: names and numbers, and nothing that says whose they are.

import { expect, test } from 'vitest';
import { createAutoSave, init, type AutoSave } from '../src/autosave.js';
import { switchAutoSave, watchFlags } from '../src/flags.js';
import { createTelemetry, type Telemetry, type TelemetryOptions } from '../src/telemetry.js';
import { Tab } from './helpers.js';

init({ wasmUrl: new URL('../dist/leasehold-autosave.wasm', import.meta.url) });

interface Sent {
  readonly v: number;
  readonly phase?: string;
  readonly counts: { event: string; reason?: string; code?: string; n: number }[];
  readonly times: { event: string; ms: number[] }[];
}

/** A page with an autosave, whose telemetry goes to `sent`. */
class Page {
  readonly tab: Tab;
  readonly autosave: AutoSave;
  readonly telemetry: Telemetry;
  /** The autosave's own. */
  readonly restore: AutoSave['history']['restore'];
  readonly sent: Sent[] = [];
  /** What a send answers. */
  arrives: boolean | Error = true;
  document = { text: '' };

  constructor(options: Partial<TelemetryOptions> & { tab?: Tab; enabled?: boolean } = {}) {
    const { tab = new Tab(), enabled, ...rest } = options;
    this.tab = tab;
    this.autosave = createAutoSave(tab, () => this.document, { enabled, apply: (document) => { this.document = document as { text: string }; } });
    this.restore = this.autosave.history.restore;
    const send = (body: string) => {
      if (this.arrives instanceof Error) throw this.arrives;
      if (this.arrives) this.sent.push(JSON.parse(body));
      return this.arrives;
    };
    this.telemetry = createTelemetry({ lock: tab.lock, clock: tab.clock, send }, { autosave: this.autosave, ...rest });
  }

  async save(text: string): Promise<void> {
    this.document = { text };
    await this.tab.run(this.autosave.flushNow());
  }

  /** How often something was sent, in all batches. */
  n(event: string, reason?: string, code?: string): number {
    const rows = this.sent.flatMap(({ counts }) => counts);
    const found = rows.filter((row) => row.event === event && (!reason || row.reason === reason) && (!code || row.code === code));
    return found.reduce((sum, row) => sum + row.n, 0);
  }
}

test('a session, an acquire and a save become counts and times, sent every half minute', async () => {
  const page = new Page();
  await page.tab.clock.advance(1_000);
  await page.save('private words');
  expect(page.sent).toEqual([]);
  await page.tab.clock.advance(30_000);
  expect(page.sent).toHaveLength(1);
  expect(page.sent[0]).toMatchObject({ v: 1 });
  expect([page.n('autosave.session'), page.n('lock:acquired', 'web-lock'), page.n('autosave.saved')]).toEqual([1, 1, 1]);
  expect(page.sent[0]!.times.map(({ event, ms }) => [event, ms.length])).toEqual([['lock:acquired', 1], ['autosave.saved', 1]]);
  expect(page.sent[0]!.times.flatMap(({ ms }) => ms).every((ms) => Number.isInteger(ms) && ms >= 0)).toBe(true);
});

test('nothing that is sent says whose it is: no lease id, no owner, no project, nothing of the document', async () => {
  const page = new Page();
  let lease = '';
  page.tab.lock.subscribeLockEvents((event) => { if (event.type === 'lock:acquired') lease = event.lease.leaseId; });
  await page.tab.clock.advance(1_000);
  const { owner } = page.tab.record() as { owner: string };
  await page.save('private words');
  await page.tab.run(page.telemetry.stop());
  const text = JSON.stringify(page.sent);
  expect(lease).toHaveLength(36);
  for (const secret of [lease, owner, 'private words', 'project', 'current.json']) expect(text).not.toContain(secret);
});

test('a renewal that fails twice is counted as autosave.lock.readonly, with reason and code', async () => {
  const page = new Page();
  await page.tab.clock.advance(1_000);
  page.tab.opfs.fail({ operation: 'write', error: 'UnknownError', times: 1_000 });
  await page.tab.clock.advance(60_000);
  expect(page.n('autosave.lock.readonly')).toBe(1);
  expect(page.n('autosave.lock.readonly', 'renew-failed')).toBe(1);
  const [row] = page.sent.flatMap(({ counts }) => counts).filter(({ event }) => event === 'autosave.lock.readonly');
  expect(row).toEqual({ event: 'autosave.lock.readonly', reason: 'renew-failed', code: expect.any(String), n: 1 });
});

test('a live second tab says so by its code', async () => {
  const first = new Page();
  await first.tab.clock.advance(1_000);
  const second = new Page({ tab: new Tab({ beside: first.tab }) });
  await first.tab.clock.advance(40_000);
  expect(second.n('autosave.lock.readonly', 'acquire-timeout', 'fallback-conflict')).toBe(1);
});

test('a session counts again after each quarter of an hour', async () => {
  const { clock, lock } = new Tab();
  const sent: Sent[] = [];
  // Of a page that has no autosave of ours, whose looks at the document would take most of the test.
  const telemetry = createTelemetry({ lock, clock, send: (body) => sent.push(JSON.parse(body)) > 0 }, {});
  await clock.advance(31 * 60_000);
  await telemetry.stop();
  expect(sent.map(({ counts }) => counts)).toEqual(Array(3).fill([{ event: 'autosave.session', n: 1 }]));
});

test('an autosave that is turned off counts nothing and sends nothing', async () => {
  const page = new Page({ enabled: false });
  await page.tab.clock.advance(20 * 60_000);
  await page.telemetry.stop();
  expect(page.sent).toEqual([]);
});

test('with flags, a session begins when they turn autosave on, and ends when they turn it off', async () => {
  const tab = new Tab();
  let answer = { phase: 'off', autosave: false };
  const ask = async () => new Response(JSON.stringify(answer));
  const flags = watchFlags({ fetch: ask as typeof fetch, clock: tab.clock, storage: null, refreshMs: 0 });
  const autosave = switchAutoSave(flags, async () => createAutoSave(tab, () => null));
  const sent: Sent[] = [];
  const send = (body: string) => sent.push(JSON.parse(body)) > 0;
  const telemetry = createTelemetry({ lock: tab.lock, clock: tab.clock, send }, { autosave, phase: () => flags.current()?.phase });
  const sessions = () => sent.flatMap(({ phase, counts }) => counts.filter(({ event }) => event === 'autosave.session').map(({ n }) => [phase, n]));
  await tab.clock.advance(60_000);
  expect(sent).toEqual([]);
  answer = { phase: 'beta', autosave: true };
  await flags.refresh();
  await tab.clock.advance(31_000);
  expect(sessions()).toEqual([['beta', 1]]);
  answer = { phase: 'off', autosave: false };
  await flags.refresh();
  await tab.clock.advance(20 * 60_000);
  await telemetry.stop();
  expect(sessions()).toEqual([['beta', 1]]);
});

test('what did not arrive is sent again, once', async () => {
  const page = new Page();
  page.arrives = false;
  await page.tab.clock.advance(31_000);
  page.arrives = new Error('offline');
  await page.tab.clock.advance(30_000);
  page.arrives = true;
  await page.tab.clock.advance(30_000);
  expect([page.n('autosave.session'), page.n('lock:acquired')]).toEqual([1, 1]);
  expect(page.sent[0]!.times).toEqual([{ event: 'lock:acquired', ms: [expect.any(Number)] }]);
});

test('what happened in a phase is sent in its batch', async () => {
  let phase = 'beta';
  const page = new Page({ phase: () => phase });
  await page.tab.clock.advance(1_000);
  phase = 'off';
  await page.save('text');
  await page.tab.run(page.telemetry.flush());
  const of = (name: string) => page.sent.find((batch) => batch.phase === name)!.counts.map(({ event }) => event);
  expect(of('beta')).toContain('lock:acquired');
  expect(of('off')).toContain('autosave.saved');
  expect(of('off')).not.toContain('lock:acquired');
});

test('restores are counted, and those that fail', async () => {
  const page = new Page();
  await page.tab.clock.advance(1_000);
  await page.save('one');
  await page.save('two');
  const entries = await page.tab.run(page.autosave.history.list());
  expect(await page.tab.run(page.autosave.history.restore(entries[1]!.ts))).toBe(true);
  expect(await page.tab.run(page.autosave.history.restore('2001-01-01T00:00:00.000Z'))).toBe(false);
  await page.tab.run(page.telemetry.flush());
  expect([page.n('autosave.restored'), page.n('autosave.restore-failed')]).toEqual([1, 1]);
});

test('counts and times of a batch stay within what a server takes', async () => {
  const page = new Page();
  await page.tab.clock.advance(1_000);
  page.arrives = false;
  for (let save = 0; save < 300; save += 1) {
    await page.save(`version ${save}`);
    await page.tab.clock.advance(1);
  }
  page.arrives = true;
  await page.tab.run(page.telemetry.flush());
  const [{ counts, times }] = page.sent as [Sent];
  expect(counts.find(({ event }) => event === 'autosave.saved')!.n).toBe(300);
  expect(times.find(({ event }) => event === 'autosave.saved')!.ms).toHaveLength(256);
});

test('after stop nothing is counted, and the autosave is as it was', async () => {
  const page = new Page();
  await page.tab.clock.advance(1_000);
  expect(page.autosave.history.restore).not.toBe(page.restore);
  await page.tab.run(page.telemetry.stop());
  expect(page.autosave.history.restore).toBe(page.restore);
  const batches = page.sent.length;
  await page.save('later');
  await page.tab.clock.advance(60_000);
  expect(page.sent).toHaveLength(batches);
});
