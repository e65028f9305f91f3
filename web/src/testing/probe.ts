// Keeps what it hears.

import type { ProjectLockEvent } from '../types.js';

/** Records the events of a lock: `subscribeLockEvents(probe.listener)`. */
export class EventProbe<Event extends object = ProjectLockEvent> {
  /** What was heard, in order. */
  readonly events: Event[] = [];
  /** Give this to `subscribeLockEvents`. */
  readonly listener = (event: Event): void => { this.events.push(event); };

  /** The kinds of the events, in order. */
  types(): string[] {
    return this.events.map(typeOf);
  }

  /** The events of one kind. */
  of(type: string): Event[] {
    return this.events.filter((event) => typeOf(event) === type);
  }

  /** Forgets what was heard. */
  clear(): void {
    this.events.length = 0;
  }
}

export { EventProbe as EventCollector };

function typeOf(event: object): string {
  return String((event as { type?: unknown }).type);
}
