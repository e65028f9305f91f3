// Who else looks at a document. A server without this call is not asked again.

import { Refusal } from './api.js';

/** How many documents are asked about at a time. */
const AT_ONCE = 20;

export class Presence {
  #api;
  #looking = new Map();
  #isThere = true;

  constructor(api) {
    this.#api = api;
  }

  /** The people who look at a document without editing it. */
  of(room) {
    return this.#looking.get(room) ?? [];
  }

  /** Asks about these documents. */
  async ask(rooms) {
    if (!this.#isThere) return;
    await Promise.all(rooms.slice(0, AT_ONCE).map((room) => this.#askOne(room)));
  }

  forget() {
    this.#looking.clear();
  }

  async #askOne(room) {
    try {
      const { looking } = await this.#api.room('GET', room, 'presence');
      this.#looking.set(room, looking ?? []);
    } catch (error) {
      this.#looking.delete(room);
      if (error instanceof Refusal && error.code === 'not_found') this.#isThere = false;
    }
  }
}
