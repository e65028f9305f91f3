// `withProjectLock`, made of the other calls.

import { ProjectLockError } from './error.js';
import type {
  ProjectLock, ProjectLockAcquireOptions, ProjectLockEvent, ProjectLockLease, ProjectLockReadonlyEvent,
} from './types.js';

type Reason = 'completed' | 'aborted';
type Calls = Pick<ProjectLock, 'acquireProjectLock' | 'releaseProjectLock' | 'subscribeLockEvents'>;

/** Runs `work` while this tab holds the project. When the project is lost, the signal is aborted and the promise rejects. */
export async function withLock<T>(
  lock: Calls,
  options: ProjectLockAcquireOptions | undefined,
  work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // The work ends with its lease: nothing would release a lease that the tab acquired by itself afterwards.
  const { lease } = await lock.acquireProjectLock({ ...options, autoResume: false });
  const lost = new AbortController();
  const subscription = lock.subscribeLockEvents((event) => {
    if (isTheEndOf(lease, event)) lost.abort(event.lastError);
  }, { root: lease.root, lockName: lease.lockName });
  let reason: Reason = 'aborted';
  try {
    const value = await Promise.race([work(lease, lost.signal), rejection(lost.signal)]);
    reason = 'completed';
    return value;
  } finally {
    subscription.unsubscribe();
    if (!lost.signal.aborted) await release(lock, lease, reason);
  }
}

/** An acquire of this project that was refused names no lease, and neither does a Worker that failed with the lease. */
function isTheEndOf(lease: ProjectLockLease, event: ProjectLockEvent): event is ProjectLockReadonlyEvent {
  if (event.type !== 'lock:readonly-entered') return false;
  return event.leaseId === undefined ? event.lastError.operation !== 'acquire' : event.leaseId === lease.leaseId;
}

function rejection(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

/** A failed release is published as an event and retried in the background: it must not hide the result of the work. */
async function release(lock: Calls, lease: ProjectLockLease, reason: Reason): Promise<void> {
  await lock.releaseProjectLock({ lease, reason }).catch((error: unknown) => {
    if (!(error instanceof ProjectLockError)) throw error;
  });
}
