// Calls to a server: without redirects, and repeated when it is not known whether they were done. Tokens and lease ids
// never go into an error.

import { fromProblem, Invalid, TooMany, Unauthenticated, Unavailable } from './errors.js';
import { members, stringify } from './json.js';

export const TRIES = 6;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const LONGEST_RETRY_AFTER_MS = 5_000;

/** A wall clock that is ahead by more than this was set, or the machine has slept. */
const JUMP_MS = 100;

/** Milliseconds on a clock of our own. Node's own stands still while the machine sleeps, and people set the wall clock: where
 * that jumps ahead, the jump counts as time, so that a sleep is noticed; one that is set back changes nothing. */
export class Clock {
  #monotonic = performance.now();
  #wall = Date.now();
  #passed = 0;

  now() {
    const [monotonic, wall] = [performance.now(), Date.now()];
    const step = Math.max(0, monotonic - this.#monotonic);
    const ahead = wall - this.#wall - step;
    this.#passed += step + (ahead > JUMP_MS ? ahead : 0);
    [this.#monotonic, this.#wall] = [monotonic, wall];
    return this.#passed;
  }
}

export const clock = new Clock();

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A server, and who is calling. */
export class Server {
  #base;
  #token;

  constructor(url, token, timeoutMs) {
    let base;
    try {
      base = new URL(url);
    } catch {
      throw new TypeError('a server is reached like https://leases.example.com or http://127.0.0.1:7420');
    }
    if (!['http:', 'https:'].includes(base.protocol)) throw new TypeError('a server is reached by http: or https:');
    if (base.username || base.password || base.search || base.hash) {
      throw new TypeError("a server's URL has no user, no password and nothing after its path; give the token by itself");
    }
    this.#base = base.href.replace(/\/+$/, '');
    this.#token = token;
    this.timeoutMs = timeoutMs;
  }

  /**
   * Calls until there is an answer, or `before`, which comes before every try, throws: when the call that was answered was
   * sent, its status, its body, and the texts of its members. `signal` gives up the call.
   */
  async call(method, job, what = '', body = undefined, { tries = TRIES, before = () => {}, signal } = {}) {
    for (let failures = 1; ; failures += 1) {
      before();
      signal?.throwIfAborted();
      try {
        return await this.callOnce(method, job, what, body, this.timeoutMs, signal);
      } catch (error) {
        const mayPass = (error instanceof Unavailable || error instanceof TooMany) && error.pauseMs !== undefined;
        if (!mayPass || failures === tries) throw error;
        const backoff = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1)) * (0.5 + Math.random() / 2);
        await sleep(Math.max(error.pauseMs, backoff));
      }
    }
  }

  /** Calls, whatever comes of it. */
  async callOnce(method, job, what, body, timeoutMs, givenUp) {
    const [url, content] = [this.#base + jobPath(job) + what, encoded(body)];
    const headers = { accept: 'application/json', ...(await this.#authorization()) };
    if (content !== undefined) headers['content-type'] = 'application/json';
    const sent = clock.now();
    let response, text;
    try {
      const signal = either(AbortSignal.timeout(Math.max(1, Math.ceil(timeoutMs))), givenUp);
      response = await fetch(url, { method, headers, body: content, redirect: 'manual', signal });
      text = await response.text();
    } catch (error) {
      givenUp?.throwIfAborted();
      const why = error.cause?.code ?? error.cause?.message ?? error.message;
      throw mayPass(new Unavailable(`no answer from the server (${why})`, { cause: error }), 0);
    }
    return { sent, status: response.status, answer: read(response, text), texts: members(text) };
  }

  async #authorization() {
    let token = typeof this.#token === 'function' ? await this.#token() : this.#token;
    if (token === undefined || token === null) return {};
    // What is in a file usually ends with a newline.
    token = typeof token === 'string' ? token.trim() : ' ';
    if (!/^[!-~]*$/.test(token)) {
      // fetch would refuse it, too, and put it into its error.
      throw new Unauthenticated('the token holds what no token can (it is not shown); look where it comes from');
    }
    return token ? { authorization: `Bearer ${token}` } : {};
  }
}

/** Aborted when one of the two is. */
function either(one, other) {
  if (!other) return one;
  const both = new AbortController();
  for (const signal of [one, other]) {
    const abort = () => both.abort(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true, signal: both.signal });
  }
  return both.signal;
}

/** The error for an answer that is none to what was asked. */
export function notUnderstood() {
  return new Unavailable('the answer is not what this call is answered with; is this a Leasehold server?');
}

function encoded(body) {
  try {
    return body === undefined ? undefined : stringify(body);
  } catch (error) {
    throw new Invalid(`what is to be sent is no JSON: ${error.message}`);
  }
}

/** The address of a job, `collection/id`. A collection may be below a document of another: `users/u1/analyses`. */
function jobPath(job) {
  const slash = String(job).lastIndexOf('/');
  const [collection, id] = [String(job).slice(0, slash), String(job).slice(slash + 1)];
  // A URL would take these for steps to other folders.
  if (slash < 1 || !id || [collection, id].some((part) => part === '.' || part === '..')) {
    throw new Invalid(`a job is \`collection/id\`, such as \`analyses/42\`; this is ${JSON.stringify(job)}`);
  }
  return `/api/jobs/${encodeURIComponent(collection)}/${encodeURIComponent(id)}`;
}

function read(response, text) {
  const { status, ok } = response;
  let answer;
  try {
    answer = text === '' ? undefined : JSON.parse(text);
  } catch {
    if (ok) throw mayPass(new Unavailable('the answer is no JSON; is this a Leasehold server?'), 0);
  }
  if (ok) return answer;
  const error = fromProblem(status, answer);
  if (status === 408 || status >= 500 || (status === 429 && answer?.code !== 'too_many_leases')) {
    const wanted = /^\d+$/.test(response.headers.get('retry-after') ?? '') ? Number(response.headers.get('retry-after')) : 0;
    throw mayPass(error, Math.min(wanted * 1_000, LONGEST_RETRY_AFTER_MS));
  }
  throw error;
}

/** Marks an error after which the same call may be sent again, after this pause. */
function mayPass(error, pauseMs) {
  error.pauseMs = pauseMs;
  return error;
}
