// What an element says to screen readers: two live regions, and when something is written into them.

import type { Clock } from '../ports.js';
import { Announcer } from './announcer.js';
import { make, write } from './dom.js';

/** How long an announcement stays in its region, so that a reader who comes by later does not meet old news. */
const SPOKEN_MS = 5_000;

/** The element whose voice it is: its clock, and what runs later as long as it is on the page. */
export interface Speaker {
  readonly clock: Clock;
  later(name: string, ms: number, work: () => void): void;
}

/** The voice of an element. */
export class Voice {
  // Both are there from the start: a region that is added together with its text is not announced.
  readonly status = make('div', { role: 'status', 'aria-atomic': 'true', class: 'unseen' });
  readonly alert = make('div', { role: 'alert', 'aria-atomic': 'true', class: 'unseen' });
  readonly #announcer = new Announcer();

  constructor(readonly speaker: Speaker) {}

  /** Says it at once. */
  alarm(text: string): void {
    this.#announcer.cancel();
    this.#speak(this.alert, text);
  }

  /** Says it when the last announcement is long enough ago. */
  announce(text: string): void {
    const wait = this.#announcer.say(text, this.#now);
    const now = () => {
      const text = this.#announcer.take(this.#now);
      if (text !== undefined) this.#speak(this.status, text);
    };
    if (wait > 0) this.speaker.later('announce', wait, now);
    else now();
  }

  /** Whether an announcement would be made at once. */
  get isFree(): boolean {
    return this.#announcer.wait(this.#now) === 0;
  }

  get #now(): number {
    return this.speaker.clock.monotonic();
  }

  /** Says nothing more of what was to be said. */
  hush(): void {
    this.#announcer.cancel();
    for (const region of [this.status, this.alert]) write(region, '');
  }

  #speak(region: HTMLElement, text: string): void {
    write(region, text);
    this.speaker.later(region.getAttribute('role') ?? '', SPOKEN_MS, () => write(region, ''));
  }
}
