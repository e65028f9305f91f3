// Made by `cargo xtask web` from crates/leasehold-wasm/src/border.rs and crates/leasehold-project-rules/src/wire.rs.
// Change those, not this.

/** What a module of WebAssembly must say that these declarations belong to. */
export const FINGERPRINT = 724824120;

/** The longest `.lock` that is looked at, in bytes. */
export const LONGEST_LOCK = 16384;

/** The names of the files of the lock; a fence follows the last one. */
export const FILES = { lock: '.lock', temporary: '.lock.tmp', guard: '.lock.guard', held: '.lock.held.' } as const;

/** Every request with its fields, in the order in which they are sent. A `?` says that a field may be left out. */
export const REQUESTS = {
  /** Makes a machine for a project; the answer says its number. The four seeds are random, of 32 bits. */
  open: {
    owner: 'text',
    root: 'text',
    lockName: 'text',
    folder: ['guarded', 'advisory', 'absent'],
    why: 'text?',
    seedA: 'small',
    seedB: 'small',
    seedC: 'small',
    seedD: 'small',
  },
  /** Forgets a machine. */
  close: {},
  /** Gets the project, or says why not. */
  acquire: {
    call: 'small',
    options: {
      profile: 'text?',
      maxWaitMs: 'number?',
      webLockTimeoutMs: 'number?',
      initialDelayMs: 'number?',
      maxDelayMs: 'number?',
      multiplier: 'number?',
      maxAttempts: 'number?',
      ttlMs: 'number?',
      heartbeatIntervalMs: 'number?',
      preferredStrategy: 'text?',
      reentrant: 'flag',
      autoResume: 'flag?',
      allowAdvisory: 'flag',
      acceptClockSkew: 'flag',
      label: 'text?',
    },
  },
  /** Takes the project from its holder, if that is still the one with the fence `seen`. */
  takeOver: {
    call: 'small',
    options: {
      profile: 'text?',
      maxWaitMs: 'number?',
      webLockTimeoutMs: 'number?',
      initialDelayMs: 'number?',
      maxDelayMs: 'number?',
      multiplier: 'number?',
      maxAttempts: 'number?',
      ttlMs: 'number?',
      heartbeatIntervalMs: 'number?',
      preferredStrategy: 'text?',
      reentrant: 'flag',
      autoResume: 'flag?',
      allowAdvisory: 'flag',
      acceptClockSkew: 'flag',
      label: 'text?',
    },
    seen: 'whole?',
    reason: 'text?',
  },
  /** Looks who has the project. */
  look: {
    call: 'small',
  },
  /** Keeps the project for longer. */
  renew: {
    call: 'small',
    leaseId: 'text',
    extendByMs: 'number?',
  },
  /** Gives the project back. */
  release: {
    call: 'small',
    leaseId: 'text',
    force: 'flag',
    reason: 'text?',
  },
  /** Gives up a call that has not been answered. */
  abort: {
    call: 'small',
  },
  /** Looks again whether the project is free. */
  refresh: {},
  /** May the holder of this lease save under this path? Asked before the file is prepared. */
  claim: {
    leaseId: 'text',
    fence: 'whole',
    path: 'text',
  },
  /** Lets the file that was prepared take its place, if the lease is still good. */
  save: {
    call: 'small',
    leaseId: 'text',
    fence: 'whole',
  },
  /** The time of the last answer's `timeoutMs` has come. */
  timeout: {},
  /** The page is about to be frozen. */
  frozen: {},
  /** The page is back. */
  resumed: {},
  /** The page was hidden, or is seen again. */
  hidden: {
    hidden: 'flag',
  },
  /** What became of the Web Lock. */
  webLock: {
    ticket: 'small',
    result: ['granted', 'unsupported', 'denied', 'stolen'],
    said: 'text',
  },
  /** What another tab said. */
  news: {
    fence: 'whole',
    owner: 'text?',
    why: 'text?',
  },
  /** The step was done. This and the following report the step that the effect `io` asked for. */
  ioDone: {},
  /** The step failed. */
  ioFailed: {
    said: 'text',
  },
  /** Another tab has the guard open. */
  guardBusy: {},
  /** There is no guard to look under. */
  guardAbsent: {},
  /** The text of the guard. */
  guardRead: {
    text: 'text',
  },
  /** There is no `.lock`. */
  lockMissing: {},
  /** `.lock` has these members. */
  lockRead: {
    modified: 'whole',
    lock: {
      version: 'json',
      leaseId: 'json',
      owner: 'json',
      label: 'json',
      acquiredAt: 'json',
      updatedAt: 'json',
      ttlSeconds: 'json',
      expiresAt: 'json',
      fence: 'json',
      seq: 'json',
      held: 'json',
    },
  },
  /** `.lock` is no JSON object. */
  lockDamaged: {
    modified: 'whole',
  },
  /** `.lock` cannot be read. */
  lockUnreadable: {
    modified: 'whole?',
    said: 'text',
  },
  /** The held file is closed, open in some tab, or nobody knows. */
  heldProbed: {
    held: ['unknown', 'free', 'busy'],
  },
} as const;

export type ErrorCode = 'acquire-denied' | 'acquire-timeout' | 'fallback-conflict' | 'fallback-open-failed' | 'fallback-read-failed' | 'fallback-write-failed' | 'lease-expired' | 'lease-mismatch' | 'lease-stale' | 'release-failed' | 'renew-failed' | 'web-lock-aborted' | 'web-lock-unavailable' | 'web-lock-unsupported';

export type OperationWord = 'acquire' | 'renew' | 'release' | 'look' | 'save';

export type StrategyWord = 'web-lock' | 'file-lock';

export type GuaranteeWord = 'exclusive' | 'tab-exclusive' | 'advisory';

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
    /** Whether the folder failed, and the lease may still be good. */
    readonly folderFailed: boolean;
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

/** What tabs tell each other: who has the project now; without an owner, that it was given back. */
export interface NewsView {
  readonly owner?: string;
  readonly fence: number;
  readonly why?: string;
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
  /** Why nothing may be saved. */
  readonly error?: ErrorView;
}
