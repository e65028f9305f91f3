// Time that stands still until a test moves it.

import { hashing } from '../host.js'; // not from hash.js: a chunk of its own would be more to load

interface Timer { at: number; order: number; run(): void }

/** A clock for tests: `advance` moves it, and runs what becomes due on the way, in order. */
export class FakeClock {
  #now: number;
  #monotonic = 0;
  #order = 0;
  #timers: Timer[] = [];

  constructor(now = Date.UTC(2026, 0, 1)) {
    this.#now = now;
  }

  /** The wall clock, in milliseconds since 1970. */
  now(): number {
    return this.#now;
  }

  /** A monotonic clock. */
  monotonic(): number {
    return this.#monotonic;
  }

  /** Runs `work` after `ms`; answers how to cancel it. */
  after(ms: number, work: () => void): () => void {
    const timer: Timer = { at: this.#monotonic + Math.max(0, ms), order: this.#order++, run: work };
    this.#timers.push(timer);
    return () => { this.#timers = this.#timers.filter((other) => other !== timer); };
  }

  /** Resolves after `ms`. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => { this.after(ms, resolve); });
  }

  /** Moves time by `ms`. What is due on the way runs at its moment; when this resolves, what follows has happened. */
  async advance(ms: number): Promise<void> {
    const end = this.#monotonic + ms;
    await settled();
    for (let due = this.#due(end); due; due = this.#due(end)) {
      this.#moveTo(due.at);
      this.#timers = this.#timers.filter((timer) => timer !== due);
      due.run();
      await settled();
    }
    this.#moveTo(end);
  }

  /** Moves time without running anything: the machine slept, or the tab was frozen. */
  jump(ms: number): void {
    this.#moveTo(this.#monotonic + ms);
  }

  /** Sets the wall clock alone, as a user or a time server does. */
  setWallClock(now: number): void {
    this.#now = now;
  }

  #due(end: number): Timer | undefined {
    const due = this.#timers.filter((timer) => timer.at <= end);
    return due.sort((a, b) => a.at - b.at || a.order - b.order)[0];
  }

  #moveTo(at: number): void {
    const by = Math.max(0, at - this.#monotonic);
    this.#monotonic += by;
    this.#now += by;
  }
}

export { FakeClock as FakeTimer };

/** Resolves when every promise that could go on has gone on. The doubles answer with promises alone, so one turn will do; the
 * hash of a file comes from another thread, and is waited for. */
export async function settled(): Promise<void> {
  do {
    await Promise.allSettled(hashing);
    await new Promise<void>((resolve) => { setTimeout(resolve, 0); });
  } while (hashing.size > 0);
}
