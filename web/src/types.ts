// The words of the package: what an application gives and gets. No behaviour is in here.

/** How the lease was got. */
export type Strategy = 'web-lock' | 'file-lock';

/** What a lease is worth. See docs/browser-guarantees.md. */
export type Guarantee = 'exclusive' | 'tab-exclusive' | 'advisory';

/** Which defaults and error codes. */
export type Profile = 'autosave' | 'service';

/** In which words events are told. */
export type Dialect = 'lock' | 'service' | 'autosave';

/** A lease on the project. JSON can carry it. */
export interface ProjectLockLease {
  readonly leaseId: string;
  readonly owner: string;
  /** When it ends unless it is renewed, in milliseconds since 1970. */
  readonly expiresAt: number;
  readonly acquiredAt: number;
  readonly ttlMillis: number;
  readonly nextHeartbeatAt: number;
  readonly source: 'web-lock' | 'opfs-lock';
  readonly strategy: Strategy;
  readonly viaFallback: boolean;
  /** Larger than that of every earlier lease on the project. */
  readonly fence: number;
  readonly guarantee: Guarantee;
}

/** How attempts follow each other. */
export interface LockRetryPolicy {
  readonly initialDelayMs?: number;
  readonly maxDelayMs?: number;
  readonly multiplier?: number;
  readonly maxAttempts?: number;
}

/** How to acquire. What is left out is the profile's default. */
export interface ProjectLockAcquireOptions {
  readonly profile?: Profile;
  readonly signal?: AbortSignal;
  readonly maxWaitMs?: number;
  readonly webLockTimeoutMs?: number;
  readonly retryPolicy?: LockRetryPolicy;
  readonly ttlMs?: number;
  readonly heartbeatIntervalMs?: number;
  readonly renewIntervalMs?: number;
  readonly preferredStrategy?: Strategy;
  /** Called when the project becomes read-only. */
  readonly onReadonly?: (event: ProjectLockEvent) => void;
  /** Whether a second acquire in the tab that holds is given the same lease. */
  readonly reentrant?: boolean;
  /** Whether a tab that is read-only takes the project when it becomes free. Left out, it does so only when it lost the
   * project because the page was frozen; false says never. `withProjectLock` never does. */
  readonly autoResume?: boolean;
  /** Whether a browser without access handles will do: two tabs may then believe that they hold the project. */
  readonly allowAdvisory?: boolean;
  /** The name of the Web Lock. */
  readonly lockName?: string;
  /** The folder of the project, below the origin's private files. */
  readonly root?: string;
}

/** How to take the project from whoever has it. */
export interface ProjectLockTakeOverOptions extends ProjectLockAcquireOptions {
  /** The fence of the lease that is to be taken; whichever it is when left out. */
  readonly seen?: number;
  /** Why, for people. */
  readonly reason?: string;
}

/** What acquiring comes to. */
export interface ProjectLockGrant {
  readonly lease: ProjectLockLease;
  readonly didFallback: boolean;
}

/** How to renew. */
export interface ProjectLockRenewOptions {
  readonly lease: ProjectLockLease;
  readonly extendByMs?: number;
}

/** How to release. */
export interface ProjectLockReleaseOptions {
  readonly lease: ProjectLockLease;
  readonly reason?: 'completed' | 'aborted' | 'expired';
  readonly force?: boolean;
}

/** What to save. */
export interface ProjectFileCommit {
  readonly lease: ProjectLockLease;
  /** Below the folder of the project, for example `autosave/current.json`. */
  readonly path: string;
  readonly data: string | Uint8Array;
}

/** Something that happened; which fields it has depends on its `type` (docs/browser.md). */
export interface ProjectLockEvent {
  readonly type: string;
  readonly operation?: 'acquire' | 'renew' | 'release';
  readonly strategy?: Strategy;
  readonly retry?: number;
  readonly attempt?: number;
  readonly maxAttempts?: number;
  readonly delayMs?: number;
  readonly lease?: ProjectLockLease;
  readonly leaseId?: string;
  readonly nextHeartbeatInMs?: number;
  readonly state?: 'acquired' | 'renewed' | 'released';
  readonly warning?: 'fallback-engaged' | 'fallback-degraded' | 'heartbeat-delayed' | 'clock-skew';
  readonly detail?: string;
  /** A `ProjectLockError`; its code alone in dialect `autosave`. */
  readonly error?: Error | string;
  readonly retryable?: boolean;
  readonly reason?: string;
  readonly lastError?: Error;
  readonly manualSteps?: string;
}

/** Hears events. */
export type ProjectLockEventListener = (event: ProjectLockEvent) => void;

/** A subscription. */
export interface ProjectLockSubscription {
  unsubscribe(): void;
}

/** All that can be done with the lock on a project. */
export interface ProjectLock {
  /** Gets the project, or says why not. */
  acquireProjectLock(options?: ProjectLockAcquireOptions): Promise<ProjectLockGrant>;
  /** Keeps it for longer. Heartbeats do so by themselves. */
  renewProjectLock(options: ProjectLockRenewOptions): Promise<ProjectLockLease>;
  /** Gives it back. */
  releaseProjectLock(options: ProjectLockReleaseOptions): Promise<void>;
  /** Does `work` while the project is this tab's. The signal tells when it is not any more. */
  withProjectLock<T>(
    options: ProjectLockAcquireOptions | undefined,
    work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
  ): Promise<T>;
  /** Takes the project from whoever has it. */
  takeOverProjectLock(options?: ProjectLockTakeOverOptions): Promise<ProjectLockGrant>;
  /** Replaces a file of the project, if the lease is still good: whole, or not at all. */
  commitProjectFile(commit: ProjectFileCommit): Promise<void>;
  /** Hears what happens, in one of three dialects. */
  subscribeLockEvents(listener: ProjectLockEventListener, options?: { dialect?: Dialect }): ProjectLockSubscription;
}
