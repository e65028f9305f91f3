// The types of the package: what an application passes and gets. No behaviour is in here.

import type { GuaranteeWord, OperationWord, StateWord, StrategyWord } from './border.js';
import type { ProjectLockError, ProjectLockErrorCode } from './error.js';

/** How the lease was acquired. */
export type Strategy = StrategyWord;

/** What a lease guarantees. See docs/browser-guarantees.md. */
export type Guarantee = GuaranteeWord;

/** Which defaults and error codes. */
export type Profile = 'autosave' | 'service';

/** Which project. Every event and every lease says it. */
export interface ProjectName {
  /** The folder of the project, below the origin's private files. */
  readonly root: string;
  /** The name of its Web Lock. */
  readonly lockName: string;
}

/** The same in options: what is left out is the default. */
export interface SomeProject {
  readonly root?: string | undefined;
  readonly lockName?: string | undefined;
}

/** A lease on the project. JSON can carry it. */
export interface ProjectLockLease extends ProjectName {
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

/** Who holds the project. */
export interface ProjectLockHolder {
  readonly owner: string;
  /** What the holder calls itself, by its option `label`. */
  readonly label?: string;
  /** For `takeOverProjectLock({ seen: fence })`. */
  readonly fence: number;
  /** Since when, in milliseconds since 1970. */
  readonly since: number;
  /** When another may have it, unless it is renewed. */
  readonly expiresAt: number;
}

/** How attempts follow each other. */
export interface LockRetryPolicy {
  readonly initialDelayMs?: number | undefined;
  readonly maxDelayMs?: number | undefined;
  readonly multiplier?: number | undefined;
  readonly maxAttempts?: number | undefined;
}

/** How to acquire. What is left out is the profile's default. */
export interface ProjectLockAcquireOptions {
  readonly profile?: Profile | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly maxWaitMs?: number | undefined;
  readonly webLockTimeoutMs?: number | undefined;
  readonly retryPolicy?: LockRetryPolicy | undefined;
  readonly ttlMs?: number | undefined;
  readonly heartbeatIntervalMs?: number | undefined;
  readonly renewIntervalMs?: number | undefined;
  readonly preferredStrategy?: Strategy | undefined;
  /** Called when the project becomes read-only. */
  readonly onReadonly?: ((event: ProjectLockReadonlyEvent) => void) | undefined;
  /** Whether a second acquire in the tab that holds the project gets the same lease. */
  readonly reentrant?: boolean | undefined;
  /** Whether a read-only tab acquires the project when it becomes free. Left out, it does so only if it lost the project
   * because the page was frozen; false means never. `withProjectLock` never does. */
  readonly autoResume?: boolean | undefined;
  /** Whether to accept a browser without access handles, in which two tabs may believe that they hold the project. */
  readonly allowAdvisory?: boolean | undefined;
  /** What this tab calls itself, for people at other tabs: they get it as `holder.label`. */
  readonly label?: string | undefined;
  /** The name of the Web Lock. */
  readonly lockName?: string | undefined;
  /** The folder of the project, below the origin's private files. */
  readonly root?: string | undefined;
}

/** How to take the project from its holder. */
export interface ProjectLockTakeOverOptions extends ProjectLockAcquireOptions {
  /** The fence of the lease to take; any, when left out. */
  readonly seen?: number | undefined;
  /** Why, for people. */
  readonly reason?: string | undefined;
  /** Whether to go on where clocks disagree, so that nobody knows whether the holder lives. Left out, the take-over is refused
   * with the warning `clock-skew`, before anything is written. */
  readonly acceptClockSkew?: boolean | undefined;
}

/** How to ask the holder to save and hand the project over. */
export interface ProjectLockHandoverOptions extends ProjectLockAcquireOptions {
  /** Why, for people. */
  readonly reason?: string | undefined;
  /** How long the holder has, from when its page was told; 10 s when left out. */
  readonly countdownMs?: number | undefined;
  /** What the holder's silence means; `refuse` when left out. */
  readonly onSilence?: 'grant' | 'refuse' | undefined;
}

/** Where a tab stands; `faulted` is what profile `service` calls `readonly`. */
export type ProjectLockState = StateWord;

/** Gets the errors of a project lock, each at its level. `console` is one. */
export interface ProjectLockLogger {
  info(message: string, error: ProjectLockError): void;
  warn(message: string, error: ProjectLockError): void;
  error(message: string, error: ProjectLockError): void;
}

/** How to refuse that. */
export interface ProjectLockRefuseOptions {
  readonly lease: ProjectLockLease;
  /** Why, for people at the tab that asks. */
  readonly reason?: string | undefined;
}

/** A request to hand the project over. */
export interface ProjectLockRequest {
  readonly owner: string;
  readonly label?: string;
  readonly reason?: string;
  readonly countdownMs: number;
  readonly onSilence: 'grant' | 'refuse';
}

/** The result of an acquire. */
export interface ProjectLockGrant {
  readonly lease: ProjectLockLease;
  readonly didFallback: boolean;
}

/** How to renew. */
export interface ProjectLockRenewOptions {
  readonly lease: ProjectLockLease;
  readonly extendByMs?: number | undefined;
}

/** How to release. */
export interface ProjectLockReleaseOptions {
  readonly lease: ProjectLockLease;
  readonly reason?: ReleaseReason | undefined;
  readonly force?: boolean | undefined;
}

/** How to read a file. */
export interface ProjectFileOptions extends SomeProject {
  /** What `data` is to be. A text must be UTF-8. */
  readonly as?: 'text' | 'bytes' | undefined;
}

/** A file of the project. Both are null if there is none. */
export interface ProjectFile<Data = string> {
  readonly data: Data | null;
  /** The SHA-256 of the content, in hexadecimal. */
  readonly version: string | null;
}

/** What to save. */
export interface ProjectFileCommit {
  readonly lease: ProjectLockLease;
  /** Below the folder of the project, for example `autosave/current.json`. */
  readonly path: string;
  readonly data: string | Uint8Array;
  /** The version that `data` was made from; null for no file. Left out, it is the version that this tab last read or wrote
   * under this path. */
  readonly base?: string | null | undefined;
  /** Replaces the file whatever its version is. */
  readonly overwrite?: boolean | undefined;
}

/** What could not be saved. */
export interface ProjectDraft extends ProjectName {
  readonly id: string;
  readonly path: string;
  /** As it was given to be saved. */
  readonly data: string | Uint8Array;
  /** The version that it was made from; null for no file. */
  readonly base: string | null;
  /** When it was kept, in milliseconds since 1970. */
  readonly at: number;
}

/** What an error or an event is about. */
export type Operation = OperationWord;

/** Why a project is released. */
export type ReleaseReason = 'completed' | 'aborted' | 'expired';

/** Why a tab is read-only. */
export type ReadonlyReason =
  | 'fallback-conflict' | 'lease-stale' | 'acquire-timeout' | 'renew-failed' | 'release-failed' | 'irrecoverable';

/** One event for each of these types. */
type Each<Type extends string, Fields> = Type extends string ? { readonly type: Type } & Fields : never;

/** Something that happened, in dialect `lock`. */
export type ProjectLockEvent = ProjectName & (
  | {
    readonly type: 'lock:attempt';
    readonly operation: Operation;
    readonly strategy: Strategy;
    readonly retry: number;
  }
  | { readonly type: 'lock:waiting'; readonly retry: number; readonly delayMs: number }
  /** Another holds the project. Once per acquire, which goes on. */
  | { readonly type: 'lock:held'; readonly holder: ProjectLockHolder }
  | {
    readonly type: 'lock:acquired';
    readonly lease: ProjectLockLease;
    /** Whether a file that this tab has read or written has another version now. Read it again. */
    readonly changed: boolean;
  }
  | Each<'lock:renewed' | 'lock:released', { readonly lease: ProjectLockLease }>
  | { readonly type: 'lock:release-requested'; readonly lease: ProjectLockLease; readonly reason: ReleaseReason }
  | { readonly type: 'lock:renew-scheduled'; readonly lease: ProjectLockLease; readonly nextHeartbeatInMs: number }
  | {
    readonly type: 'lock:warning';
    readonly warning: 'fallback-engaged' | 'fallback-degraded' | 'heartbeat-delayed' | 'clock-skew';
    /** For people. */
    readonly detail: string;
  }
  | {
    readonly type: 'lock:error';
    readonly operation: Operation;
    readonly error: ProjectLockError;
    readonly retryable: boolean;
  }
  | ProjectLockReadonlyEvent
  /** Another tab asks this one to save and hand the project over: save and release it, or refuse. `request.countdownMs` begins now. */
  | { readonly type: 'lock:handover-requested'; readonly request: ProjectLockRequest }
  /** That tab does not want it any more. */
  | { readonly type: 'lock:handover-withdrawn'; readonly request: ProjectLockRequest }
  /** The holder that this tab asks was told: its countdown begins now. */
  | { readonly type: 'lock:handover-told'; readonly holder: ProjectLockHolder; readonly countdownMs: number }
  | { readonly type: 'lock:available' }
);

/** Nothing can be saved any more. */
export interface ProjectLockReadonlyEvent extends ProjectName {
  readonly type: 'lock:readonly-entered';
  readonly reason: ReadonlyReason;
  readonly lastError: ProjectLockError;
  /** The lease that ended, if there was one. */
  readonly leaseId?: string;
  /** What the user can do, if nothing else helps. */
  readonly manualSteps?: string;
}

/** The same in dialect `service`. */
export type ProjectLockServiceEvent = ProjectName & (
  | Each<'acquired' | 'renewed' | 'released', { readonly lease: ProjectLockLease }>
  | Each<'acquire-failed' | 'expired' | 'release-failed', { readonly error: ProjectLockError; readonly attempt?: number }>
  | { readonly type: 'backoff'; readonly attempt: number; readonly delayMs: number }
  | { readonly type: 'switch-to-fallback' }
);

/** The same in dialect `autosave`. */
export type ProjectLockAutosaveEvent = ProjectName & (
  | { readonly type: 'autosave.lock.stateChanged'; readonly state: 'acquired' | 'renewed' | 'released' }
  | {
    readonly type: 'autosave.lock.retry';
    readonly attempt: number;
    /** Left out when the attempts are unlimited. */
    readonly maxAttempts?: number;
    readonly retryable: boolean;
  }
  | {
    readonly type: 'autosave.lock.error';
    readonly error: ProjectLockErrorCode;
    readonly retryable: boolean;
    readonly leaseId?: string;
  }
  | { readonly type: 'autosave.lock.readonly'; readonly reason: 'conflict' | 'timeout' | 'irrecoverable' }
);

/** The events of each dialect. */
export interface ProjectLockEvents {
  readonly lock: ProjectLockEvent;
  readonly service: ProjectLockServiceEvent;
  readonly autosave: ProjectLockAutosaveEvent;
}

/** The names under which events are published. */
export type Dialect = keyof ProjectLockEvents;

/** A subscriber. */
export type ProjectLockEventListener<In extends Dialect = 'lock'> = (event: ProjectLockEvents[In]) => void;

/** What to subscribe to: the events of one project, or of all; in one of three dialects. */
export interface ProjectLockSubscribeOptions<In extends Dialect = 'lock'> {
  readonly dialect?: In | undefined;
  readonly root?: string | undefined;
  readonly lockName?: string | undefined;
}

/** A subscription. */
export interface ProjectLockSubscription {
  unsubscribe(): void;
}

/** The calls about the files of a project that need no lease. */
export interface ProjectFileCalls {
  /** Reads a file of the project. What this tab saves under the same path is then made from this version of it. */
  readProjectFile(path: string, options: ProjectFileOptions & { readonly as: 'bytes' }): Promise<ProjectFile<Uint8Array>>;
  readProjectFile(path: string, options?: ProjectFileOptions): Promise<ProjectFile>;
  /** Keeps content as a draft, unless it is empty, or what this tab has read or written under this path. */
  keepProjectDraft(draft: SomeProject & { readonly path: string; readonly data: string | Uint8Array }): Promise<void>;
  /** What could not be saved, of any tab, the oldest first. */
  listProjectDrafts(options?: SomeProject): Promise<ProjectDraft[]>;
  /** Removes a draft. */
  discardProjectDraft(draft: SomeProject & { readonly id: string }): Promise<void>;
}

/** The calls of a project lock. */
export interface ProjectLock extends ProjectFileCalls {
  /** Acquires the project. */
  acquireProjectLock(options?: ProjectLockAcquireOptions): Promise<ProjectLockGrant>;
  /** Renews the lease. The package does so automatically. */
  renewProjectLock(options: ProjectLockRenewOptions): Promise<ProjectLockLease>;
  /** Releases it. */
  releaseProjectLock(options: ProjectLockReleaseOptions): Promise<void>;
  /** Runs `work` while this tab holds the project. The signal is aborted when the project is lost. */
  withProjectLock<T>(
    options: ProjectLockAcquireOptions | undefined,
    work: (lease: ProjectLockLease, signal: AbortSignal) => Promise<T>,
  ): Promise<T>;
  /** Takes the project from its holder. */
  takeOverProjectLock(options?: ProjectLockTakeOverOptions): Promise<ProjectLockGrant>;
  /** Asks the holder to save and hand the project over. */
  requestProjectHandover(options?: ProjectLockHandoverOptions): Promise<ProjectLockGrant>;
  /** Refuses that, as the holder. */
  refuseProjectHandover(options: ProjectLockRefuseOptions): Promise<void>;
  /** Says who holds the project; null if it is free. */
  lookProjectLock(options?: SomeProject): Promise<ProjectLockHolder | null>;
  /** Says where this tab stands. */
  readProjectLockState(options?: SomeProject): Promise<ProjectLockState>;
  /** Replaces a file of the project atomically, if the lease is still valid and nobody has saved the file since this tab read
   * it. Otherwise it rejects, and what was to be saved is kept as a draft. */
  commitProjectFile(commit: ProjectFileCommit): Promise<{ version: string }>;
  /** Subscribes to the events of one project, or of all, in one of three dialects. */
  subscribeLockEvents<In extends Dialect = 'lock'>(
    listener: ProjectLockEventListener<In>, options?: ProjectLockSubscribeOptions<In>,
  ): ProjectLockSubscription;
}
