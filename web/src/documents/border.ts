// Made by `cargo xtask web` from crates/leasehold-wasm/src/documents.rs.
// Change that, not this.

/** What a module of WebAssembly must say that these declarations belong to. */
export const FINGERPRINT = 4128019594;

/** The requests, with the types of their fields. */
export interface Requests {
  /** Makes a machine for a document; the answer says its number. `random` has 32 bits. */
  readonly open: {
    readonly random: number;
  };
  /** Forgets a machine. */
  readonly close: {
  };
  /** What time is it? The answer to a call that is sent now comes with this time as `sent`. */
  readonly look: {
  };
  /** The server says that this page holds the lock: the lock was granted, or else renewed, by a call that was sent at `sent`. */
  readonly held: {
    readonly sent: number;
    readonly granted: boolean;
    readonly fence: number;
    readonly expiresInMs: number;
    readonly heartbeatMs: number;
    readonly request?: number | undefined;
    readonly by?: string | undefined;
    readonly onSilence?: string | undefined;
    readonly countdownMs?: number | undefined;
    readonly endsInMs?: number | undefined;
  };
  /** The server refused a call of the holder with this `code`. `request` is the one that the call named. */
  readonly refused: {
    readonly sent: number;
    readonly code: string;
    readonly because?: string | undefined;
    readonly request?: number | undefined;
  };
  /** A renewal was not answered, or not by the rules. */
  readonly failed: {
    readonly sent: number;
  };
  /** The user sees this request. The answer says whether to tell the server. */
  readonly confirm: {
    readonly request: number;
  };
  /** The server knows that the user sees it: the countdown has so much left. */
  readonly counting: {
    readonly sent: number;
    readonly request: number;
    readonly endsInMs: number;
  };
  /** The request is over, and the lock is kept. */
  readonly settled: {
    readonly request: number;
  };
  /** An event says that the lock with this fence has ended. */
  readonly ended: {
    readonly fence: number;
    readonly reason: string;
  };
  /** Something else happened to the document. */
  readonly news: {
  };
  /** The page gives the lock back, or hands it over. */
  readonly release: {
  };
  /** The time of the last answer's `timeoutMs` has come. */
  readonly timeout: {
  };
  /** A call failed that is no renewal; `waits` if a user waits for it. The answer has no `pauseMs` if that was the last attempt. */
  readonly retry: {
    readonly waits: boolean;
    readonly retryAfterMs?: number | undefined;
  };
  /** Such a call has succeeded. */
  readonly succeeded: {
    readonly waits: boolean;
  };
}

/** What is answered to any request. */
export interface Answer {
  /** What is wrong with the request. */
  readonly invalid?: string;
  /** The number of the machine that was opened. */
  readonly machine?: number;
  /** The time, by the page's own clock. */
  readonly at: number;
  /** Send a renewal now: it counts as sent at `at`. */
  readonly renew: boolean;
  /** When to come back with `timeout`, from now. */
  readonly timeoutMs?: number;
  /** For how long the page may act; absent if it holds no lock. */
  readonly leftMs?: number;
  /** Why the lock is gone, once: a word of the server's, or `deadline`. */
  readonly lost?: string;
  /** The request that the user has to answer. */
  readonly request?: number;
  /** Whether to tell the server that the user sees the request: send, withhold or over. */
  readonly confirm?: string;
  /** How long to wait before the next attempt. */
  readonly pauseMs?: number;
}
