// Made by `cargo xtask web` from crates/leasehold-wasm/src/autosave.rs and crates/leasehold-project-rules/src/autosave/wire.rs.
// Change those, not this.

/** What a module of WebAssembly must say that these declarations belong to. */
export const FINGERPRINT = 3839042219;

/** Where an autosave keeps its files, below the project's folder. */
export const CURRENT = 'autosave/current.json';
export const HISTORY = 'autosave/history';
export const INDEX = 'autosave/index.json';

/** How many retries follow a save that failed. */
export const MAX_RETRIES = 3;

/** The requests, with the types of their fields. */
export interface Requests {
  /** Makes a machine; the answer says its number. What is left out is the default. */
  readonly open: {
    readonly debounceMs?: number | undefined;
    readonly idleMs?: number | undefined;
    readonly longestWaitMs?: number | undefined;
    readonly maxGenerations?: number | undefined;
    readonly maxBytes?: number | undefined;
    readonly thins: boolean;
    readonly looks: boolean;
    readonly applies: boolean;
  };
  /** Forgets a machine. */
  readonly close: {
  };
  /** The document has changed. */
  readonly changed: {
  };
  /** It has changed since the last `look`. */
  readonly changedSinceLook: {
  };
  /** What is known of the lock: acquiring, held, readonly, unavailable or released. */
  readonly lock: {
    readonly lock: string;
  };
  /** What the folder has: a line for each file of the history, with its size, a space and its name; the versions are empty for
   * no file. */
  readonly listed: {
    readonly current: string;
    readonly currentBytes: number;
    readonly files: string;
    readonly newest: string;
    readonly index?: string | undefined;
  };
  /** It cannot be read. */
  readonly notListed: {
    readonly said: string;
  };
  /** The document was serialised, and has this hash and size. `free` is how many more bytes may be written. */
  readonly taken: {
    readonly version: string;
    readonly bytes: number;
    readonly free?: number | undefined;
  };
  /** It cannot be. */
  readonly notTaken: {
    readonly said: string;
  };
  /** It is saved. */
  readonly committed: {
  };
  /** It is not: lost, stale-base, no-space or io. */
  readonly notCommitted: {
    readonly failure: string;
    readonly said: string;
  };
  /** Another step was done. */
  readonly done: {
  };
  /** It was not. */
  readonly notDone: {
    readonly failure: string;
    readonly said: string;
  };
  /** The application goes on with this version; with its own, if it is left out. */
  readonly applied: {
    readonly version?: string | undefined;
  };
  /** Saves what is unsaved. */
  readonly flush: {
    readonly call: number;
  };
  /** Restores the generation with this time, or `current.json` if it is left out. */
  readonly restore: {
    readonly call: number;
    readonly ts?: string | undefined;
  };
  /** Tries at once what is waiting. */
  readonly retry: {
  };
  /** Saves, releases and stops. */
  readonly stop: {
    readonly call: number;
  };
  /** The time of the last answer's `timeoutMs` has come. */
  readonly timeout: {
  };
  /** Which generations are these files? Lines as for `listed`. The answer has them, the newest first. */
  readonly generations: {
    readonly files: string;
  };
}

export type StateName = 'starting' | 'readonly' | 'unavailable' | 'dirty' | 'saving' | 'saved' | 'retrying' | 'error' | 'releasing' | 'stopped';

export type ErrorName = 'write-failed' | 'no-space' | 'not-serialisable' | 'stale-base';

/** What an autosave answers to any request. */
export interface Answer {
  /** What is wrong with the request. */
  readonly invalid?: string;
  /** The number of the machine that was opened. */
  readonly machine?: number;
  /** What to do, in this order. */
  readonly effects?: readonly AutoSaveEffect[];
  /** When to come back with `timeout`, from now. */
  readonly timeoutMs?: number;
  /** Where it stands. */
  readonly now?: AutoSaveView;
  /** Generations. */
  readonly generations?: readonly GenerationView[];
}

/** Where an autosave stands. */
export interface AutoSaveView {
  /** The state. */
  readonly state: StateName;
  /** Why nothing can be saved. */
  readonly code?: ErrorName;
  /** What the system said. */
  readonly said?: string;
  /** Which retry comes. */
  readonly attempt?: number;
  /** In how many milliseconds. */
  readonly retryInMs?: number;
  /** Whether something is unsaved. */
  readonly isDirty: boolean;
  /** When something was last saved, in milliseconds since 1970. */
  readonly savedAt?: number;
}

/** A saved version. */
export interface GenerationView {
  /** When, in ISO 8601. */
  readonly ts: string;
  /** Where, below the project's folder. */
  readonly path: string;
  /** Its size. */
  readonly bytes: number;
}

/** Something that the page is to do. */
export type AutoSaveEffect =
  /** Compare the document with the last one; report a change by `changedSinceLook`. */
  | {
    readonly do: 'look';
  }
  /** Read the folder; `listed` or `notListed`. */
  | {
    readonly do: 'list';
  }
  /** Tell the lock that this version of `current.json` was read; empty for no file. */
  | {
    readonly do: 'saw';
    /** Its hash. */
    readonly version: string;
  }
  /** Serialise and hash the document; `taken` or `notTaken`. */
  | {
    readonly do: 'take';
  }
  /** Save what was taken as `current.json`; `committed` or `notCommitted`. */
  | {
    readonly do: 'commit';
  }
  /** Write what is in `current.json` to this path; `done` or `notDone`, as for the next three. */
  | {
    readonly do: 'keep';
    /** Below the project's folder. */
    readonly path: string;
  }
  /** Remove this file; fine if it is gone. */
  | {
    readonly do: 'remove';
    /** Below the project's folder. */
    readonly path: string;
  }
  /** Write the index. */
  | {
    readonly do: 'writeIndex';
    /** What is in it. */
    readonly text: string;
  }
  /** Keep the document as a draft. */
  | {
    readonly do: 'keepDraft';
  }
  /** Give the application what is in this file; `applied`. */
  | {
    readonly do: 'apply';
    /** Below the project's folder. */
    readonly path: string;
  }
  /** Release the project; `lock` with `released`. */
  | {
    readonly do: 'release';
  }
  /** Tell the user. */
  | {
    readonly do: 'tell';
    /** What. */
    readonly notice: NoticeView;
  }
  /** Answer a call. */
  | {
    readonly do: 'settle';
    /** Its number. */
    readonly call: number;
    /** Whether what it asked for has come about. */
    readonly done: boolean;
  };

/** A message for the user. */
export type NoticeView =
  /** A save succeeded after retries. */
  | {
    readonly do: 'recovered';
  }
  /** The retries came to nothing. */
  | {
    readonly do: 'retriesFailed';
    /** What the system said. */
    readonly said: string;
  }
  /** Old generations were removed because there was no space. */
  | {
    readonly do: 'historyDropped';
    /** How many. */
    readonly generations: number;
  }
  /** A generation could not be written. */
  | {
    readonly do: 'historyFailed';
    /** What the system said. */
    readonly said: string;
  }
  /** There is little space left. */
  | {
    readonly do: 'spaceLow';
    /** How many bytes. */
    readonly free: number;
  }
  /** A newer version was loaded, and what was in memory is a draft. */
  | {
    readonly do: 'draftKept';
  }
  /** A generation was restored. */
  | {
    readonly do: 'restored';
    /** Which one. */
    readonly ts: string;
    /** The generation with what was there before. */
    readonly before?: string;
  };
