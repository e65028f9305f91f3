// The errors that a caller catches. Which one it is, and what it says, the rules decide.

import type { ErrorCode } from './border.js';
import type { Operation, ProjectLockHolder } from './types.js';

/** Which row of the table (docs/browser.md) it is. */
export type ProjectLockErrorCode = ErrorCode;

/** An error as it goes from the Worker to the page; the rules send the same. */
export interface ErrorView {
  readonly name: string;
  readonly code: ProjectLockErrorCode;
  readonly retryable: boolean;
  readonly operation: Operation;
  readonly message: string;
  readonly said?: string;
  readonly cause?: ErrorView;
  readonly holder?: ProjectLockHolder;
  readonly level?: string;
}

/** The properties of an error. */
export interface ErrorParams {
  readonly code: ProjectLockErrorCode;
  readonly retryable: boolean;
  readonly operation?: Operation;
  readonly cause?: unknown;
  readonly holder?: ProjectLockHolder | undefined;
  readonly level?: string | undefined;
}

/** What went wrong with a project lock. */
export class ProjectLockError extends Error {
  readonly code: ProjectLockErrorCode;
  readonly retryable: boolean;
  readonly operation: Operation;
  /** Who holds the project instead, if that is why. */
  readonly holder: ProjectLockHolder | undefined;
  /** How loud it is in a log. */
  readonly level: 'info' | 'warn' | 'error';

  constructor(message: string, params: ErrorParams) {
    super(message, params.cause === undefined ? {} : { cause: params.cause });
    this.code = params.code;
    this.retryable = params.retryable;
    this.operation = params.operation ?? 'acquire';
    this.holder = params.holder;
    this.level = (params.level ?? 'error') as 'error';
    this.name = new.target.name;
  }
}

/** The project was not acquired. */
export class LockAcquisitionError extends ProjectLockError {}
/** Another tab or program holds the project. */
export class LockConflictError extends ProjectLockError {}
/** The lease was not renewed. */
export class LockRenewalError extends ProjectLockError {}
/** The lease was not released. */
export class LockReleaseError extends ProjectLockError {}
/** A retry would not help. */
export class LockIrrecoverableError extends ProjectLockError {}

const CLASSES: Record<string, typeof ProjectLockError> = {
  LockAcquisitionError, LockConflictError, LockRenewalError, LockReleaseError, LockIrrecoverableError,
};

/** The error of a view. */
export function errorOf(view: ErrorView): ProjectLockError {
  const { name, message, said } = view;
  const cause = view.cause ? errorOf(view.cause) : said;
  const error = new (CLASSES[name] ?? ProjectLockError)(message, { ...view, cause });
  error.name = name; // a minifier may have renamed the class
  return error;
}

/** What is wrong where the package cannot run: a part of it cannot be loaded, or the browser does not allow it. */
export function unusable(
  what: string, cause: unknown, operation: Operation = 'acquire', name = 'LockIrrecoverableError',
  code: ProjectLockErrorCode = 'fallback-open-failed', retryable = false,
) {
  return { name, code, retryable, operation, message: `${operation}: ${what} (${cause})`, level: 'error', said: `${cause}` } as const;
}

/** What is wrong where a file could not be written. The rules have no better words than the browser for no space, or no permission. */
export function unsaved(path: string, cause: unknown) {
  return unusable(`${path} cannot be written; look at quota and permissions`, cause, 'save', 'LockRenewalError', 'fallback-write-failed', true);
}

/** The view of an error, which `postMessage` can send. */
export function viewOf({ name, code, retryable, operation, message, cause, holder, level }: ProjectLockError): ErrorView {
  const view = { name, code, retryable, operation, message, level, ...(holder && { holder }) };
  if (cause === undefined) return view;
  return { ...view, ...(cause instanceof ProjectLockError ? { cause: viewOf(cause) } : { said: String(cause) }) };
}
