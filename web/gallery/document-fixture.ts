// A document that tests and the gallery drive: every state that `<document-lock>` can show, and nothing that happens by itself.

import type { DocumentLock, DocumentState } from '../src/documents/types.js';
import { AT } from './fixture.js';

const ANNA = { id: 'anna', name: 'Anna' };
const BEN = { id: 'ben', name: 'Ben' };

/** A state: free, for a user who may lock. */
export function documentState(change: Partial<DocumentState> = {}): DocumentState {
  return {
    status: 'free', holder: null, sameUser: false, since: null, leaving: false, may: 'lock', mayTakeOver: false, request: null, asking: null,
    presence: { editing: [], asking: [], looking: [] }, lost: null, draft: null, connection: 'live', pending: null, problem: null, ...change,
  };
}

const MINE: Partial<DocumentState> = { status: 'mine', holder: ANNA, since: AT - 60_000 };
const HELD: Partial<DocumentState> = {
  status: 'read-only', holder: BEN, since: AT - 60_000, presence: { editing: [BEN], asking: [], looking: [ANNA] },
};
const DRAFT = { text: 'The storm.\nA harbour at night. <b>Rain</b>.', at: AT };
const request = (onSilence: 'grant' | 'refuse', endsAt: number | null) => ({ id: 7, by: BEN, onSilence, endsAt });
const lost = (reason: NonNullable<DocumentState['lost']>['reason'], by: string | null = null, note: string | null = null) => (
  { reason, by, note, text: '' }
);

/** Every state, and the variants of those that have some. */
export const DOCUMENTS: Readonly<Record<string, DocumentState>> = {
  'connecting': documentState({ status: 'connecting', connection: 'connecting' }),
  'free': documentState({ presence: { editing: [], asking: [], looking: [ANNA, BEN] } }),
  'free: may only read': documentState({ may: 'read' }),
  'mine': documentState({ ...MINE, presence: { editing: [ANNA], asking: [], looking: [BEN] } }),
  'mine: releasing': documentState({ ...MINE, pending: 'release' }),
  'mine: not saved': documentState({ ...MINE, problem: { code: 'save-failed', text: 'HTTP 500' } }),
  'mine: a request, not counting yet': documentState({ ...MINE, request: request('refuse', null) }),
  'mine: a request that silence refuses': documentState({ ...MINE, request: request('refuse', AT + 12_000) }),
  'mine: a request that silence grants': documentState({ ...MINE, request: request('grant', AT + 9_000) }),
  'held': documentState(HELD),
  'held: may take over': documentState({ ...HELD, may: 'force', mayTakeOver: true }),
  'held: may only read': documentState({ ...HELD, may: 'read' }),
  'held: own, in another tab': documentState({ ...HELD, holder: ANNA, sameUser: true, mayTakeOver: true }),
  'held: its page was left': documentState({ ...HELD, leaving: true }),
  'held: a request was refused': documentState({ ...HELD, problem: { code: 'refused', text: 'The lease has ended' } }),
  'asking': documentState({ ...HELD, pending: 'ask', asking: { endsAt: null } }),
  'asking: counting': documentState({ ...HELD, pending: 'ask', asking: { endsAt: AT + 9_000 } }),
  'taken over': documentState({ ...HELD, lost: lost('taken-over', 'Ben', 'closing time'), draft: DRAFT }),
  'taken over, and free again': documentState({ lost: lost('taken-over', 'Ben', 'closing time') }),
  'handed over': documentState({ ...HELD, lost: lost('handed-over', 'Ben') }),
  'not found': documentState({ lost: lost('not-found'), draft: DRAFT }),
  'not the holder': documentState({ ...HELD, lost: lost('not-holder') }),
  'not loaded': documentState({ lost: lost('reload-failed'), problem: { code: 'reload-failed', text: 'HTTP 500' } }),
  'offline': documentState({ status: 'offline', holder: ANNA, sameUser: true, connection: 'lost', lost: lost('offline'), draft: DRAFT }),
  'mine, with a draft': documentState({ ...MINE, draft: DRAFT }),
  'unavailable': documentState({ status: 'unavailable', connection: 'lost', problem: { code: 'unauthenticated', text: 'The token is missing or not valid' } }),
  'closed': documentState({ status: 'closed' }),
};

/** The document. What it is asked ends when a test says so, or at once. */
export class FixtureDocument implements DocumentLock {
  readonly roomId = 'minutes';
  readonly fence = null;
  /** What it was asked. */
  readonly asked: unknown[][] = [];
  /** What happens when it is asked. */
  answerWith: (name: string) => unknown = () => undefined;
  readonly #listeners = new Set<() => void>();

  constructor(private state: DocumentState) {}

  readonly getState = (): DocumentState => this.state;

  /** How many follow it. */
  get listeners(): number {
    return this.#listeners.size;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => { this.#listeners.delete(listener); };
  };

  /** Becomes another state. */
  become(state: DocumentState): void {
    this.state = state;
    for (const listener of this.#listeners) listener();
  }

  acquire(): Promise<boolean> { return this.#ask('acquire'); }
  release(): Promise<void> { return this.#ask('release'); }
  ask(): Promise<boolean> { return this.#ask('ask'); }
  withdraw(): Promise<void> { return this.#ask('withdraw'); }
  answer(how: string): Promise<void> { return this.#ask('answer', how); }
  takeOver(reason: string): Promise<boolean> { return this.#ask('takeOver', reason); }
  close(): Promise<void> { return this.#ask('close'); }
  keepDraft(text: string): void { void this.#ask('keepDraft', text); }
  discardDraft(): void { void this.#ask('discardDraft'); }

  async #ask<Answer>(name: string, ...rest: unknown[]): Promise<Answer> {
    this.asked.push([name, ...rest]);
    return await this.answerWith(name) as Answer;
  }
}
