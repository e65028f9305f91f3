// Decides when a screen reader speaks. It has no clock and no document: `now` is an argument.

/** The shortest time between two polite announcements. More of them would talk over the user's own typing. */
export const QUIET_MS = 30_000;

/** Polite announcements, at most one in 30 s. One that comes too early waits, and a later one replaces it. */
export class Announcer {
  #spokenAt = -Infinity;
  #waiting: string | undefined;

  /** Has this text announced as soon as allowed: in so many milliseconds. */
  say(text: string, now: number): number {
    this.#waiting = text;
    return this.wait(now);
  }

  /** How long until something may be announced. */
  wait(now: number): number {
    return Math.max(0, this.#spokenAt + QUIET_MS - now);
  }

  /** What waits is true no longer. */
  cancel(): void {
    this.#waiting = undefined;
  }

  /** The text to announce now, if there is one and it is allowed. */
  take(now: number): string | undefined {
    if (this.wait(now) > 0) return undefined;
    const text = this.#waiting;
    this.#waiting = undefined;
    if (text !== undefined) this.#spokenAt = now;
    return text;
  }
}
