// The rules, compiled to WebAssembly: a flat list of words and numbers in, JSON out. No rule is in here.

interface Exports {
  memory: WebAssembly.Memory;
  reserve(length: number): number;
  call(): number;
  answer(): number;
}

/** Where the compiled rules are: an address, or the bytes themselves. */
export type WasmSource = string | URL | BufferSource;

/** A word or a number of a request. */
export type Field = string | number | boolean | null | undefined;

/** One machine of the rules. */
export type Rules = <Answer>(...request: Field[]) => Answer;

let source: WasmSource | undefined;
let compiled: Promise<WebAssembly.Module> | undefined;

/** Says where the compiled rules are, when they are not beside this file. */
export function setWasm(from: WasmSource | undefined): void {
  source = from ?? source;
}

/** A new machine. The rules are loaded once. */
export async function rules(): Promise<Rules> {
  compiled ??= load().catch((error) => {
    compiled = undefined; // a network may come back
    throw error;
  });
  const { exports } = new WebAssembly.Instance(await compiled, {});
  const { memory, reserve, call, answer } = exports as unknown as Exports;
  return (...request) => {
    const bytes = request.flatMap(pack);
    // The memory may move whenever the module is called: its buffer is asked for afterwards.
    const at = reserve(bytes.length);
    new Uint8Array(memory.buffer, at, bytes.length).set(bytes);
    const length = call();
    return JSON.parse(new TextDecoder().decode(new Uint8Array(memory.buffer, answer(), length)));
  };
}

async function load(): Promise<WebAssembly.Module> {
  const code = await bytes(source ?? new URL('./leasehold.wasm', import.meta.url));
  // At once, except in a page, which would stand still: a test that moves time must not be overtaken by a compiler.
  return typeof document === 'undefined' ? new WebAssembly.Module(code) : WebAssembly.compile(code);
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

/** A byte that says what it is, and then what it is. */
function pack(field: Field): number[] {
  if (field === undefined || field === null) return [0];
  if (typeof field === 'boolean') return [field ? 2 : 1];
  if (typeof field === 'string') {
    const text = new TextEncoder().encode(field);
    return [4, ...new Uint8Array(new Uint32Array([text.length]).buffer), ...text];
  }
  return [3, ...new Uint8Array(new Float64Array([field]).buffer)];
}
