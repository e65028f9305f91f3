// The text that is made in turns is that of JSON.stringify.

import { expect, test } from 'vitest';
import { serialise } from '../../src/autosave/serialise.js';
import { joined, textOf } from '../../src/text.js';

const never = () => false;

test.each([
  ['texts', { a: 'x', 'ü"\\': '\u2028 \ud800 😀' }],
  ['numbers', [0, -0, 1.5, 1e300, NaN, Infinity]],
  ['what JSON leaves out', { a: undefined, b: () => 1, c: Symbol('c'), d: null, e: [undefined, () => 1, Symbol('e')] }],
  ['what only the first member leaves out', { a: undefined, b: 1 }],
  ['empty ones', { a: {}, b: [], c: '' }],
  ['toJSON', { at: new Date(0), own: { toJSON: () => ({ b: [1] }) } }],
  ['classes', { map: new Map([[1, 2]]), bytes: new Uint8Array(2), boxed: Object(1), text: Object('x') }],
  ['inherited members', Object.assign(Object.create({ inherited: 1 }), { own: 2 })],
  ['no prototype', Object.assign(Object.create(null), { own: 2 })],
  ['depth', { a: { b: { c: { d: { e: { f: [1, { g: 2 }] } } } } } }],
  ['many small ones', { list: Array.from({ length: 100 }, (_, at) => ({ at, of: [at, 'ü'] })), end: 'x'.repeat(30_000) }],
  ['a long text', { text: `${'x'.repeat(32_767)}😀${'"ü'.repeat(40_000)}\ud83d`, end: ['😀'.repeat(50_000), `x${'😀'.repeat(50_000)}`] }],
  ['holes', { list: Object.assign([], { length: 3, 1: 'x' }) }],
  ['a text', 'x'], ['a number', 1], ['null', null], ['a list', [1, [2]]],
])('%s', async (_, value) => {
  const expected = JSON.stringify(value);
  const made = await Promise.all([serialise(value, never), serialise(value, never, async () => {}, counter(100))]);
  expect(made.map((pieces) => textOf(joined(pieces!)))).toEqual([expected, expected]);
});

test('what is nothing, or goes round in circles, throws', async () => {
  const round: unknown[] = [];
  round.push(round);
  for (const value of [undefined, () => 1, Symbol('x'), round, { big: 1n }]) await expect(serialise(value, never)).rejects.toThrow(TypeError);
});

test('it pauses when a turn was long enough, and gives up when the document has changed', async () => {
  const document = { pages: Array.from({ length: 50 }, (_, number) => ({ number })) };
  let pauses = 0;
  const pause = async () => { pauses += 1; };
  expect(textOf(joined((await serialise(document, never, pause, counter(1)))!))).toBe(JSON.stringify(document));
  expect(pauses).toBeGreaterThan(20);
  expect(await serialise(document, () => pauses > 30, pause, counter(1))).toBeNull();
});

/** A clock that goes on by so many milliseconds whenever it is read. */
function counter(by: number): () => number {
  let now = 0;
  return () => now += by;
}
