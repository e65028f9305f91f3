// `navigator.locks` in memory, for tests: it queues, aborts and steals as the real one does (web/tests/faithful.ts runs on
// both), and can be told to refuse. It must never grant a name to two at once.

/** What a request does instead of queueing, one for each request, in order. */
export type Behaviour =
  /** As the real one does. */
  | 'normal'
  /** The request fails as in a browser without the feature (`NotSupportedError`). */
  | 'unsupported'
  /** The request is denied (`SecurityError`). */
  | 'denied'
  /** The request is never answered, except by its own abort. */
  | 'timeout';

interface Options { mode?: 'exclusive' | 'shared'; ifAvailable?: boolean; steal?: boolean; signal?: AbortSignal }
interface Held { name: string; mode: 'exclusive' }
type Work = (lock: Held | null) => unknown;
interface Request { name: string; client: string; grant(): void; fail(error: DOMException): void }

/** A `LockManager`. Every tab that is to be told apart gets its own from {@link MockNavigatorLocks.tab}. */
export class MockNavigatorLocks {
  /** What the next requests do; empty means normal. */
  readonly queue: Behaviour[] = [];
  readonly #shared: Shared;
  readonly #client: string;

  constructor(shared: Shared = { held: new Map(), waiting: [], clients: 0 }) {
    this.#shared = shared;
    this.#client = `tab-${++shared.clients}`;
  }

  /** Another tab of the same origin. */
  tab(): MockNavigatorLocks {
    return new MockNavigatorLocks(this.#shared);
  }

  /** The tab is gone: what it held is free, what it waited for is forgotten. */
  crash(): void {
    const { held, waiting } = this.#shared;
    this.#shared.waiting = waiting.filter((request) => request.client !== this.#client);
    const own = [...held].filter(([, holder]) => holder.client === this.#client);
    own.forEach(([name]) => held.delete(name));
    own.forEach(([name]) => this.#next(name));
  }

  request(name: string, work: Work): Promise<unknown>;
  request(name: string, options: Options, work: Work): Promise<unknown>;
  async request(name: string, second: Options | Work, third?: Work): Promise<unknown> {
    const [options, work] = typeof second === 'function' ? [{}, second] : [second, third as Work];
    if (options.signal && (options.steal || options.ifAvailable)) {
      throw new DOMException('a signal goes neither with steal nor with ifAvailable', 'NotSupportedError');
    }
    if (options.signal?.aborted) throw options.signal.reason;
    await null;
    const behaviour = this.queue.shift() ?? 'normal';
    if (behaviour === 'unsupported') throw new DOMException('Web Locks were switched off', 'NotSupportedError');
    if (behaviour === 'denied') throw new DOMException('Web Locks were denied', 'SecurityError');
    if (options.ifAvailable && this.#isTaken(name)) return work(null);
    return new Promise((resolve, reject) => this.#enqueue(name, options, work, resolve, reject, behaviour));
  }

  /** Who holds and who waits, as `navigator.locks.query()` says it. */
  async query(): Promise<{ held: { name: string; clientId: string }[]; pending: { name: string; clientId: string }[] }> {
    const held = [...this.#shared.held].map(([name, { client }]) => ({ name, clientId: client }));
    return { held, pending: this.#shared.waiting.map(({ name, client }) => ({ name, clientId: client })) };
  }

  /** Takes a lock from its holder, as a request with `steal: true` does. */
  steal(name: string): void {
    const holder = this.#shared.held.get(name);
    this.#shared.held.delete(name);
    holder?.fail(new DOMException('the lock was stolen', 'AbortError'));
  }

  /** Grants a lock to the next request, as if the holder's callback had ended. The holder does not notice. */
  release(name: string): void {
    this.#shared.held.delete(name);
    this.#next(name);
  }

  /** Ends every request of this tab that waits for a name, as its own signal does. */
  abort(name: string): void {
    const isOwn = (request: Request) => request.name === name && request.client === this.#client;
    const own = this.#shared.waiting.filter(isOwn);
    this.#shared.waiting = this.#shared.waiting.filter((request) => !isOwn(request));
    own.forEach((request) => request.fail(new DOMException('the request was aborted', 'AbortError')));
  }

  #enqueue(
    name: string, options: Options, work: Work,
    resolve: (value: unknown) => void, reject: (error: unknown) => void, behaviour: Behaviour,
  ): void {
    const request: Request = {
      name,
      client: this.#client,
      fail: reject,
      grant: () => {
        options.signal?.removeEventListener('abort', abort);
        this.#shared.held.set(name, request);
        this.#run(request, work, resolve, reject);
      },
    };
    const abort = () => {
      this.#shared.waiting = this.#shared.waiting.filter((waiting) => waiting !== request);
      reject(options.signal?.reason);
      this.#next(name);
    };
    options.signal?.addEventListener('abort', abort);
    if (behaviour === 'timeout') return;
    if (options.steal) this.steal(name);
    if (options.steal) request.grant();
    else this.#shared.waiting.push(request);
    this.#next(name);
  }

  async #run(
    request: Request, work: Work, resolve: (value: unknown) => void, reject: (error: unknown) => void,
  ): Promise<void> {
    try {
      resolve(await work({ name: request.name, mode: 'exclusive' }));
    } catch (error) {
      reject(error);
    }
    // A lock that was stolen meanwhile has another holder.
    if (this.#shared.held.get(request.name) !== request) return;
    this.#shared.held.delete(request.name);
    this.#next(request.name);
  }

  #isTaken(name: string): boolean {
    return this.#shared.held.has(name) || this.#shared.waiting.some((request) => request.name === name);
  }

  #next(name: string): void {
    if (this.#shared.held.has(name)) return;
    const at = this.#shared.waiting.findIndex((request) => request.name === name);
    if (at >= 0) this.#shared.waiting.splice(at, 1)[0]?.grant();
  }
}

interface Shared { held: Map<string, Request>; waiting: Request[]; clients: number }
