// What an autosave shows of itself, and what a user can ask of it: the types between the engine and whatever draws it. No
// behaviour is in here. `getSnapshot` returns the same object until something changes, as React's `useSyncExternalStore` wants.

import type { ProjectLockHolder, ProjectLockRequest } from '../types.js';

/** Where an autosave stands. Times are in milliseconds since 1970. */
export type AutoSaveState =
  /** It was turned off by its options: nothing is saved. */
  | { readonly kind: 'disabled' }
  /** Nothing is written; the work stays in memory. */
  | AutoSaveReadonly
  /** There is something to save. */
  | { readonly kind: 'dirty' }
  | { readonly kind: 'saving' }
  /** All is saved; `at` is null as long as nothing had to be. */
  | { readonly kind: 'saved'; readonly at: number | null }
  /** A save failed, and is tried again at `nextAt`. */
  | { readonly kind: 'retrying'; readonly attempt: number; readonly maxAttempts: number; readonly nextAt: number }
  /** A save failed for good. The next change is tried again, and so is `retry()`. */
  | { readonly kind: 'error'; readonly code: AutoSaveErrorCode; readonly message: string }
  /** Nothing can be saved here, for example `private-window-or-blocked-storage`. */
  | { readonly kind: 'unavailable'; readonly reason: string; readonly message: string }
  /** The project is being released. */
  | { readonly kind: 'releasing' }
  /** It was disposed of. */
  | { readonly kind: 'stopped' };

/** The name of a state. */
export type AutoSaveStateKind = AutoSaveState['kind'];

/** Why nothing is written. */
export interface AutoSaveReadonly {
  readonly kind: 'readonly';
  /** `conflict`: another tab edits. */
  readonly reason: 'conflict' | 'timeout' | 'irrecoverable';
  /** Who holds the project, as far as it is known. */
  readonly owner: ProjectLockHolder | null;
  /** Whether the project has become free since: `retry()` will probably succeed. */
  readonly isFree: boolean;
  /** The last take-over was refused because clocks disagree, so that nobody knows whether the holder lives. To go on, confirm
   * with `takeOver({ acceptClockSkew: true })`. */
  readonly clockSkew: string | null;
  /** What the user can do by hand, where a release failed for good. */
  readonly manualSteps: string | null;
  /** For people. */
  readonly message: string;
}

/** Why a save failed. */
export type AutoSaveErrorCode =
  | 'write-failed' | 'no-space' | 'not-serialisable'
  /** There is a newer version, and the application did not take it. */
  | 'stale-base';

/** A message for the user, shown once as a toast. */
export type AutoSaveNotice = { readonly number: number; readonly at: number } & (
  /** A save, or a release, succeeded after retries. */
  | { readonly kind: 'recovered'; readonly operation: 'save' | 'release' }
  /** The retries came to nothing. */
  | { readonly kind: 'retries-failed'; readonly operation: 'save' | 'release'; readonly message: string }
  /** Old generations were removed because there was no space. */
  | { readonly kind: 'history-dropped'; readonly generations: number }
  /** A version was saved, but not kept in the history. */
  | { readonly kind: 'history-failed'; readonly message: string }
  /** The browser has little space left for this site. */
  | { readonly kind: 'space-low'; readonly freeBytes: number }
  /** What was in memory was made from an older version: the newer one was loaded, and this tab's work is a draft. */
  | { readonly kind: 'draft-kept' }
  /** A generation was restored. To undo that, restore `before`, which has what was there; null if there was nothing. */
  | { readonly kind: 'restored'; readonly ts: string; readonly before: string | null }
);

/** All of it at one moment. The object is replaced whenever something changes. */
export interface AutoSaveSnapshot {
  readonly state: AutoSaveState;
  /** When something was last saved, whatever the state is now. */
  readonly savedAt: number | null;
  /** Whether memory has something that is not saved. */
  readonly isDirty: boolean;
  /** The last notice. Its number grows. */
  readonly notice: AutoSaveNotice | null;
  /** Another tab asks for the project: answer with `handOver()` or `refuse()`. */
  readonly request: ProjectLockRequest | null;
  /** Whether there are drafts to offer: `listProjectDrafts()`. */
  readonly hasDraft: boolean;
}

/** A saved version. */
export interface AutoSaveGeneration {
  /** When, in ISO 8601. No two are the same, and they grow: this is its name, too. */
  readonly ts: string;
  readonly bytes: number;
}

/** The same, as a history shows it. */
export interface AutoSaveHistoryEntry extends AutoSaveGeneration {
  /** Its size less that of the current version, in bytes. */
  readonly difference: number;
  /** Whether it is the current version. */
  readonly isCurrent: boolean;
}

/** How to take the project from its holder. */
export interface AutoSaveTakeOver {
  /** The fence of the holder that the user saw. */
  readonly seen?: number | undefined;
  readonly reason?: string | undefined;
  readonly acceptClockSkew?: boolean | undefined;
}

/** The history of a project, the newest first. */
export interface AutoSaveHistory {
  list(): Promise<AutoSaveHistoryEntry[]>;
  /** The text of a generation; null if it is gone. */
  preview(ts: string): Promise<string | null>;
  /** Applies a generation. The present state is kept first. False if it is gone, or was not applied. */
  restore(ts: string): Promise<boolean>;
}

/** What an indicator and a history need of an autosave. */
export interface AutoSaveStore {
  /** Calls `listener` after every change; answers how to stop that. */
  subscribe(listener: () => void): () => void;
  getSnapshot(): AutoSaveSnapshot;
  /** Tries at once what is waiting: a save that failed, or an acquire in read-only. */
  retry(): Promise<void>;
  /** Takes the project from its holder. The result is a change of state; it never rejects. */
  takeOver(options?: AutoSaveTakeOver): Promise<void>;
  /** Asks the holder to save and hand over. The result is a change of state; it never rejects. */
  ask(options?: { readonly reason?: string | undefined }): Promise<void>;
  /** Saves, and hands the project to the tab that asks. */
  handOver(): Promise<void>;
  /** Refuses that. */
  refuse(reason?: string): Promise<void>;
  /** Saves what is unsaved, now. */
  flushNow(): Promise<void>;
  readonly history: AutoSaveHistory;
}

/** What `initAutoSave` returns: calling it saves, releases the project and stops. */
export interface AutoSave extends AutoSaveStore {
  (): Promise<void>;
  /** Says that something has changed, where `getSB` returns the same object as before. */
  markDirty(): void;
  /** The same as `getSnapshot`. */
  snapshot(): AutoSaveSnapshot;
  /** Gives what was saved last to the application, through `apply`. What is unsaved becomes a draft. True if it was applied. */
  restoreFromCurrent(): Promise<boolean>;
}
