// Events on their way from the rules to those who subscribed.

import type { DialectsView, ProjectEventView } from './border.js';
import { errorOf } from './error.js';
import type { Dialect, ProjectLockEvent, ProjectLockEventListener, ProjectLockSubscription } from './types.js';

const DIALECTS: readonly Dialect[] = ['lock', 'service', 'autosave'];

/** Those who subscribed. */
export class Listeners {
  readonly #all = new Set<{ listener: (event: never) => void; dialect: Dialect }>();

  /** Somebody wants to hear. */
  add<In extends Dialect>(listener: ProjectLockEventListener<In>, dialect: Dialect = 'lock'): ProjectLockSubscription {
    const entry = { listener, dialect };
    if (!DIALECTS.includes(dialect)) {
      throw new TypeError(`there is no dialect "${dialect}": choose one of ${DIALECTS.join(', ')}`);
    }
    this.#all.add(entry);
    return { unsubscribe: () => { this.#all.delete(entry); } };
  }

  /** Tells everybody. */
  tell(told: DialectsView): void {
    for (const { listener, dialect } of [...this.#all]) {
      for (const view of [told[dialect] ?? []].flat()) tellOne(listener, view);
    }
  }
}

/** Tells one listener. If it throws, that keeps nobody from hearing, and is reported as any uncaught error is. */
export function tellOne(listener: (event: never) => void, view: ProjectEventView): void {
  try {
    listener(eventOf<never>(view));
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

/** The event of a view. */
export function eventOf<Event = ProjectLockEvent>(view: ProjectEventView): Event {
  const { error, lastError, ...rest } = view;
  return {
    ...rest,
    ...(error && { error: typeof error === 'string' ? error : errorOf(error) }),
    ...(lastError && { lastError: errorOf(lastError) }),
  } as Event;
}
