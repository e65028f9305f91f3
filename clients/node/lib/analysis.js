// The three functions that such code usually has, under their own names.

import { LeaseLost } from './errors.js';

/**
 * Locks by owner, over the jobs of a collection.
 *
 * A lock is released under the name that acquired it *and from the same program*: a name alone, reused by a worker that was
 * started again, would free its successor's lock.
 */
export class AnalysisLocks {
  #jobs;
  #collection;
  #held = new Map();

  constructor(jobs, { collection = 'analyses' } = {}) {
    this.#jobs = jobs;
    this.#collection = collection;
  }

  /** Acquires the lock of an analysis, which lasts for `ttlSec` unless `refreshAnalysisLock` is called before. */
  async acquireAnalysisLock(analysisId, lockOwner, ttlSec = 300) {
    const attempt = await this.#jobs.acquire(`${this.#collection}/${analysisId}`, {
      worker: lockOwner, ttl: ttlSec, refreshes: false,
    });
    if (!attempt.acquired) return { acquired: false, reason: attempt.reason };
    this.#held.set(name(analysisId, lockOwner), attempt);
    return { acquired: true };
  }

  /** Releases the lock of an analysis, if this program holds it in this name. A failure is a warning. */
  async releaseAnalysisLock(analysisId, lockOwner) {
    const attempt = this.attempt(analysisId, lockOwner);
    this.#held.delete(name(analysisId, lockOwner));
    if (attempt) await attempt.release();
    else this.#jobs.warn(`there is no lock on ${analysisId} by ${lockOwner} to release`);
  }

  /** Extends the lock of an analysis, if this program holds it in this name; rejects with `LeaseLost` otherwise. */
  async refreshAnalysisLock(analysisId, lockOwner, ttlSec = 300) {
    const attempt = this.attempt(analysisId, lockOwner);
    if (!attempt) throw new LeaseLost(`${lockOwner} does not hold ${analysisId} here`, 'unknown');
    await attempt.refresh(ttlSec);
  }

  /** Whether the lock is lost, or was never acquired here: the worker has to stop, because another may begin. */
  isLost(analysisId, lockOwner) {
    return !this.attempt(analysisId, lockOwner)?.isHeld();
  }

  /** The attempt behind a lock that this program holds: its fence, its signal, and how to complete it. */
  attempt(analysisId, lockOwner) {
    return this.#held.get(name(analysisId, lockOwner));
  }
}

const name = (analysisId, lockOwner) => JSON.stringify([analysisId, lockOwner]);
