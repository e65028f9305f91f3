// `leasehold/telemetry`: counts what the lock and the autosave of a page do, and sends the counts to a server. Nothing is sent
// unless an application starts it. Only names and numbers are: no lease id, no name of a project, nothing of the document. Which
// names there are, and what the counts mean, says crates/leasehold-core/src/telemetry.rs.

import type { AutoSave, AutoSaveSnapshot, AutoSaveStateKind } from './autosave/state.js';
import { systemClock } from './clock.js';
import { subscribeLockEvents } from './index.js';
import type { Clock } from './ports.js';
import type { ProjectLock, ProjectLockEvent, SomeProject } from './types.js';

/** How to count and where to send. */
export interface TelemetryOptions extends SomeProject {
  /** The address of the server's `/api/telemetry`. */
  readonly url: string | URL;
  /** The autosave of this page, if it has one: its saves and restores are counted, too. */
  readonly autosave?: AutoSave | undefined;
  /** The phase that this page runs under, or what returns it; the server's own when left out. */
  readonly phase?: string | (() => string | undefined) | undefined;
  /** A token for the server, or what returns it. Without one, the server must allow anonymous telemetry. */
  readonly token?: string | (() => string | undefined) | undefined;
  /** How often counts are sent; 30000. */
  readonly intervalMs?: number | undefined;
}

/** A running count. */
export interface Telemetry {
  /** Sends what was counted, now. */
  flush(): Promise<void>;
  /** Sends it and stops counting. */
  stop(): Promise<void>;
}

/** Sends a body. False, or a rejection, means that it did not arrive. */
type Send = (body: string, isLeaving: boolean) => Promise<boolean> | boolean;

/** What telemetry runs on. */
interface Around {
  readonly lock: Pick<ProjectLock, 'subscribeLockEvents'>;
  readonly clock: Clock;
  readonly send: Send;
}

/** What was counted in one phase. */
interface Batch {
  readonly counts: Map<string, { event: string; reason?: string; code?: string; n: number }>;
  readonly times: Map<string, number[]>;
}

/** The version of the schema. */
const SCHEMA = 1;
/** A session counts when it begins, and once more after each of these spans. */
const SESSION_SPAN_MS = 15 * 60_000;
const INTERVAL_MS = 30_000;
/** What a server takes of one batch. */
const [MAX_ROWS, MAX_COUNT, MAX_TIMES] = [128, 10_000, 256];

/** Counts what the lock and the autosave of this page do from now on, and sends the counts: every half minute, and when the page
 * is hidden or left. Call it right after `initAutoSave`. */
export function startTelemetry(options: TelemetryOptions): Telemetry {
  return begin({ lock: { subscribeLockEvents }, clock: systemClock, send: sender(options) }, options);
}

/** The same on what the caller brings, for tests with the doubles. */
export function createTelemetry(around: Around, options: Omit<TelemetryOptions, 'url' | 'token'>): Telemetry {
  return begin(around, options);
}

function begin(around: Around, options: Omit<TelemetryOptions, 'url' | 'token'>): Telemetry {
  const counter = new Counter(around, options);
  return { flush: () => counter.flush(), stop: () => counter.stop() };
}

const valueOf = (given: string | (() => string | undefined) | undefined) => typeof given === 'function' ? given() : given;

/** A page that is left can send a beacon, which carries no token, or a request that outlives it. Plain text needs no question in
 * advance, which a page that is left could not wait for. */
function sender({ url, token }: TelemetryOptions): Send {
  return async (body, isLeaving) => {
    const bearer = valueOf(token);
    if (!bearer && isLeaving && navigator.sendBeacon) return navigator.sendBeacon(url, body);
    const headers = { 'content-type': 'text/plain', ...(bearer && { authorization: `Bearer ${bearer}` }) };
    const { status } = await fetch(url, { method: 'POST', body, headers, keepalive: true, credentials: 'omit', mode: bearer ? 'cors' : 'no-cors' });
    // A server that refuses a batch will refuse it again, unless it is busy or the token was too old. (0: the page is not shown the
    // answer.)
    return status < 429 && status !== 401;
  };
}

/** Counts, and sends what it has counted. */
class Counter {
  readonly #around: Around;
  readonly #options: Omit<TelemetryOptions, 'url' | 'token'>;
  readonly #end: (() => void)[] = [];
  #batches = new Map<string, Batch>();
  #timer = () => {};
  #isOn = false;
  #endSession = () => {};
  #isStopped = false;
  /** When the present acquire, and the present save, began. */
  #acquiring: number | undefined;
  #saving: number | undefined;
  #seen: AutoSaveSnapshot | undefined;

  constructor(around: Around, options: Omit<TelemetryOptions, 'url' | 'token'>) {
    this.#around = around;
    this.#options = options;
    const { autosave, root, lockName } = options;
    const events = around.lock.subscribeLockEvents((event) => this.#hear(event), { root, lockName });
    this.#end.push(() => events.unsubscribe());
    if (autosave) this.#watch(autosave);
    this.#turn(autosave?.getSnapshot().state.kind);
    this.#leave();
    this.#tick();
  }

  async flush(isLeaving = false): Promise<void> {
    const batches = this.#batches;
    this.#batches = new Map();
    await Promise.all([...batches].map(([phase, batch]) => this.#send(phase, batch, isLeaving)));
  }

  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#timer();
    this.#endSession();
    this.#end.forEach((end) => end());
    await this.flush();
  }

  // --- what is counted ---

  /** An autosave that is turned off is no session. Flags may turn it on later, and off again. */
  #turn(kind?: AutoSaveStateKind): void {
    const isOn = kind !== 'disabled' && kind !== 'stopped';
    if (isOn === this.#isOn) return;
    this.#isOn = isOn;
    this.#endSession();
    if (isOn) this.#session();
  }

  #session(): void {
    this.#count('autosave.session');
    this.#endSession = this.#around.clock.after(SESSION_SPAN_MS, () => this.#session());
  }

  #hear(event: ProjectLockEvent): void {
    const { type } = event;
    if (type === 'lock:attempt' && event.operation === 'acquire') this.#acquiring ??= this.#around.clock.monotonic();
    if (type === 'lock:readonly-entered') {
      this.#acquiring = undefined;
      return this.#count('autosave.lock.readonly', event.reason, event.lastError.code);
    }
    if (type === 'lock:acquired') this.#acquiring = this.#time(type, this.#acquiring);
    const reason = type === 'lock:acquired' ? event.lease.strategy : type === 'lock:warning' ? event.warning : undefined;
    this.#count(type, reason, type === 'lock:error' ? event.error.code : undefined);
  }

  #watch(autosave: AutoSave): void {
    this.#seen = autosave.getSnapshot();
    this.#end.push(autosave.subscribe(() => this.#look(autosave.getSnapshot())));
    // A restore that failed changes nothing that is shown, so the calls themselves are watched.
    const { history } = autosave;
    const [restore, restoreFromCurrent] = [history.restore, autosave.restoreFromCurrent];
    const counted = async (call: Promise<boolean>): Promise<boolean> => {
      const isDone = await call;
      this.#count(isDone ? 'autosave.restored' : 'autosave.restore-failed');
      return isDone;
    };
    Object.assign(history, { restore: (ts: string) => counted(restore(ts)) });
    Object.assign(autosave, { restoreFromCurrent: () => counted(restoreFromCurrent()) });
    this.#end.push(() => {
      Object.assign(history, { restore });
      Object.assign(autosave, { restoreFromCurrent });
    });
  }

  #look(now: AutoSaveSnapshot): void {
    const [before, { state }] = [this.#seen, now];
    this.#seen = now;
    this.#turn(state.kind);
    if (state.kind === 'saving') this.#saving ??= this.#around.clock.monotonic();
    if (now.savedAt !== null && now.savedAt !== before?.savedAt) {
      // What is found at the start was not saved now.
      if (this.#saving !== undefined) this.#count('autosave.saved');
      this.#saving = this.#time('autosave.saved', this.#saving);
    }
    if (state.kind === before?.state.kind) return;
    if (state.kind === 'readonly') this.#saving = undefined;
    if (state.kind === 'error') {
      this.#saving = undefined;
      this.#count('autosave.save-failed', state.code);
    }
    if (state.kind === 'unavailable') this.#count('autosave.unavailable');
  }

  #count(event: string, reason?: string, code?: string, n = 1, phase = valueOf(this.#options.phase) ?? ''): void {
    const { counts } = this.#batch(phase);
    const key = JSON.stringify([event, reason, code]);
    const row = counts.get(key);
    if (row) row.n = Math.min(row.n + n, MAX_COUNT);
    else if (counts.size < MAX_ROWS) counts.set(key, { event, ...(reason && { reason }), ...(code && { code }), n });
  }

  #time(event: string, since: number | undefined): undefined {
    if (since !== undefined) this.#times(event, valueOf(this.#options.phase) ?? '', Math.round(this.#around.clock.monotonic() - since));
  }

  #times(event: string, phase: string, ...ms: number[]): void {
    const { times } = this.#batch(phase);
    times.set(event, [...times.get(event) ?? [], ...ms].slice(-MAX_TIMES));
  }

  #batch(phase: string): Batch {
    const batch = this.#batches.get(phase) ?? { counts: new Map(), times: new Map() };
    this.#batches.set(phase, batch);
    return batch;
  }

  // --- what is sent ---

  async #send(phase: string, batch: Batch, isLeaving: boolean): Promise<void> {
    const times = [...batch.times].map(([event, ms]) => ({ event, ms }));
    const body = JSON.stringify({ v: SCHEMA, ...(phase && { phase }), counts: [...batch.counts.values()], times });
    try {
      if (await this.#around.send(body, isLeaving)) return;
    } catch {
      // A network may come back.
    }
    for (const { event, reason, code, n } of batch.counts.values()) this.#count(event, reason, code, n, phase);
    for (const [event, ms] of batch.times) this.#times(event, phase, ...ms);
  }

  #tick(): void {
    this.#timer = this.#around.clock.after(this.#options.intervalMs ?? INTERVAL_MS, () => {
      void this.flush();
      this.#tick();
    });
  }

  #leave(): void {
    const [page, window] = [globalThis.document, globalThis];
    const leave = () => void this.flush(true);
    const leaveIfHidden = () => { if (page?.visibilityState === 'hidden') leave(); };
    page?.addEventListener('visibilitychange', leaveIfHidden);
    window.addEventListener?.('pagehide', leave);
    this.#end.push(() => {
      page?.removeEventListener('visibilitychange', leaveIfHidden);
      window.removeEventListener?.('pagehide', leave);
    });
  }
}
