// The page's end of the package, with a Worker that says what a test tells it to.

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ToHost, ToPage } from '../src/remote.js';
import type { ProjectLockError } from '../src/index.js';

type Page = typeof import('../src/index.js');
type Asked = { call: number; method: string; options: Record<string, unknown> };

/** A Worker that keeps what it is told. */
class FakeWorker {
  static started: FakeWorker[] = [];
  readonly told: ToHost[] = [];
  onmessage = (_: { data: ToPage }) => {};
  onerror = (_: { message?: string }) => {};

  constructor(readonly url: string | URL) {
    FakeWorker.started.push(this);
  }

  /** What cannot be cloned cannot be sent. */
  postMessage(message: ToHost): void {
    this.told.push(structuredClone(message));
  }

  terminate(): void {}

  /** The calls that it was asked to make. */
  asked(): Asked[] {
    return this.told.filter((message) => 'call' in message) as Asked[];
  }

  says(data: ToPage): void {
    this.onmessage({ data });
  }
}

let page: Page;
const worker = () => FakeWorker.started.at(-1) as FakeWorker;

beforeEach(async () => {
  FakeWorker.started = [];
  vi.stubGlobal('Worker', FakeWorker);
  vi.resetModules();
  page = await import('../src/index.js');
});
afterEach(() => { vi.unstubAllGlobals(); });

const LEASE = {
  leaseId: '3f1c0b1e-0000-4000-8000-000000000001', fence: 7, owner: 'tab', expiresAt: 2, acquiredAt: 1, ttlMillis: 25_000,
  nextHeartbeatAt: 2, source: 'web-lock', strategy: 'web-lock', viaFallback: false, guarantee: 'exclusive',
  root: 'project', lockName: 'imgponic:project',
} as const;
const LAST = {
  name: 'LockConflictError', code: 'lease-stale', retryable: false, operation: 'renew', message: 'gone', level: 'error',
} as const;
const named = (root = 'project') => ({ root, lockName: 'imgponic:project' });
const readonly = (root?: string) => (
  { event: { lock: { type: 'lock:readonly-entered', ...named(root), reason: 'lease-stale', lastError: LAST } } });
const granted = (root?: string) => ({ event: { lock: { type: 'lock:acquired', ...named(root), lease: LEASE } } });

/** Acquires, and is granted the project. */
async function acquired(options: Parameters<Page['acquireProjectLock']>[0] = {}) {
  const call = page.acquireProjectLock(options);
  worker().says(granted(options.root));
  worker().says({ call: worker().asked().at(-1)?.call ?? 0, value: { lease: LEASE, didFallback: false } });
  return call;
}

/** Lets errors that nobody catches be caught here. */
async function uncaught(work: () => void): Promise<unknown[]> {
  const thrown: unknown[] = [];
  const original = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException').on('uncaughtException', (error) => thrown.push(error));
  work();
  await new Promise((resolve) => { setTimeout(resolve, 0); });
  process.removeAllListeners('uncaughtException');
  original.forEach((listener) => process.on('uncaughtException', listener));
  return thrown;
}

describe('onReadonly', () => {
  // A page with two projects had one place for both: only the last one given was ever called, for either.
  test('is told of its own project', () => {
    const told: string[] = [];
    void page.acquireProjectLock({ root: 'a', onReadonly: ({ reason }) => told.push(`a ${reason}`) });
    void page.acquireProjectLock({ root: 'b', onReadonly: ({ lastError }) => told.push(`b ${lastError.code}`) });
    worker().says(readonly('a'));
    expect(told).toEqual(['a lease-stale']);
    worker().says(readonly('b'));
    expect(told).toEqual(['a lease-stale', 'b lease-stale']);
  });

  test('is told until there is another lease', async () => {
    const onReadonly = vi.fn();
    await acquired({ onReadonly });
    await acquired({ reentrant: true, root: 'project' });
    const refused = page.acquireProjectLock();
    worker().says({ call: worker().asked().at(-1)?.call ?? 0, error: LAST });
    await expect(refused).rejects.toMatchObject({ code: 'lease-stale' });
    worker().says(readonly());
    expect(onReadonly).toHaveBeenCalledTimes(1);
    await acquired();
    worker().says(readonly());
    expect(onReadonly).toHaveBeenCalledTimes(1);
  });

  test('that throws keeps nobody from hearing', async () => {
    const heard: string[] = [];
    page.subscribeLockEvents(({ type }) => heard.push(type));
    void page.acquireProjectLock({ onReadonly: () => { throw new Error('mine'); } });
    const thrown = await uncaught(() => worker().says(readonly()));
    expect(heard).toEqual(['lock:readonly-entered']);
    expect(String(thrown)).toBe('Error: mine');
  });
});

describe('a Worker that fails', () => {
  // An application acquired anew as soon as it heard that its Worker had failed. That call went to the new Worker, and was
  // rejected together with those of the old one.
  test('ends the calls that it had, and none that is made when that is told', async () => {
    const before = page.acquireProjectLock();
    let after: Promise<unknown> | undefined;
    page.subscribeLockEvents(({ type }) => { if (type === 'lock:readonly-entered') after = page.acquireProjectLock(); });
    worker().onerror({ message: 'out of memory' });
    await expect(before).rejects.toMatchObject({ name: 'LockIrrecoverableError', code: 'fallback-open-failed' });
    await expect(before).rejects.toThrow(/init\({ workerUrl }\).*out of memory/);
    expect(FakeWorker.started).toHaveLength(2);
    const { call } = worker().asked()[0] as Asked;
    worker().says({ call, value: { lease: LEASE, didFallback: false } });
    await expect(after).resolves.toMatchObject({ didFallback: false });
  });

  test.each([['expired', true], ['acquire-failed', false]] as const)(
    'is told in all dialects, as %s in dialect service', async (type, holds) => {
      const heard: { type: string; error?: unknown }[] = [];
      const keep = (event: { type: string }) => { heard.push(event); };
      if (holds) await acquired();
      else page.acquireProjectLock().catch(() => {});
      for (const dialect of ['lock', 'service', 'autosave'] as const) page.subscribeLockEvents(keep, { dialect });
      worker().onerror({});
      expect(heard.map((event) => event.type)).toEqual([
        'lock:error', type, 'autosave.lock.error', 'autosave.lock.retry', 'lock:readonly-entered', 'autosave.lock.readonly',
      ]);
      const { lastError } = heard[4] as { lastError?: ProjectLockError };
      expect([lastError?.code, heard[1]?.error]).toMatchObject(['fallback-open-failed', { code: 'fallback-open-failed' }]);
    });

  test('ends work under the lease', async () => {
    const work = page.withProjectLock({}, () => new Promise<never>(() => {}));
    const ended = expect(work).rejects.toMatchObject({ name: 'LockIrrecoverableError' });
    worker().says(granted());
    worker().says({ call: worker().asked()[0]?.call ?? 0, value: { lease: LEASE, didFallback: false } });
    await new Promise((resolve) => { setTimeout(resolve, 0); });
    worker().onerror({});
    await ended;
  });

  test('tells every project, once', async () => {
    const told: string[] = [];
    await acquired({ root: 'a', onReadonly: () => told.push('a') });
    await acquired({ root: 'b', onReadonly: () => told.push('b') });
    const failed = worker();
    failed.onerror({});
    failed.onerror({});
    expect(told).toEqual(['a', 'b']);
  });

  test('names every project', async () => {
    const told: unknown[] = [];
    await acquired({ root: 'a' });
    page.acquireProjectLock({ root: 'b', lockName: 'c' }).catch(() => {});
    page.subscribeLockEvents(({ type, root, lockName }) => told.push([type, root, lockName]));
    worker().onerror({});
    expect(told).toEqual([
      ['lock:error', 'a', 'imgponic:project'], ['lock:readonly-entered', 'a', 'imgponic:project'],
      ['lock:error', 'b', 'c'], ['lock:readonly-entered', 'b', 'c'],
    ]);
  });

  test('is not replaced before somebody calls', () => {
    page.acquireProjectLock().catch(() => {});
    worker().onerror({});
    expect(FakeWorker.started).toHaveLength(1);
  });
});

test('a look goes to the Worker, and an error keeps its holder on the way back', async () => {
  const look = page.lookProjectLock({ root: 'a' });
  expect(worker().asked().at(-1)).toMatchObject({ method: 'lookProjectLock', options: { root: 'a' } });
  const holder = { owner: 'x', fence: 3, since: 1, expiresAt: 2 };
  worker().says({ call: worker().asked().at(-1)?.call ?? 0, error: { ...LAST, holder } });
  await expect(look).rejects.toMatchObject({ holder });
});

describe('what an application keeps its things in', () => {
  // Vue and MobX hand out proxies of what they are given, and a proxy cannot be sent: every save threw a DataCloneError.
  const reactive = <T extends object>(object: T): T => new Proxy(object, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'object' && value ? reactive(value) : value;
    },
  });

  test('may be a proxy', () => {
    const lease = reactive(LEASE);
    void page.acquireProjectLock(reactive({ root: 'a', retryPolicy: { maxAttempts: Infinity } }));
    void page.renewProjectLock(reactive({ lease, extendByMs: 5 }));
    void page.commitProjectFile(reactive({ lease, path: 'a', data: 'text' }));
    void page.releaseProjectLock(reactive({ lease, reason: 'completed' }));
    const claim = { leaseId: LEASE.leaseId, fence: LEASE.fence, ...named() };
    expect(worker().asked().map(({ options }) => options)).toEqual([
      { root: 'a', retryPolicy: { maxAttempts: Infinity } },
      { lease: claim, extendByMs: 5 },
      { lease: claim, path: 'a', data: 'text' },
      { lease: claim, reason: 'completed' },
    ]);
  });

  test('that cannot be sent is an error of that call', async () => {
    const call = page.commitProjectFile({ lease: LEASE, path: 'a', data: (() => {}) as never });
    await expect(call).rejects.toThrow(TypeError);
    const acquire = page.acquireProjectLock({ label: (() => {}) as never });
    await expect(acquire).rejects.toThrow(/^acquireProjectLock: an option cannot be sent/);
    await expect(acquire).rejects.toThrow(TypeError);
  });
});

describe('every refusal is a ProjectLockError, or a TypeError that names the argument', () => {
  // What a page under Trusted Types, under a strict content security policy and in node is told by `new Worker`.
  test.each([
    ['Trusted Types', () => { throw new TypeError("This document requires 'TrustedScriptURL' assignment."); }],
    ['a content security policy', () => { throw new DOMException('refused by policy', 'SecurityError'); }],
    ['node', undefined],
  ])('%s', async (_, Worker) => {
    vi.stubGlobal('Worker', Worker);
    const refused = { name: 'LockIrrecoverableError', code: 'fallback-open-failed', retryable: false };
    await expect(page.acquireProjectLock()).rejects.toMatchObject(refused);
    await expect(page.lookProjectLock()).rejects.toBeInstanceOf(page.ProjectLockError);
  });

  // Somebody forgot JSON.stringify.
  test.each([
    ['data', () => page.commitProjectFile({ lease: LEASE, path: 'a', data: { text: 'x' } as never })],
    ['data', () => page.commitProjectFile({ lease: LEASE, path: 'a' } as never)],
    ['lease', () => page.commitProjectFile({ path: 'a', data: '' } as never)],
    ['lease', () => page.releaseProjectLock({} as never)],
    ['lease', () => page.renewProjectLock(undefined as never)],
    ['listener', async () => page.subscribeLockEvents(undefined as never)],
  ])('%s', async (argument, call) => {
    await expect(call()).rejects.toThrow(TypeError);
    await expect(call()).rejects.toThrow(argument);
  });
});

describe('an abort', () => {
  test('is passed on', () => {
    const abort = new AbortController();
    void page.acquireProjectLock({ signal: abort.signal });
    abort.abort();
    expect(worker().told.at(-1)).toEqual({ abort: worker().asked()[0]?.call });
  });

  // A user left the editor while the grant was on its way. Nobody wanted the lease, and nobody gave it back.
  test('that crosses the grant gives the project back', async () => {
    const abort = new AbortController();
    const call = page.acquireProjectLock({ signal: abort.signal });
    const refused = expect(call).rejects.toMatchObject({ name: 'LockAcquisitionError', code: 'web-lock-aborted' });
    const { call: number } = worker().asked()[0] as Asked;
    abort.abort();
    worker().says({ call: number, value: { lease: LEASE, didFallback: false } });
    await vi.waitUntil(() => worker().asked().length === 2);
    const release = worker().asked()[1] as Asked;
    expect(release).toMatchObject({ method: 'releaseProjectLock', options: { lease: { leaseId: LEASE.leaseId } } });
    worker().says({ call: release.call, value: undefined });
    await refused;
  });
});

describe('init', () => {
  // The first call in a Worker of the application's own failed: `document is not defined`.
  test('takes addresses as they are in a Worker, which has no document', () => {
    vi.stubGlobal('location', { href: 'https://app.test/assets/worker.js' });
    page.init({ wasmUrl: 'rules.wasm' });
    void page.acquireProjectLock();
    expect(worker().told[0]).toEqual({ wasmUrl: 'https://app.test/assets/rules.wasm' });
  });

  test('in two parts is as good as in one', () => {
    page.init({ workerUrl: '/worker.js' });
    page.init({ wasmUrl: 'https://app.test/rules.wasm' });
    void page.acquireProjectLock();
    expect([worker().url, worker().told[0]]).toEqual(['/worker.js', { wasmUrl: 'https://app.test/rules.wasm' }]);
  });

  test('takes a logger at any time, which gets every error at its level', () => {
    const warn = vi.fn();
    void page.acquireProjectLock();
    page.init({ logger: { ...console, warn } });
    const error = { ...LAST, level: 'warn' };
    worker().says({ event: { lock: { type: 'lock:error', ...named(), operation: 'renew', error, retryable: false } } });
    worker().says(readonly());
    expect(warn.mock.calls).toEqual([['gone', expect.objectContaining({ code: 'lease-stale', level: 'warn' })]]);
  });

  test('comes before the first call, and may be repeated', () => {
    page.init({ workerUrl: '/worker.js' });
    void page.acquireProjectLock();
    page.init({ workerUrl: '/worker.js' });
    expect(() => page.init({ workerUrl: '/other.js' })).toThrow(/before every other call/);
  });
});

test('a dialect that does not exist is refused', () => {
  expect(() => page.subscribeLockEvents(() => {}, { dialect: 'latin' as never })).toThrow(/lock, service, autosave/);
});
