// Publishes the events of the rules to the subscribers, each in its dialect.

import type { DialectsView, ProjectEventView } from './border.js';
import { errorOf } from './error.js';
import type {
  Dialect, ProjectLockEvent, ProjectLockEventListener, ProjectLockSubscribeOptions, ProjectLockSubscription,
} from './types.js';

const DIALECTS: readonly Dialect[] = ['lock', 'service', 'autosave'];

/** The subscribers. */
export class Listeners {
  readonly #all = new Set<ProjectLockSubscribeOptions<Dialect> & { listener: (event: never) => void; dialect: Dialect }>();

  /** Adds a subscriber. */
  add<In extends Dialect>(
    listener: ProjectLockEventListener<In>, { dialect = 'lock' as In, root, lockName }: ProjectLockSubscribeOptions<In> = {},
  ): ProjectLockSubscription {
    if (!DIALECTS.includes(dialect)) {
      throw new TypeError(`there is no dialect "${dialect}": choose one of ${DIALECTS.join(', ')}`);
    }
    if (typeof listener !== 'function') throw new TypeError('listener: expected a function');
    const entry = { listener, dialect, root, lockName };
    this.#all.add(entry);
    return { unsubscribe: () => { this.#all.delete(entry); } };
  }

  /** Publishes an event to its subscribers. One that unsubscribes meanwhile gets no more of it. */
  publish(event: DialectsView): void {
    for (const entry of [...this.#all]) {
      const { listener, dialect, root = event.lock.root, lockName = event.lock.lockName } = entry;
      if (root !== event.lock.root || lockName !== event.lock.lockName) continue;
      for (const view of [event[dialect] ?? []].flat()) if (this.#all.has(entry)) publishTo(listener, view);
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
