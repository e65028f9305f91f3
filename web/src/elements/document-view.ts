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
  const { status, request, since, asking, holder, sameUser, leaving, mayTakeOver, problem } = state;
  const loss = lossOf(state, words);
  const failure = failureOf(state, words);
  const name = holder?.name ?? '';
  const mayLock = state.may !== 'read';
  switch (status) {
    case 'mine':
      if (request) return { icon: 'question', tone: 'warn', text: words.requested(request.by.name), endsAt: request.endsAt, actions: ['handOver', 'refuse'] };
      return { icon: 'check', tone: 'good', text: words.mine, since, detail: failure, actions: ['done'] };
    case 'read-only':
      if (asking) return { icon: 'question', text: words.asked(name), endsAt: asking.endsAt, actions: ['withdraw'] };
      return {
        icon: 'lock', tone: 'warn', text: sameUser ? words.ownTab : words.holds(name), since,
        detail: failure || loss || (leaving ? words.leaving : words.readonly),
        actions: [...(mayLock && !sameUser ? ['ask'] as const : []), ...(mayTakeOver ? ['takeOver'] as const : [])],
      };
    case 'free': return { icon: loss ? 'warning' : 'dot', tone: loss ? 'warn' : 'plain', text: words.free, detail: loss, actions: mayLock ? ['edit'] : [] };
    case 'offline': return { icon: 'warning', tone: 'bad', text: words.offline, detail: loss };
    case 'unavailable': return { icon: 'warning', tone: 'bad', text: words.unavailable, detail: problem?.text ?? '' };
    case 'connecting': return { text: words.connecting };
    default: return { icon: 'off', text: words.closed };
  }
}

/** Why the page has lost its lock: in the server's words, where it has given some. */
function lossOf({ status, lost }: DocumentState, words: DocumentWords): string {
  // One who took over may have done so only to end the lock: while it is free, nobody has it.
  const isEnded = status === 'free' && lost?.reason === 'taken-over';
  return lost ? lost.text || words.lost(isEnded ? 'force-released' : lost.reason, lost.by ?? '', lost.note ?? '') : '';
}

/** What went wrong with the user's last action. That another page holds the lock is shown in any case. */
function failureOf({ problem }: DocumentState, words: DocumentWords): string {
  if (!problem || problem.code === 'held') return '';
  return problem.code === 'refused' ? words.refused : words.failed(problem.text);
}
