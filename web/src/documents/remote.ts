// The messages between a page and the Worker that keeps its documents. `postMessage` can send all of them.

import type { HttpSettings } from './http.js';
import type { DocumentEvent, DocumentPresence, HandoverRequest, Loss, LossReason, Person } from './types.js';

/** What the Worker has to know of a document. */
export interface EngineSettings extends HttpSettings {
  /** Whether the events come from a stream; otherwise the page brings them. */
  readonly streams: boolean;
  readonly isVisible: boolean;
  /** What is known before anything is. */
  readonly state: EngineState;
}

/** What the Worker knows of a document. */
export interface EngineState {
  readonly me: Person | null;
  readonly connection: 'connecting' | 'live' | 'lost';
  readonly may: 'read' | 'lock' | 'force';
  /** The lock, whoever holds it; undefined until the server has said so. */
  readonly lock: { readonly holder: Person; readonly fence: number; readonly since: number; readonly leaving: boolean } | null | undefined;
  /** The page's own lock, and until when it may act, by either clock. */
  readonly mine: { readonly leaseId: string; readonly fence: number; readonly wall: number; readonly monotonic: number } | null;
  readonly request: HandoverRequest | null;
  readonly asking: { readonly endsAt: number | null } | null;
  readonly presence: DocumentPresence;
  readonly lost: Loss | null;
  readonly problem: { readonly code: string; readonly text: string } | null;
  /** The server does not let this user see the document. */
  readonly isRefused: boolean;
}

/** How a page gets a lock: under a lease id that it has drawn, so that a lost answer can be asked for again. The other fields are
 * sent as they are. */
export type Bid =
  | { readonly how: 'acquire'; readonly leaseId: string }
  | { readonly how: 'resume'; readonly leaseId: string; readonly next_lease_id: string }
  | { readonly how: 'ask'; readonly leaseId: string; readonly on_silence: 'grant' | 'refuse'; readonly countdown_seconds: number }
  | { readonly how: 'take-over'; readonly leaseId: string; readonly reason: string };

/** The calls of a page. */
export interface EngineCalls {
  bid(bid: Bid): Promise<boolean>;
  withdraw(): Promise<void>;
  /** Gives the lock back; `reason` if the page has lost it by that. */
  release(reason?: LossReason): Promise<void>;
  answer(handOver: boolean): Promise<void>;
  /** The page is being left, and has released the lock softly. */
  leave(): void;
  /** The page is back. */
  back(): void;
  /** The network is back, or the page is seen again. */
  hurry(): void;
  visible(is: boolean): void;
  /** An event that the page brings, and its channel, which may have missed some. */
  event(event: DocumentEvent): void;
  look(isLive: boolean): void;
  close(): Promise<void>;
}

/** From the page. */
export type ToWorker =
  | { readonly wasmUrl: string | undefined }
  | { readonly document: number; readonly open: EngineSettings }
  | { readonly document: number; readonly call: number; readonly method: keyof EngineCalls; readonly argument?: unknown }
  | { readonly document: number; readonly token: string | null };

/** From the Worker. */
export type ToPage =
  | { readonly document: number; readonly state: EngineState }
  | { readonly document: number; readonly event: DocumentEvent }
  /** Asks for a token; the last one was refused. */
  | { readonly document: number; readonly wants: 'token' }
  | { readonly document: number; readonly call: number; readonly value: unknown }
  /** The rules could not be loaded. */
  | { readonly broken: string };
