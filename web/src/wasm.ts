// The rules, compiled to WebAssembly: one instance for all projects of a page. The types of requests and answers are in border.ts,
// which is made from the declarations in Rust. No rule is in here.

import { FINGERPRINT, type Answer, type Requests } from './border.js';
import { errorOf, unusable } from './error.js';

/** What a module of the rules exports. */
export interface Exports {
  readonly memory: WebAssembly.Memory;
  fingerprint?(): number;
  reserve(length: number): number;
  call(machine: number, wall: number, monotonic: number): number;
  answer(): number;
}

/** Where the compiled rules are: an address, or the bytes themselves. */
export type WasmSource = string | URL | BufferSource;

/** The name of a request. */
export type RequestName = keyof Requests;

/** What a request carries. */
export type Request<Name extends RequestName> = Requests[Name];

/** Asks the rules something about a machine, at a time. */
export type Rules =
  <Name extends RequestName>(machine: number, name: Name, fields: Request<Name>, wall: number, monotonic: number) => Answer;

let source: WasmSource | undefined;
let loaded: Promise<Rules> | undefined;

/** Says where the compiled rules are, when they are not beside this file. */
export function setWasm(from: WasmSource | undefined): void {
  source = from ?? source;
}

/** The rules. They are loaded once. */
export function rules(): Promise<Rules> {
  loaded ??= load().catch((error) => {
    loaded = undefined; // a network may come back
    throw errorOf(unusable('leasehold.wasm cannot be used here: say where it is with init({ wasmUrl }), or allow it in the policy', error));
  });
  return loaded;
}

function load(): Promise<Rules> {
  return loadModule(source ?? new URL('./leasehold.wasm', import.meta.url), FINGERPRINT);
}

/** The rules in a module of this version. */
export async function loadModule<Ask = Rules>(from: WasmSource, expected: number): Promise<Ask> {
  const code = await bytes(from);
  // At once, except in a page, which would stand still: a test that moves time must not be overtaken by a compiler.
  const module = typeof document === 'undefined' ? new WebAssembly.Module(code) : await WebAssembly.compile(code);
  return rulesOf<Ask>(new WebAssembly.Instance(module, {}).exports as unknown as Exports, expected);
}

/** @internal The rules in these exports, if they are of this version. */
export function rulesOf<Ask = Rules>({ memory, fingerprint, reserve, call, answer }: Exports, expected: number): Ask {
  const theirs = fingerprint?.();
  if (theirs === undefined || theirs >>> 0 !== expected) {
    throw new Error('leasehold.wasm is of another version: serve all files of one release');
  }
  const ask = (machine: number, name: string, fields: object, wall: number, monotonic: number) => {
    const encoded = encode(name, fields);
    // The memory may move whenever the module is called: its buffer is asked for afterwards.
    const at = reserve(encoded.length);
    new Uint8Array(memory.buffer, at, encoded.length).set(encoded);
    const length = call(machine, wall, monotonic);
    return JSON.parse(new TextDecoder().decode(new Uint8Array(memory.buffer, answer(), length)));
  };
  return ask as Ask;
}

async function bytes(from: WasmSource): Promise<BufferSource> {
  if (typeof from !== 'string' && !(from instanceof URL)) return from;
  const url = new URL(from, globalThis.location?.href);
  // In node, where tests with the doubles run, `fetch` does not read files.
  if (url.protocol === 'file:') return process.getBuiltinModule('node:fs').readFileSync(url);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}: say where it is with init({ wasmUrl })`);
  return response.arrayBuffer();
}

/** A request: its name, and the name and value of each field. A value is a byte that says what it is, and then what it is. The
 * rules check them, and say which is wrong; they pass over fields that they do not know. */
function encode(request: string, fields: object): number[] {
  const into: number[] = [];
  for (const value of [request, ...Object.entries(fields).flat()] as unknown[]) {
    if (value === undefined || value === null) into.push(0);
    else if (typeof value === 'boolean') into.push(value ? 2 : 1);
    else if (typeof value === 'number') into.push(3, ...new Uint8Array(new Float64Array([value]).buffer));
    else if (typeof value === 'string') {
      const text = new TextEncoder().encode(value);
      into.push(4, ...new Uint8Array(new Uint32Array([text.length]).buffer));
      text.forEach((byte) => into.push(byte));
    } else into.push(5);
  }
  return into;
}
