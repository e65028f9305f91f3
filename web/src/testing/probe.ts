// Records events, for assertions.

import type { ProjectLockEvent } from '../types.js';

/** Records the events of a lock: `subscribeLockEvents(probe.listener)`. */
export class EventProbe<Event extends { type: string } = ProjectLockEvent> {
  /** What was heard, in order. */
  readonly events: Event[] = [];
  /** Give this to `subscribeLockEvents`. */
  readonly listener = (event: Event): void => { this.events.push(event); };

  /** The kinds of the events, in order. */
  types(): string[] {
    return this.events.map(({ type }) => type);
  }

  /** The events of one kind. */
  of<Type extends Event['type']>(type: Type): Extract<Event, { type: Type }>[] {
    return this.events.filter((event) => event.type === type) as Extract<Event, { type: Type }>[];
  }

  /** Forgets what was heard. */
  clear(): void {
    this.events.length = 0;
  }
}

export { EventProbe as EventCollector };
