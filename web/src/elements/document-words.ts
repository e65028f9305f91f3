// Every text of `<document-lock>`. English is here; Japanese is loaded by the pages that need it. A type sees to it that neither
// language lacks one.

import type { LossReason } from '../documents/types.js';
import type { Language } from './language.js';

/** The texts of one language. */
export interface DocumentWords {
  readonly label: string;
  readonly connecting: string;
  readonly free: string;
  readonly mine: string;
  readonly since: string;
  holds(name: string): string;
  readonly ownTab: string;
  readonly leaving: string;
  readonly readonly: string;
  readonly offline: string;
  readonly unavailable: string;
  readonly closed: string;
  requested(name: string): string;
  silence(seconds: number, means: 'grant' | 'refuse'): string;
  asked(name: string): string;
  waiting(seconds: number): string;
  lost(reason: LossReason, by: string, note: string): string;
  here(names: string): string;
  readonly draft: string;
  readonly draftTitle: string;
  readonly takeOverTitle: string;
  takeOverText(name: string): string;
  readonly reason: string;
  /** An action of the user's did not work; why, if that is known. */
  failed(why: string): string;
  /** The holder has refused, or the time for an answer is over. */
  readonly refused: string;
  // Buttons.
  readonly edit: string;
  readonly done: string;
  readonly ask: string;
  readonly withdraw: string;
  readonly takeOver: string;
  readonly handOver: string;
  readonly refuse: string;
  readonly show: string;
  readonly use: string;
  readonly discard: string;
  readonly cancel: string;
  readonly close: string;
}

const ENGLISH: DocumentWords = {
  label: 'Editing',
  connecting: 'Connecting…',
  free: 'Nobody is editing',
  mine: 'You are editing',
  since: 'since',
  holds: (name) => `${name} is editing`,
  ownTab: 'You are editing in another tab',
  leaving: 'The page was left. Free in a few seconds.',
  readonly: 'Read-only',
  offline: 'Read-only: the server cannot be reached. Trying again…',
  unavailable: 'This document cannot be locked',
  closed: 'Closed',
  requested: (name) => `${name} asks to edit`,
  silence: (seconds, means) => `${means === 'grant' ? 'Handed over' : 'Refused'} in ${seconds} s without an answer.`,
  asked: (name) => `You have asked ${name}`,
  waiting: (seconds) => `An answer is due in ${seconds} s.`,
  lost: (reason, by, note) => {
    switch (reason) {
      case 'taken-over': return `${by || 'Another user'} took over${note && `: “${note}”`}`;
      case 'force-released': return `${by || 'Another user'} ended your lock${note && `: “${note}”`}`;
      case 'handed-over': return `You handed over${by && ` to ${by}`}`;
      case 'offline': return 'The connection was lost for too long';
      case 'reload-failed': return 'The current version could not be loaded';
      default: return 'Your lock has ended';
    }
  },
  here: (names) => `Here: ${names}`,
  draft: 'What you had not saved is kept.',
  draftTitle: 'What you had not saved',
  takeOverTitle: 'Take over editing?',
  takeOverText: (name) => `${name} becomes read-only at once, sees your reason, and keeps a draft of what is unsaved.`,
  reason: 'Reason',
  failed: (why) => `That did not work. ${why}`,
  refused: 'Your request was refused',
  edit: 'Edit',
  done: 'Done',
  ask: 'Ask to edit',
  withdraw: 'Withdraw',
  takeOver: 'Take over…',
  handOver: 'Save and hand over',
  refuse: 'Refuse',
  show: 'Show…',
  use: 'Use it',
  discard: 'Discard',
  cancel: 'Cancel',
  close: 'Close',
};

let japanese: DocumentWords | undefined;

/** The texts of a language; null while they are loaded, after which `loaded` is called. */
export function documentWords(language: Language, loaded: () => void): DocumentWords | null {
  if (language === 'en') return ENGLISH;
  if (!japanese) {
    const load = import('./document-words-ja.js').then(({ JAPANESE }) => JAPANESE, () => ENGLISH);
    void load.then((words) => { japanese = words; loaded(); });
  }
  return japanese ?? null;
}
