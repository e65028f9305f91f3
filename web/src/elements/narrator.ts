// Decides what a screen reader is to say about a change. Most changes are silent: autosave saves every few seconds, and a
// reader that spoke of each would talk over the user's own typing. No clock and no document are in here.

import type { AutoSaveSnapshot } from '../autosave/state.js';
import { QUIET_MS } from './announcer.js';
import { viewOf } from './view.js';
import type { Words } from './words.js';

/** What to say. An alert is said at once. */
export interface Speech {
  readonly text: string;
  readonly isAlert: boolean;
  /** Whether it is still worth saying later, if it is too early now. */
  readonly canWait: boolean;
}

/** Follows the snapshots. */
export class Narrator {
  #before: AutoSaveSnapshot | null = null;
  /** Whether the last save failed, so that the next success is news. */
  #isTroubled = false;

  /** What to say about the next snapshot; null for nothing. */
  next(after: AutoSaveSnapshot, words: Words): Speech | null {
    const before = this.#before;
    const wasTroubled = this.#isTroubled;
    this.#before = after;
    const { kind } = after.state;
    if (kind === 'error' || kind === 'unavailable') this.#isTroubled = true;
    if (kind === 'saved') this.#isTroubled = false;
    if (after.request && !before?.request) return alert(viewOf(after, words, true).text);
    if (newsOf(before) !== newsOf(after)) {
      const view = viewOf({ ...after, request: null }, words, true);
      if (view.tone === 'bad') return alert(view.text);
      if (kind === 'readonly') return { text: view.text, isAlert: false, canWait: true };
    }
    if (before?.state.kind === 'readonly' && isEditable(kind)) return { text: words.editable, isAlert: false, canWait: true };
    if (kind !== 'saved' || !before || after.savedAt === null || after.savedAt === before.savedAt) return null;
    const isFirst = before.savedAt === null || after.savedAt - before.savedAt >= QUIET_MS;
    return isFirst || wasTroubled ? { text: words.saved, isAlert: false, canWait: wasTroubled } : null;
  }
}

function alert(text: string): Speech {
  return { text, isAlert: true, canWait: false };
}

function isEditable(kind: AutoSaveSnapshot['state']['kind']): boolean {
  return kind === 'saved' || kind === 'dirty' || kind === 'saving';
}

/** What makes a state news, as one text: the same text again is none. */
function newsOf(snapshot: AutoSaveSnapshot | null): string {
  const state = snapshot?.state;
  switch (state?.kind) {
    case 'error': return `error ${state.code}`;
    case 'unavailable': return `unavailable ${state.reason}`;
    case 'readonly': return `readonly ${state.reason} ${state.isFree} ${state.manualSteps !== null}`;
    default: return '';
  }
}
