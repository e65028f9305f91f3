// What callers pass, for a page and for a lock on the calling thread: defaults, and what is refused before anything is sent.

import type { ProjectLockLease, SomeProject } from './types.js';

/** The project of a page that names none. */
export const DEFAULT_ROOT = 'project';
export const DEFAULT_NAME = 'imgponic:project';

/** The event that a holder's page answers by `told`. */
export const ASKED = 'lock:handover-requested';

/** Which project these options are about. */
export function projectOf({ root = DEFAULT_ROOT, lockName = DEFAULT_NAME }: SomeProject): string {
  return JSON.stringify([root, lockName]);
}

/** The part of a lease that identifies it. An application may have added properties that cannot be sent. */
export function claimOf(lease: ProjectLockLease | undefined) {
  if (!lease?.leaseId) throw new TypeError('lease: expected the lease of an acquire');
  const { leaseId, fence, root, lockName } = lease;
  return { leaseId, fence, root, lockName };
}

/** Refuses what cannot be saved. */
export function checkData(data: unknown): void {
  if (typeof data !== 'string' && !ArrayBuffer.isView(data)) {
    throw new TypeError('data: expected a text or a Uint8Array: use JSON.stringify');
  }
}
