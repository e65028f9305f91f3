// The package: the functions of a project lock, hosted in a Worker that is started with the first call. Importing it does
// nothing.

import { errorOf } from './error.js';
import { Listeners, eventOf } from './event.js';
import { host } from './host.js';
import type { Method, ToHost, ToPage } from './remote.js';
import type {
  Dialect, ProjectFileCommit, ProjectLock, ProjectLockAcquireOptions, ProjectLockEventListener,
  ProjectLockGrant, ProjectLockLease, ProjectLockReleaseOptions, ProjectLockRenewOptions, ProjectLockSubscription,
  ProjectLockTakeOverOptions,
} from './types.js';
import { setWasm } from './wasm.js';
import { withLock } from './with.js';

export {
  LockAcquisitionError, LockConflictError, LockIrrecoverableError, LockReleaseError, LockRenewalError, ProjectLockError,
  type ErrorParams, type ProjectLockErrorCode,
} from './error.js';
export { createProjectLock, type LocalProjectLock, type Surroundings } from './lock.js';
export type { AccessHandle, Channel, Clock, Directory, FileHandle, Locks, Writable } from './ports.js';
export type * from './types.js';

/** Where the parts of the package are, when they are not beside this file. */
export interface InitOptions {
  /** The address of worker.js, on the page's own origin. */
  readonly workerUrl?: string | URL;
  /** The address of leasehold.wasm. */
  readonly wasmUrl?: string | URL;
}

interface Call {
  resolve(value: never): void;
  reject(error: Error): void;
}

const listeners = new Listeners();
const calls = new Map<number, Call>();
let places: InitOptions = {};
let far: { postMessage(message: ToHost): void } | undefined;
let lastCall = 0;
let watched = false;
let readonlyListener: ProjectLockAcquireOptions['onReadonly'];

/** Says where the parts are. Needed only with a strict content security policy, or a bundler that does not move them. */
export function init(options: InitOptions): void {
  places = options;
  setWasm(options.wasmUrl);
}

/** Gets the project for this tab, or says why not. */
export function acquireProjectLock(options: ProjectLockAcquireOptions = {}): Promise<ProjectLockGrant> {
  return acquire('acquireProjectLock', options);
}

/** Takes the project from whoever has it. */
export function takeOverProjectLock(options: ProjectLockTakeOverOptions = {}): Promise<ProjectLockGrant> {
  return acquire('takeOverProjectLock', options);
}

/** Keeps the project for longer. Heartbeats do so by themselves. */
export function renewProjectLock(options: ProjectLockRenewOptions): Promise<ProjectLockLease> {
  return call('renewProjectLock', options);
}

/** Gives the project back. */
export function releaseProjectLock(options: ProjectLockReleaseOptions): Promise<void> {
  return call('releaseProjectLock', options);
}

/** Replaces a file of the project, if the lease is still good: whole, or not at all. */
export function commitProjectFile(commit: ProjectFileCommit): Promise<void> {
  return call('commitProjectFile', commit);
}

/** Looks again whether the project is free, for a tab that is read-only. */
export function refreshProjectLock(): Promise<void> {
  return call('refresh');
}

/** Does `work` while the project is this tab's. The signal tells when it is not any more. */
export function withProjectLock<T>(
  options: ProjectLockAcquireOptions | undefined,
  work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return withLock({ acquireProjectLock, releaseProjectLock, subscribeLockEvents }, options, work);
}

/** Hears what happens, in one of three dialects. */
export function subscribeLockEvents<In extends Dialect = 'lock'>(
  listener: ProjectLockEventListener<In>, options: { dialect?: In } = {},
): ProjectLockSubscription {
  return listeners.add(listener, options.dialect);
}

async function acquire(method: Method, options: ProjectLockTakeOverOptions): Promise<ProjectLockGrant> {
  const { signal, onReadonly, ...rest } = options;
  readonlyListener = onReadonly ?? readonlyListener;
  const answer = call<ProjectLockGrant>(method, rest);
  const number = lastCall;
  const abort = () => send({ abort: number });
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  return answer.finally(() => signal?.removeEventListener('abort', abort));
}

function call<T>(method: Method, options?: object): Promise<T> {
  const number = ++lastCall;
  return new Promise<T>((resolve, reject) => {
    calls.set(number, { resolve, reject });
    send({ call: number, method, options });
  });
}

function send(message: ToHost): void {
  if (!far) {
    far = start();
    const wasmUrl = places.wasmUrl && new URL(places.wasmUrl, document.baseURI).href;
    far.postMessage({ wasmUrl });
    if (!watched) watchThePage();
  }
  far.postMessage(message);
}

function start(): { postMessage(message: ToHost): void } {
  // A sandboxed page can have no Worker. It has no private files either, and is told so in the words of the rules.
  if (globalThis.origin === 'null') return { postMessage: host(hear) };
  // Written like this, bundlers find the Worker and take it along.
  const worker = places.workerUrl
    ? new Worker(places.workerUrl, { type: 'module' })
    : new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }: MessageEvent<ToPage>) => hear(data);
  worker.onerror = (event) => fail(worker, event.message ?? 'it could not be loaded');
  return worker;
}

function hear(message: ToPage): void {
  if ('told' in message) {
    if (message.told.lock.type === 'lock:readonly-entered') readonlyListener?.(eventOf(message.told.lock));
    return listeners.tell(message.told);
  }
  const waiting = calls.get(message.call);
  calls.delete(message.call);
  if ('error' in message) waiting?.reject(errorOf(message.error));
  else if ('thrown' in message) waiting?.reject(message.thrown as Error);
  else waiting?.resolve(message.value as never);
}

/** The Worker is gone: nobody will answer, and what it held is free. The next call tries a new one. */
function fail(gone: Worker, why: string): void {
  gone.terminate();
  far = undefined;
  const reason = 'irrecoverable';
  const autosave = [{ type: 'autosave.lock.readonly', reason }];
  hear({ told: { lock: { type: 'lock:readonly-entered', reason, detail: why }, autosave } });
  for (const waiting of calls.values()) {
    waiting.reject(new Error(`the Worker of the project lock failed (${why}): say where it is with init({ workerUrl })`));
  }
  calls.clear();
}

/** A page that is frozen, or kept in the back/forward cache, may come back long after its lease ended. */
function watchThePage(): void {
  watched = true;
  const tell = (method: Method) => () => void call(method).catch(() => {});
  const kept = (work: () => void) => (event: PageTransitionEvent) => { if (event.persisted) work(); };
  document.addEventListener('freeze', tell('freeze'));
  document.addEventListener('resume', tell('resume'));
  addEventListener('pagehide', kept(tell('freeze')));
  addEventListener('pageshow', kept(tell('resume')));
}

// The compiler sees to it that the package has what a lock has.
({
  acquireProjectLock, renewProjectLock, releaseProjectLock, withProjectLock, takeOverProjectLock, commitProjectFile,
  subscribeLockEvents,
}) satisfies ProjectLock;
