// The Worker that keeps the locks of a page's documents: a hidden tab's own timers come once a minute.

import { FINGERPRINT } from './documents/border.js';
import { DocumentEngine, type DocumentRules } from './documents/engine.js';
import type { ToPage, ToWorker } from './documents/remote.js';
import { loadModule } from './wasm.js';

const send = (message: ToPage) => postMessage(message);
const engines = new Map<number, DocumentEngine>();
let rules: Promise<DocumentRules>;
/** Messages are handled in their order, also while the rules are loaded. */
let before: Promise<unknown>;

onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if ('wasmUrl' in data) {
    rules = loadModule<DocumentRules>(data.wasmUrl ?? new URL('./leasehold-documents.wasm', import.meta.url), FINGERPRINT);
    before = rules.catch((error) => send({ broken: String(error) }));
    return;
  }
  before = before.then(() => handle(data)).catch((error) => send({ broken: String(error) }));
};

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
  void Promise.resolve(engine?.[method](argument as never)).then(
    (value) => send({ document, call, value }),
    (error) => send({ broken: String(error) }),
  );
  if (method === 'close') engines.delete(document);
}
