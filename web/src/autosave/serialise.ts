// Serialises a document in short turns, so that typing is not held up: the same text as `JSON.stringify`, made of the texts of
// its parts. It gives up when the document changes meanwhile; what was made until then would be a mixture.

/** How long one turn takes, in milliseconds. */
const TURN = 2;

/** Parts of objects and arrays are taken one by one down to this depth. */
const DEPTH = 4;

/** What lets the page do something else. */
export type Pause = () => Promise<void>;

/** The text of a document; null if `hasChanged` says so on the way. Throws what `JSON.stringify` throws. */
export async function serialise(
  document: unknown, hasChanged: () => boolean, pause: Pause = nextTurn, now: () => number = () => performance.now(),
): Promise<string | null> {
  const parts: string[] = [];
  let began = now();
  for (const part of partsOf(document, DEPTH)) {
    parts.push(part);
    if (now() - began < TURN) continue;
    await pause();
    if (hasChanged()) return null;
    began = now();
  }
  return parts.join('');
}

/** The text in parts. Only plain objects and arrays are taken apart: what has a say in how it is written is written as a whole. */
function* partsOf(value: unknown, depth: number): Generator<string, void> {
  if (depth === 0 || !isPlain(value)) {
    const text = JSON.stringify(value);
    // What JSON does not have: `undefined`, a function, a symbol.
    if (text === undefined) throw new TypeError('the document is nothing that JSON can have');
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
