// Drafts: what was unsaved when a lock was lost. They stay in the browser until the user has used or discarded them, the newest first.

import { read, write } from './storage.js';

/** A draft. */
export interface Draft {
  readonly text: string;
  readonly at: number;
}

/** More of one document are not kept. */
const MOST = 5;

const PREFIX = 'leasehold.draft ';

/** The drafts of a document. */
export function draftsOf(document: string): Draft[] {
  const kept: unknown = read('localStorage', PREFIX + document);
  return Array.isArray(kept) ? kept.filter((draft) => typeof draft?.text === 'string') : [];
}

/** Keeps a draft, unless it is there already. */
export function keepDraft(document: string, text: string): void {
  const others = draftsOf(document).filter((draft) => draft.text !== text);
  write('localStorage', PREFIX + document, [{ text, at: Date.now() }, ...others].slice(0, MOST));
}

/** Discards the newest draft. */
export function discardDraft(document: string): void {
  write('localStorage', PREFIX + document, draftsOf(document).slice(1));
}
