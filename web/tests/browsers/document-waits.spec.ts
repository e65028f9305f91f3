// How long others wait for a document when its holder's tab is closed, crashes or is reloaded, while it saves all the time. A lock
// lasts 3 s here. `DOCUMENT_ROUNDS` sets how often; `cargo xtask soak` has a hundred.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import type { Opened } from './documents.js';
import { LeaseholdServer, PROGRAM, token } from './leasehold.js';
import { TestServer } from './server.js';
import { Store } from './wire.js';

const TTL_MS = 3_000;
const WAYS = { chromium: ['reload', 'close', 'crash'], firefox: ['reload', 'close'] } as const;
const ROUNDS = Number(process.env['DOCUMENT_ROUNDS'] ?? 5);
const KINDS: Kind[] = ['chromium', 'firefox'];
/** What others may have to wait: the soft release's 5 s and a second, or the lock's own time and a second. */
const BARS = { close: 6_000, crash: TTL_MS + 1_000, reload: 0 };

let pages: TestServer;
let server: LeaseholdServer;
let store: Store;
beforeAll(async () => {
  if (PROGRAM === undefined) return;
  [pages, store, server] = await Promise.all([
    TestServer.start(), Store.start(),
    LeaseholdServer.start('--jwt-secret-file', 'secret', '--ttl', '3s', '--heartbeat', '1s', '--cors-origins', '*'),
  ]);
});
afterAll(async () => { await Promise.all([pages?.stop(), store?.stop(), server?.remove()]); });

describe.each(KINDS)('%s', (kind) => {
  let browser: Browser;
  const canRun = PROGRAM !== undefined && isInstalled(kind);
  beforeAll(async () => { if (canRun) browser = await start(kind, { hides: true }); });
  afterAll(async () => { await browser?.close(); });

  async function open(room: string, who: string): Promise<Tab> {
    const opened: Opened = {
      server: server.url, store: store.url, room, who, token: token({ sub: who, name: who, documents: { '*': 'lock' } }),
    };
    return browser.open(`${pages.page(`waits-${kind}`, 'tests/browsers/documents.html')}#${encodeURIComponent(JSON.stringify(opened))}`);
  }

  const until = (tab: Tab, status: string) => tab.run(async (status) => {
    while (!globalThis.doc) await new Promise((resolve) => { setTimeout(resolve, 5); });
    await doc.until(status);
  }, status);

  /** Waits until these people are at a document, whether they edit it or look at it. */
  async function looking(room: string, people: string[]): Promise<void> {
    const authorization = `Bearer ${token({ sub: 'cora', documents: { '*': 'lock' } })}`;
    await expect.poll(async () => {
      const answer = await fetch(`${server.url}/api/documents/${room}/presence`, { headers: { authorization } });
      const { editing, looking } = await answer.json() as Record<string, { id: string }[]>;
      return [...new Set([...editing!, ...looking!].map(({ id }) => id))].sort();
    }, { timeout: 10_000 }).toEqual(people);
  }

  /** Saves as fast as it can, for as long as it may. */
  const scribble = (tab: Tab) => tab.run(() => {
    void (async () => {
      for (let number = 0; ; number += 1) {
        doc.type(`${number}`);
        if (await doc.save().catch(() => 'failed') !== 'saved') await new Promise((resolve) => { setTimeout(resolve, 20); });
      }
    })();
  }, null);

  test.skipIf(!canRun)('nobody waits too long, a reload loses nothing, and no late save is accepted', async () => {
    const waits: [string, number][] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const way = WAYS[kind][round % WAYS[kind].length]!;
      const room = `${kind}.${round}`;
      const ben = await open(room, 'ben');
      const anna = await open(room, 'anna');
      await until(anna, 'free');
      expect(await anna.run(() => doc.lock.acquire(), null)).toBe(true);
      const fence = await anna.run(() => doc.lock.fence, null);
      await scribble(anna);
      await until(ben, 'read-only');
      await ben.run(() => { doc.isEager = true; }, null);
      await looking(room, ['anna', 'ben']);
      const began = Date.now();
      await anna[way]();
      if (way === 'reload') {
        await until(anna, 'mine');
        expect(await anna.run(() => doc.lock.fence, null)).toBe(fence);
        expect(await ben.run(() => doc.lock.fence, null)).toBe(null);
        await anna.close();
      } else {
        await until(ben, 'mine');
        waits.push([way, Date.now() - began]);
        expect(await ben.run(() => doc.lock.fence, null)).toBeGreaterThan(fence!);
        await scribble(ben);
        await ben.run(() => doc.when(() => doc.log.includes('saved')), null);
        await looking(room, ['ben']);
      }
      await ben.close();
      const accepted = store.saves.filter((save) => save.room === room && save.isAccepted).map((save) => save.fence);
      expect(accepted.length).toBeGreaterThan(0);
      expect(accepted).toEqual([...accepted].sort((a, b) => a - b));
    }
    for (const [way, ms] of waits) expect(ms, `${way}: ${ms} ms`).toBeLessThanOrEqual(BARS[way as keyof typeof BARS]);
    console.info(kind, JSON.stringify(waits));
  });
});
