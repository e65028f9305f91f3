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

const PLAIN: DocumentView = { icon: 'busy', tone: 'plain', text: '', since: null, detail: '', endsAt: null, actions: [] };

/** The view of a state. */
export function documentView(state: DocumentState | null, words: DocumentWords): DocumentView {
  const { status = 'closed', request = null, lost = null } = state ?? {};
  const loss = lost ? words.lost(lost.reason, lost.by ?? '', lost.note ?? '') : '';
  switch (state && status) {
    case 'mine': {
      if (!request) return { ...PLAIN, icon: 'check', tone: 'good', text: words.mine, since: state!.since, actions: ['done'] };
      return { ...PLAIN, icon: 'question', tone: 'warn', text: words.requested(request.by.name), endsAt: request.endsAt, actions: ['handOver', 'refuse'] };
    }
    case 'read-only': return { ...heldView(state!, words), ...(loss && !state!.asking && { detail: loss }) };
    case 'free': return { ...PLAIN, icon: loss ? 'warning' : 'dot', tone: loss ? 'warn' : 'plain', text: words.free, detail: loss, actions: may(state!) ? ['edit'] : [] };
    case 'offline': return { ...PLAIN, icon: 'warning', tone: 'bad', text: words.offline, detail: loss };
    case 'unavailable': return { ...PLAIN, icon: 'warning', tone: 'bad', text: words.unavailable, detail: state!.problem?.text ?? '' };
    case 'connecting': return { ...PLAIN, text: words.connecting };
    default: return { ...PLAIN, icon: 'off', text: words.closed };
  }
}

/** Another page holds the lock. */
function heldView(state: DocumentState, words: DocumentWords): DocumentView {
  const { holder, sameUser, since, leaving, asking, mayTakeOver } = state;
  const name = holder?.name ?? '';
  if (asking) return { ...PLAIN, icon: 'question', text: words.asked(name), endsAt: asking.endsAt, actions: ['withdraw'] };
  const actions: DocumentAction[] = [...(may(state) && !sameUser ? ['ask'] as const : []), ...(mayTakeOver ? ['takeOver'] as const : [])];
  const detail = leaving ? words.leaving : words.readonly;
  return { ...PLAIN, icon: 'lock', tone: 'warn', text: sameUser ? words.ownTab : words.holds(name), since, detail, actions };
}

function may({ may }: DocumentState): boolean {
  return may !== 'read';
}
