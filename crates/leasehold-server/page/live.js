// The event stream, with resume: an EventSource with a ticket, opened anew with the id of the last event whenever it breaks.

const NAMES = [
  'DocumentLocked', 'DocumentUnlocked', 'DocumentLeaving', 'DocumentResumed',
  'HandoverRequested', 'HandoverTold', 'HandoverRefused', 'HandoverWithdrawn',
];

/** Waits between attempts, in milliseconds. The last one repeats. */
const WAITS = [500, 1000, 2000, 4000, 8000];

/**
 * `to` is told: `state('connecting' | 'live' | 'lost', { retryAt, error })`, `event(event)`,
 * `snapshot(documents, asked)` and `ended(reason)`.
 */
export class Live {
  #api;
  #to;
  #source = null;
  #last = null;
  #failures = 0;
  #timer = null;
  #generation = 0;

  constructor(api, to) {
    this.#api = api;
    this.#to = to;
  }

  /** Connects; a stream that is open is replaced. */
  async connect() {
    this.close();
    const generation = this.#generation;
    this.#to.state('connecting', {});
    let ticket;
    try {
      ({ ticket } = await this.#api.call('POST', '/api/tickets'));
    } catch (error) {
      if (generation === this.#generation) this.#lost(error);
      return;
    }
    if (generation === this.#generation) this.#open(ticket);
  }

  /** Ends the stream, and all attempts at a new one. */
  close() {
    this.#generation += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  /** Forgets where the stream was: the next one begins with the current state. */
  forget() {
    this.#last = null;
    this.#failures = 0;
  }

  /** The server was found to be away by other means: a connection without a server can stay silent for minutes. */
  broke(error) {
    if (this.#source === null) return;
    this.close();
    this.#lost(error);
  }

  #open(ticket) {
    const resume = this.#last === null ? '' : `&last_event_id=${this.#last}`;
    const source = new EventSource(`/api/events?ticket=${encodeURIComponent(ticket)}${resume}`);
    this.#source = source;
    const asked = performance.now();
    let parts = [];
    source.onopen = () => {
      this.#failures = 0;
      this.#to.state('live', {});
    };
    source.onerror = () => this.broke(null);
    source.addEventListener('snapshot', (message) => {
      const { documents, more } = JSON.parse(message.data);
      parts.push(...documents);
      if (more) return;
      this.#last = message.lastEventId;
      this.#to.snapshot(parts, asked);
      parts = [];
    });
    for (const name of NAMES) {
      source.addEventListener(name, (message) => {
        this.#last = message.lastEventId;
        this.#to.event(JSON.parse(message.data));
      });
    }
    source.addEventListener('end', (message) => {
      const { reason } = JSON.parse(message.data);
      this.close();
      if (reason === 'token_expired') this.#to.ended(reason);
      else this.#lost(null);
    });
  }

  #lost(error) {
    const wait = Math.max(WAITS[Math.min(this.#failures, WAITS.length - 1)], error?.retryAfterMs ?? 0);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.connect(), wait * (1 + Math.random() / 4));
    this.#to.state('lost', { retryAt: performance.now() + wait, error });
  }
}
