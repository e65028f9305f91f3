// One autosave of a page: brings the document, the time and the files, and does what the rules say
// (crates/leasehold-project-rules/src/autosave). It must never decide when something is saved, kept or removed.

import type { ProjectLockError } from '../error.js';
import { claimOf } from '../arguments.js';
import type { FileCall } from '../files.js';
import type { Bytes } from '../hash.js';
import type { Clock, Directory } from '../ports.js';
import { bytesOf, textOf } from '../text.js';
import type {
  ProjectFile, ProjectLock, ProjectLockAcquireOptions, ProjectLockEvent, ProjectLockLease, SomeProject,
} from '../types.js';
import { CURRENT, HISTORY, INDEX, MAX_RETRIES, type Answer, type AutoSaveEffect, type AutoSaveView, type GenerationView, type NoticeView, type Requests } from './border.js';
import { AutoSaveFolder, type ListedFile } from './folder.js';
import { serialise } from './serialise.js';
import type {
  AutoSaveHistoryEntry, AutoSaveNotice, AutoSaveReadonly, AutoSaveSnapshot, AutoSaveState, AutoSaveTakeOver,
} from './state.js';

/** Asks the rules something about a machine, at a time. */
export type AutoSaveRules =
  <Name extends keyof Requests>(machine: number, name: Name, fields: Requests[Name], wall: number, monotonic: number) => Answer;

/** How an autosave behaves. What is left out is the default. */
export interface AutoSaveOptions<Document = unknown> {
  /** How often `getSB` is asked for changes; 500. */
  readonly debounceMs?: number | undefined;
  /** How long it must be quiet before a save; 2000. */
  readonly idleMs?: number | undefined;
  /** The longest that a change waits while there is no pause; 4500. */
  readonly maxWaitMs?: number | undefined;
  /** How many versions are kept; 20. */
  readonly maxGenerations?: number | undefined;
  /** How many bytes they have, with the current one; 50 MiB. */
  readonly maxBytes?: number | undefined;
  /** Whether versions are thinned out by age: the last five, then one a minute, one in ten minutes, one an hour. */
  readonly thinByAge?: boolean | undefined;
  /** Gives the application another version: a restored one, or what another tab has saved. False means that it was not taken. */
  readonly apply?: ((document: Document) => void | boolean | Promise<void | boolean>) | undefined;
  /** False turns it off. */
  readonly enabled?: boolean | undefined;
  /** What this tab calls itself, for people at other tabs. */
  readonly label?: string | undefined;
  readonly root?: string | undefined;
  readonly lockName?: string | undefined;
}

/** What an autosave runs on. */
export interface Around {
  readonly lock: Omit<ProjectLock, 'withProjectLock'> & {
    files(call: FileCall, transfer?: Transferable[]): Promise<unknown>;
  };
  /** The top of the private files. */
  readonly folder: () => Promise<Directory>;
  readonly rules: () => Promise<AutoSaveRules>;
  readonly clock: Clock;
}

const DISABLED: AutoSaveState = { kind: 'disabled' };

const READONLY: AutoSaveReadonly = {
  kind: 'readonly', reason: 'conflict', owner: null, isFree: false, clockSkew: null, manualSteps: null, message: '',
};

/** An autosave. `start` begins it. */
export class Engine<Document> {
  readonly #around: Around;
  readonly #getSB: () => Document;
  readonly #options: AutoSaveOptions<Document>;
  readonly #project: SomeProject;
  readonly #folder: AutoSaveFolder;
  readonly #listeners = new Set<() => void>();
  readonly #calls = new Map<number, (done: boolean) => void>();
  readonly #abort = new AbortController();
  #rules: AutoSaveRules | undefined;
  #machine = 0;
  #lastCall = 0;
  #stopTimer = () => {};
  #unsubscribe = () => {};
  /** What is to be asked once the rules are loaded. */
  #early: (() => void)[] = [];
  /** The attempts of the start. */
  #first: Promise<void> | undefined;
  #lease: ProjectLockLease | null = null;
  /** The document that was last looked at, and how often it was said to have changed. */
  #last: Document | undefined;
  #marks = 0;
  /** The last version that came into the history, or is about to. */
  #kept: Promise<unknown> | undefined;
  /** Whether what was staged is what was saved. */
  #isStaged = false;
  /** The page may be gone soon: no turns are taken. */
  #isUrgent = false;
  #view: AutoSaveView | undefined;
  #readonly: AutoSaveReadonly | null = null;
  #unavailable: { reason: string; message: string } | null = null;
  #skew: string | null = null;
  #notices = 0;
  #snapshot: AutoSaveSnapshot;

  constructor(around: Around, getSB: () => Document, options: AutoSaveOptions<Document>) {
    this.#around = around;
    this.#getSB = getSB;
    this.#options = options;
    this.#project = { root: options.root, lockName: options.lockName };
    this.#folder = new AutoSaveFolder(around.folder, options.root);
    const isOff = options.enabled === false;
    this.#snapshot = {
      state: isOff ? DISABLED : { kind: 'saved', at: null }, savedAt: null, isDirty: false, notice: null, request: null, hasDraft: false,
    };
    if (!isOff) void this.#start();
  }

  getSnapshot(): AutoSaveSnapshot {
    return this.#snapshot;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => { this.#listeners.delete(listener); };
  }

  markDirty(): void {
    this.#marks += 1;
    this.#last = this.#getSB();
    this.#ask(() => this.#send('changed', {}));
  }

  /** Saves what is unsaved; the page may be gone soon if it is urgent. */
  async flush(isUrgent = false): Promise<boolean> {
    this.#isUrgent ||= isUrgent;
    this.#look('changed');
    const isSaved = await this.#call((call) => this.#send('flush', { call }));
    this.#isUrgent = false;
    return isSaved;
  }

  restore(ts?: string): Promise<boolean> {
    this.#look('changed');
    // What is no time of a generation is refused by the rules.
    return this.#call((call) => this.#send('restore', { call, ts })).catch(() => false);
  }

  async retry(): Promise<void> {
    if (this.#readonly || this.#unavailable) await this.#acquire('acquireProjectLock');
    else this.#ask(() => this.#send('retry', {}));
  }

  takeOver(options?: AutoSaveTakeOver): Promise<void> {
    this.#skew = null;
    return this.#acquire('takeOverProjectLock', options);
  }

  /** Asks the holder, once the attempts of the start are over: until then this tab cannot be handed anything. */
  async ask(options?: { readonly reason?: string | undefined }): Promise<void> {
    await this.#first;
    if (!this.#lease) await this.#acquire('requestProjectHandover', options);
  }

  async handOver(): Promise<void> {
    await this.flush();
    if (this.#lease) await this.#around.lock.releaseProjectLock({ lease: this.#lease }).catch(() => {});
  }

  async refuse(reason?: string): Promise<void> {
    this.#change({ request: null });
    if (this.#lease) await this.#around.lock.refuseProjectHandover({ lease: this.#lease, reason });
  }

  async stop(): Promise<void> {
    if (this.#snapshot.state === DISABLED) return;
    this.#look('changed');
    await this.#call((call) => this.#send('stop', { call }));
    this.#unsubscribe();
    this.#stopTimer();
    this.#rules?.(this.#machine, 'close', {}, 0, 0);
    this.#rules = undefined;
  }

  async list(): Promise<AutoSaveHistoryEntry[]> {
    const rules = await this.#loaded();
    await this.#kept?.catch(() => {});
    const { current, generations } = await look(rules, this.#folder);
    // A tab that only reads may see the current version before it is in the history: the newest one there is another then.
    const size = current?.bytes ?? 0;
    return generations.map(({ ts, bytes }, at) => ({
      ts, bytes, difference: bytes - size, isCurrent: at === 0 && (!current || bytes === size),
    }));
  }

  async preview(ts: string): Promise<string | null> {
    const { generations } = await look(await this.#loaded(), this.#folder);
    const path = generations.find((generation) => generation.ts === ts)?.path;
    const { data } = await this.#read(path);
    return data && textOf(data, false);
  }

  // --- the rules ---

  #loaded(): Promise<AutoSaveRules> {
    return this.#rules ? Promise.resolve(this.#rules) : this.#around.rules();
  }

  async #start(): Promise<void> {
    this.#last = this.#getSB();
    const { debounceMs, idleMs, maxWaitMs, maxGenerations, maxBytes, thinByAge = false, apply } = this.#options;
    try {
      const rules = await this.#around.rules();
      const { clock } = this.#around;
      const answer = rules(0, 'open', {
        debounceMs, idleMs, longestWaitMs: maxWaitMs, maxGenerations, maxBytes, thins: thinByAge, looks: true, applies: !!apply,
      }, clock.now(), clock.monotonic());
      if (answer.invalid) throw new TypeError(answer.invalid);
      this.#machine = answer.machine ?? 0;
      this.#rules = rules;
      this.#do(answer);
    } catch (error) {
      this.#unavailable = { reason: 'rules', message: String(error) };
      this.#early = [];
      this.#calls.forEach((settle) => settle(false));
      return this.#show();
    }
    this.#listen();
    this.#early.splice(0).forEach((ask) => ask());
    this.#first = this.#acquire('acquireProjectLock');
  }

  /** Asks the rules now, or once they are loaded. */
  #ask(ask: () => void): void {
    if (this.#rules) ask();
    else if (!this.#unavailable && this.#snapshot.state !== DISABLED) this.#early.push(ask);
  }

  #call(ask: (call: number) => void): Promise<boolean> {
    const call = ++this.#lastCall;
    if (this.#unavailable?.reason === 'rules' || this.#snapshot.state.kind === 'stopped') return Promise.resolve(false);
    return new Promise((resolve) => {
      this.#calls.set(call, resolve);
      this.#ask(() => ask(call));
    });
  }

  #send<Name extends keyof Requests>(name: Name, fields: Requests[Name]): void {
    const { clock } = this.#around;
    const answer = this.#rules?.(this.#machine, name, fields, clock.now(), clock.monotonic());
    if (!answer) return;
    if (answer.invalid) throw new TypeError(answer.invalid);
    this.#do(answer);
  }

  #do({ effects = [], timeoutMs, now }: Answer): void {
    this.#stopTimer();
    if (timeoutMs !== undefined) this.#stopTimer = this.#around.clock.after(timeoutMs, () => this.#send('timeout', {}));
    this.#view = now;
    this.#show();
    for (const effect of effects) this.#act(effect);
  }

  #act(effect: AutoSaveEffect): void {
    switch (effect.do) {
      case 'look': return this.#look('changedSinceLook');
      case 'saw': return void this.#readCurrent().catch(() => {});
      case 'list': return void this.#list();
      case 'take': return void this.#take();
      case 'commit': return void this.#commit();
      case 'keep': return this.#step(this.#kept = this.#keep(effect.path));
      case 'remove': return this.#step(this.#folder.remove(effect.path));
      case 'writeIndex': return this.#step(this.#put(INDEX, effect.text));
      case 'keepDraft': return this.#step(this.#keepDraft());
      case 'apply': return void this.#apply(effect.path);
      case 'release': return void this.#release();
      case 'tell': return this.#tell(effect.notice);
      case 'settle':
        this.#calls.get(effect.call)?.(effect.done);
        return void this.#calls.delete(effect.call);
    }
  }

  // --- the document ---

  /** Compares the document with the last one. */
  #look(report: 'changed' | 'changedSinceLook'): void {
    const document = this.#getSB();
    if (document === this.#last) return;
    this.#last = document;
    this.#marks += 1;
    this.#ask(() => this.#send(report, {}));
  }

  /** The document, serialised in pieces. One that changes all the time is taken at once, in the end. */
  async #serialised(): Promise<Bytes[]> {
    for (let tries = 0; tries < 3 && !this.#isUrgent; tries += 1) {
      const [marks, document] = [this.#marks, this.#getSB()];
      const made = await serialise(document, () => this.#isUrgent || this.#marks !== marks || this.#getSB() !== document);
      if (made) return made;
    }
    return [bytesOf(JSON.stringify(this.#getSB()))];
  }

  /** Gives the document to the lock: what is saved, kept or made a draft of next is this. */
  async #stage(): Promise<Pick<Requests['taken'], 'version' | 'bytes'>> {
    this.#isStaged = false;
    const pieces = await this.#serialised();
    return this.#files('stage', [pieces], pieces.map(({ buffer }) => buffer));
  }

  #files<T>(name: FileCall['name'], args: readonly unknown[], transfer?: Transferable[]): Promise<T> {
    return this.#around.lock.files({ name, project: this.#project, args }, transfer) as Promise<T>;
  }

  async #take(): Promise<void> {
    let taken: Requests['taken'];
    try {
      const [staged, free] = await Promise.all([this.#stage(), freeSpace()]);
      taken = { ...staged, free };
    } catch (error) {
      return this.#send('notTaken', { said: String(error) });
    }
    this.#send('taken', taken);
  }

  async #commit(): Promise<void> {
    try {
      if (!this.#lease) return this.#send('notCommitted', { failure: 'lost', said: '' });
      await this.#files('commit', [{ lease: claimOf(this.#lease), path: CURRENT }]);
      this.#isStaged = true;
    } catch (error) {
      return this.#send('notCommitted', failureOf(error));
    }
    this.#send('committed', {});
    // The application may have offered and discarded it since.
    if (this.#snapshot.hasDraft) void this.#lookForDrafts();
  }

  async #keepDraft(): Promise<void> {
    await this.#stage();
    await this.#files('keep', [CURRENT]);
    this.#change({ hasDraft: true });
  }

  async #apply(path: string): Promise<void> {
    let version: string | null = null;
    try {
      const [text, found] = path === CURRENT ? await this.#readCurrent() : [await this.#readText(path), ' '];
      if (text !== null && await this.#options.apply?.(JSON.parse(text)) !== false) version = found;
    } catch (error) {
      queueMicrotask(() => { throw error; });
    }
    // Where nothing was applied, what has been typed meanwhile is still to be noticed.
    if (version) this.#last = this.#getSB();
    this.#send('applied', { version: version ?? undefined });
  }

  // --- the folder ---

  /** The current version. What is saved from now on is made from it. */
  async #readCurrent(): Promise<[text: string | null, version: string | null]> {
    // Also one that is no text is what the next save replaces.
    const { data, version } = await this.#around.lock.readProjectFile(CURRENT, { ...this.#project, as: 'bytes' });
    return [data && textOf(data), version];
  }

  /** What is in a file. */
  async #read(path?: string): Promise<ProjectFile<Bytes>> {
    return path ? this.#files('read', [path, 'bytes']) : { data: null, version: null };
  }

  async #readText(path: string): Promise<string | null> {
    const { data } = await this.#read(path);
    return data && textOf(data);
  }

  /** Replaces a file that only the holder writes: with what was staged, if there is no data. */
  async #put(path: string, data?: string | Bytes): Promise<void> {
    if (!this.#lease) throw LOST;
    await this.#files('put', [claimOf(this.#lease), path, data]);
  }

  /** Makes a generation of what was just saved, or of what was found. */
  async #keep(path: string): Promise<void> {
    const found = this.#isStaged ? undefined : (await this.#read(CURRENT)).data;
    if (found !== null) await this.#put(path, found);
  }

  async #list(): Promise<void> {
    let listed: Requests['listed'];
    try {
      this.#isStaged = false;
      const { files, generations } = await look(await this.#loaded(), this.#folder);
      const [current, newest] = await Promise.all([this.#read(CURRENT), this.#read(generations[0]?.path)]);
      const index = await this.#readText(INDEX).catch(() => null);
      listed = {
        current: current.version ?? '', currentBytes: current.data?.length ?? 0, files, newest: newest.version ?? '', index: index ?? undefined,
      };
    } catch (error) {
      return this.#send('notListed', { said: String(error) });
    }
    this.#send('listed', listed);
    void this.#lookForDrafts();
  }

  async #lookForDrafts(): Promise<void> {
    const drafts = await this.#around.lock.listProjectDrafts(this.#project).catch(() => []);
    this.#change({ hasDraft: drafts.some(({ path }) => path === CURRENT) });
  }

  #step(work: Promise<unknown>): void {
    work.then(() => this.#send('done', {}), (error) => this.#send('notDone', failureOf(error)));
  }

  // --- the lock ---

  async #acquire(how: 'acquireProjectLock' | 'takeOverProjectLock' | 'requestProjectHandover', options: object = {}): Promise<void> {
    const wanted: ProjectLockAcquireOptions = {
      // The application may hold the project, too.
      ...this.#project, heartbeatIntervalMs: 10_000, autoResume: true, reentrant: true, label: this.#options.label, signal: this.#abort.signal, ...options,
    };
    this.#unavailable = null;
    try {
      const { lease } = await this.#around.lock[how](wanted);
      // A lease that the application has is no news.
      if (!this.#lease) this.#hold(lease);
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      if (isUnusable(error)) this.#cannot(`${error.cause ?? error.code}`.replace(/^unavailable\((.*)\)$/, '$1'), error.message);
      else if (!this.#lease && !this.#readonly) this.#lose({ reason: 'irrecoverable', message: (error as Error).message });
    }
  }

  /** Nothing can be saved here. */
  #cannot(reason: string, message: string): void {
    this.#unavailable = { reason, message };
    this.#send('lock', { lock: 'unavailable' });
  }

  #listen(): void {
    const { lock } = this.#around;
    const reasons = lock.subscribeLockEvents((event) => {
      if (event.type === 'autosave.lock.readonly') this.#reason = event.reason;
    }, { ...this.#project, dialect: 'autosave' });
    const events = lock.subscribeLockEvents((event) => this.#hear(event), this.#project);
    const flush = () => void this.flush(true);
    const flushIfHidden = () => { if (document.visibilityState === 'hidden') flush(); };
    const [page, window] = [globalThis.document, globalThis];
    page?.addEventListener('visibilitychange', flushIfHidden);
    window.addEventListener?.('pagehide', flush);
    this.#unsubscribe = () => {
      reasons.unsubscribe();
      events.unsubscribe();
      page?.removeEventListener('visibilitychange', flushIfHidden);
      window.removeEventListener?.('pagehide', flush);
    };
  }

  #reason: AutoSaveReadonly['reason'] = 'conflict';

  #hear(event: ProjectLockEvent): void {
    switch (event.type) {
      case 'lock:acquired': return this.#hold(event.lease);
      case 'lock:renewed':
        this.#lease = event.lease;
        return;
      case 'lock:released':
        // The tab that asked has it next.
        return this.#lose({ isFree: !this.#snapshot.request });
      case 'lock:readonly-entered': {
        const { lastError, manualSteps = null } = event;
        const failed = event.reason === 'release-failed';
        if (failed) this.#notice({ kind: 'retries-failed', operation: 'release', message: lastError.message });
        return this.#lose({
          reason: this.#reason, owner: lastError.holder ?? this.#readonly?.owner ?? null, manualSteps, message: lastError.message,
        });
      }
      case 'lock:held':
        return this.#lose({ ...this.#readonly, owner: event.holder, isFree: false });
      case 'lock:available':
        if (this.#readonly) this.#readonly = { ...this.#readonly, isFree: true, owner: null };
        return this.#show();
      case 'lock:warning':
        if (event.warning === 'clock-skew') this.#skew = event.detail;
        return this.#show();
      case 'lock:handover-requested': return this.#change({ request: event.request });
      case 'lock:handover-withdrawn': return this.#change({ request: null });
    }
  }

  #hold(lease: ProjectLockLease): void {
    this.#lease = lease;
    this.#readonly = this.#skew = null;
    if (lease.guarantee !== 'tab-exclusive') return this.#send('lock', { lock: 'held' });
    this.#cannot('no-private-file-system', 'this browser has no private files to save in');
  }

  #lose(why: Partial<AutoSaveReadonly>): void {
    this.#lease = null;
    this.#readonly = { ...READONLY, ...why };
    this.#change({ request: null });
    this.#send('lock', { lock: 'readonly' });
  }

  async #release(): Promise<void> {
    this.#abort.abort();
    const lease = this.#lease;
    if (lease) await this.#around.lock.releaseProjectLock({ lease, reason: 'completed' }).catch(() => {});
    this.#send('lock', { lock: 'released' });
  }

  // --- what is shown ---

  /** The rules have the same notices, in their words. */
  #tell(notice: NoticeView): void {
    const { do: name, ...rest } = notice;
    const kind = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    this.#notice({
      kind, operation: 'save', ...rest,
      ...('said' in rest && { message: rest.said }),
      ...('free' in rest && { freeBytes: rest.free }),
      ...('ts' in rest && { before: rest.before ?? null }),
    } as NewNotice);
  }

  #notice(notice: NewNotice): void {
    this.#change({ notice: { ...notice, number: ++this.#notices, at: this.#around.clock.now() } as AutoSaveNotice });
  }

  #show(): void {
    const { isDirty = false, savedAt } = this.#view ?? {};
    this.#change({ state: this.#state(), isDirty, savedAt: savedAt ?? null });
  }

  #state(): AutoSaveState {
    if (this.#unavailable) return { kind: 'unavailable', ...this.#unavailable };
    const { state, savedAt, code = 'write-failed', said = '', attempt = 1, retryInMs = 0 } = this.#view ?? { state: 'starting' as const };
    switch (state) {
      case 'dirty': case 'saving': case 'releasing': case 'stopped': return { kind: state };
      case 'retrying':
        return { kind: state, attempt, maxAttempts: MAX_RETRIES, nextAt: this.#around.clock.now() + retryInMs };
      case 'error': return { kind: state, code, message: said };
      case 'readonly': return { ...this.#readonly ?? READONLY, clockSkew: this.#skew };
      default: return { kind: 'saved', at: savedAt ?? null };
    }
  }

  /** Replaces the snapshot, and calls the listeners, if something is different. */
  #change(changes: Partial<AutoSaveSnapshot>): void {
    const next = { ...this.#snapshot, ...changes };
    if (JSON.stringify(next) === JSON.stringify(this.#snapshot)) return;
    this.#snapshot = next;
    for (const listener of [...this.#listeners]) {
      try {
        listener();
      } catch (error) {
        queueMicrotask(() => { throw error; });
      }
    }
  }
}

/** A notice without what every notice has. */
type NewNotice = AutoSaveNotice extends infer One ? One extends AutoSaveNotice ? Omit<One, 'number' | 'at'> : never : never;

/** What is in the folder: the current version, the generations, the newest first, and the lines of which the rules made them. */
export async function look(rules: AutoSaveRules, folder: AutoSaveFolder): Promise<{
  current: ListedFile | undefined; generations: readonly GenerationView[]; files: string;
}> {
  const [all, history] = await Promise.all([folder.list(CURRENT.slice(0, CURRENT.indexOf('/'))), folder.list(HISTORY)]);
  const files = history.map(({ name, bytes }) => `${bytes} ${name}`).join('\n');
  const { generations = [] } = rules(0, 'generations', { files }, 0, 0);
  return { current: all.find(({ name }) => CURRENT.endsWith(`/${name}`)), generations, files };
}

/** How many more bytes this site may write, as far as the browser tells. */
async function freeSpace(): Promise<number | undefined> {
  const { quota, usage = 0 }: StorageEstimate = await globalThis.navigator?.storage?.estimate?.().catch(() => ({})) ?? {};
  return quota && Math.max(0, quota - usage);
}

/** Whether a retry would not help, because there is no folder here. */
function isUnusable(error: unknown): error is ProjectLockError {
  return (error as ProjectLockError)?.code === 'fallback-open-failed' && !(error as ProjectLockError).retryable;
}

/** The project became another's before this could be written. */
const LOST = { operation: 'save', code: 'lease-mismatch' };

function failureOf(error: unknown): { failure: string; said: string } {
  const { code, cause, operation } = error as Partial<ProjectLockError>;
  const said = String(error);
  if (code === 'stale-base') return { failure: code, said };
  if (`${cause ?? error}`.includes('QuotaExceeded')) return { failure: 'no-space', said };
  const isWritten = operation === 'save' && code !== 'fallback-write-failed' && code !== 'fallback-read-failed';
  return { failure: isWritten && code ? 'lost' : 'io', said };
}
