// What `<document-lock>` shows of a state. Pure: the same state, the same view. It decides nothing about the lock.

import type { DocumentState } from '../documents/types.js';
import type { DocumentWords } from './document-words.js';
import type { Icon } from './view.js';

/** What a user can do from the element. */
export type DocumentAction = 'edit' | 'done' | 'ask' | 'withdraw' | 'takeOver' | 'handOver' | 'refuse';

/** What is shown. */
export interface DocumentView {
  readonly icon: Icon;
  readonly tone: 'plain' | 'good' | 'warn' | 'bad';
  readonly text: string;
  /** Since when, as a moment. */
  readonly since: number | null;
  /** A second sentence. */
  readonly detail: string;
  /** When the countdown ends that the second sentence is about. */
  readonly endsAt: number | null;
  readonly actions: readonly DocumentAction[];
}

/** The view of a state. */
export function documentView(state: DocumentState, words: DocumentWords): DocumentView {
  return { icon: 'busy', tone: 'plain', text: '', since: null, detail: '', endsAt: null, actions: [], ...shown(state, words) };
}

function shown(state: DocumentState, words: DocumentWords): Partial<DocumentView> {
  const { status, request, since, asking, problem } = state;
  const detail = lossOf(state, words);
  switch (status) {
    case 'mine':
      if (request) return { icon: 'question', tone: 'warn', text: words.requested(request.by.name), endsAt: request.endsAt, actions: ['handOver', 'refuse'] };
      return { icon: 'check', tone: 'good', text: words.mine, since, detail: trouble(state, words), actions: ['done'] };
    case 'read-only':
      if (asking) return { icon: 'question', text: words.asked(nameOf(state)), endsAt: asking.endsAt, actions: ['withdraw'] };
      return heldView(state, words, detail);
    case 'free': return { icon: detail ? 'warning' : 'dot', tone: detail ? 'warn' : 'plain', text: words.free, detail, actions: may(state) ? ['edit'] : [] };
    case 'offline': return { icon: 'warning', tone: 'bad', text: words.offline, detail };
    case 'unavailable': return { icon: 'warning', tone: 'bad', text: words.unavailable, detail: problem?.text ?? '' };
    case 'connecting': return { text: words.connecting };
    default: return { icon: 'off', text: words.closed };
  }
}

/** Another page holds the lock. */
function heldView(state: DocumentState, words: DocumentWords, loss: string): Partial<DocumentView> {
  const { sameUser, since, leaving, mayTakeOver } = state;
  const actions: DocumentAction[] = [...(may(state) && !sameUser ? ['ask'] as const : []), ...(mayTakeOver ? ['takeOver'] as const : [])];
  const detail = trouble(state, words) || loss || (leaving ? words.leaving : words.readonly);
  return { icon: 'lock', tone: 'warn', text: sameUser ? words.ownTab : words.holds(nameOf(state)), since, detail, actions };
}

/** Why the page has lost its lock: in the server's words, where it has given some. */
function lossOf({ lost }: DocumentState, words: DocumentWords): string {
  return lost ? lost.text || words.lost(lost.reason, lost.by ?? '', lost.note ?? '') : '';
}

/** What went wrong with the user's last action. That another page holds the lock is shown in any case. */
function trouble({ problem }: DocumentState, words: DocumentWords): string {
  if (!problem || problem.code === 'held') return '';
  return problem.code === 'refused' ? words.refused : words.failed(problem.text);
}

function nameOf({ holder }: DocumentState): string {
  return holder?.name ?? '';
}

function may({ may }: DocumentState): boolean {
  return may !== 'read';
}
