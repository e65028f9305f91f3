// What an indicator shows of a snapshot. Pure: the same snapshot, the same view. It decides nothing about saving.

import type { AutoSaveSnapshot, AutoSaveState } from '../autosave/state.js';
import type { Words } from './words.js';

/** What a user can do from the indicator. */
export type Action = 'retry' | 'edit' | 'ask' | 'takeOver' | 'steps' | 'handOver' | 'refuse';

/** Which drawing. */
export type Icon = 'check' | 'dot' | 'busy' | 'warning' | 'lock' | 'off' | 'question';

/** The drawings, of 16 x 16. */
export const PATHS: Readonly<Record<Icon, string>> = {
  check: 'M3 8.5l3.2 3.2L13 5',
  dot: 'M8 5.5a2.5 2.5 0 1 0 .01 0',
  busy: 'M8 2a6 6 0 1 1-6 6',
  warning: 'M8 2l6.5 12h-13zM8 6.5v3.5M8 12v.1',
  lock: 'M4 7.5h8V14H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5',
  off: 'M8 2a6 6 0 1 0 .01 0M4 12l8-8',
  question: 'M8 2a6 6 0 1 0 .01 0M8 5v3.5M8 11v.1',
};

/** What is shown. */
export interface View {
  readonly icon: Icon;
  readonly tone: 'plain' | 'good' | 'warn' | 'bad';
  readonly text: string;
  /** A second sentence. */
  readonly detail: string;
  /** A time of day to show, and the words before it. */
  readonly at: number | null;
  readonly atText: string;
  readonly actions: readonly Action[];
}

/** "Saving…" is shown after this time only: most saves are quicker, and would make it flicker. */
export const SLOW_MS = 300;

const PLAIN: View = { icon: 'off', tone: 'plain', text: '', detail: '', at: null, atText: '', actions: [] };

/** The view of a snapshot. `isSlow`: the save takes longer than `SLOW_MS`. */
export function viewOf(snapshot: AutoSaveSnapshot | null, words: Words, isSlow: boolean): View {
  if (!snapshot) return { ...PLAIN, text: words.disabled };
  const { request } = snapshot;
  if (request) {
    const text = words.requested(request.label ?? '', request.reason ?? '');
    return { ...PLAIN, icon: 'question', tone: 'warn', text, actions: ['handOver', 'refuse'] };
  }
  const view = viewOfState(snapshot.state, snapshot, words, isSlow);
  return snapshot.hasDraft && !view.detail ? { ...view, detail: words.draft } : view;
}

function viewOfState(state: AutoSaveState, snapshot: AutoSaveSnapshot, words: Words, isSlow: boolean): View {
  switch (state.kind) {
    case 'disabled': return { ...PLAIN, text: words.disabled };
    case 'stopped': return { ...PLAIN, text: words.stopped };
    case 'releasing': return { ...PLAIN, icon: 'busy', text: words.releasing };
    case 'dirty': return { ...PLAIN, icon: 'dot', text: words.dirty };
    case 'saving':
      return isSlow ? { ...PLAIN, icon: 'busy', text: words.saving } : { ...PLAIN, icon: 'dot', text: words.dirty };
    case 'saved':
      return { ...PLAIN, icon: 'check', tone: 'good', text: state.at === null ? words.unchanged : words.saved, at: state.at };
    case 'retrying':
      return { ...PLAIN, icon: 'busy', tone: 'warn', text: words.retrying(state.attempt, state.maxAttempts) };
    case 'error':
      return {
        ...PLAIN, icon: 'warning', tone: 'bad', text: either(words.error, state.code, 'write-failed'),
        at: snapshot.savedAt, atText: words.lastSaved, actions: ['retry'],
      };
    case 'unavailable': return { ...PLAIN, icon: 'warning', tone: 'bad', text: either(words.unavailable, state.reason, 'other') };
    case 'readonly': {
      const detail = snapshot.isDirty ? words.kept : '';
      return { ...PLAIN, icon: 'lock', tone: 'warn', detail, ...readonlyView(state, words) };
    }
  }
}

/** The text under this name, or under the other one: an autosave may be newer than its indicator. */
function either(texts: Readonly<Record<string, string>>, name: string, other: string): string {
  return (Object.hasOwn(texts, name) ? texts[name] : texts[other]) ?? '';
}

function readonlyView(state: AutoSaveState & { kind: 'readonly' }, words: Words): Partial<View> & Pick<View, 'text'> {
  if (state.manualSteps !== null) return { text: words.stepsTitle, icon: 'warning', tone: 'bad', actions: ['steps', 'retry'] };
  if (state.isFree) return { text: words.free, actions: ['edit'] };
  if (state.reason === 'conflict') {
    return { text: words.conflict(state.owner?.label ?? ''), actions: ['retry', 'ask', 'takeOver'] };
  }
  if (state.reason === 'irrecoverable') return { text: words.readonly.irrecoverable, icon: 'warning', tone: 'bad', actions: ['retry'] };
  // Where it is known who holds the project, that holder can be asked.
  return { text: words.readonly.timeout, actions: state.owner ? ['retry', 'ask', 'takeOver'] : ['retry', 'takeOver'] };
}
