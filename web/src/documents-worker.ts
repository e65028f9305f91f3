// The Worker that keeps the locks of a page's documents: a hidden tab's own timers come once a minute.

import { FINGERPRINT } from './documents/border.js';
import { DocumentEngine, type DocumentRules } from './documents/engine.js';
import type { ToPage, ToWorker } from './documents/remote.js';
import { rulesOf, type Exports } from './wasm.js';

const send = (message: ToPage) => postMessage(message);
const fail = (error: unknown) => send({ broken: String(error) });
const engines = new Map<number, DocumentEngine>();
let rules: Promise<DocumentRules>;
/** Messages are handled in their order, also while the rules are loaded. */
let before: Promise<unknown>;

onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if ('wasmUrl' in data) {
    rules = load(data.wasmUrl ?? new URL('./leasehold-documents.wasm', import.meta.url));
    before = rules.catch(fail);
    return;
  }
  before = before.then(() => handle(data)).catch(fail);
};

async function load(url: string | URL): Promise<DocumentRules> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}: say where it is with init({ wasmUrl })`);
  const { instance } = await WebAssembly.instantiate(await response.arrayBuffer());
  return rulesOf(instance.exports as unknown as Exports, FINGERPRINT);
}

async function handle(message: Exclude<ToWorker, { wasmUrl: unknown }>): Promise<void> {
  const { document } = message;
  if ('open' in message) {
    engines.set(document, new DocumentEngine(await rules, message.open, (said) => send({ document, ...said } as ToPage)));
    return;
  }
  const engine = engines.get(document);
  if ('token' in message) return engine?.takeToken(message.token);
  const { call, method, argument } = message;
  // Not awaited: a call may take as long as another user does.
  void Promise.resolve(engine?.[method](argument as never)).then((value) => send({ document, call, value }), fail);
  if (method === 'close') engines.delete(document);
}
