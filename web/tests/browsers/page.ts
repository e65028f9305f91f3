// What a tab of the browser tests can be asked to do, with the package as it is shipped. `?worker=` chooses a Worker whose
// browser lacks something.

import * as leasehold from '/dist/index.js';
import type { ProjectLockAcquireOptions, ProjectLockEvent, ProjectLockLease } from '../../src/index.js';

const parameters = new URL(location.href).searchParams;
const who = parameters.get('who') ?? crypto.randomUUID().slice(0, 8);
const worker = parameters.get('worker');
if (worker) leasehold.init({ workerUrl: `/bundle/${worker}.worker.js`, wasmUrl: '/dist/leasehold.wasm' });

const events: { at: number; type: string; event: ProjectLockEvent }[] = [];
const waiting: { type: string; tell(at: number): void }[] = [];
leasehold.subscribeLockEvents((event) => {
  events.push({ at: Date.now(), type: event.type, event });
  waiting.filter(({ type }) => type === event.type).forEach(({ tell }) => tell(Date.now()));
});

let lease: ProjectLockLease | undefined;

const tab = {
  leasehold,
  events,

  /** Tries to become the owner, together with so many others, and signs the register if it does. */
  async attempt({ together, options }: { together?: number; options: ProjectLockAcquireOptions }): Promise<string> {
    if (together) await fetch(`/barrier?count=${together}&who=${who}`, { method: 'POST' });
    try {
      ({ lease } = await leasehold.acquireProjectLock(options));
    } catch (error) {
      return (error as { code?: string }).code ?? String(error);
    }
    await fetch(`/enter?who=${who}`);
    return 'owner';
  },

  /** Gives the project back, if it is this tab's. */
  async leave(): Promise<string> {
    if (!lease) return 'not mine';
    const own = lease;
    lease = undefined;
    await fetch(`/leave?who=${who}`);
    return leasehold.releaseProjectLock({ lease: own }).then(() => 'released', (error) => error.code ?? String(error));
  },

  /** Attempts, does a little, and leaves. */
  async visit(turn: { together?: number; options: ProjectLockAcquireOptions }): Promise<string> {
    const came = await tab.attempt(turn);
    await tab.leave();
    return came;
  },

  /** Saves something with the lease of this tab. */
  async save(text: string): Promise<string> {
    if (!lease) return 'no lease';
    // What is tried here is the lease: the tabs never read what they replace.
    const save = leasehold.commitProjectFile({ lease, path: 'current.json', data: text, overwrite: true });
    return save.then(() => 'saved', (error) => error.code ?? String(error));
  },

  /** Saves all of these in one file at the same time. */
  async saveAtOnce(texts: string[]): Promise<string[]> {
    return Promise.all(texts.map((text) => tab.save(text)));
  },

  /** Writes as fast as it can, until the end. */
  async scribble(): Promise<void> {
    for (let count = 0; lease; count += 1) {
      ({ lease } = { lease: await leasehold.renewProjectLock({ lease }) });
      const data = JSON.stringify({ count, text: 'x'.repeat(5000) });
      await leasehold.commitProjectFile({ lease, path: 'current.json', data, overwrite: true });
    }
  },

  /** A file of the project as it is. */
  async read(name: string): Promise<string> {
    const root = await navigator.storage.getDirectory();
    const file = await (await root.getDirectoryHandle('project')).getFileHandle(name);
    return (await file.getFile()).text();
  },

  /** What is in a folder of the private files. */
  async files(name?: string): Promise<string[]> {
    const root = await navigator.storage.getDirectory();
    const names: string[] = [];
    for await (const key of (name ? await root.getDirectoryHandle(name) : root).keys()) names.push(key);
    return names.sort();
  },

  /** Waits until this tab has acquired a larger fence than this, and answers which. */
  async acquiredAfter(before: number): Promise<number> {
    for (;;) {
      const fences = events.map(({ event }) => (event.type === 'lock:acquired' ? event.lease.fence : 0));
      const fence = Math.max(0, ...fences);
      if (fence > before) return fence;
      await new Promise((resolve) => waiting.push({ type: 'lock:acquired', tell: resolve }));
    }
  },

  /** Counts for so long how often a timer of 100 ms comes, and what the page was all the while. */
  async tickFor(ms: number): Promise<{ ticks: number; seen: string[] }> {
    const seen = new Set<string>([document.visibilityState]);
    document.addEventListener('visibilitychange', () => seen.add(document.visibilityState));
    let ticks = 0;
    for (const end = performance.now() + ms; performance.now() < end; ticks += 1) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return { ticks, seen: [...seen] };
  },

  /** Waits for an event, and answers when it came. */
  async heard(type: string): Promise<number> {
    const found = events.find((event) => event.type === type);
    return found ? found.at : new Promise((tell) => waiting.push({ type, tell }));
  },
};

declare global {
  var tab: typeof import('./page.js').default;
}

export default tab;
globalThis.tab = tab;
