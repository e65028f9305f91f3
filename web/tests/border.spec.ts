// The border to WebAssembly: the compiler checks what is sent, and the rules say which field of which request is wrong.

import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { FINGERPRINT, type Answer } from '../src/border.js';
import { createProjectLock } from '../src/local.js';
import { rules, rulesOf, setWasm } from '../src/wasm.js';

const url = new URL('../dist/leasehold.wasm', import.meta.url);
setWasm(url);
const ask = await rules() as unknown as (machine: number, name: string, fields: object, wall: number, monotonic: number) => Answer;

const OPEN = { owner: 'me', root: 'project', lockName: 'imgponic:project', folder: 'guarded', seedA: 1, seedB: 2, seedC: 3, seedD: 4 };

function open(): number {
  return ask(0, 'open', OPEN, 1000, 0).machine ?? -1;
}

test.each([
  ['abort', {}, 'abort.call: expected a whole number'],
  ['abort', { call: 1.5 }, 'abort.call: expected a whole number'],
  ['abort', { call: '1' }, 'abort.call: expected a whole number'],
  ['renew', { call: 1, leaseId: 5 }, 'renew.leaseId: expected a text'],
  ['renew', { call: 1, leaseId: {} }, 'renew.leaseId: expected a text'],
  ['renew', { call: 1, leaseId: 'x', extendByMs: '5' }, 'renew.extendByMs: expected a number'],
  ['release', { call: 1, leaseId: 'x', force: 'yes' }, 'release.force: expected true or false'],
  ['acquire', { call: 1 }, 'acquire.reentrant: expected true or false'],
  ['open', { ...OPEN, folder: 'locked' }, 'open.folder: expected one of the words in border.ts'],
])('%s is refused with %j', (name, fields, message) => {
  expect(ask(name === 'open' ? 0 : open(), name, fields, 0, 0).invalid).toBe(message);
});

/** The exports of a new instance. */
async function instance(): Promise<any> {
  const { instance: { exports } } = await WebAssembly.instantiate(readFileSync(url), {});
  return exports;
}

/** Calls the module with bytes that TypeScript would not write. */
function raw(exports: any, bytes: number[]): Answer {
  const at = exports.reserve(bytes.length);
  new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
  const length = exports.call(0, 0, 0);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(exports.memory.buffer, exports.answer(), length)));
}

test('what is cut off, or no request, is refused', async () => {
  const exports = await instance();
  const text = (text: string) => [4, text.length, 0, 0, 0, ...new TextEncoder().encode(text)];
  for (const bad of [[], [2], [4, 9, 0, 0, 0, 65], [...text('abort'), 3], [...text('abort'), ...text('call'), 3, 0, 0], [...text('abort'), 2, 2]]) {
    expect(raw(exports, bad).invalid).toBe('the request is cut off');
  }
  expect(raw(exports, text('nonsense')).invalid).toBe('there is no such request');
  expect(raw(exports, text('timeout')).invalid).toBe('no project was opened under this number');
});

test('fields that the rules do not know are passed over, whatever they are', () => {
  const fields = { call: 1, signal: {}, data: [1, 2], toString: 'x', __proto__: null, other: undefined };
  expect(ask(open(), 'abort', fields, 0, 0)).toEqual({});
});

test('a module of another version is refused', async () => {
  const exports = await instance();
  expect(exports.fingerprint() >>> 0).toBe(FINGERPRINT);
  for (const fingerprint of [() => FINGERPRINT + 1, undefined]) {
    expect(() => rulesOf({ ...exports, fingerprint }, FINGERPRINT)).toThrow(/another version.*one release/);
  }
});

test('one instance serves a thousand projects, each apart from the others', () => {
  const machines = Array.from({ length: 1000 }, open);
  expect(new Set(machines).size).toBe(1000);
  const [first = 0, second = 0] = machines;
  const options = { reentrant: false, allowAdvisory: false, acceptClockSkew: false };
  expect(ask(first, 'acquire', { call: 1, ...options }, 1000, 0).effects).toContainEqual(
    expect.objectContaining({ do: 'requestWebLock' }));
  expect(ask(second, 'timeout', {}, 1000, 0).effects).toBeUndefined();
});

/** The module's allocator is a small one: it must give back what it is given, in whatever order, or a page that is open for
 * days would grow. */
test('a page that works for days needs no more memory than at first', { timeout: 60_000 }, async () => {
  const exports = await instance();
  const rules = rulesOf(exports, FINGERPRINT) as unknown as typeof ask;
  const size = (): number => exports.memory.buffer.byteLength;
  const work = (rounds: number) => {
    for (let round = 0; round < rounds; round += 1) {
      const root = 'p'.repeat(1 + round % 97);
      const machine = rules(0, 'open', { ...OPEN, root }, 1000, 0).machine ?? -1;
      rules(machine, 'acquire', { call: 1, reentrant: false, allowAdvisory: false, acceptClockSkew: false }, 1000 + round, round);
      rules(machine, 'abort', { call: 1 }, 1000 + round, round);
      if (round % 3) rules(machine, 'close', {}, 1000, 0);
      else for (const kept of [...Array(10).keys()]) rules(kept, 'close', {}, 1000, 0);
    }
  };
  work(1000);
  const before = size();
  work(20_000);
  expect(size()).toBe(before);
});

test('a machine that was closed is gone, and its number is given again', () => {
  const machine = open();
  expect(ask(machine, 'close', {}, 0, 0)).toEqual({});
  expect(ask(machine, 'timeout', {}, 0, 0).invalid).toBe('this project was closed');
  expect(open()).toBe(machine);
});

test('a machine is closed when the lock that it belongs to was garbage-collected', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const next = open();
  ask(next, 'close', {}, 0, 0);
  await createProjectLock({ folder: null, locks: null, channel: null }).acquireProjectLock().catch(() => {});
  // Its number is taken now, and free again when the collector has called.
  const isFree = () => {
    const number = open();
    ask(number, 'close', {}, 0, 0);
    return number === next;
  };
  expect(isFree()).toBe(false);
  for (let turn = 0; turn < 100 && !isFree(); turn += 1) {
    collect();
    await new Promise((resolve) => { setTimeout(resolve); });
  }
  expect(isFree()).toBe(true);
});
