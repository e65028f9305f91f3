/** Who is working on a job. */
export interface Held {
  /** The subject of their token. */
  id: string;
  /** The name of the worker. */
  name: string;
  fence: number;
  /** How long they have it unless they refresh it. */
  expiresInMs: number;
}

export type Status = 'QUEUED' | 'RUNNING' | 'READY' | 'FAILED';

/**
 * JSON that is sent as it is, also within a payload or a result: for numbers that a number in JavaScript does not carry. A BigInt
 * is sent as an integer.
 */
export class JsonText {
  constructor(text: string);
  readonly text: string;
}

/** A job, as shown to every caller who may see it. */
export interface Job {
  /** `collection/id`. */
  id: string;
  status: Status;
  /** Throws `Inexact` if it holds a number that JavaScript would round. */
  readonly payload: unknown;
  /** The payload as JSON, with all digits. */
  readonly payloadText: string;
  attempts: number;
  maxAttempts?: number;
  /** The result, when it is READY. Throws `Inexact` if it holds a number that JavaScript would round. */
  readonly result?: unknown;
  /** The result as JSON, with all digits. */
  readonly resultText?: string;
  /** Why it was given up, when it is FAILED. */
  error?: string;
  /** The worker that is running it, if one is. */
  held?: Held;
}

/** A job that is not ours to do. That is no error. */
export interface NotAcquired {
  acquired: false;
  reason: 'already_finished' | 'locked';
  status: Status;
  /** Throws `Inexact` if it holds a number that JavaScript would round. */
  readonly result?: unknown;
  /** The result as JSON, with all digits. */
  readonly resultText?: string;
  error?: string;
  held?: Held;
}

export interface AcquireOptions {
  /** Which worker this is, for others to see. */
  worker?: string;
  /** How long the attempt lasts if this program dies, in whole seconds; 300 by default. */
  ttl?: number;
  /** Called when the attempt is lost. */
  onLost?: (attempt: Attempt) => void;
  /** Whether the attempt refreshes itself; true by default. Otherwise it lasts until `refresh()` is called. */
  refreshes?: boolean;
  /** Gives up the acquire itself: an attempt that may have begun is withdrawn, and does not count. */
  signal?: AbortSignal;
}

/** A job that is ours to do, until it is finished, given back, or lost. It refreshes itself. */
export class Attempt {
  private constructor();
  readonly acquired: true;
  readonly id: string;
  /** Throws `Inexact` if it holds a number that JavaScript would round. */
  readonly payload: any;
  /** The payload as JSON, with all digits. */
  readonly payloadText: string;
  /** Pass it on to whatever the work changes, which refuses an older one. */
  readonly fence: number;
  /** The number of this attempt; 1 is the first. */
  readonly attempt: number;
  /** Whether the previous worker vanished: it may have done part of the job. */
  readonly recovered: boolean;
  /** Aborted when the attempt is lost, before another worker can begin; its `reason` is a `LeaseLost`. */
  readonly signal: AbortSignal;
  timeLeftMs(): number;
  isHeld(): boolean;
  /** The fence, if the job may still be worked on at this moment; throws `LeaseLost` otherwise. */
  check(): number;
  /** Rejects with `LeaseLost` if the attempt is over. */
  refresh(ttl?: number): Promise<void>;
  complete(result?: unknown): Promise<void>;
  /** Answers whether the job will be tried again. Of a very long error the beginning is kept. */
  fail(error: unknown, retryable?: boolean): Promise<boolean>;
  /** That this fails is only a warning: the lease runs out. */
  release(): Promise<void>;
}

/** What `Jobs.run` came to. */
export interface Run<T = unknown> {
  /** `done` and `failed`: we did the work. `already_finished` and `locked`: we did not. */
  outcome: 'done' | 'failed' | 'already_finished' | 'locked';
  result?: T;
  /** The result of a job that was finished before, as JSON, with all digits. */
  readonly resultText?: string;
  error?: string;
  /** Whether the job will be tried again, when the attempt failed. */
  again: boolean;
  held?: Held;
  /** Whether nothing is left to be done: a queue may forget the task. */
  finished: boolean;
}

export interface JobsOptions {
  worker?: string;
  /** How long a call may take; 10 s by default. */
  timeoutMs?: number;
  /** Takes the warnings; `console.warn` by default. */
  warn?: (text: string) => void;
}

/** The jobs of a server. A job's id is `collection/id`, such as `analyses/42`. */
export class Jobs {
  /** Takes the warnings. */
  readonly warn: (text: string) => void;
  /** `token` may be a function, for tokens that expire. */
  constructor(url: string, token?: string | (() => string | Promise<string>), options?: JobsOptions);
  /** Answers whether it is new. */
  create(id: string, payload?: unknown, options?: { maxAttempts?: number }): Promise<boolean>;
  look(id: string): Promise<Job | null>;
  acquire(id: string, options?: AcquireOptions): Promise<Attempt | NotAcquired>;
  run<T>(id: string, work: (attempt: Attempt) => T | Promise<T>, options?: AcquireOptions): Promise<Run<T>>;
  reset(id: string): Promise<Job>;
}

/** The three functions that such code usually has, over the jobs of a collection (`analyses` by default). */
export class AnalysisLocks {
  constructor(jobs: Jobs, options?: { collection?: string });
  /** Whether the lock is lost, or was never acquired here. */
  isLost(analysisId: string, lockOwner: string): boolean;
  acquireAnalysisLock(analysisId: string, lockOwner: string, ttlSec?: number): Promise<{ acquired: boolean; reason?: string }>;
  releaseAnalysisLock(analysisId: string, lockOwner: string): Promise<void>;
  refreshAnalysisLock(analysisId: string, lockOwner: string, ttlSec?: number): Promise<void>;
  attempt(analysisId: string, lockOwner: string): Attempt | undefined;
}

export class LeaseholdError extends Error {}
export class Invalid extends LeaseholdError {}
/** A payload or a result holds a number that JavaScript would round; its text is there beside it. */
export class Inexact extends LeaseholdError {}
export class Unauthenticated extends LeaseholdError {}
export class NotAllowed extends LeaseholdError {}
export class NoSuchJob extends LeaseholdError {}
export class JobDiffers extends LeaseholdError {}
export class TooMany extends LeaseholdError {}
export class Unavailable extends LeaseholdError {}
export class JobRunning extends LeaseholdError {
  readonly held?: Held;
}
/** The attempt is over: whatever is said about it now is refused. */
export class LeaseLost extends LeaseholdError {
  /** `deadline` if nothing was heard from the server in time, else the server's word, such as `expired`. */
  readonly because: string;
  readonly held?: Held;
}
/** For the work itself to throw: it failed, and trying again would not help. */
export class NotRetryable extends Error {}
