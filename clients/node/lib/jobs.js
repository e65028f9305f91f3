// The jobs of a server.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';

import { Attempt } from './attempt.js';
import { heldOf, Invalid, LeaseLost, NoSuchJob, NotRetryable } from './errors.js';
import { notUnderstood, Server } from './http.js';

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
    const { status, answer } = await this.#server.call('PUT', id, '', { payload, max_attempts: maxAttempts });
    jobOf(answer);
    return status === 201;
  }

  /** What is known about a job; `null` if there is none. */
  async look(id) {
    try {
      return jobOf((await this.#server.call('GET', id)).answer);
    } catch (error) {
      if (error instanceof NoSuchJob) return null;
      throw error;
    }
  }

  /** Begins with a job, if it is neither finished nor in somebody's hands. Not getting it is a value: look at `acquired`. */
  async acquire(id, { worker = this.#worker, ttl = 300, onLost, refreshes = true } = {}) {
    const body = { lease_id: randomUUID(), worker, ttl_seconds: ttl };
    const { sent, answer } = await this.#server.call('POST', id, '/acquire', body);
    if (typeof answer?.acquired !== 'boolean') throw notUnderstood();
    if (answer.acquired) return new Attempt(this.#server, id, answer, sent, { onLost, warn: this.warn, refreshes });
    const { reason, status, result, error } = answer;
    if (typeof reason !== 'string') throw notUnderstood();
    return { acquired: false, reason, status, result, error, held: heldOf(answer.held) };
  }

  /**
   * Does `work` if the job is ours to do, and finishes it with what that comes to. An error fails the attempt, which is tried
   * again as long as there are attempts left, unless it is `NotRetryable`. A result that cannot be kept (no JSON, or more than
   * 64 KiB of it) fails the job for good: it would be the same again. When the attempt is lost, `run` rejects with `LeaseLost`
   * at once; the work is told by its signal.
   */
  async run(id, work, options = {}) {
    const attempt = await this.acquire(id, options);
    if (!attempt.acquired) {
      const { reason, result, error, held } = attempt;
      return { outcome: reason, result, error, again: false, held, finished: reason === 'already_finished' };
    }
    try {
      return await finish(attempt, work);
    } finally {
      await attempt.release(); // unless it is finished or lost
    }
  }

  /** Has a job done all over again, whatever it came to. Not while somebody works on it (`JobRunning`). */
  async reset(id) {
    return jobOf((await this.#server.call('POST', id, '/reset')).answer);
  }
}

/** Does the work, and says what it came to. */
async function finish(attempt, work) {
  let result;
  try {
    result = await orLost(attempt, async () => work(attempt));
  } catch (error) {
    if (attempt.signal.aborted) throw attempt.signal.reason;
    return failed(attempt, String(error?.message ?? error), !(error instanceof NotRetryable));
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

function jobOf(answer) {
  if (typeof answer?.status !== 'string') throw notUnderstood();
  return {
    id: `${answer.collection}/${answer.id}`,
    status: answer.status,
    payload: answer.payload,
    attempts: answer.attempts,
    maxAttempts: answer.max_attempts,
    result: answer.result,
    error: answer.error,
    held: heldOf(answer.held),
  };
}
