// An attempt at a job: refreshed by a timer, and lost in the open.

import { LeaseLost, NoSuchJob } from './errors.js';
import { clock, notUnderstood } from './http.js';
import { withText } from './json.js';

/** The longest sleep between two looks at the clock: a timer stands still while the machine sleeps, a deadline does not. */
const LONGEST_SLEEP_MS = 1_000;

/** How many characters of an error are kept: whatever they are, they fit into the 64 KiB that a server takes. */
const LONGEST_ERROR = 10_000;

/**
 * A job that is ours to do, until it is finished, given back, or lost.
 *
 * It refreshes itself. `signal` is aborted when it is lost, *before* another worker can begin; ask `check()` before every step
 * that others can see. Its timers keep no program alive.
 */
export class Attempt {
  acquired = true;
  #server;
  #leaseId;
  #warn;
  #refreshes;
  #lost = new AbortController();
  #ended = false;
  #timer;
  #refreshing = false;
  #failures = 0;
  #sent = -1;
  #every = 0;
  #refreshAt = 0;
  #stopAt = Infinity;

  constructor(server, id, answer, texts, sent, { onLost, warn, refreshes }) {
    if (typeof answer.lease_id !== 'string' || typeof answer.fence !== 'number') throw notUnderstood();
    this.id = id;
    withText(this, 'payload', texts.payload);
    this.fence = answer.fence;
    this.attempt = answer.attempt;
    this.recovered = answer.recovered;
    this.#server = server;
    this.#leaseId = answer.lease_id;
    this.#warn = warn;
    this.#refreshes = refreshes;
    if (onLost) this.signal.addEventListener('abort', () => onLost(this), { once: true });
    this.#take(answer, sent);
    this.#look();
  }

  /** Aborted when the attempt is lost; its `reason` is a `LeaseLost`. */
  get signal() {
    return this.#lost.signal;
  }

  /** For how many milliseconds the work may go on unless a refresh succeeds before; 0 when it is over. */
  timeLeftMs() {
    return this.#isOver() ? 0 : Math.max(0, this.#stopAt - clock.now());
  }

  /** Whether the job may still be worked on at this moment. */
  isHeld() {
    return this.timeLeftMs() > 0;
  }

  /** The fence, if the job may still be worked on at this moment; throws `LeaseLost` otherwise. */
  check() {
    if (this.isHeld()) return this.fence;
    this.#lose('deadline');
    throw this.signal.reason ?? new LeaseLost(`the attempt at ${this.id} has ended`, 'released');
  }

  /**
   * Refreshes it now, which it also does by itself; from now on for `ttl` seconds at a time, if given. An attempt that is over
   * stays so: `LeaseLost`.
   */
  async refresh(ttl) {
    const body = ttl === undefined ? this.#claim() : { ...this.#claim(), ttl_seconds: ttl };
    // A lost attempt is not refreshed: it would keep other workers out for nothing.
    const before = () => this.check();
    const { answer, sent } = await this.#orLose(this.#server.call('POST', this.id, '/refresh', body, { before }));
    this.#take(answer, sent);
    this.check(); // the answer may have come too late
  }

  /** The job is done. All later callers get this result. */
  async complete(result = null) {
    await this.#say('complete', { result });
  }

  /** The attempt failed. Answers whether the job will be tried again. Of a very long error the beginning is kept. */
  async fail(error, retryable = true) {
    // By way of bytes: half a surrogate pair would be refused.
    const words = Buffer.from(String(error?.message ?? error).slice(0, LONGEST_ERROR).replaceAll('\0', '')).toString();
    const answer = await this.#say('fail', { error: words, retryable });
    if (typeof answer?.again !== 'boolean') throw notUnderstood();
    return answer.again;
  }

  /** Gives the job back unfinished. That this fails is only a warning: the lease runs out. */
  async release() {
    if (this.#isOver()) return;
    try {
      await this.#say('release', {}, { tries: 3 });
    } catch (error) {
      if (error instanceof LeaseLost || error instanceof NoSuchJob) return; // there is nothing to give back any more
      this.#end();
      this.#warn(`${this.id} could not be given back, its lease will run out: ${error.message}`);
    }
  }

  /** Says how the attempt ended. It is refreshed until that is known, so that the last word has time to get through. */
  async #say(what, more, options) {
    const call = this.#server.call('POST', this.id, `/${what}`, { ...this.#claim(), ...more }, options);
    const { answer } = await this.#orLose(call);
    this.#end();
    return answer;
  }

  async #orLose(call) {
    try {
      return await call;
    } catch (error) {
      if (error instanceof LeaseLost || error instanceof NoSuchJob) this.#lose(error.because ?? 'unknown', error.held);
      throw error;
    }
  }

  /** Does what is due, and comes back when something will be. */
  #look() {
    if (this.#isOver()) return;
    const now = clock.now();
    if (now >= this.#stopAt) {
      this.#lose('deadline');
      return;
    }
    if (now >= this.#refreshAt && !this.#refreshing) void this.#refreshOnce();
    const next = this.#refreshing ? this.#stopAt : Math.min(this.#stopAt, this.#refreshAt);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), Math.min(LONGEST_SLEEP_MS, Math.max(1, next - now)));
    this.#timer.unref?.();
  }

  async #refreshOnce() {
    this.#refreshing = true;
    try {
      const timeoutMs = Math.min(this.#server.timeoutMs, this.#stopAt - clock.now());
      const { answer, sent } = await this.#server.callOnce('POST', this.id, '/refresh', this.#claim(), timeoutMs);
      this.#failures = 0;
      this.#take(answer, sent);
    } catch (error) {
      if (error instanceof LeaseLost || error instanceof NoSuchJob) {
        this.#lose(error.because ?? 'unknown', error.held);
      } else if (!this.#isOver()) {
        this.#failures += 1;
        this.#warn(`a refresh of ${this.id} failed and will be repeated: ${error.message}`);
        const pause = Math.min(this.#every, 10_000, (this.#every / 10) * 2 ** Math.min(this.#failures - 1, 10));
        this.#refreshAt = clock.now() + Math.max(20, error.pauseMs ?? 0, pause * (0.5 + Math.random() / 2));
      }
    } finally {
      this.#refreshing = false;
      this.#look();
    }
  }

  /** Takes in what an answer says about time: it counts from when the request was *sent*. */
  #take(answer, sent) {
    // An answer to an earlier request, or one that came too late: what was lost stays lost.
    if (sent < this.#sent || clock.now() >= this.#stopAt) return;
    const { refresh_after_ms: every, stop_after_ms: stop } = answer ?? {};
    if (![every, stop].every((time) => Number.isFinite(time) && time >= 0)) throw notUnderstood();
    this.#sent = sent;
    this.#every = every;
    this.#refreshAt = this.#refreshes ? sent + every : Infinity;
    this.#stopAt = sent + stop;
  }

  #claim() {
    return { lease_id: this.#leaseId, fence: this.fence };
  }

  #isOver() {
    return this.#ended || this.signal.aborted;
  }

  #end() {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  #lose(because, held) {
    if (this.#isOver()) return;
    clearTimeout(this.#timer);
    this.#warn(`${this.id} was lost: ${because}`);
    this.#lost.abort(new LeaseLost(`the attempt at ${this.id} is over (${because})`, because, held));
  }
}
