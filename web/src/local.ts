// `leasehold/local`: a project lock on the calling thread, on what the caller brings: for tests with the doubles, and for pages
// that can have no Worker. Other pages have the same code in their Worker, and do not load this.

import { ASKED } from './arguments.js';
import type { DialectsView } from './border.js';
import { Listeners, log, ReadonlyListeners } from './event.js';
import { fileCalls } from './files.js';
import { ProjectLocks, type Surroundings } from './lock.js';
import type {
  Dialect, ProjectFileCalls, ProjectLock, ProjectLockAcquireOptions, ProjectLockEventListener, ProjectLockGrant,
  ProjectLockHandoverOptions, ProjectLockLease, ProjectLockSubscribeOptions, ProjectLockSubscription, ProjectLockTakeOverOptions,
} from './types.js';
import { setWasm } from './wasm.js';
import { withLock } from './with.js';

export {
  LockAcquisitionError, LockConflictError, LockIrrecoverableError, LockReleaseError, LockRenewalError, ProjectLockError,
} from './error.js';
export type { Surroundings } from './lock.js';
export type { AccessHandle, Channel, Clock, Directory, FileHandle, Locks, Writable } from './ports.js';

/** A project lock on the calling thread. */
export function createProjectLock(surroundings: Surroundings = {}): LocalProjectLock {
  return new LocalProjectLock(surroundings);
}

/** Says where leasehold.wasm is, if it is not beside this file; before the first call. */
export function init({ wasmUrl }: { readonly wasmUrl: string | URL }): void {
  setWasm(wasmUrl);
}

/** @internal For a page that can have no Worker. */
export { host } from './host.js';

/** What the constructor adds. */
export interface LocalProjectLock extends ProjectFileCalls {}

/** The calls of a project lock. */
export class LocalProjectLock extends ProjectLocks implements ProjectLock {
  readonly #listeners: Listeners;
  readonly #onReadonly: ReadonlyListeners;

  /** @internal */
  constructor(surroundings: Surroundings) {
    const [listeners, onReadonly] = [new Listeners(), new ReadonlyListeners()];
    super(surroundings, (event: DialectsView) => {
      log(surroundings.logger, event);
      listeners.publish(event);
      onReadonly.publish(event);
      if (event.lock.type === ASKED) void this.told(event.lock);
    });
    [this.#listeners, this.#onReadonly] = [listeners, onReadonly];
    Object.assign(this, fileCalls((call) => this.files(call)));
  }

  override acquireProjectLock(options: ProjectLockAcquireOptions = {}): Promise<ProjectLockGrant> {
    return this.#onReadonly.during(options, super.acquireProjectLock(options));
  }

  override takeOverProjectLock(options: ProjectLockTakeOverOptions = {}): Promise<ProjectLockGrant> {
    return this.#onReadonly.during(options, super.takeOverProjectLock(options));
  }

  override requestProjectHandover(options: ProjectLockHandoverOptions = {}): Promise<ProjectLockGrant> {
    return this.#onReadonly.during(options, super.requestProjectHandover(options));
  }

  withProjectLock<T>(
    options: ProjectLockAcquireOptions | undefined,
    work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    return withLock(this, options, work);
  }

  subscribeLockEvents<In extends Dialect = 'lock'>(
    listener: ProjectLockEventListener<In>, options?: ProjectLockSubscribeOptions<In>,
  ): ProjectLockSubscription {
    return this.#listeners.add(listener, options);
  }
}
