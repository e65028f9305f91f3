// Events on their way from the rules to those who subscribed.

import { errorOf, type ErrorView } from './error.js';
import type { Dialect, ProjectLockEvent, ProjectLockEventListener, ProjectLockSubscription } from './types.js';

/** An event as the rules tell it: errors are views. */
export type EventView = Omit<ProjectLockEvent, 'error' | 'lastError'> & {
  /** Its code alone in dialect `autosave`. */
  readonly error?: ErrorView | string;
  readonly lastError?: ErrorView;
};

/** One event in all three dialects. */
export interface Told {
  readonly lock: EventView;
  readonly service?: EventView;
  readonly autosave?: readonly EventView[];
}

/** Those who subscribed. */
export class Listeners {
  readonly #all = new Set<{ listener: ProjectLockEventListener; dialect: Dialect }>();

  /** Somebody wants to hear. */
  add(listener: ProjectLockEventListener, dialect: Dialect = 'lock'): ProjectLockSubscription {
    const entry = { listener, dialect };
    this.#all.add(entry);
    return { unsubscribe: () => { this.#all.delete(entry); } };
  }

  /** Tells everybody. A listener that throws keeps nobody from hearing, and is reported as any uncaught error is. */
  tell(told: Told): void {
    for (const { listener, dialect } of [...this.#all]) {
      for (const view of [told[dialect] ?? []].flat()) {
        try {
          listener(eventOf(view));
        } catch (error) {
          queueMicrotask(() => { throw error; });
        }
      }
    }
  }
}

/** The event of a view. */
export function eventOf(view: EventView): ProjectLockEvent {
  const { error, lastError, ...rest } = view;
  return {
    ...rest,
    ...(error && { error: typeof error === 'string' ? error : errorOf(error) }),
    ...(lastError && { lastError: errorOf(lastError) }),
  };
}
