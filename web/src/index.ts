// The package: the functions of a project lock, which run in a Worker that the first call starts. Importing it has no side
// effect.

import type { DialectsView } from './border.js';
import { ASKED, checkData, claimOf, projectOf } from './arguments.js';
import { errorOf, unusable } from './error.js';
import { Listeners, log, ReadonlyListeners } from './event.js';
import { fileCalls, type FileCall } from './files.js';
import type { Method, ToHost, ToPage } from './remote.js';
import type {
  Dialect, ProjectFileCommit, ProjectLock, ProjectLockAcquireOptions, ProjectLockEventListener, ProjectLockGrant,
  ProjectLockHandoverOptions, ProjectLockHolder, ProjectLockLease, ProjectLockLogger, ProjectLockRefuseOptions, ProjectLockReleaseOptions, ProjectLockRenewOptions, ProjectLockSubscribeOptions,
  ProjectLockState, ProjectLockSubscription, ProjectLockTakeOverOptions, SomeProject,
} from './types.js';
import { withLock } from './with.js';

export {
  LockAcquisitionError, LockConflictError, LockIrrecoverableError, LockReleaseError, LockRenewalError, ProjectLockError,
  type ErrorParams, type ProjectLockErrorCode,
} from './error.js';
export type * from './types.js';

/** Where the parts of the package are, when they are not beside this file. */
export interface InitOptions {
  /** The address of worker.js, on the page's own origin. */
  readonly workerUrl?: string | URL;
  /** The address of leasehold.wasm. */
  readonly wasmUrl?: string | URL;
  /** Gets the errors of all projects, each at its level: `console`, for example. It can be given at any time. */
  readonly logger?: ProjectLockLogger;
}

interface Call {
  resolve(value: never): void;
  reject(error: unknown): void;
}

interface Far {
  postMessage(message: ToHost, transfer?: Transferable[]): void;
  terminate?(): void;
}

const listeners = new Listeners();
const onReadonly = new ReadonlyListeners();
const calls = new Map<number, Call>();
/** The projects of this page, and whether it holds them. */
const projects = new Map<string, boolean>();
let places: InitOptions = {};
let far: Far | undefined;
let lastCall = 0;
let watched = false;

const WORKER = 'the Worker failed: say where it is with init({ workerUrl }), or allow it in the policy';

/** Says where the parts are, before the first call. Needed only with a strict content security policy, or a bundler that does
 * not move them. What is left out stays as it was said before. */
export function init(options: InitOptions): void {
  const next = { ...places, ...options };
  const address = ({ workerUrl, wasmUrl }: InitOptions) => `${workerUrl} ${wasmUrl}`;
  if (far && address(next) !== address(places)) {
    throw new TypeError('init: call it before every other call');
  }
  places = next;
}

/** Acquires the project for this tab. */
export function acquireProjectLock(options: ProjectLockAcquireOptions = {}): Promise<ProjectLockGrant> {
  return acquire('acquireProjectLock', options);
}

/** Takes the project from its holder. */
export function takeOverProjectLock(options: ProjectLockTakeOverOptions = {}): Promise<ProjectLockGrant> {
  return acquire('takeOverProjectLock', options);
}

/** Asks the holder to save and hand the project over, with a countdown that begins when the holder's page was told. */
export function requestProjectHandover(options: ProjectLockHandoverOptions = {}): Promise<ProjectLockGrant> {
  return acquire('requestProjectHandover', options);
}

/** Refuses that, as the holder. To hand the project over, save and release it. */
export function refuseProjectHandover(options: ProjectLockRefuseOptions): Promise<void> {
  return callWith('refuseProjectHandover', options);
}

/** Says who holds the project; null if it is free. */
export function lookProjectLock(options?: SomeProject): Promise<ProjectLockHolder | null> {
  return callAbout('lookProjectLock', options);
}

/** Says where this tab stands. */
export function readProjectLockState(options?: SomeProject): Promise<ProjectLockState> {
  return callAbout('readProjectLockState', options);
}

/** Renews the lease. The package does so automatically. */
export function renewProjectLock(options: ProjectLockRenewOptions): Promise<ProjectLockLease> {
  return callWith('renewProjectLock', options);
}

/** Releases the project. */
export function releaseProjectLock(options: ProjectLockReleaseOptions): Promise<void> {
  return callWith('releaseProjectLock', options);
}

/** Replaces a file of the project atomically, if the lease is still valid and nobody has saved the file since this tab read
 * it. Otherwise it rejects, and what was to be saved is kept as a draft. */
export async function commitProjectFile(commit: ProjectFileCommit): Promise<{ version: string }> {
  checkData(commit.data);
  return callWith('commitProjectFile', commit);
}

/** @internal Makes a call about the files of a project. The buffers of `transfer` are the Worker's from then on. */
export function files<T>(files: FileCall, transfer?: Transferable[]): Promise<T> {
  return call('files', files, transfer);
}

/** The calls about the files of a project that need no lease. */
export const { readProjectFile, keepProjectDraft, listProjectDrafts, discardProjectDraft } = /* @__PURE__ */ fileCalls(files);

/** Looks again whether the project is free, for a tab that is read-only. */
export function refreshProjectLock(): Promise<void> {
  return call('refresh');
}

/** Runs `work` while this tab holds the project. The signal is aborted when the project is lost. */
export function withProjectLock<T>(
  options: ProjectLockAcquireOptions | undefined,
  work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return withLock({ acquireProjectLock, releaseProjectLock, subscribeLockEvents }, options, work);
}

/** Subscribes to the events of one project, or of all, in one of three dialects. */
export function subscribeLockEvents<In extends Dialect = 'lock'>(
  listener: ProjectLockEventListener<In>, options?: ProjectLockSubscribeOptions<In>,
): ProjectLockSubscription {
  return listeners.add(listener, options);
}

async function acquire(method: Method, options: ProjectLockTakeOverOptions): Promise<ProjectLockGrant> {
  const { signal, onReadonly: _, retryPolicy, ...rest } = options;
  const project = projectOf(options);
  projects.set(project, projects.get(project) ?? false);
  const answer = call<ProjectLockGrant>(method, { ...rest, retryPolicy: retryPolicy && { ...retryPolicy } });
  const number = lastCall;
  const abort = () => far?.postMessage({ abort: number });
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  try {
    const grant = await onReadonly.during(options, answer);
    if (signal?.aborted) await giveBack(grant, signal);
    return grant;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

/** Releases a grant that arrived after the caller had aborted. */
async function giveBack({ lease }: ProjectLockGrant, { reason }: AbortSignal): Promise<never> {
  await releaseProjectLock({ lease }).catch(() => {}); // it is retried in the background
  // By way of a view: a minifier renames the class, and the name of an error is part of the API.
  const view = unusable('the signal was aborted; acquire again', reason, 'acquire', 'LockAcquisitionError', 'web-lock-aborted');
  throw errorOf({ ...view, level: 'info' });
}

/** Makes a call about a project. */
function callAbout<T>(method: Method, { root, lockName }: SomeProject = {}): Promise<T> {
  return call(method, { root, lockName });
}

/** Makes a call about a lease. */
async function callWith<T>(method: Method, options: { readonly lease: ProjectLockLease }): Promise<T> {
  return call(method, { ...options, lease: claimOf(options.lease) });
}

function call<T>(method: Method, options?: object, transfer?: Transferable[]): Promise<T> {
  const number = ++lastCall;
  return new Promise<T>((resolve, reject) => {
    calls.set(number, { resolve, reject });
    try {
      send({ call: number, method, options }, transfer);
    } catch (error) {
      calls.delete(number);
      const isArgument = (error as Error).name === 'DataCloneError';
      reject(isArgument
        ? new TypeError(`${method}: an option cannot be sent to the Worker (${error})`)
        : errorOf(unusable(WORKER, error)));
    }
  });
}

function send(message: ToHost, transfer?: Transferable[]): void {
  if (!far) {
    // In a Worker of the application there is no document.
    const base = globalThis.document?.baseURI ?? globalThis.location?.href;
    const wasmUrl = places.wasmUrl && new URL(places.wasmUrl, base).href;
    far = start();
    far.postMessage({ wasmUrl });
    if (!watched) watchThePage();
    if (globalThis.document?.visibilityState === 'hidden') far.postMessage({ call: 0, method: 'show', options: { hidden: true } });
  }
  far.postMessage(message, transfer);
}

function start(): Far {
  if (globalThis.origin === 'null') return sandboxed();
  // Written like this, bundlers find the Worker and take it along.
  const worker = places.workerUrl
    ? new Worker(places.workerUrl, { type: 'module' })
    : new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }: MessageEvent<ToPage>) => hear(data);
  worker.onerror = (event) => fail(worker, event.message || 'it could not be loaded');
  return worker;
}

/** A sandboxed page can have no Worker. It has no private files either: the rules refuse its calls, without any IO. Only such a
 * page loads them. */
function sandboxed(): Far {
  const receive = import('./local.js').then(({ host }) => host(hear));
  const far: Far = { postMessage: (message) => { receive.then((receive) => receive(message)); } };
  receive.catch((error) => fail(far, String(error)));
  return far;
}

function hear(message: ToPage): void {
  if ('event' in message) {
    return publish(message.event);
  }
  const waiting = calls.get(message.call);
  calls.delete(message.call);
  if ('error' in message) waiting?.reject(errorOf(message.error));
  else if ('thrown' in message) waiting?.reject(message.thrown);
  else waiting?.resolve(message.value as never);
}

/** Publishes an event to the subscribers, and then to `onReadonly` of its project. */
function publish(event: DialectsView): void {
  const { type } = event.lock;
  if (type === 'lock:acquired') projects.set(projectOf(event.lock), true);
  if (type === 'lock:released' || type === 'lock:readonly-entered') projects.set(projectOf(event.lock), false);
  log(places.logger, event);
  listeners.publish(event);
  onReadonly.publish(event);
  if (type === ASKED) callAbout('told', event.lock).catch(() => {});
}

/** The Worker failed: its calls will not be answered, and its leases are over. The next call starts a new one. */
function fail(gone: Far, why: string): void {
  if (far !== gone) return;
  gone.terminate?.();
  far = undefined;
  const waiting = [...calls.values()];
  calls.clear();
  waiting.forEach(({ reject }) => reject(errorOf(unusable(WORKER, why))));
  for (const [key, held] of projects) {
    const [root, lockName] = JSON.parse(key) as [string, string];
    const named = { root, lockName };
    const [operation, type] = held ? ['renew', 'expired'] as const : ['acquire', 'acquire-failed'] as const;
    const error = unusable(WORKER, why, operation);
    const { code, retryable } = error;
    publish({
      lock: { ...named, type: 'lock:error', operation, error, retryable },
      service: { ...named, type, error },
      autosave: [
        { ...named, type: 'autosave.lock.error', error: code, retryable },
        { ...named, type: 'autosave.lock.retry', attempt: 1, maxAttempts: 1, retryable },
      ],
    });
    const reason = 'irrecoverable';
    const autosave = [{ ...named, type: 'autosave.lock.readonly', reason }];
    publish({ lock: { ...named, type: 'lock:readonly-entered', reason, lastError: error }, autosave });
  }
}

/** A page that is frozen, or kept in the back/forward cache, may come back long after its lease ended. */
function watchThePage(): void {
  watched = true;
  const pass = (method: Method, options?: object) => { if (far) call(method, options).catch(() => {}); };
  globalThis.document?.addEventListener('visibilitychange', () => pass('show', { hidden: document.visibilityState === 'hidden' }));
  for (const [method, kept] of [['freeze', 'pagehide'], ['resume', 'pageshow']] as const) {
    globalThis.document?.addEventListener(method, () => pass(method));
    globalThis.addEventListener?.(kept, (event) => { if (event.persisted) pass(method); });
  }
}

// The compiler sees to it that the package has what a lock has.
({
  acquireProjectLock, renewProjectLock, releaseProjectLock, withProjectLock, takeOverProjectLock, lookProjectLock,
  requestProjectHandover, refuseProjectHandover, readProjectLockState,
  readProjectFile, commitProjectFile, keepProjectDraft, listProjectDrafts, discardProjectDraft, subscribeLockEvents,
}) satisfies ProjectLock;
