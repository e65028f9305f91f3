// `leasehold/documents`: the lock on a document of a server, for the page that edits it. A Worker keeps the lock and follows the
// events (`documents/engine.ts`); this is the page's end: it loads before it lets the user edit, keeps drafts, survives a reload, and
// shows one state. Importing it has no side effect.

import { discardDraft, draftsOf, keepDraft } from './documents/drafts.js';
import type { Bid, EngineCalls, EngineState, ToPage, ToWorker } from './documents/remote.js';
import { beginTab, holdTab, keepLease, keptLease, leaveTab, newId, type KeptLease } from './documents/tab.js';
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
/** The id of this tab, as soon as it is known. */
let tab: Promise<string> | undefined;
let lastNumber = 0;
const documents = new Map<number, PageDocument>();
const watchers = new Set<(event: DocumentEvent) => void>();
/** Whether the page is being left. */
let isLeft = false;
/** A page that is still there so long after it seemed to be left stays: a link was to a file, or to another program. */
const STAYS_AFTER_MS = 1_000;
/** Documents that are about to be closed. The next one of the same name waits for it: a component may be mounted again at once. */
const closing = new Map<string, Promise<unknown>>();

/** Says where the parts are, before the first call. */
export function init(options: InitOptions): void {
  if (worker) throw new TypeError('init: call it first');
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
  /** Ends when it is known whether this tab still has what it had before a reload. */
  #resumed: Promise<void> | undefined;
  #engine = NOTHING;
  #pending: PendingCall | null = null;
  #isResuming = false;
  #isClosed = false;
  /** The fence of the version that the page shows, and of the one that it is loading. */
  #loaded: number | null = null;
  #loading: { readonly fence: number; readonly done: Promise<void> } | null = null;
  /** What the tab keeps of the page's lock, and of one that it may have been given. */
  #lease: KeptLease | undefined;
  #lastCall = 0;
  #alarm: ReturnType<typeof setTimeout> | undefined;
  #problem: { readonly code: string; readonly text: string } | null = null;
  #draft: DocumentState['draft'] = null;
  #state: DocumentState;

  constructor(readonly roomId: string, readonly options: DocumentOptions) {
    const { server } = options;
    this.#server = server ? new URL(server, location.href).href.replace(/\/$/, '') : location.origin;
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

  /** The lock as the user sees it: one that this very page could not renew is nobody else's. */
  get #lock(): EngineState['lock'] {
    const { lock, lost } = this.#engine;
    return lost?.reason === 'offline' && lock?.fence === this.#loaded ? null : lock;
  }

  #status(lock: EngineState['lock']): DocumentStatus {
    const { mine, connection, isRefused } = this.#engine;
    if (this.#isClosed) return 'closed';
    if (this.fence !== null) return 'mine';
    if (mine && this.#left() > 0) return 'connecting';
    if (isRefused) return 'unavailable';
    if (connection === 'lost') return 'offline';
    if (lock === undefined || this.#isResuming) return 'connecting';
    return lock === null ? 'free' : 'read-only';
  }

  #drawn(): DocumentState {
    const { me, mine, may, connection, asking, presence, lost, problem } = this.#engine;
    const lock = this.#lock;
    const status = this.#status(lock);
    const isMine = mine !== null && this.#left() > 0;
    const sameUser = !isMine && lock != null && lock.holder.id === me?.id;
    return {
      status, sameUser, may, connection, asking, presence,
      holder: lock?.holder ?? null,
      since: lock?.since ?? null,
      leaving: lock?.leaving ?? false,
      mayTakeOver: lock != null && !isMine && (may === 'force' || (sameUser && may === 'lock')),
      request: status === 'mine' ? this.#engine.request : null,
      lost: isMine ? null : lost,
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

  async acquire(): Promise<boolean> {
    return this.fence !== null || this.#during('acquire', () => this.#bid({ how: 'acquire', leaseId: newId() }));
  }

  ask(): Promise<boolean> {
    const { onSilence: on_silence = 'refuse', countdownSeconds: countdown_seconds = 30 } = this.options;
    return this.#during('ask', () => this.#bid({ how: 'ask', leaseId: newId(), on_silence, countdown_seconds }));
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
      this.#lost('released');
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
    if (this.#engine.mine) this.#keepUnsaved();
    this.#isClosed = true;
    clearTimeout(this.#alarm);
    // What the page before this one has left, and this one has not resumed yet, stays for the next.
    if (this.#lease) this.#keep();
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
      this.#failed('save-failed', error);
      return false;
    }
  }

  /** The application could not do its part. */
  #failed(code: string, error: unknown): void {
    this.#problem = { code, text: String((error as Error)?.message ?? error) };
  }

  /** Gets the lock, and the current version. */
  async #bid(bid: Bid): Promise<boolean> {
    await this.#opened;
    // What the tab had before a reload comes first: a new lock would be refused on account of it.
    if (bid.how !== 'resume') {
      await this.#resumed;
      if (this.fence !== null) return true;
    }
    // Before it is sent: a page that is reloaded meanwhile finds what it may have been given, and can repeat the same call.
    const { leaseId } = bid;
    this.#keep(bid.how === 'resume' ? { leaseId, next: bid.next_lease_id } : { leaseId });
    const isMine = await this.#call('bid', bid);
    if (!isMine) {
      if (this.#engine.mine === null) this.#keep();
      return false;
    }
    await this.#loading?.done;
    return this.fence !== null;
  }

  /** Keeps a lease for the next page in this tab, or forgets it. */
  #keep(lease?: KeptLease): void {
    this.#lease = lease;
    keepLease(this.#name, lease);
  }

  // --- what the Worker says ---

  hear(message: Exclude<ToPage, { broken: unknown }>): void {
    if ('state' in message) this.#know(message.state);
    else if ('event' in message) for (const watcher of [...watchers]) watcher(message.event);
    else if ('wants' in message) void this.#giveToken();
    else {
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
    if (mine && mine.leaseId !== this.#lease?.leaseId) {
      // Neither what this page had nor what it has drawn: another page of this tab has had the lock, and may have saved.
      if (mine.leaseId !== this.#lease?.next) this.#loaded = null;
      this.#keep({ leaseId: mine.leaseId });
    }
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
      if (!isMine()) return;
      // A page that cannot load must not edit.
      this.#failed('reload-failed', error);
      await this.#call('release', 'reload-failed');
    } finally {
      if (this.#loading?.fence === fence) this.#loading = null;
      this.#draw();
    }
  }

  #lost(reason: LossReason): void {
    clearTimeout(this.#alarm);
    // A lock that could not be renewed may be there still.
    if (reason !== 'offline') this.#keep();
    this.#keepUnsaved();
  }

  #keepUnsaved(): void {
    try {
      const text = this.#loaded === null ? null : this.options.unsaved?.() ?? null;
      if (text !== null) keepDraft(this.#draftName, text);
    } catch (error) {
      reportError(error); // the application's own; the lock is lost all the same
    }
    this.#offer();
  }

  /** The server is back: what could not be renewed is asked for again, if nobody else has it. */
  #regain(): void {
    if (this.#lock === null) void this.acquire();
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
    const { token = null } = this.options;
    const ask = async () => (typeof token === 'function' ? token() : token);
    post({ document: this.#number, token: await ask().catch(() => null) });
  }

  // --- the page's life ---

  /** Opens it, once the one `before` it is closed. */
  async #open(before: Promise<unknown> | undefined): Promise<void> {
    if (!tab) follow();
    const id = await (tab ??= beginTab());
    await before;
    const { echo, language } = this.options;
    const settings = {
      room: this.roomId, server: this.#server, tab: id, language: language ?? (document.documentElement.lang || navigator.language),
      streams: echo === undefined, isVisible: isVisible(), state: NOTHING,
    };
    post({ document: this.#number, open: settings });
    if (echo) {
      const { listen } = await import('./documents/echo.js');
      listen(echo, this.roomId, (event) => void this.send('event', event), (isLive) => void this.send('look', isLive));
    }
    if (!this.#isClosed) this.#resume();
  }

  /** Resumes what the page before this one has left in this tab. */
  #resume(): void {
    const kept = keptLease(this.#name);
    this.#isResuming = !!kept;
    if (!kept) return;
    // The next page in this tab may have resumed the lock, under the same fence, and saved.
    if (kept.leaseId !== this.#lease?.leaseId) this.#loaded = null;
    this.#resumed = this.#bid({ how: 'resume', leaseId: kept.leaseId, next_lease_id: kept.next ?? newId() }).then((isMine) => {
      if (!isMine) this.#keepUnsaved();
      // What the page still has needs no draft.
      else if (this.#draft && this.options.unsaved?.() === this.#draft.text) this.discardDraft();
      this.#isResuming = false;
      this.#draw();
    });
  }

  leave(): void {
    const url = `${this.#server}/api/documents/${encodeURIComponent(this.roomId)}/lock/release`;
    // Both: a lock that was asked for may be there, although the answer is not.
    for (const lease_id of Object.values(this.#lease ?? {})) {
      void fetch(url, { method: 'POST', body: JSON.stringify({ lease_id }), keepalive: true, mode: 'no-cors' }).catch(() => {});
    }
    if (this.#engine.mine) this.#keepUnsaved();
    // At once: a page that stays, or comes back from the cache, may act before the Worker has said anything.
    this.#engine = { ...this.#engine, mine: null };
    this.#isResuming = !!this.#lease;
    void this.send('leave');
    this.#draw();
  }

  back(): void {
    void this.send('back');
    this.#resume();
    this.#draw();
  }

  async #call<Name extends keyof EngineCalls>(method: Name, argument?: Parameters<EngineCalls[Name]>[0]): Promise<Awaited<ReturnType<EngineCalls[Name]>>> {
    await this.#opened;
    return this.send(method, argument);
  }

  send<Name extends keyof EngineCalls>(method: Name, argument?: Parameters<EngineCalls[Name]>[0]): Promise<Awaited<ReturnType<EngineCalls[Name]>>> {
    const call = ++this.#lastCall;
    return new Promise((resolve) => {
      this.#calls.set(call, resolve);
      post({ document: this.#number, call, method, argument });
    });
  }
}

/** Follows the life of the page. */
function follow(): void {
  const each = (work: (document: PageDocument) => void) => documents.forEach(work);
  const leave = () => {
    isLeft = true;
    each((document) => document.leave());
    leaveTab();
  };
  const back = () => {
    if (!isLeft) return;
    isLeft = false;
    void holdTab();
    each((document) => document.back());
  };
  addEventListener('pagehide', leave);
  addEventListener('pageshow', back);
  // Firefox ends most closed tabs without a `pagehide`, or before it has sent what that sends. The inner listener comes after all
  // of the application's own: if one of them has the user asked first, the page is not left yet.
  addEventListener('beforeunload', () => addEventListener('beforeunload', (event) => {
    if (event.defaultPrevented || event.returnValue) return;
    leave();
    setTimeout(back, STAYS_AFTER_MS);
  }, { once: true }), true);
  addEventListener('online', () => each((document) => document.send('hurry')));
  document.addEventListener('visibilitychange', () => {
    each((open) => open.send('visible', isVisible()));
  });
}

function isVisible(): boolean {
  return document.visibilityState === 'visible';
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
    worker.onerror = (event) => fail(event.message || 'the Worker was not loaded: say where it is with init({ workerUrl })');
    worker.postMessage({ wasmUrl: places.wasmUrl && new URL(places.wasmUrl, document.baseURI).href } satisfies ToWorker);
  }
  worker.postMessage(message);
}

function fail(why: string): void {
  for (const open of [...documents.values()]) open.fail(why);
}
