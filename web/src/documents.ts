// `leasehold/documents`: the lock on a document of a server, for the page that edits it. A Worker keeps the lock and follows the
// events (`documents/engine.ts`); this is the page's end: it loads before it lets the user edit, keeps drafts, survives a reload, and
// shows one state. Importing it has no side effect.

import { discardDraft, draftsOf, keepDraft } from './documents/drafts.js';
import type { Bid, EngineCalls, EngineState, ToPage, ToWorker } from './documents/remote.js';
import { newId, Tab } from './documents/tab.js';
import type {
  DocumentEvent, DocumentLock, DocumentOptions, DocumentState, DocumentStatus, LossReason, PendingCall,
} from './documents/types.js';

export type * from './documents/types.js';

/** Where the parts of the package are, when they are not beside this file. */
export interface InitOptions {
  /** The address of documents-worker.js, on the page's own origin. */
  readonly workerUrl?: string | URL;
  /** The address of leasehold-documents.wasm. */
  readonly wasmUrl?: string | URL;
}

const NOTHING: EngineState = {
  me: null, connection: 'connecting', may: 'read', lock: undefined, mine: null, request: null, asking: null,
  presence: { editing: [], asking: [], looking: [] }, lost: null, problem: null, isRefused: false,
};

let places: InitOptions = {};
let worker: Worker | undefined;
let tab: Tab | undefined;
let lastNumber = 0;
const documents = new Map<number, PageDocument>();
const watchers = new Set<(event: DocumentEvent) => void>();
/** Documents that are about to be closed. The next one of the same name waits for it: a component may be mounted again at once. */
const closing = new Map<string, Promise<unknown>>();

/** Says where the parts are, before the first call. */
export function init(options: InitOptions): void {
  if (worker) throw new TypeError('init: call it before every other call');
  places = { ...places, ...options };
}

/** Opens a document. A lock that this tab held before it was reloaded is resumed. */
export function openDocument(roomId: string, options: DocumentOptions = {}): DocumentLock {
  return new PageDocument(roomId, options);
}

/** Calls `listener` for every event of the documents that this page has open. */
export function subscribeDocumentEvents(listener: (event: DocumentEvent) => void): () => void {
  watchers.add(listener);
  return () => { watchers.delete(listener); };
}

class PageDocument implements DocumentLock {
  readonly #number = ++lastNumber;
  /** The server and the document: what lease ids are kept under. */
  readonly #name: string;
  readonly #server: string;
  readonly #calls = new Map<number, (value: never) => void>();
  readonly #listeners = new Set<() => void>();
  readonly #opened: Promise<void>;
  #engine = NOTHING;
  #pending: PendingCall | null = null;
  #isResuming = false;
  #isClosed = false;
  /** The fence of the version that the page shows, and of the one that it is loading. */
  #loaded: number | null = null;
  #loading: { readonly fence: number; readonly done: Promise<void> } | null = null;
  #leaseId: string | null = null;
  #lastCall = 0;
  #alarm: ReturnType<typeof setTimeout> | undefined;
  #problem: { readonly code: string; readonly text: string } | null = null;
  #lossOfOwn: LossReason | null = null;
  #draft: DocumentState['draft'] = null;
  #state: DocumentState;

  constructor(readonly roomId: string, readonly options: DocumentOptions) {
    this.#server = new URL(options.server ?? '', globalThis.location?.href).href.replace(/\/$/, '');
    if (options.server === undefined || options.server === '') this.#server = location.origin;
    this.#name = `${this.#server} ${roomId}`;
    this.#state = this.#drawn();
    documents.set(this.#number, this);
    this.#opened = this.#open(closing.get(this.#name));
  }

  // --- what the page sees ---

  readonly getState = (): DocumentState => this.#state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => { this.#listeners.delete(listener); };
  };

  get fence(): number | null {
    const { mine } = this.#engine;
    return mine && mine.fence === this.#loaded && this.#left() > 0 ? mine.fence : null;
  }

  /** How long the page may act. By both clocks: one may be set, the other may stand still while the machine sleeps. */
  #left(): number {
    const { mine } = this.#engine;
    return mine ? Math.min(mine.wall - Date.now(), mine.monotonic - (performance.timeOrigin + performance.now())) : 0;
  }

  #status(): DocumentStatus {
    const { mine, lock, connection, isRefused } = this.#engine;
    if (this.#isClosed) return 'closed';
    if (this.fence !== null) return 'mine';
    if (mine && this.#left() > 0) return 'connecting';
    if (isRefused) return 'unavailable';
    if (connection === 'lost') return 'offline';
    if (lock === undefined || this.#isResuming) return 'connecting';
    return lock === null ? 'free' : 'read-only';
  }

  #drawn(): DocumentState {
    const { me, lock, mine, may, connection, asking, presence, lost, problem } = this.#engine;
    const status = this.#status();
    const isMine = mine !== null && this.#left() > 0;
    const sameUser = !isMine && lock != null && lock.holder.id === me?.id;
    return {
      status, sameUser, may, connection, asking, presence,
      holder: lock?.holder ?? null,
      since: lock?.since ?? null,
      leaving: lock?.leaving ?? false,
      mayTakeOver: lock != null && !isMine && (may === 'force' || (sameUser && may === 'lock')),
      request: status === 'mine' ? this.#engine.request : null,
      lost: this.#lossOfOwn ? { reason: this.#lossOfOwn, by: null, note: null, text: '' } : isMine ? null : lost,
      draft: this.#draft,
      pending: this.#pending,
      problem: this.#problem ?? problem,
    };
  }

  #draw(): void {
    const next = this.#drawn();
    if (JSON.stringify(next) === JSON.stringify(this.#state)) return;
    this.#state = next;
    for (const listener of [...this.#listeners]) listener();
  }

  // --- what the user does ---

  acquire(): Promise<boolean> {
    if (this.fence !== null) return Promise.resolve(true);
    return this.#during('acquire', () => this.#bid({ how: 'acquire', leaseId: newId() }));
  }

  ask(): Promise<boolean> {
    const { onSilence = 'refuse', countdownSeconds = 30 } = this.options;
    return this.#during('ask', () => this.#bid({ how: 'ask', leaseId: newId(), onSilence, countdownSeconds }));
  }

  takeOver(reason: string): Promise<boolean> {
    return this.#during('take-over', () => this.#bid({ how: 'take-over', leaseId: newId(), reason }));
  }

  async withdraw(): Promise<void> {
    await this.#call('withdraw');
  }

  async release(): Promise<void> {
    await this.#during('release', async () => {
      if (!await this.#save()) return;
      await this.#call('release');
      this.#forget();
    });
  }

  async answer(how: 'hand-over' | 'refuse'): Promise<void> {
    await this.#during(how, async () => {
      if (how === 'hand-over' && !await this.#save()) return;
      await this.#call('answer', how === 'hand-over');
      if (this.#engine.mine === null) this.#lost('handed-over');
    });
  }

  keepDraft(text: string): void {
    keepDraft(this.#draftName, text);
    this.#offer();
    this.#draw();
  }

  discardDraft(): void {
    discardDraft(this.#draftName);
    this.#offer();
    this.#draw();
  }

  /** Drafts are the user's own: several may use this browser. */
  get #draftName(): string {
    return `${this.#name} ${this.#engine.me?.id ?? ''}`;
  }

  #offer(): void {
    this.#draft = draftsOf(this.#draftName)[0] ?? null;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return closing.get(this.#name) as Promise<void> | undefined;
    this.#isClosed = true;
    clearTimeout(this.#alarm);
    this.#forget();
    this.options.echo?.leave(`document.${this.roomId}`);
    const closed = this.#opened.then(() => this.#call('close')).then(() => {
      documents.delete(this.#number);
      this.#end();
      if (closing.get(this.#name) === closed) closing.delete(this.#name);
    });
    closing.set(this.#name, closed);
    this.#draw();
    await closed;
  }

  async #during<T>(pending: PendingCall, work: () => Promise<T>): Promise<T> {
    this.#pending = pending;
    this.#problem = null;
    this.#draw();
    try {
      return await work();
    } finally {
      if (this.#pending === pending) this.#pending = null;
      this.#draw();
    }
  }

  /** Has the application save. False if it could not: then the page keeps the lock. */
  async #save(): Promise<boolean> {
    const { fence } = this;
    if (fence === null) return true;
    try {
      await this.options.save?.(fence);
      return true;
    } catch (error) {
      this.#problem = { code: 'save-failed', text: String((error as Error)?.message ?? error) };
      return false;
    }
  }

  /** Gets the lock, and the current version. */
  async #bid(bid: Bid): Promise<boolean> {
    // Before it is sent: a page that is reloaded meanwhile finds what it may have been given.
    if (bid.how !== 'resume') this.#keep(bid.leaseId);
    this.#lossOfOwn = null;
    const isMine = await this.#call('bid', bid);
    if (!isMine) {
      if (this.#engine.mine === null) this.#forget();
      return false;
    }
    await this.#loading?.done;
    return this.fence !== null;
  }

  #keep(leaseId: string): void {
    this.#leaseId = leaseId;
    tab!.keep(this.#name, { leaseId });
  }

  #forget(): void {
    this.#leaseId = null;
    tab?.forget(this.#name);
  }

  // --- what the Worker says ---

  hear(message: ToPage): void {
    if ('state' in message) this.#know(message.state);
    else if ('event' in message) for (const watcher of [...watchers]) watcher(message.event);
    else if ('wants' in message) void this.#giveToken();
    else if ('call' in message) {
      this.#calls.get(message.call)?.(message.value as never);
      this.#calls.delete(message.call);
    }
  }

  /** The Worker is gone, and so is the lock. */
  fail(why: string): void {
    const lost = this.#engine.mine ? { reason: 'offline', by: null, note: null, text: '' } as const : this.#engine.lost;
    this.#know({ ...this.#engine, mine: null, lost, isRefused: true, problem: { code: 'worker-failed', text: why } });
    this.#end();
  }

  /** Nothing more will be answered. */
  #end(): void {
    for (const done of this.#calls.values()) done(undefined as never);
    this.#calls.clear();
  }

  #know(engine: EngineState): void {
    const before = this.#engine;
    this.#engine = engine;
    const { mine, lost } = engine;
    if (before.me?.id !== engine.me?.id) this.#offer();
    if (mine) this.#watch();
    if (mine && mine.leaseId !== this.#leaseId) this.#keep(mine.leaseId);
    if (mine && mine.fence !== this.#loaded && mine.fence !== this.#loading?.fence) {
      this.#loading = { fence: mine.fence, done: this.#load(mine.fence) };
    }
    if (before.mine && !mine && lost) this.#lost(lost.reason);
    this.#draw();
    if (!mine && lost?.reason === 'offline' && before.connection !== 'live' && engine.connection === 'live') this.#regain();
  }

  /** Loads the current version, which another page may have changed, before the user may edit. */
  async #load(fence: number): Promise<void> {
    const isMine = () => this.#engine.mine?.fence === fence;
    try {
      await this.options.reload?.();
      if (isMine()) this.#loaded = fence;
    } catch (error) {
      if (isMine()) await this.#giveBack(error);
    } finally {
      if (this.#loading?.fence === fence) this.#loading = null;
      this.#draw();
    }
  }

  /** A page that cannot load must not edit. */
  async #giveBack(error: unknown): Promise<void> {
    this.#problem = { code: 'reload-failed', text: String((error as Error)?.message ?? error) };
    this.#lossOfOwn = 'reload-failed';
    await this.#call('release');
    this.#forget();
  }

  #lost(reason: LossReason): void {
    clearTimeout(this.#alarm);
    // A lock that could not be renewed may be there still.
    if (reason !== 'offline') this.#forget();
    this.#keepUnsaved();
  }

  #keepUnsaved(): void {
    const text = this.#loaded === null ? null : this.options.unsaved?.() ?? null;
    if (text !== null) keepDraft(this.#draftName, text);
    this.#offer();
  }

  /** The server is back: what could not be renewed is asked for again, if nobody else has it. */
  #regain(): void {
    const { lock, me } = this.#engine;
    if (lock === null || (lock && lock.holder.id === me?.id)) void this.acquire();
  }

  /** Stops in time, even if the Worker says nothing. */
  #watch(): void {
    clearTimeout(this.#alarm);
    this.#alarm = setTimeout(() => {
      if (this.#left() > 0) return this.#watch();
      this.#keepUnsaved();
      this.#draw();
    }, Math.max(0, this.#left()));
  }

  async #giveToken(): Promise<void> {
    const { token } = this.options;
    const given = typeof token === 'function' ? await Promise.resolve().then(token).catch(() => null) : token ?? null;
    post({ document: this.#number, token: given });
  }

  // --- the page's life ---

  /** Opens it, once the one `before` it is closed. */
  async #open(before: Promise<unknown> | undefined): Promise<void> {
    tab ??= beginTab();
    await tab.ready;
    await before;
    const { token, echo, language } = this.options;
    const settings = {
      room: this.roomId, server: this.#server, tab: tab.id, language: language ?? (document.documentElement.lang || navigator.language),
      hasToken: token !== undefined, streams: echo === undefined,
    };
    post({ document: this.#number, open: settings });
    if (document.visibilityState === 'hidden') void this.#send('visible', false);
    if (echo) {
      const { listen } = await import('./documents/echo.js');
      listen(echo, this.roomId, (event) => void this.#send('event', event), (isLive) => void this.#send('look', isLive));
    }
    if (!this.#isClosed) this.#resume();
  }

  /** Resumes what the page before this one has left in this tab. */
  #resume(): void {
    const kept = tab!.kept(this.#name);
    if (!kept) return;
    const next = kept.next ?? newId();
    // Before it is sent: whatever happens to the answer, the same call can be repeated.
    tab!.keep(this.#name, { leaseId: kept.leaseId, next });
    this.#isResuming = true;
    void this.#bid({ how: 'resume', leaseId: kept.leaseId, next }).then((isMine) => {
      if (!isMine) this.#keepUnsaved();
      this.#isResuming = false;
      this.#draw();
    });
  }

  leave(): void {
    const leaseId = this.#engine.mine && this.#leaseId;
    if (leaseId) {
      const url = `${this.#server}/api/documents/${encodeURIComponent(this.roomId)}/lock/release`;
      const body = JSON.stringify({ lease_id: leaseId });
      if (!navigator.sendBeacon(url, body)) void fetch(url, { method: 'POST', body, keepalive: true, mode: 'no-cors' }).catch(() => {});
    }
    void this.#send('leave');
  }

  back(): void {
    void this.#send('back');
    this.#resume();
  }

  tell(method: 'hurry' | 'visible', argument?: boolean): void {
    void this.#send(method, argument);
  }

  async #call<Name extends keyof EngineCalls>(method: Name, argument?: Parameters<EngineCalls[Name]>[0]): Promise<Awaited<ReturnType<EngineCalls[Name]>>> {
    await this.#opened;
    return this.#send(method, argument);
  }

  #send<Name extends keyof EngineCalls>(method: Name, argument?: Parameters<EngineCalls[Name]>[0]): Promise<Awaited<ReturnType<EngineCalls[Name]>>> {
    const call = ++this.#lastCall;
    return new Promise((resolve) => {
      this.#calls.set(call, resolve);
      post({ document: this.#number, call, method, argument });
    });
  }
}

function beginTab(): Tab {
  const each = (work: (document: PageDocument) => void) => documents.forEach(work);
  addEventListener('pagehide', () => {
    each((document) => document.leave());
    tab!.leave();
  });
  addEventListener('pageshow', ({ persisted }) => {
    if (!persisted) return;
    tab!.back();
    each((document) => document.back());
  });
  addEventListener('online', () => each((document) => document.tell('hurry')));
  document.addEventListener('visibilitychange', () => {
    each((open) => open.tell('visible', document.visibilityState === 'visible'));
  });
  return new Tab();
}

function post(message: ToWorker): void {
  if (!worker) {
    // Written like this, bundlers find the Worker and take it along.
    worker = places.workerUrl
      ? new Worker(places.workerUrl, { type: 'module' })
      : new Worker(new URL('./documents-worker.js', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data }: MessageEvent<ToPage>) => {
      if ('broken' in data) fail(data.broken);
      else documents.get(data.document)?.hear(data);
    };
    worker.onerror = (event) => fail(event.message || 'the Worker could not be loaded: say where it is with init({ workerUrl })');
    worker.postMessage({ wasmUrl: places.wasmUrl && new URL(places.wasmUrl, document.baseURI).href } satisfies ToWorker);
  }
  worker.postMessage(message);
}

function fail(why: string): void {
  for (const open of [...documents.values()]) open.fail(why);
}
