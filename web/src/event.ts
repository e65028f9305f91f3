// Publishes the events of the rules to the subscribers, each in its dialect.

import type { DialectsView, ProjectEventView } from './border.js';
import { errorOf } from './error.js';
import type { Dialect, ProjectLockEvent, ProjectLockEventListener, ProjectLockSubscription } from './types.js';

const DIALECTS: readonly Dialect[] = ['lock', 'service', 'autosave'];

/** The subscribers. */
export class Listeners {
  readonly #all = new Set<{ listener: (event: never) => void; dialect: Dialect }>();

  /** Adds a subscriber. */
  add<In extends Dialect>(listener: ProjectLockEventListener<In>, dialect: Dialect = 'lock'): ProjectLockSubscription {
    const entry = { listener, dialect };
    if (!DIALECTS.includes(dialect)) {
      throw new TypeError(`there is no dialect "${dialect}": choose one of ${DIALECTS.join(', ')}`);
    }
    this.#all.add(entry);
    return { unsubscribe: () => { this.#all.delete(entry); } };
  }

  /** Publishes an event to all subscribers. */
  publish(event: DialectsView): void {
    for (const { listener, dialect } of [...this.#all]) {
      for (const view of [event[dialect] ?? []].flat()) publishTo(listener, view);
    }
  }
}

/** Calls one subscriber. An exception from it does not reach the others; it is reported like any uncaught error. */
export function publishTo(listener: (event: never) => void, view: ProjectEventView): void {
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
