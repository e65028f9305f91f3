// Events on their way from the rules to those who subscribed.

import { errorOf, type ErrorView } from './error.js';
import type {
  Dialect, ProjectLockEvent, ProjectLockEventListener, ProjectLockLease, ProjectLockSubscription,
} from './types.js';

/** An event as the rules tell it: errors are views. */
export interface EventView {
  readonly type: string;
  readonly lease?: ProjectLockLease;
  /** Its code alone in dialect `autosave`. */
  readonly error?: ErrorView | string;
  readonly lastError?: ErrorView;
  readonly [field: string]: unknown;
}

/** One event in all three dialects. */
export interface Told {
  readonly lock: EventView;
  readonly service?: EventView;
  readonly autosave?: readonly EventView[];
}

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
  tell(told: Told): void {
    for (const { listener, dialect } of [...this.#all]) {
      for (const view of [told[dialect] ?? []].flat()) tellOne(listener, view);
    }
  }
}

/** Tells one listener. If it throws, that keeps nobody from hearing, and is reported as any uncaught error is. */
export function tellOne(listener: (event: never) => void, view: EventView): void {
  try {
    listener(eventOf<never>(view));
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

/** The event of a view. */
export function eventOf<Event = ProjectLockEvent>(view: EventView): Event {
  const { error, lastError, ...rest } = view;
  return {
    ...rest,
    ...(error && { error: typeof error === 'string' ? error : errorOf(error) }),
    ...(lastError && { lastError: errorOf(lastError) }),
  } as Event;
}
