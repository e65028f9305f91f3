// The project locks of a page: does what the rules say, on the calling thread. It brings the time, the Web Lock and the files;
// every decision is made in WebAssembly (crates/leasehold-project-rules). It must never decide anything itself. host.ts runs it
// in a Worker, local.ts on the thread of the caller.

import { checkData, claimOf, DEFAULT_NAME, DEFAULT_ROOT, projectOf } from './arguments.js';
import type { Answer, DialectsView, EffectView, HolderView, NewsView, ProjectLeaseView, StepView } from './border.js';
import { systemClock } from './clock.js';
import { errorOf, ProjectLockError, unsaved, unusable } from './error.js';
import type { FileCall } from './files.js';
import { ProjectFolder } from './folder.js';
import { versionOf, type Bytes } from './hash.js';
import { bytesOf, joined, textOf } from './text.js';
import type { Channel, Clock, Directory, Locks } from './ports.js';
import type {
  Operation, ProjectDraft, ProjectFile, ProjectFileCommit, ProjectLockAcquireOptions, ProjectLockGrant,
  ProjectLockHandoverOptions, ProjectLockHolder, ProjectLockLease, ProjectLockLogger, ProjectLockRefuseOptions, ProjectLockReleaseOptions, ProjectLockRenewOptions,
  ProjectLockState, ProjectLockTakeOverOptions, ProjectName, SomeProject,
} from './types.js';
import { rules, type Request, type RequestName, type Rules } from './wasm.js';

/** What a lock runs on. What is left out is the browser's own; null means that there is none. */
export interface Surroundings {
  readonly locks?: Locks | null;
  /** The top of the private files, in which `project/` is. */
  readonly folder?: Directory | null;
  /** Whether its files have access handles, if that cannot be seen: without them there is no guard. */
  readonly accessHandles?: boolean;
  readonly clock?: Clock;
  /** The channel between tabs, or what makes one for each project; null for none. */
  readonly channel?: Channel | ((name: string) => Channel) | null;
  /** Gets the errors. */
  readonly logger?: ProjectLockLogger | undefined;
}

/** The calls of a project lock, with one machine for each folder and lock name. */
export class ProjectLocks {
  readonly #machines = new Map<string, Promise<Machine>>();
  readonly #surroundings: Surroundings;
  /** Called with every event, in all dialects. */
  readonly #publish: (event: DialectsView) => void;
  #hidden = false;

  /** @internal */
  constructor(surroundings: Surroundings, publish: (event: DialectsView) => void) {
    this.#surroundings = surroundings;
    this.#publish = publish;
  }

  async acquireProjectLock(options: ProjectLockAcquireOptions = {}): Promise<ProjectLockGrant> {
    return (await this.#machine(options)).acquire('acquire', options);
  }

  async takeOverProjectLock(options: ProjectLockTakeOverOptions = {}): Promise<ProjectLockGrant> {
    return (await this.#machine(options)).acquire('takeOver', options);
  }

  async requestProjectHandover(options: ProjectLockHandoverOptions = {}): Promise<ProjectLockGrant> {
    return (await this.#machine(options)).acquire('handover', options);
  }

  async refuseProjectHandover({ lease, reason }: ProjectLockRefuseOptions): Promise<void> {
    const { leaseId, ...project } = claimOf(lease);
    (await this.#machine(project)).send('refuseHandover', { leaseId, reason });
  }

  /** @internal The page has had the event of a request to hand the project over. */
  async told(project: SomeProject): Promise<void> {
    (await this.#machine(project)).send('handoverTold', {});
  }

  async lookProjectLock(options: SomeProject = {}): Promise<ProjectLockHolder | null> {
    return await (await this.#machine(options)).call('look', {}) as ProjectLockHolder | undefined ?? null;
  }

  async readProjectLockState(options: SomeProject = {}): Promise<ProjectLockState> {
    return (await this.#machine(options)).send('state', {}).state!;
  }

  async renewProjectLock({ lease, extendByMs }: ProjectLockRenewOptions): Promise<ProjectLockLease> {
    const { leaseId, ...project } = claimOf(lease);
    return (await this.#machine(project)).call('renew', { leaseId, extendByMs }) as Promise<ProjectLockLease>;
  }

  async releaseProjectLock({ lease, reason, force = false }: ProjectLockReleaseOptions): Promise<void> {
    const { leaseId, ...project } = claimOf(lease);
    await (await this.#machine(project)).call('release', { leaseId, force, reason });
  }

  async commitProjectFile(commit: ProjectFileCommit): Promise<{ version: string }> {
    checkData(commit.data);
    return (await this.#machine(claimOf(commit.lease))).commit(commit);
  }

  /** @internal Makes a call about the files of a project. */
  async files({ name, project, args }: FileCall): Promise<never> {
    return (await this.#machine(project))[name](...args as [never, never]) as Promise<never>;
  }

  /** Looks again whether the project is free, for a tab that is read-only. */
  async refresh(): Promise<void> {
    await this.#all((machine) => machine.send('refresh', {}));
  }

  /** The page is about to be frozen, or put into the back/forward cache. */
  async freeze(): Promise<void> {
    await this.#all((machine) => machine.send('frozen', {}));
  }

  /** The page was hidden, or is seen again. A hidden tab holds back from a project that becomes free. */
  async show({ hidden }: { hidden: boolean }): Promise<void> {
    this.#hidden = hidden;
    await this.#all((machine) => machine.send('hidden', { hidden }));
  }

  /** The page is back. */
  async resume(): Promise<void> {
    await this.#all((machine) => machine.send('resumed', {}));
  }

  async #all(work: (machine: Machine) => void): Promise<void> {
    // Each as soon as it is open: a page that is about to be frozen cannot wait for the slowest.
    await Promise.allSettled([...this.#machines.values()].map((machine) => machine.then(work)));
  }

  /** The machine of a project. It refuses a lease that it did not grant. */
  #machine({ root = DEFAULT_ROOT, lockName = DEFAULT_NAME }: SomeProject): Promise<Machine> {
    const key = projectOf({ root, lockName });
    const known = this.#machines.get(key);
    if (known) return known;
    const machine = Machine.open(this.#surroundings, root, lockName, this.#publish);
    this.#machines.set(key, machine);
    const forget = () => this.#machines.delete(key);
    machine.then((opened) => {
      if (this.#hidden) opened.send('hidden', { hidden: true });
      if (opened.isPassing) forget();
    }, forget);
    return machine;
  }
}

interface Call {
  resolve(answer: Settled): void;
  reject(error: Error): void;
}

/** What a call comes to. */
type Settled = ProjectLockLease | ProjectLockHolder | undefined;

/** Calls that the rules answer later. */
type CallName = 'acquire' | 'takeOver' | 'handover' | 'renew' | 'release' | 'look' | 'save';

/** What is to be written, with its version. */
interface Content {
  readonly bytes: Bytes;
  readonly version: string;
  /** Whether a draft of it is given back as a text. */
  readonly isText: boolean;
}

/** A commit; without `data` it is about what was staged. */
type StagedCommit = Omit<ProjectFileCommit, 'data'> & { readonly data?: string | Uint8Array };

/** Closes the machine of the rules when its object here was garbage-collected. */
const forgotten = new FinalizationRegistry<() => void>((close) => close());

/** One machine of the rules: does what it says, and reports what happens. */
class Machine {
  readonly #rules: Rules;
  /** Its number among the machines of the page. */
  #number = 0;
  readonly #clock: Clock;
  readonly #locks: Locks | null;
  readonly #project: ProjectName;
  readonly #folder: ProjectFolder | null;
  /** Why there is none. */
  readonly #why: string;
  #channel: Channel | null = null;
  readonly #publish: (event: DialectsView) => void;
  readonly #calls = new Map<number, Call>();
  readonly #webLocks = new Map<number, () => void>();
  /** Whether there was no storage, and another machine may find some. */
  readonly isPassing: boolean;
  #staged: Content | undefined;
  #lastCall = 0;
  #stopTimer = () => {};

  static async open(
    surroundings: Surroundings, root: string, lockName: string, publish: (event: DialectsView) => void,
  ): Promise<Machine> {
    const around = await lookAround(surroundings);
    const machine = new Machine(await rules(), around, root, lockName, publish);
    machine.#open(root, lockName, around, await owner());
    // After `#open`, which throws for an invalid root: the channel would stay open.
    machine.#listen(around.channel?.(`leasehold:${lockName}:${root}`) ?? null);
    return machine;
  }

  private constructor(rules: Rules, around: Around, root: string, lockName: string, publish: (event: DialectsView) => void) {
    this.#rules = rules;
    this.isPassing = around.isPassing ?? false;
    this.#clock = around.clock;
    this.#locks = around.locks;
    this.#project = { root, lockName };
    this.#folder = around.folder && new ProjectFolder(around.folder, root.split('/'), around.guarded);
    this.#why = around.why;
    this.#publish = publish;
  }

  #open(root: string, lockName: string, { folder, guarded, why }: Around, owner: string): void {
    const [seedA, seedB, seedC, seedD] = crypto.getRandomValues(new Uint32Array(4)) as unknown as [number, number, number, number];
    const kind = folder === null ? 'absent' : guarded ? 'guarded' : 'advisory';
    const { machine = 0 } = this.send('open', { owner, root, lockName, folder: kind, why, seedA, seedB, seedC, seedD });
    this.#number = machine;
    const rules = this.#rules;
    forgotten.register(this, () => { rules(machine, 'close', {}, 0, 0); });
  }

  /** Acquires, takes over or asks for it; the caller's signal ends it. */
  async acquire(how: 'acquire' | 'takeOver' | 'handover', options: ProjectLockTakeOverOptions): Promise<ProjectLockGrant> {
    const { signal } = options;
    const answer = this.call(how, wantedOf(options)) as Promise<ProjectLockLease>;
    const call = this.#lastCall;
    const abort = () => { this.send('abort', { call }); };
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    try {
      const lease = await answer;
      return { lease, didFallback: lease.viaFallback };
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Makes a call; the effect `settle` or `saved` answers it. */
  call<Name extends CallName>(name: Name, fields: Omit<Request<Name>, 'call'>): Promise<Settled> {
    const call = ++this.#lastCall;
    return new Promise((resolve, reject) => {
      this.#calls.set(call, { resolve, reject });
      try {
        this.send(name, { ...fields, call } as unknown as Request<Name>);
      } catch (error) {
        this.#calls.delete(call);
        reject(error);
      }
    });
  }

  /** The folder, if there is one. */
  #files(operation: Operation = 'look'): ProjectFolder {
    if (!this.#folder) throw errorOf(unusable('there is no folder here: save elsewhere, with the fence', this.#why, operation));
    return this.#folder;
  }

  async read(path: string, as?: 'text' | 'bytes'): Promise<ProjectFile<string | Uint8Array>> {
    this.send('unsaved', { path, version: '' }); // refuses what is no path
    const bytes = await this.#files().read(path);
    if (!bytes) return { data: null, version: null };
    return { data: as === 'bytes' ? bytes : textOf(bytes), version: await versionOf(bytes) };
  }

  async saw(path: string, version: string | null): Promise<void> {
    await this.#files().inTurn(() => { this.send('saw', { path, version: version ?? '' }); });
  }

  /** Saves a file, if the lease is still valid and the file has the version that the save was made from. Otherwise what was to
   * be saved is kept as a draft. */
  async commit({ lease, path, data, base, overwrite = false }: StagedCommit): Promise<{ version: string }> {
    const folder = this.#files('save');
    return folder.inTurn(async () => {
      const content = await this.#content(data);
      const { version } = content;
      const { base: from } = this.send('unsaved', { path, version });
      try {
        this.send('claim', { ...lease, path });
        const save = { ...lease, path, version, base: base === null ? '' : base, overwrite };
        await folder.prepare(path, lease.fence, content.bytes, () => this.call('save', save));
        await folder.dropDraft(path, from);
        return { version };
      } catch (cause) {
        const error = cause instanceof ProjectLockError || cause instanceof TypeError ? cause : errorOf(unsaved(path, cause));
        // Even one that may be tried again: the page may be reloaded before it is.
        if (error instanceof ProjectLockError) await this.#keep(path, content, from).catch(() => {});
        throw error;
      }
    });
  }

  /** Takes over the text of a document, in parts: the next calls without `data` are about it. So it is sent and hashed once,
   * whatever is written of it. */
  async stage(parts: readonly Bytes[]): Promise<{ version: string; bytes: number }> {
    const { bytes, version } = this.#staged = { ...await this.#content(joined(parts)), isText: true };
    return { version, bytes: bytes.length };
  }

  async #content(data?: string | Uint8Array): Promise<Content> {
    if (data === undefined) return this.#staged!;
    const bytes = bytesOf(data);
    return { bytes, version: await versionOf(bytes), isText: bytes !== data };
  }

  /** Replaces a file that nobody else replaces while this lease is valid: no guard is needed. */
  async put(lease: ProjectFileCommit['lease'], path: string, data?: string | Uint8Array): Promise<void> {
    const folder = this.#files('save');
    await folder.inTurn(async () => {
      this.send('claim', { ...lease, path });
      await folder.prepare(path, lease.fence, (await this.#content(data)).bytes, () => folder.save());
    });
  }

  /** Keeps content as a draft. */
  async keep(path: string, data?: string | Uint8Array): Promise<void> {
    await this.#files().inTurn(async () => {
      const content = await this.#content(data);
      await this.#keep(path, content, this.send('unsaved', { path, version: content.version }).base);
    });
  }

  /** The same for content that was made from `base`: there is none if this tab has read or written this very content. */
  async #keep(path: string, { bytes, isText }: Content, base?: string): Promise<void> {
    if (base !== undefined && bytes.length > 0) await this.#files().keepDraft(path, base, bytes, isText, this.#clock.now());
  }

  async drafts(): Promise<ProjectDraft[]> {
    return (await this.#files().drafts()).map((draft) => ({ ...draft, ...this.#project }));
  }

  discard(id: string): Promise<void> {
    return this.#files().discardDraft(id);
  }

  /** Sends the rules a request, and does what they answer. */
  send<Name extends RequestName>(name: Name, fields: Request<Name>): Answer {
    const answer = this.#rules(this.#number, name, fields, this.#clock.now(), this.#clock.monotonic());
    if (answer.invalid) throw new TypeError(answer.invalid);
    this.#stopTimer();
    const { timeoutMs } = answer;
    if (timeoutMs !== undefined) this.#stopTimer = this.#clock.after(timeoutMs, () => { this.send('timeout', {}); });
    for (const effect of answer.effects ?? []) this.#do(effect);
    if (answer.error) throw errorOf(answer.error);
    return answer;
  }

  #do(effect: EffectView): void {
    switch (effect.do) {
      case 'requestWebLock': return void this.#requestWebLock(effect.ticket, effect.steal);
      case 'dropWebLock': return this.#webLocks.get(effect.ticket)?.();
      case 'io': return void this.#io(effect.step);
      case 'dropHeld': return this.#folder?.dropHeld(effect);
      case 'emit': return this.#publish(effect.event);
      case 'broadcast': return this.#channel?.postMessage(effect.news);
      case 'settle': return this.#settle(effect.call, effect.error && errorOf(effect.error), effect.lease ?? effect.holder);
      case 'saved': return this.#settle(effect.call, effect.error && errorOf(effect.error));
    }
  }

  /** Requests the Web Lock, and keeps it until it is dropped. */
  async #requestWebLock(ticket: number, steal: boolean): Promise<void> {
    const report = (result: Request<'webLock'>['result'], said = '') => { this.send('webLock', { ticket, result, said }); };
    const abort = new AbortController();
    let [granted, dropped] = [false, false];
    let release = () => {};
    this.#webLocks.set(ticket, () => {
      dropped = true;
      this.#webLocks.delete(ticket);
      release();
      abort.abort();
    });
    try {
      await null; // the effects of the current answer come first
      if (!this.#locks) return report('unsupported');
      const options = { mode: 'exclusive' as const, ...(steal ? { steal } : { signal: abort.signal }) };
      await this.#locks.request(this.#project.lockName, options, async () => {
        if (dropped) return;
        granted = true;
        // Made before the grant is reported: the rules may drop it at once.
        const end = new Promise<void>((resolve) => { release = resolve; });
        report('granted');
        await end;
      });
    } catch (error) {
      if (dropped) return;
      if (granted) report('stolen');
      else report((error as Error).name === 'NotSupportedError' ? 'unsupported' : 'denied', String(error));
    }
  }

  /** Does a step in the folder, and reports what came of it. */
  async #io(step: StepView): Promise<void> {
    const [name, fields] = await this.#folder!.do(step);
    this.send(name, fields);
  }

  #listen(channel: Channel | null): void {
    this.#channel = channel;
    if (channel) channel.onmessage = ({ data }) => this.#receive(data as NewsView);
    channel?.unref?.();
  }

  /** A message of another tab. */
  #receive(news: NewsView): void {
    try {
      this.send('news', news);
    } catch {
      // It is advice, and another version of the package may send something else.
    }
  }

  #settle(call: number, error?: Error, answer?: ProjectLeaseView | HolderView): void {
    const waiting = this.#calls.get(call);
    this.#calls.delete(call);
    if (error) waiting?.reject(error);
    else waiting?.resolve(answer as Settled);
  }
}

/** The options, as the rules know them; they pass over what they do not know. */
function wantedOf(options: ProjectLockTakeOverOptions): Omit<Request<'takeOver'>, 'call'> {
  const { retryPolicy, renewIntervalMs, heartbeatIntervalMs, reentrant = false, allowAdvisory = false, acceptClockSkew = false } = options;
  return { ...options, ...retryPolicy, heartbeatIntervalMs: renewIntervalMs ?? heartbeatIntervalMs, reentrant, allowAdvisory, acceptClockSkew };
}

/** What the machine runs on. */
interface Around {
  readonly locks: Locks | null;
  readonly folder: Directory | null;
  readonly guarded: boolean;
  readonly why: string;
  /** Whether there may be a folder when it is asked for again. */
  readonly isPassing?: boolean;
  readonly clock: Clock;
  readonly channel: ((name: string) => Channel) | null;
}

async function lookAround({ locks, folder, accessHandles, clock = systemClock, channel }: Surroundings): Promise<Around> {
  const found: Place = folder === undefined ? await privateFiles() : { folder, why: 'no-folder' };
  const broadcast = (name: string) => new BroadcastChannel(name) as Channel;
  const own = globalThis.navigator?.locks as Locks | undefined ?? null;
  const canBe = found.folder || NO_FILES.includes(found.why);
  return {
    locks: !canBe ? null : locks === undefined ? own : locks,
    ...found,
    guarded: accessHandles ?? hasAccessHandles(found.folder),
    clock,
    channel: canBe ? channelMaker(channel === undefined && 'BroadcastChannel' in globalThis ? broadcast : channel) : null,
  };
}

function channelMaker(channel: Surroundings['channel']): Around['channel'] {
  return typeof channel === 'function' ? channel : channel ? () => channel : null;
}

type Place = Pick<Around, 'folder' | 'why' | 'isPassing'>;

/** Where the Web Lock alone is a lease. Where there are files for other tabs, it would only pretend. */
const NO_FILES = ['no-folder', 'no-private-file-system'];

/** The private files of the origin, or why there are none. */
async function privateFiles(): Promise<Place> {
  const none = (why: string) => ({ folder: null, why });
  if (globalThis.origin === 'null') return none('opaque-origin');
  if (!globalThis.isSecureContext) return none('insecure-context');
  if (!navigator.storage?.getDirectory) return none('no-private-file-system');
  try {
    return { folder: await navigator.storage.getDirectory() as unknown as Directory, why: '' };
  } catch (error) {
    // Firefox refuses them in a private window, and every browser where the user has blocked the site's data.
    const isRefused = (error as Error).name === 'SecurityError';
    return { ...none(isRefused ? 'private-window-or-blocked-storage' : String(error)), isPassing: true };
  }
}

/** Access handles are there in Workers alone, and in browsers since 2023. */
function hasAccessHandles(folder: Directory | null): boolean {
  const global = globalThis as { FileSystemDirectoryHandle?: Function; FileSystemFileHandle?: Function };
  const isReal = global.FileSystemDirectoryHandle && folder instanceof global.FileSystemDirectoryHandle;
  return !isReal || 'createSyncAccessHandle' in (global.FileSystemFileHandle?.prototype ?? {});
}

/** The owner that `.lock` shows for this tab: a hash of its origin and of a random id. */
async function owner(): Promise<string> {
  // An insecure context has no hashes, and no projects either.
  if (!crypto.subtle) return 'insecure';
  return (await versionOf(bytesOf(`${globalThis.location?.origin} ${crypto.randomUUID()}`))).slice(0, 32);
}
