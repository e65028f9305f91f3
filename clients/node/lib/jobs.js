// The jobs of a server.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';

import { Attempt } from './attempt.js';
import { heldOf, Inexact, Invalid, LeaseLost, NoSuchJob, NotRetryable, Unavailable } from './errors.js';
import { notUnderstood, Server } from './http.js';
import { withText } from './json.js';

/** The jobs of a server. A job's id is `collection/id`, such as `analyses/42`. */
export class Jobs {
  #server;
  #worker;

  constructor(url, token, { worker, timeoutMs = 10_000, warn = (text) => console.warn(`leasehold: ${text}`) } = {}) {
    this.#server = new Server(url, token, timeoutMs);
    this.#worker = worker ?? `${hostname().slice(0, 40)}-${process.pid}`;
    /** Takes the warnings. */
    this.warn = warn;
  }

  /** Makes a job, unless it is there with the same payload. Answers whether it is new. */
  async create(id, payload = null, { maxAttempts } = {}) {
    const made = await this.#server.call('PUT', id, '', { payload, max_attempts: maxAttempts });
    jobOf(made);
    return made.status === 201;
  }

  /** What is known about a job; `null` if there is none. */
  async look(id) {
    try {
      return jobOf(await this.#server.call('GET', id));
    } catch (error) {
      if (error instanceof NoSuchJob) return null;
      throw error;
    }
  }

  /**
   * Begins with a job, if it is neither finished nor held by another worker. Not getting it is a value: look at `acquired`.
   * `signal` gives it up: then an attempt that may have begun is withdrawn, and does not count.
   */
  async acquire(id, { worker = this.#worker, ttl = 300, onLost, refreshes = true, signal } = {}) {
    const body = { lease_id: randomUUID(), worker, ttl_seconds: ttl };
    let sent, answer, texts;
    try {
      ({ sent, answer, texts } = await this.#server.call('POST', id, '/acquire', body, { signal }));
    } catch (error) {
      if (error instanceof Unavailable || signal?.aborted) void this.#withdraw(id, body.lease_id);
      throw error;
    }
    if (typeof answer?.acquired !== 'boolean') throw notUnderstood();
    const options = { onLost, warn: this.warn, refreshes };
    if (answer.acquired) return new Attempt(this.#server, id, answer, texts, sent, options);
    const { reason, status, error } = answer;
    if (typeof reason !== 'string') throw notUnderstood();
    return withText({ acquired: false, reason, status, error, held: heldOf(answer.held) }, 'result', texts.result);
  }

  /** Cancels an acquire whose answer is not known, so that the attempt that it may have begun does not count. */
  async #withdraw(id, leaseId) {
    try {
      await this.#server.call('POST', id, '/release', { lease_id: leaseId }, { tries: 3 });
    } catch (error) {
      this.warn(`an acquire of ${id} could not be withdrawn, its attempt will run out: ${error.message}`);
    }
  }

  /**
   * Does `work` if the job is ours to do, and finishes it with what that comes to. An error fails the attempt, which is tried
   * again as long as there are attempts left, unless it is `NotRetryable`. A result that cannot be kept (no JSON, or more than
   * 64 KiB of it) fails the job for good: it would be the same again. When the attempt is lost, `run` rejects with `LeaseLost`
   * at once; the work hears of it by its signal.
   */
  async run(id, work, options = {}) {
    const attempt = await this.acquire(id, options);
    if (!attempt.acquired) {
      const { reason, resultText, error, held } = attempt;
      const run = { outcome: reason, error, again: false, held, finished: reason === 'already_finished' };
      return withText(run, 'result', resultText);
    }
    try {
      return await finish(attempt, work);
    } finally {
      await attempt.release(); // unless it is finished or lost
    }
  }

  /** Has a job done again, whatever its status. Not while a worker is running it (`JobRunning`). */
  async reset(id) {
    return jobOf(await this.#server.call('POST', id, '/reset'));
  }
}

/** Does the work, and says what it came to. */
async function finish(attempt, work) {
  let result;
  try {
    result = await orLost(attempt, async () => work(attempt));
  } catch (error) {
    if (attempt.signal.aborted) throw attempt.signal.reason;
    return failed(attempt, String(error?.message ?? error), !(error instanceof NotRetryable || error instanceof Inexact));
  }
  attempt.check();
  try {
    await attempt.complete(result);
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
    return failed(attempt, `the result cannot be kept: ${error.message}`, false);
  }
  return { outcome: 'done', result, again: false, finished: true };
}

async function failed(attempt, error, retryable) {
  const again = await attempt.fail(error, retryable);
  return { outcome: 'failed', error, again, finished: !again };
}

/** What the work comes to, or a rejection as soon as its attempt is lost. */
function orLost(attempt, work) {
  return new Promise((resolve, reject) => {
    const lost = () => reject(attempt.signal.reason ?? new LeaseLost('the attempt is over', 'unknown'));
    attempt.signal.addEventListener('abort', lost, { once: true });
    if (attempt.signal.aborted) lost();
    work().then(resolve, reject).finally(() => attempt.signal.removeEventListener('abort', lost));
  });
}

function jobOf({ answer, texts }) {
  if (typeof answer?.status !== 'string') throw notUnderstood();
  const job = {
    id: `${answer.collection}/${answer.id}`,
    status: answer.status,
    attempts: answer.attempts,
    maxAttempts: answer.max_attempts,
    error: answer.error,
    held: heldOf(answer.held),
  };
  return withText(withText(job, 'payload', texts.payload), 'result', texts.result);
}
