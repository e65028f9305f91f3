// Publishes the events of the rules to the subscribers, each in its dialect.

import { projectOf } from './arguments.js';
import type { DialectsView, ProjectEventView } from './border.js';
import { errorOf, type ProjectLockError } from './error.js';
import type {
  Dialect, ProjectLockAcquireOptions, ProjectLockEvent, ProjectLockEventListener, ProjectLockLogger, ProjectLockSubscribeOptions, ProjectLockSubscription,
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

/** The `onReadonly` of each project, which the last acquire brought. */
export class ReadonlyListeners {
  readonly #all = new Map<string, ProjectLockAcquireOptions['onReadonly']>();

  /** Waits for an acquire with these options. */
  async during<T>(options: ProjectLockAcquireOptions, acquire: Promise<T>): Promise<T> {
    const { onReadonly, reentrant } = options;
    const project = projectOf(options);
    this.#all.set(project, onReadonly ?? this.#all.get(project));
    const grant = await acquire;
    // A new lease is not the old listener's; the same one again still is.
    if (!reentrant) this.#all.set(project, onReadonly);
    return grant;
  }

  /** Publishes an event to the listener of its project. */
  publish({ lock }: DialectsView): void {
    const listener = this.#all.get(projectOf(lock));
    if (lock.type === 'lock:readonly-entered' && listener) publishTo(listener, lock);
  }
}

/** Writes an error to the log, at its level. */
export function log(logger: ProjectLockLogger | undefined, { lock }: DialectsView): void {
  if (lock.type !== 'lock:error' || !logger) return;
  publishTo(({ error }: { error: ProjectLockError }) => logger[error.level](error.message, error), lock);
}

/** Calls one subscriber. An exception from it does not reach the others; it is reported like any uncaught error. */
function publishTo(listener: (event: never) => void, view: ProjectEventView): void {
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
