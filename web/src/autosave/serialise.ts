// Serialises a document in short turns, so that typing is not held up: the text of `JSON.stringify` in UTF-8, made of the texts
// of its parts. It is encoded piece by piece: all at once, a megabyte would hold the page up longer than everything else. It
// gives up when the document changes meanwhile; what was made until then would be a mixture.

import type { Bytes } from '../hash.js';
import { bytesOf } from '../text.js';

/** How long one turn takes, in milliseconds. */
const TURN = 1;

/** How many characters are encoded at once. Larger pieces take several times as long: their memory is new each time. */
const PIECE = 1 << 15;

/** Parts of objects and arrays are taken one by one down to this depth. */
const DEPTH = 4;

/** What is written as a whole has at most so many members; 500 characters count as one. */
const SMALL = 40;

/** What lets the page do something else. */
export type Pause = () => Promise<void>;

/** Serialises a document, into pieces of its text; null if `hasChanged` says so on the way. Throws what `JSON.stringify` throws. */
export async function serialise(
  document: unknown, hasChanged: () => boolean, pause: Pause = nextTurn, now: () => number = () => performance.now(),
): Promise<Bytes[] | null> {
  const pieces: Bytes[] = [];
  let [text, began] = ['', now()];
  for (const part of partsOf(document, DEPTH)) {
    text += part;
    if (text.length > PIECE) {
      pieces.push(bytesOf(text));
      text = '';
    }
    if (now() - began < TURN) continue;
    await pause();
    if (hasChanged()) return null;
    began = now();
  }
  pieces.push(bytesOf(text));
  return pieces;
}

/** The text in parts. Only plain objects and arrays are taken apart: what has a say in how it is written is written as a whole. */
function* partsOf(value: unknown, depth: number): Generator<string, void> {
  if (typeof value === 'string' && value.length > PIECE) return yield* partsOfText(value);
  if (depth === 0 || !isPlain(value) || roomAfter(value, SMALL) > 0) {
    const text = JSON.stringify(value);
    // What JSON does not have: `undefined`, a function, a symbol.
    if (text === undefined) throw new TypeError('the document is no JSON');
    yield text;
    return;
  }
  const isList = Array.isArray(value);
  let before = isList ? '[' : '{';
  for (const [key, item] of isList ? value.entries() : Object.entries(value)) {
    const isAbsent = item === undefined || typeof item === 'function' || typeof item === 'symbol';
    if (isAbsent && !isList) continue;
    yield isList ? before : `${before}${JSON.stringify(key)}:`;
    before = ',';
    if (isAbsent) yield 'null';
    else yield* partsOf(item, depth - 1);
  }
  yield before === ',' ? '' : before;
  yield isList ? ']' : '}';
}

/** A long text in parts. */
function* partsOfText(text: string): Generator<string, void> {
  yield '"';
  for (let at = 0, end; at < text.length; at = end) {
    end = at + PIECE;
    // The halves of a character belong together: one alone is written in another way.
    if (/[\uD800-\uDBFF]/.test(text[end - 1] ?? '')) end -= 1;
    yield JSON.stringify(text.slice(at, end)).slice(1, -1);
  }
  yield '"';
}

/** What is left of this room when the value has taken its share. */
function roomAfter(value: unknown, room: number): number {
  if (typeof value === 'string') return room - value.length / 500;
  for (const key in value as object) if (room <= 0 || (room = roomAfter((value as never)[key], room - 1)) <= 0) break;
  return room;
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || 'toJSON' in value) return false;
  const prototype = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === Object.prototype || prototype === null;
}

/** A message to oneself comes after what the page has to do, and is not held up as timers are. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
