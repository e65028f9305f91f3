// The Worker's end of a page's calls: owns one project lock, and forwards calls, answers and events.

import { ProjectLockError, viewOf } from './error.js';
import { ProjectLocks } from './lock.js';
import type { Method, ToHost, ToPage } from './remote.js';
import { setWasm } from './wasm.js';

export { hashing } from './hash.js';

/** Owns a lock whose answers and events go to `send`; returns the receiver of the page's messages. */
export function host(send: (message: ToPage) => void): (message: ToHost) => void {
  const lock = new ProjectLocks({}, (event) => send({ event }));
  const aborts = new Map<number, AbortController>();

  async function answer(call: number, method: Method, options: object | undefined): Promise<void> {
    const abort = new AbortController();
    aborts.set(call, abort);
    try {
      send({ call, value: await lock[method]({ ...options, signal: abort.signal } as never) });
    } catch (error) {
      send(error instanceof ProjectLockError ? { call, error: viewOf(error) } : { call, thrown: error });
    }
    aborts.delete(call);
  }

  return (message) => {
    if ('wasmUrl' in message) setWasm(message.wasmUrl);
    else if ('abort' in message) aborts.get(message.abort)?.abort();
    else void answer(message.call, message.method, message.options);
  };
}
