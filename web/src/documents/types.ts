// What `leasehold/documents` takes and shows. Types alone.

/** A user, as others see them. */
export interface Person {
  readonly id: string;
  readonly name: string;
}

/** Where a page stands with a document. */
export type DocumentStatus =
  /** Nothing is known yet, or the page is about to get the lock. */
  | 'connecting'
  /** Nobody holds the lock. */
  | 'free'
  /** This page holds it and has the current version: it may edit. */
  | 'mine'
  /** Another page holds it, or this page has lost it. */
  | 'read-only'
  /** The server does not answer. */
  | 'offline'
  /** The server does not let this user in. */
  | 'unavailable'
  | 'closed';

/** Why a page has lost its lock. */
export type LossReason =
  | 'expired' | 'disconnected' | 'taken-over' | 'force-released' | 'handed-over' | 'released'
  /** It could not be renewed in time. */
  | 'offline'
  /** The server knows no lock on the document (404). */
  | 'not-found'
  /** Another user or tab holds it (403). */
  | 'not-holder'
  /** `reload` failed, so the lock was given back. */
  | 'reload-failed';

/** A lock that was lost. */
export interface Loss {
  readonly reason: LossReason;
  /** The name of who took it or got it, if that is known. */
  readonly by: string | null;
  /** The reason that they gave. */
  readonly note: string | null;
  /** What the server said, in the user's language; else empty. */
  readonly text: string;
}

/** A request of another user, to be answered by the holder. */
export interface HandoverRequest {
  readonly id: number;
  readonly by: Person;
  /** What happens when the user does not answer. */
  readonly onSilence: 'grant' | 'refuse';
  /** When that happens (milliseconds since 1970); null until the user sees the request. */
  readonly endsAt: number | null;
}

/** What a page can be doing. */
export type PendingCall = 'acquire' | 'release' | 'ask' | 'take-over' | 'hand-over' | 'refuse';

/** Who is at a document. */
export interface DocumentPresence {
  readonly editing: readonly Person[];
  readonly asking: readonly Person[];
  readonly looking: readonly Person[];
}

/** What a page knows of a document. It stays the same object until something changes. */
export interface DocumentState {
  readonly status: DocumentStatus;
  /** Who holds the lock, this page included. */
  readonly holder: Person | null;
  /** Whether that is this user in another tab. */
  readonly sameUser: boolean;
  /** Since when (milliseconds since 1970). */
  readonly since: number | null;
  /** The holder's page was closed or reloaded: the lock ends soon unless it comes back. */
  readonly leaving: boolean;
  /** What the user may do with the document. */
  readonly may: 'read' | 'lock' | 'force';
  /** Whether the user may take the lock from its present holder. */
  readonly mayTakeOver: boolean;
  /** The request that this page has to answer. */
  readonly request: HandoverRequest | null;
  /** The request that this page has made. */
  readonly asking: { readonly endsAt: number | null } | null;
  readonly presence: DocumentPresence;
  /** Why this page lost its lock; null as soon as it has it again. */
  readonly lost: Loss | null;
  /** What was unsaved when this browser lost a lock on the document. */
  readonly draft: { readonly text: string; readonly at: number } | null;
  /** The stream of events. */
  readonly connection: 'connecting' | 'live' | 'lost';
  /** What the page is doing. */
  readonly pending: PendingCall | null;
  /** What went wrong last: the server's code, and a sentence for the user. */
  readonly problem: { readonly code: string; readonly text: string } | null;
}

/** How a document is opened. */
export interface DocumentOptions {
  /** The server, `https://leases.example.com`; the page's own origin if it is left out. */
  readonly server?: string | URL;
  /** The user's token, or how to get one. It is asked for again when the server refuses it. */
  readonly token?: string | (() => string | Promise<string>);
  /** Loads the current version. The page may edit as soon as it is done. */
  readonly reload?: () => void | Promise<void>;
  /** Saves, with this fence. Awaited before the lock is handed over or released. */
  readonly save?: (fence: number) => void | Promise<void>;
  /** What is unsaved when the lock is lost; it is kept as a draft. */
  readonly unsaved?: () => string | null;
  /** What it means if the holder does not answer a request of this page; `refuse` if it is left out. */
  readonly onSilence?: 'grant' | 'refuse';
  /** How long the holder has to answer; 30 if it is left out. */
  readonly countdownSeconds?: number;
  /** The language of the server's texts; the page's own if it is left out. */
  readonly language?: string;
  /** The application's Laravel Echo: the events come from there, instead of a stream of their own. */
  readonly echo?: EchoLike;
}

/** As much of Laravel Echo as is needed. */
export interface EchoLike {
  private(channel: string): EchoChannel;
  leave(channel: string): void;
}

/** A channel of it. */
export interface EchoChannel {
  listen(event: string, work: (data: never) => void): unknown;
  subscribed(work: () => void): unknown;
  error(work: (error: unknown) => void): unknown;
}

/** An event of a document, as the server sends it. */
export interface DocumentEvent {
  readonly event: string;
  readonly roomId: string;
  readonly seq: number;
  readonly fence: number;
  readonly holder: Person;
  readonly expires_in_ms?: number;
  readonly reason?: string;
  readonly force_released?: boolean;
  readonly by?: string;
  readonly by_name?: string;
  readonly note?: string;
  readonly on_silence?: 'grant' | 'refuse';
  readonly ends_in_ms?: number;
}

/** A document that a page has open. */
export interface DocumentLock {
  readonly roomId: string;
  /** What the page knows: the shape of React's `useSyncExternalStore`. */
  getState(): DocumentState;
  subscribe(listener: () => void): () => void;
  /** To be sent with every save; null as soon as the page must not save any more. */
  readonly fence: number | null;
  /** Gets the lock. False if another page holds it, or the server does not answer. */
  acquire(): Promise<boolean>;
  /** Saves, and gives the lock back. */
  release(): Promise<void>;
  /** Asks the holder to hand over. True once this page has the lock. */
  ask(): Promise<boolean>;
  withdraw(): Promise<void>;
  /** Answers the request of another user. */
  answer(how: 'hand-over' | 'refuse'): Promise<void>;
  /** Takes the lock from its holder, who sees the reason. */
  takeOver(reason: string): Promise<boolean>;
  /** Keeps a text as a draft in this browser. */
  keepDraft(text: string): void;
  discardDraft(): void;
  /** Gives the lock back and stops. */
  close(): Promise<void>;
}
