// `withProjectLock`, over the calls that it is made of.

import { ProjectLockError } from './error.js';
import type { ProjectLock, ProjectLockAcquireOptions, ProjectLockLease } from './types.js';

type Calls = Pick<ProjectLock, 'acquireProjectLock' | 'renewProjectLock' | 'releaseProjectLock' | 'subscribeLockEvents'>;

/** Does `work` while the project is this tab's. When it is lost, the signal is aborted and the answer is the reason. */
export async function withLock<T>(
  lock: Calls,
  options: ProjectLockAcquireOptions | undefined,
  work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { lease } = await lock.acquireProjectLock(options);
  const lost = new AbortController();
  const subscription = lock.subscribeLockEvents((event) => {
    if (event.type !== 'lock:readonly-entered') return;
    // It may be about another project of this page: whoever still holds can renew.
    lock.renewProjectLock({ lease }).catch((error: unknown) => lost.abort(event.lastError ?? error));
  });
  try {
    return await Promise.race([work(lease, lost.signal), rejection(lost.signal)]);
  } finally {
    subscription.unsubscribe();
    await release(lock, lease, lost.signal.aborted);
  }
}

function rejection(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

/** A failed release is told by events and tried again in the background: it must not hide what the work came to. */
async function release(lock: Calls, lease: ProjectLockLease, lost: boolean): Promise<void> {
  if (lost) return;
  await lock.releaseProjectLock({ lease }).catch((error: unknown) => {
    if (!(error instanceof ProjectLockError)) throw error;
  });
}
