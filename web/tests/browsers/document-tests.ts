// `leasehold/documents` in a real browser, against the real server, over a network that fails. Where a test waits for the end of a
// lock, it lasts 3 s; elsewhere 30 s, so that a busy machine does not lose one.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import type { Opened } from './documents.js';
import { LeaseholdServer, PROGRAM, token } from './leasehold.js';
import { TestServer } from './server.js';
import { Store, Wire } from './wire.js';

const TTL_MS = 3_000;
const ANNA = token({ sub: 'anna', name: 'Anna', documents: { '*': 'lock' } });
const BEN = token({ sub: 'ben', name: 'Ben', documents: { '*': 'lock' } });
const CHIEF = token({ sub: 'chief', name: 'Chief', documents: { '*': 'force' } });

const OPTIONS = ['--jwt-secret-file', 'secret', '--pusher-secret-file', 'secret', '--heartbeat', '1s', '--cors-origins', '*'];
const startServer = (ttl: string) => LeaseholdServer.start(...OPTIONS, '--ttl', ttl);

const begun = (tab: Tab) => tab.run(async () => { while (!globalThis.doc) await new Promise((resolve) => { setTimeout(resolve, 5); }); }, null);
const until = (tab: Tab, ...status: string[]) => tab.run((status) => doc.until(...status), status);
const state = (tab: Tab) => tab.run(() => doc.lock.getState(), null);
const fence = (tab: Tab) => tab.run(() => doc.lock.fence, null);
const type = (tab: Tab, text: string) => tab.run((text) => { doc.type(text); return doc.save(); }, text);
const acquire = async (tab: Tab) => {
  await until(tab, 'free', 'read-only');
  return tab.run(() => doc.lock.acquire(), null);
};

/** The tests in one browser. */
export function documentTests(kind: Kind): void {
  let browser: Browser;
  let pages: TestServer;
  let calm: LeaseholdServer;
  let brief: LeaseholdServer;
  let store: Store;
  const canRun = PROGRAM !== undefined && isInstalled(kind);
  beforeAll(async () => {
    if (!canRun) return;
    [pages, store, calm, brief, browser] = await Promise.all([
      TestServer.start(), Store.start(), startServer('30s'), startServer('3s'), start(kind, { hides: true }),
    ]);
  });
  afterAll(async () => { await Promise.all([browser?.close(), pages?.stop(), store?.stop(), calm?.remove(), brief?.remove()]); });

  let rooms = 0;

  /** A document of its own for each test, and what is opened on it. */
  class Stage {
    readonly room = `${kind}.${++rooms}`;
    readonly #ends: (() => Promise<unknown>)[] = [];
    server = calm;

    /** Locks end soon from now on. */
    useBrief(): void {
      this.server = brief;
    }

    async wire(): Promise<Wire> {
      const wire = await Wire.to(this.server.url);
      this.#ends.push(() => wire.stop());
      return wire;
    }

    /** A server of its own. */
    async ownServer(): Promise<void> {
      this.server = await startServer('30s');
      this.#ends.push(() => this.server.remove());
    }

    async open(opened: Partial<Opened> = {}): Promise<Tab> {
      const all = { server: this.server.url, store: store.url, room: this.room, token: ANNA, who: 'anna', ...opened };
      const tab = await browser.open(`${page('documents.html')}#${encodeURIComponent(JSON.stringify(all))}`);
      this.#ends.push(() => tab.close().catch(() => {}));
      await begun(tab);
      return tab;
    }

    asBen(opened: Partial<Opened> = {}): Promise<Tab> {
      return this.open({ token: BEN, who: 'ben', ...opened });
    }

    async end(): Promise<void> {
      for (const end of this.#ends.splice(0)) await end();
    }
  }

  const page = (name: string) => pages.page(`documents-${kind}`, `tests/browsers/${name}`);

  function check(name: string, work: (stage: Stage) => Promise<void>, isConcurrent = false): void {
    (!canRun ? test.skip : isConcurrent ? test.concurrent : test)(name, async () => {
      const stage = new Stage();
      try {
        await work(stage);
      } finally {
        await stage.end();
      }
    }, 60_000);
  }

  check('one page edits, the other sees who, and edits when it is free', async (stage) => {
    const a = await stage.open();
    expect([await acquire(a), await type(a, 'by Anna')]).toEqual([true, 'saved']);
    expect((await a.run(() => doc.log, null)).slice(-2)).toEqual(['mine', 'saved']);
    const b = await stage.asBen();
    expect(await acquire(b)).toBe(false);
    expect(await state(b)).toMatchObject({
      status: 'read-only', holder: { id: 'anna', name: 'Anna' }, sameUser: false, mayTakeOver: false, may: 'lock', problem: { code: 'held' },
    });
    expect(await fence(b)).toBe(null);
    await a.run(() => doc.lock.release(), null);
    await until(b, 'free');
    expect([await acquire(b), await b.run(() => doc.text, null)]).toEqual([true, 'by Anna']);
    await until(a, 'read-only');
    expect(await state(a)).toMatchObject({ holder: { name: 'Ben' }, lost: null, draft: null });
  });

  // In Firefox, a Worker's calls pass through the page's thread: there the page's timers alone stand still.
  check('the Worker renews while the page, or all of its timers, stand still for longer than the lock lasts', async (stage) => {
    stage.useBrief();
    const a = await stage.open();
    await acquire(a);
    const before = await fence(a);
    await a.run(async ({ ms, isBlocked }) => {
      const after = globalThis.setTimeout;
      globalThis.setTimeout = (() => 0) as never;
      if (isBlocked) for (const end = Date.now() + ms; Date.now() < end;);
      else await new Promise((resolve) => { after(resolve, ms); });
      globalThis.setTimeout = after;
    }, { ms: TTL_MS + 500, isBlocked: kind === 'chromium' });
    expect([await fence(a), (await state(a)).status]).toEqual([before, 'mine']);
  });

  check('a reload keeps the lock, also if the first answer to its return is lost', async (stage) => {
    const wire = await stage.wire();
    const a = await stage.open({ server: wire.url });
    await acquire(a);
    const before = await fence(a);
    wire.loseAnswerTo(`POST /api/documents/${stage.room}/lock/resume`);
    const b = await stage.asBen({ isEager: true });
    await until(b, 'read-only');
    await a.reload();
    await begun(a);
    await until(a, 'mine');
    expect(await fence(a)).toBe(before);
    expect(await a.run(() => doc.log.filter((entry) => entry === 'reload'), null)).toEqual(['reload']);
    expect((await b.run(() => doc.events.map(({ event }) => event), null))).not.toContain('DocumentUnlocked');
  });

  // A call that came at once, as from a component that is mounted, was made under a new lease id, which replaced the one to be resumed:
  // the tab was refused on account of its own lock.
  check('a reload keeps the lock, also if the page asks for it at once', async (stage) => {
    const a = await stage.open({ isHasty: true });
    await until(a, 'mine');
    const before = await fence(a);
    await a.reload();
    await begun(a);
    await until(a, 'mine');
    expect([await fence(a), (await state(a)).problem]).toEqual([before, null]);
  });

  check('a duplicated tab has a copy of everything, and is a holder of its own', async (stage) => {
    const a = await stage.open();
    await acquire(a);
    const before = await fence(a);
    const copy = await a.run(async () => {
      const other = window.open(location.href) as Window & typeof globalThis;
      const settled = () => other.doc && other.doc.lock.getState().status === 'read-only' && other.doc.lock.getState().sameUser;
      while (!settled()) await new Promise((resolve) => { setTimeout(resolve, 20); });
      const { mayTakeOver } = other.doc.lock.getState();
      const isAnother = other.sessionStorage.getItem('leasehold.tab') !== sessionStorage.getItem('leasehold.tab');
      other.close();
      return { mayTakeOver, isAnother };
    }, null);
    expect(copy).toEqual({ mayTakeOver: true, isAnother: true });
    expect(await fence(a)).toBe(before);
  });

  for (const [name, how] of [['cut', (wire: Wire) => wire.cut()], ['silent', (wire: Wire) => wire.hole()]] as const) {
    check(`a network that is ${name}: read-only before anybody else can have it; then it comes back and loads first`, async (stage) => {
      stage.useBrief();
      const wire = await stage.wire();
      const a = await stage.open({ server: wire.url });
      const b = await stage.asBen();
      await acquire(a);
      await type(a, 'saved');
      await a.run(() => doc.type('typed since'), null);
      how(wire);
      await until(a, 'offline');
      await b.run(() => doc.when(() => doc.events.some(({ event }) => event === 'DocumentUnlocked')), null);
      const [unlocked, lastFenceAt] = [Date.now(), await a.run(() => doc.lastFenceAt, null)];
      expect(lastFenceAt).toBeLessThan(unlocked);
      expect(await a.run(() => doc.save(), null)).toBe('no fence');
      expect(await state(a)).toMatchObject({ lost: { reason: 'offline' }, draft: { text: 'typed since' } });
      expect([await acquire(b), await type(b, 'by Ben')]).toEqual([true, 'saved']);
      await b.run(() => doc.lock.release(), null);
      wire.mend();
      await a.run(() => { dispatchEvent(new Event('online')); }, null);
      await until(a, 'mine');
      expect(await a.run(() => doc.text, null)).toBe('by Ben');
      expect((await state(a)).draft?.text).toBe('typed since');
      expect(await type(a, 'by both')).toBe('saved');
    }, true);
  }

  check('a short break loses nothing, nor does a slow network, nor a server that is restarted', async (stage) => {
    await stage.ownServer();
    const wire = await stage.wire();
    const a = await stage.open({ server: wire.url });
    await acquire(a);
    const before = await fence(a);
    const expiry = async () => {
      const { expires_at: at } = await (await stage.server.call(ANNA, 'GET', `${stage.room}/lock`)).json() as { expires_at: string };
      return Date.parse(at);
    };
    const renewed = async () => { for (const known = await expiry(); await expiry() <= known;); };
    wire.cut();
    await a.run(() => doc.when(() => doc.lock.getState().connection === 'lost'), null);
    wire.mend();
    wire.delay(150);
    await renewed();
    wire.mend();
    expect(await fence(a)).toBe(before);
    await stage.server.stop();
    await stage.server.begin();
    await renewed();
    expect([await fence(a), (await state(a)).status]).toEqual([before, 'mine']);
  }, true);

  check('a page without events learns by its renewal: 404 and 403, in the words of the source', async (stage) => {
    for (const [path, reason, text] of [
      ['force-release', 'not-found', 'ロックが見つかりません'], ['take-over', 'not-holder', 'ロックを保持していません'],
    ] as const) {
        const a = await stage.open({ isDeaf: true, options: { language: 'ja' } });
      await acquire(a);
      const body = { fence: await fence(a), reason: 'a test' };
      expect((await stage.server.call(CHIEF, 'POST', `${stage.room}/lock/${path}`, body)).status).toBeLessThan(300);
      await a.run(() => doc.when(() => doc.lock.getState().lost !== null), null);
      expect((await state(a)).lost).toMatchObject({ reason, text });
      await a.close();
    }
  }, true);

  check('taken over with a reason: the loser is told, its text is kept, and it may ask for it back', async (stage) => {
    const a = await stage.open();
    await acquire(a);
    await type(a, 'saved');
    await a.run(() => doc.type('unsaved'), null);
    const chief = await stage.open({ token: CHIEF, who: 'chief' });
    await until(chief, 'read-only');
    expect(await state(chief)).toMatchObject({ mayTakeOver: true, may: 'force' });
    expect(await chief.run(() => doc.lock.takeOver('closing time'), null)).toBe(true);
    await until(a, 'read-only');
    expect(await state(a)).toMatchObject({
      lost: { reason: 'taken-over', by: 'Chief', note: 'closing time' }, holder: { name: 'Chief' }, draft: { text: 'unsaved' },
    });
    expect(await a.run(() => doc.save(), null)).toBe('no fence');
    // Ask, be refused, ask again, get it.
    const refused = a.run(() => doc.lock.ask(), null);
    await chief.run(() => doc.when(() => doc.lock.getState().request?.endsAt != null), null);
    expect((await state(chief)).request).toMatchObject({ by: { name: 'Anna' }, onSilence: 'refuse' });
    await chief.run(() => doc.lock.answer('refuse'), null);
    expect(await refused).toBe(false);
    expect(await state(chief)).toMatchObject({ status: 'mine', request: null });
    await chief.run(() => doc.type('the last word'), null);
    const granted = a.run(() => doc.lock.ask(), null);
    await chief.run(() => doc.when(() => doc.lock.getState().request !== null), null);
    await chief.run(() => doc.lock.answer('hand-over'), null);
    expect(await granted).toBe(true);
    expect([(await state(a)).status, await a.run(() => doc.text, null)]).toEqual(['mine', 'the last word']);
    expect(await state(chief)).toMatchObject({ lost: { reason: 'handed-over', by: 'Anna' }, draft: null });
    await a.run(() => { doc.lock.discardDraft(); }, null);
    expect((await state(a)).draft).toBe(null);
    // A forced release is announced as a take-over, but nobody has taken it.
    const body = { fence: await fence(a), reason: 'lunch' };
    expect((await stage.server.call(CHIEF, 'POST', `${stage.room}/lock/force-release`, body)).status).toBe(204);
    await until(a, 'free');
    expect(await state(a)).toMatchObject({ lost: { reason: 'force-released', by: 'Chief', note: 'lunch' }, holder: null });
  });

  check('a page that closes its document leaves nothing behind, whatever is under way', async (stage) => {
    const a = await stage.open();
    await until(a, 'free');
    await a.run(async () => {
      const acquired = doc.lock.acquire();
      await doc.lock.close();
      await acquired;
    }, null);
    expect(await (await stage.server.call(ANNA, 'GET', `${stage.room}/lock`)).json()).toMatchObject({ locked: false });
    expect((await state(a)).status).toBe('closed');
  });

  check('back from the cache: the lock is resumed, or the page finds that another has it', async (stage) => {
    stage.useBrief();
    const a = await stage.open();
    await acquire(a);
    await a.run(() => doc.type('unsaved'), null);
    await a.away(page('elements.html'));
    await a.back();
    await begun(a);
    await until(a, 'mine');
    const b = await stage.asBen();
    await a.front();
    await a.away(page('elements.html'));
    await until(b, 'free');
    expect(await acquire(b)).toBe(true);
    await a.back();
    await begun(a);
    await until(a, 'read-only');
    expect(await state(a)).toMatchObject({ holder: { name: 'Ben' } });
    expect(await fence(a)).toBe(null);
  });

  // A page in the back/forward cache has a fence and an old text. The next page of the same tab resumed the lock, saved and was left
  // by Back: the first page resumed in its turn, under the same fence, took its text for the current one, and could save it over the
  // newer one.
  check('back to a page whose tab has saved since: it loads before it may edit', async (stage) => {
    const a = await stage.open();
    await acquire(a);
    await type(a, 'by the first page');
    await a.run(() => doc.type('never saved'), null);
    await a.away(`${page('documents.html')}?next${await a.run(() => location.hash, null)}`);
    await begun(a);
    await until(a, 'mine');
    expect(await type(a, 'by the next page')).toBe('saved');
    await a.back();
    await expect.poll(() => a.run(() => location.search, null).catch(() => 'on the way')).toBe('');
    await begun(a);
    await until(a, 'mine');
    expect(await a.run(() => doc.text, null)).toBe('by the next page');
    expect((await state(a)).draft?.text).toBe('never saved');
  });

  // After "Done", what was typed while the page saved was neither saved nor kept. A page that was closed or reloaded kept nothing
  // of what was unsaved.
  check('what is typed while a page saves and gives the lock back, or before it is reloaded, is kept as a draft', async (stage) => {
    const a = await stage.open();
    await acquire(a);
    await a.run(async () => {
      doc.type('saved');
      const { save } = doc;
      doc.save = async () => {
        const result = await save();
        doc.type('typed meanwhile');
        return result;
      };
      await doc.lock.release();
    }, null);
    expect(await state(a)).toMatchObject({ lost: null, draft: { text: 'typed meanwhile' } });
    await a.run(() => { doc.lock.discardDraft(); }, null);
    await acquire(a);
    await a.run(() => doc.type('typed before a reload'), null);
    await a.reload();
    await begun(a);
    await until(a, 'mine');
    expect(await state(a)).toMatchObject({ draft: { text: 'typed before a reload' } });
    expect(await a.run(() => doc.text, null)).toBe('saved');
  });

  // A tab that was closed before the answer to its acquire had come left a lock behind that lasted its full time.
  check('a tab that is closed while the answer to its call is on its way leaves no lock for longer than 5 s', async (stage) => {
    const wire = await stage.wire();
    const a = await stage.open({ server: wire.url });
    const b = await stage.asBen();
    await until(a, 'free');
    wire.holdAnswerTo(`POST /api/documents/${stage.room}/lock`);
    await a.run(() => { void doc.lock.acquire(); }, null);
    await until(b, 'read-only');
    await a.close();
    const began = Date.now();
    await until(b, 'free');
    expect(Date.now() - began).toBeLessThan(6_000);
  }, true);

  // Firefox ends most closed tabs without a `pagehide`, and their locks lasted their full time.
  check('closed tabs: each lock is free after 5 s, not after its own 30 s', async (stage) => {
    const rooms = [1, 2, 3, 4, 5].map((number) => `${stage.room}.${number}`);
    const closed: [string, number][] = [];
    for (const room of rooms) {
      const tab = await stage.open({ room });
      expect(await acquire(tab)).toBe(true);
      await tab.close();
      closed.push([room, Date.now()]);
    }
    for (const [room, at] of closed) {
      for (;;) {
        const answer = await stage.server.call(BEN, 'GET', `${room}/lock`);
        expect(answer.status).toBe(200);
        if (!(await answer.json() as { locked: boolean }).locked) break;
        expect(Date.now() - at, room).toBeLessThan(6_000);
        await new Promise((resolve) => { setTimeout(resolve, 100); });
      }
    }
  }, true);

  check('a link to a file leaves nothing: the page has its lock again, and its text; and where the user is asked first, it keeps both', async (stage) => {
    const a = await stage.open();
    const b = await stage.asBen();
    await acquire(a);
    const before = await fence(a);
    await a.run(() => doc.type('unsaved'), null);
    await until(b, 'read-only');
    const asked = await a.run(() => {
      addEventListener('beforeunload', (event) => event.preventDefault(), { once: true });
      dispatchEvent(new Event('beforeunload', { cancelable: true }));
      return doc.lock.fence;
    }, null);
    expect(asked).toBe(before);
    await a.run((to) => { location.assign(to); }, `${store.url}/?nothing`);
    await b.run(() => doc.when(() => doc.events.some(({ event }) => event === 'DocumentResumed')), null);
    await until(a, 'mine');
    expect([await fence(a), await a.run(() => doc.text, null), (await state(a)).draft]).toEqual([before, 'unsaved', null]);
    expect(await b.run(() => doc.events.map(({ event }) => event), null)).not.toContain('DocumentUnlocked');
  }, true);

  // The page took its own lock, which it could not renew, for that of another tab of the user, and offered to take it over.
  check('a page that could not renew: nobody else has its lock, and it can have it again', async (stage) => {
    stage.useBrief();
    const wire = await stage.wire();
    const a = await stage.open({ server: wire.url, isDeaf: true });
    await acquire(a);
    wire.cut();
    await until(a, 'free', 'read-only');
    expect(await state(a)).toMatchObject({ status: 'free', sameUser: false, mayTakeOver: false, holder: null, lost: { reason: 'offline' } });
    wire.mend();
    expect(await a.run(() => doc.lock.acquire(), null)).toBe(true);
  }, true);

  // A page took a state whose number was lower than the last one for an old one, and from then on nothing was news to it.
  check('a server that begins anew, with an empty store: the page learns that its lock is gone, and can have another', async (stage) => {
    await stage.ownServer();
    const a = await stage.open();
    const b = await stage.asBen();
    await acquire(a);
    await a.run(() => doc.lock.release(), null);
    await acquire(a);
    await until(b, 'read-only');
    await stage.server.stop();
    stage.server.forgetStore();
    await stage.server.begin();
    await b.run(() => doc.when(() => doc.lock.getState().status === 'free'), null);
    await a.run(() => doc.when(() => doc.lock.getState().status === 'free'), null);
    expect([await acquire(b), await fence(a)]).toEqual([true, null]);
    await until(a, 'read-only');
  }, true);

  // An application's call for a token that never ended held up everything, also after the network was back.
  check('an application that never answers when it is asked for a token is asked again', async (stage) => {
    const a = await stage.open({ tokenHangs: true });
    await until(a, 'free');
    expect(await acquire(a)).toBe(true);
  }, true);

  check('lost answers: to acquire, take over, give back and hand over. Each is repeated, and means the same', async (stage) => {
    const wire = await stage.wire();
    const at = `/api/documents/${stage.room}/lock`;
    const a = await stage.open({ server: wire.url });
    wire.loseAnswerTo(`POST ${at} `);
    expect(await acquire(a)).toBe(true);
    const chief = await stage.open({ server: wire.url, token: CHIEF, who: 'chief' });
    await until(chief, 'read-only');
    wire.loseAnswerTo(`POST ${at}/take-over`);
    expect(await chief.run(() => doc.lock.takeOver('closing time'), null)).toBe(true);
    await until(a, 'read-only');
    const asked = a.run(() => doc.lock.ask(), null);
    await chief.run(() => doc.when(() => doc.lock.getState().request !== null), null);
    wire.loseAnswerTo(`POST ${at}/request/answer`);
    await chief.run(() => doc.lock.answer('hand-over'), null);
    expect(await asked).toBe(true);
    wire.loseAnswerTo(`DELETE ${at} `);
    await a.run(() => doc.lock.release(), null);
    await until(chief, 'free');
    expect(await state(a)).toMatchObject({ status: 'free', lost: null, pending: null });
  }, true);

  check('one who asks gets the lock when the holder is done, or closes the tab; a restart of the server in between changes nothing', async (stage) => {
    await stage.ownServer();
    const a = await stage.open();
    const b = await stage.asBen();
    await acquire(a);
    await until(b, 'read-only');
    const first = b.run(() => doc.lock.ask(), null);
    await a.run(() => doc.when(() => doc.lock.getState().request !== null), null);
    await stage.server.stop();
    await stage.server.begin();
    await a.run(() => doc.lock.release(), null);
    expect(await first).toBe(true);
    await b.run(() => doc.lock.release(), null);
    await acquire(a);
    const second = b.run(() => doc.lock.ask(), null);
    await a.run(() => doc.when(() => doc.lock.getState().request !== null), null);
    await a.close();
    expect(await second).toBe(true);
  }, true);

  check('the application\'s own Echo brings the events', async (stage) => {
    const a = await stage.open({ hasEcho: true });
    const b = await stage.asBen({ hasEcho: true });
    expect([await acquire(a), await acquire(b)]).toEqual([true, false]);
    expect(await state(b)).toMatchObject({ status: 'read-only', holder: { name: 'Anna' }, connection: 'live' });
    await a.run(() => doc.lock.release(), null);
    await until(b, 'free');
    expect(await acquire(b)).toBe(true);
    await until(a, 'read-only');
    await b.run(() => doc.lock.release(), null);
    await until(a, 'free');
  });

  check('a React component in strict mode: one lock, and none when it is gone', async (stage) => {
    const hash = encodeURIComponent(JSON.stringify({ server: stage.server.url, room: stage.room, token: ANNA }));
    const tab = await browser.open(`${page('react.html')}#${hash}`);
    const look = async () => (await stage.server.call(ANNA, 'GET', `${stage.room}/lock`)).json();
    const mine = () => tab.run(async () => { while (document.querySelector('#status')?.textContent !== 'mine') await new Promise((resolve) => { setTimeout(resolve, 10); }); }, null);
    await mine();
    const { fence } = await look() as { fence: number };
    // The first of the two components, which is closed at once, took the lease to be resumed with it.
    await tab.reload();
    await mine();
    expect(await look()).toMatchObject({ locked: true, fence, holder: { id: 'anna' } });
    expect(await tab.run(() => react.loads, null)).toBe(1);
    await tab.run(() => react.unmount(), null);
    while ((await look() as { locked: boolean }).locked) await new Promise((resolve) => { setTimeout(resolve, 20); });
    await tab.close();
  });
}
