// Made by `cargo xtask web` from crates/leasehold-wasm/src/border.rs and crates/leasehold-project-rules/src/wire.rs.
// Change those, not this.

/** What a module of WebAssembly must say that these declarations belong to. */
export const FINGERPRINT = 704916499;

/** The longest `.lock` that is looked at, in bytes. */
export const LONGEST_LOCK = 16384;

/** The names of the files of the lock; something follows the last two. */
export const FILES = { lock: '.lock', temporary: '.lock.tmp', guard: '.lock.guard', held: '.lock.held.', draft: '.lock.draft.' } as const;

/** The members of `.lock` that the rules know. */
export const MEMBERS = 'version leaseId owner label acquiredAt updatedAt ttlSeconds expiresAt fence seq held'.split(' ');

/** The requests, with the types of their fields. */
export interface Requests {
  /** Makes a machine for a project; the answer says its number. The four seeds are random, of 32 bits. */
  readonly open: {
    readonly owner: string;
    readonly root: string;
    readonly lockName: string;
    readonly folder: 'guarded' | 'advisory' | 'absent';
    readonly why?: string | undefined;
    readonly seedA: number;
    readonly seedB: number;
    readonly seedC: number;
    readonly seedD: number;
  };
  /** Forgets a machine. */
  readonly close: {
  };
  /** Gets the project, or says why not. */
  readonly acquire: {
    readonly call: number;
    readonly profile?: string | undefined;
    readonly maxWaitMs?: number | undefined;
    readonly webLockTimeoutMs?: number | undefined;
    readonly initialDelayMs?: number | undefined;
    readonly maxDelayMs?: number | undefined;
    readonly multiplier?: number | undefined;
    readonly maxAttempts?: number | undefined;
    readonly ttlMs?: number | undefined;
    readonly heartbeatIntervalMs?: number | undefined;
    readonly preferredStrategy?: string | undefined;
    readonly reentrant: boolean;
    readonly autoResume?: boolean | undefined;
    readonly allowAdvisory: boolean;
    readonly acceptClockSkew: boolean;
    readonly label?: string | undefined;
  };
  /** Takes the project from its holder, if that is still the one with the fence `seen`. */
  readonly takeOver: {
    readonly call: number;
    readonly profile?: string | undefined;
    readonly maxWaitMs?: number | undefined;
    readonly webLockTimeoutMs?: number | undefined;
    readonly initialDelayMs?: number | undefined;
    readonly maxDelayMs?: number | undefined;
    readonly multiplier?: number | undefined;
    readonly maxAttempts?: number | undefined;
    readonly ttlMs?: number | undefined;
    readonly heartbeatIntervalMs?: number | undefined;
    readonly preferredStrategy?: string | undefined;
    readonly reentrant: boolean;
    readonly autoResume?: boolean | undefined;
    readonly allowAdvisory: boolean;
    readonly acceptClockSkew: boolean;
    readonly label?: string | undefined;
    readonly seen?: number | undefined;
    readonly reason?: string | undefined;
  };
  /** Asks the holder to save and hand the project over: `countdownMs` is how long it has, `onSilence` what it means if it does
   * not answer. */
  readonly handover: {
    readonly call: number;
    readonly profile?: string | undefined;
    readonly maxWaitMs?: number | undefined;
    readonly webLockTimeoutMs?: number | undefined;
    readonly initialDelayMs?: number | undefined;
    readonly maxDelayMs?: number | undefined;
    readonly multiplier?: number | undefined;
    readonly maxAttempts?: number | undefined;
    readonly ttlMs?: number | undefined;
    readonly heartbeatIntervalMs?: number | undefined;
    readonly preferredStrategy?: string | undefined;
    readonly reentrant: boolean;
    readonly autoResume?: boolean | undefined;
    readonly allowAdvisory: boolean;
    readonly acceptClockSkew: boolean;
    readonly label?: string | undefined;
    readonly reason?: string | undefined;
    readonly countdownMs?: number | undefined;
    readonly onSilence?: string | undefined;
  };
  /** The page of this tab, which holds the project, has had the event of such a request. */
  readonly handoverTold: {
  };
  /** Refuses such a request. */
  readonly refuseHandover: {
    readonly leaseId: string;
    readonly reason?: string | undefined;
  };
  /** Looks who has the project. */
  readonly look: {
    readonly call: number;
  };
  /** Where does this tab stand? The answer has its `state`. */
  readonly state: {
  };
  /** Keeps the project for longer. */
  readonly renew: {
    readonly call: number;
    readonly leaseId: string;
    readonly extendByMs?: number | undefined;
  };
  /** Gives the project back. */
  readonly release: {
    readonly call: number;
    readonly leaseId: string;
    readonly force: boolean;
    readonly reason?: string | undefined;
  };
  /** Gives up a call that has not been answered. */
  readonly abort: {
    readonly call: number;
  };
  /** Looks again whether the project is free. */
  readonly refresh: {
  };
  /** May the holder of this lease save under this path? Asked before the file is prepared. */
  readonly claim: {
    readonly leaseId: string;
    readonly fence: number;
    readonly path: string;
  };
  /** Lets the file that was prepared, whose hash is `version`, take its place, if the lease is still good and the file there has
   * the version `base`: the one that this tab last read or wrote when left out, no file when empty. */
  readonly save: {
    readonly call: number;
    readonly leaseId: string;
    readonly fence: number;
    readonly path: string;
    readonly version: string;
    readonly base?: string | undefined;
    readonly overwrite: boolean;
  };
  /** The application has read this version of a file; empty for no file. */
  readonly saw: {
    readonly path: string;
    readonly version: string;
  };
  /** Which version was the content with this hash made from? The answer has no `base` if this tab has just read or written it. */
  readonly unsaved: {
    readonly path: string;
    readonly version: string;
  };
  /** The time of the last answer's `timeoutMs` has come. */
  readonly timeout: {
  };
  /** The page is about to be frozen. */
  readonly frozen: {
  };
  /** The page is back. */
  readonly resumed: {
  };
  /** The page was hidden, or is seen again. */
  readonly hidden: {
    readonly hidden: boolean;
  };
  /** What became of the Web Lock. */
  readonly webLock: {
    readonly ticket: number;
    readonly result: 'granted' | 'unsupported' | 'denied' | 'stolen';
    readonly said: string;
  };
  /** What another tab said. */
  readonly news: {
    readonly fence: number;
    readonly owner?: string | undefined;
    readonly why?: string | undefined;
    readonly say?: 'asked' | 'told' | 'refused' | 'withdrawn' | undefined;
    readonly label?: string | undefined;
    readonly countdownMs?: number | undefined;
    readonly onSilence?: string | undefined;
  };
  /** The step was done. This and the following report the step that the effect `io` asked for. */
  readonly ioDone: {
  };
  /** The step failed. */
  readonly ioFailed: {
    readonly said: string;
  };
  /** Another tab has the guard open. */
  readonly guardBusy: {
  };
  /** There is no guard to look under. */
  readonly guardAbsent: {
  };
  /** The text of the guard. */
  readonly guardRead: {
    readonly text: string;
  };
  /** There is no `.lock`. */
  readonly lockMissing: {
  };
  /** `.lock` has these members. */
  readonly lockRead: {
    readonly modified: number;
    readonly version?: string | number | boolean | object | undefined;
    readonly leaseId?: string | number | boolean | object | undefined;
    readonly owner?: string | number | boolean | object | undefined;
    readonly label?: string | number | boolean | object | undefined;
    readonly acquiredAt?: string | number | boolean | object | undefined;
    readonly updatedAt?: string | number | boolean | object | undefined;
    readonly ttlSeconds?: string | number | boolean | object | undefined;
    readonly expiresAt?: string | number | boolean | object | undefined;
    readonly fence?: string | number | boolean | object | undefined;
    readonly seq?: string | number | boolean | object | undefined;
    readonly held?: string | number | boolean | object | undefined;
  };
  /** `.lock` is no JSON object. */
  readonly lockDamaged: {
    readonly modified: number;
  };
  /** `.lock` cannot be read. */
  readonly lockUnreadable: {
    readonly modified?: number | undefined;
    readonly said: string;
  };
  /** The held file is closed, open in some tab, or nobody knows. */
  readonly heldProbed: {
    readonly held: 'unknown' | 'free' | 'busy';
  };
  /** The version of the file; empty for no file. */
  readonly versionRead: {
    readonly version: string;
  };
}

export type ErrorCode = 'acquire-denied' | 'acquire-timeout' | 'fallback-conflict' | 'fallback-open-failed' | 'fallback-read-failed' | 'fallback-write-failed' | 'lease-expired' | 'lease-mismatch' | 'lease-stale' | 'release-failed' | 'renew-failed' | 'stale-base' | 'web-lock-aborted' | 'web-lock-unavailable' | 'web-lock-unsupported';

export type OperationWord = 'acquire' | 'renew' | 'release' | 'look' | 'save';

export type StrategyWord = 'web-lock' | 'file-lock';

export type GuaranteeWord = 'exclusive' | 'tab-exclusive' | 'advisory';

export type OnSilenceWord = 'grant' | 'refuse';

export type SayWord = 'asked' | 'told' | 'refused' | 'withdrawn';

export type StateWord = 'idle' | 'acquire-web' | 'acquire-fallback' | 'backing-off' | 'acquired' | 'renew-scheduling' | 'renewing' | 'releasing' | 'readonly' | 'faulted';

/** Something that the page is to do. */
export type EffectView =
  /** Request the Web Lock, and report by `webLock`. */
  | {
    readonly do: 'requestWebLock';
    /** The number to report under. */
    readonly ticket: number;
    /** Whether to take the Web Lock from its holder. */
    readonly steal: boolean;
  }
  /** Release the Web Lock, or give up the request for it. */
  | {
    readonly do: 'dropWebLock';
    /** The number of the request. */
    readonly ticket: number;
  }
  /** Do one step in the folder, and report by the request that the step names. There is at most one at a time. */
  | {
    readonly do: 'io';
    /** What to do. */
    readonly step: StepView;
  }
  /** Close a held file at once, without the guard, and leave it there. Nothing is reported. */
  | {
    readonly do: 'dropHeld';
    /** Its fence. */
    readonly fence: number;
  }
  /** Tell the subscribers. */
  | {
    readonly do: 'emit';
    /** What happened. */
    readonly event: DialectsView;
  }
  /** Tell the other tabs. */
  | {
    readonly do: 'broadcast';
    /** What happened. */
    readonly news: NewsView;
  }
  /** Answer a call: with a lease, a holder, an error, or with none of them if it was released, or has no holder. */
  | {
    readonly do: 'settle';
    /** The number of the call. */
    readonly call: number;
    /** The lease. */
    readonly lease?: ProjectLeaseView;
    /** Who has the project. */
    readonly holder?: HolderView;
    /** The error. */
    readonly error?: ErrorView;
  }
  /** Answer a save: with an error, or without if the file was replaced. */
  | {
    readonly do: 'saved';
    /** The number of the call. */
    readonly call: number;
    /** The error. */
    readonly error?: ErrorView;
  };

/** One thing to be done in the folder. Unless it says otherwise it is reported by `ioDone`; any may be reported by
 * `ioFailed`. */
export type StepView =
  /** Try once to open the guard exclusively, and make it if it is missing: `ioDone` or `guardBusy`. To look, make nothing:
   * `guardAbsent`. */
  | {
    readonly do: 'takeGuard';
    /** Whether it is only for a look. */
    readonly look: boolean;
  }
  /** Read the guard: `guardRead`. */
  | {
    readonly do: 'readGuard';
  }
  /** Read `.lock`: `lockMissing`, `lockRead`, `lockDamaged` or `lockUnreadable`. */
  | {
    readonly do: 'readLock';
  }
  /** Try to open a held file exclusively, and close it again: `heldProbed`. */
  | {
    readonly do: 'probeHeld';
    /** Its fence. */
    readonly fence: number;
  }
  /** Write this into the guard, in place, and flush it. */
  | {
    readonly do: 'writeGuard';
    /** The text. */
    readonly text: string;
  }
  /** Create a held file, open it exclusively and keep it open. */
  | {
    readonly do: 'openHeld';
    /** Its fence. */
    readonly fence: number;
  }
  /** Write `.lock` as a whole. */
  | {
    readonly do: 'writeLock';
    /** What it says. */
    readonly record: RecordView;
  }
  /** Remove `.lock`. */
  | {
    readonly do: 'removeLock';
  }
  /** Read a file of the project and hash it: `versionRead`. */
  | {
    readonly do: 'readVersion';
    /** Where it is, below the root. */
    readonly path: string;
  }
  /** Let the file that was prepared for a save take its place. */
  | {
    readonly do: 'save';
    /** The number of the call. */
    readonly call: number;
  }
  /** Close a held file and remove it. */
  | {
    readonly do: 'closeHeld';
    /** Its fence. */
    readonly fence: number;
  }
  /** Close a held file and leave it there. */
  | {
    readonly do: 'dropHeld';
    /** Its fence. */
    readonly fence: number;
  }
  /** Remove every held file that no tab has open. */
  | {
    readonly do: 'sweepHeld';
    /** All but the one of this fence. */
    readonly keep: number;
  }
  /** Close the guard. */
  | {
    readonly do: 'dropGuard';
  };

/** `.lock`, to be printed. Times are in milliseconds since 1970. */
export interface RecordView {
  /** The version of the format. */
  readonly version: number;
  /** Whose it is. */
  readonly leaseId: string;
  /** The same for people. */
  readonly owner: string;
  /** What the holder calls itself. */
  readonly label?: string;
  /** When it was granted. */
  readonly acquiredAt: number;
  /** When it was written. */
  readonly updatedAt: number;
  /** How long it lasts from then on. */
  readonly ttlMillis: number;
  /** When it ends. */
  readonly expiresAt: number;
  /** The fence of the grant. */
  readonly fence?: number;
  /** Grows with every writing of the file. */
  readonly seq: number;
  /** Whether the holder keeps its held file open. */
  readonly held: boolean;
}

/** What tabs tell each other: who has the project now; without an owner, that it was given back. With `say`, it is about the
 * request of this owner to hand the project over. */
export interface NewsView {
  readonly owner?: string;
  readonly fence: number;
  readonly why?: string;
  readonly say?: SayWord;
  readonly label?: string;
  readonly countdownMs?: number;
  readonly onSilence?: OnSilenceWord;
}

/** A request to hand the project over. */
export interface AskView {
  readonly owner: string;
  readonly label?: string;
  readonly reason?: string;
  readonly countdownMs: number;
  readonly onSilence: OnSilenceWord;
}

/** A lease, as the application gets it. */
export interface ProjectLeaseView {
  readonly leaseId: string;
  readonly owner: string;
  readonly expiresAt: number;
  readonly acquiredAt: number;
  readonly ttlMillis: number;
  readonly nextHeartbeatAt: number;
  readonly source: string;
  readonly strategy: StrategyWord;
  readonly viaFallback: boolean;
  readonly fence: number;
  readonly guarantee: GuaranteeWord;
  readonly root: string;
  readonly lockName: string;
}

/** Who holds the project. */
export interface HolderView {
  readonly owner: string;
  readonly label?: string;
  readonly fence: number;
  readonly since: number;
  readonly expiresAt: number;
}

/** An error, as the application gets it: `new ProjectLockError(message, …)`. */
export interface ErrorView {
  /** The class to throw. */
  readonly name: string;
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly operation: OperationWord;
  readonly message: string;
  /** How loud it is in a log. */
  readonly level: string;
  /** Another error behind it. */
  readonly cause?: ErrorView;
  /** What the browser or the system said. */
  readonly said?: string;
  /** Who holds the project instead. */
  readonly holder?: HolderView;
}

/** An event in any of the three dialects: `type`, and whatever of the rest it has. */
export interface ProjectEventView {
  /** Its name. */
  readonly type: string;
  readonly root: string;
  readonly lockName: string;
  readonly operation?: OperationWord;
  readonly strategy?: StrategyWord;
  readonly retry?: number;
  readonly attempt?: number;
  readonly maxAttempts?: number;
  readonly delayMs?: number;
  readonly lease?: ProjectLeaseView;
  readonly holder?: HolderView;
  readonly request?: AskView;
  readonly countdownMs?: number;
  readonly changed?: boolean;
  readonly leaseId?: string;
  readonly nextHeartbeatInMs?: number;
  readonly state?: string;
  readonly warning?: string;
  readonly detail?: string;
  readonly error?: ErrorView | ErrorCode;
  readonly retryable?: boolean;
  readonly reason?: string;
  readonly lastError?: ErrorView;
  readonly manualSteps?: string;
}

/** One event in all three dialects. */
export interface DialectsView {
  /** The canonical one. */
  readonly lock: ProjectEventView;
  /** In dialect `service`; absent when it has no word for it. */
  readonly service?: ProjectEventView;
  /** In dialect `autosave`: none, one or two. */
  readonly autosave?: readonly ProjectEventView[];
}

/** What the rules answer to any request. */
export interface Answer {
  /** What is wrong with the request. */
  readonly invalid?: string;
  /** The number of the machine that was opened. */
  readonly machine?: number;
  /** What to do, in this order. */
  readonly effects?: readonly EffectView[];
  /** When to come back with `timeout`, from now. */
  readonly timeoutMs?: number;
  /** The version that unsaved content was made from; empty for no file. */
  readonly base?: string;
  /** Where the tab stands. */
  readonly state?: StateWord;
  /** Why nothing may be saved. */
  readonly error?: ErrorView;
}
