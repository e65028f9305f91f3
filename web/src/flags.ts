// `leasehold/flags`: in which phase of a roll-out this page is, as the server's flag file says, and an autosave that obeys it.
// Where the phase turns autosave off, no lock is taken and nothing is written: the code for it is not even loaded.

import type { AutoSaveOptions } from './autosave/engine.js';
import type { AutoSave, AutoSaveSnapshot, AutoSaveState } from './autosave/state.js';
import { systemClock } from './clock.js';
import type { Clock } from './ports.js';

/** Which phase counts, and what it turns on. */
export interface Flags {
  readonly phase: string;
  readonly autosave: boolean;
}

/** Where flags come from. What is named first here counts most: `flags`, the server, what it said last time, `fallback`. */
export interface FlagsOptions {
  /** Counts whatever the server says, which is not asked then. */
  readonly flags?: Flags | undefined;
  /** Where the server answers; `/api/flags`. */
  readonly url?: string | undefined;
  /** Counts as long as no server has ever answered this site; autosave on, in phase `default`. */
  readonly fallback?: Flags | undefined;
  /** How often the server is asked again; 60000. With 0 it is asked once. */
  readonly refreshMs?: number | undefined;
  /** How long an answer may take; 3000. */
  readonly timeoutMs?: number | undefined;
  /** For tests: how the server is asked, where its last answer is kept, and the time. */
  readonly fetch?: typeof fetch | undefined;
  readonly storage?: Pick<Storage, 'getItem' | 'setItem'> | null | undefined;
  readonly clock?: Clock | undefined;
}

/** The flags of this page, which follow the server's. */
export interface FlagsWatch {
  /** What counts now; null until the first answer, or its failure. */
  current(): Flags | null;
  /** Resolves when something counts; it never rejects. */
  readonly ready: Promise<Flags>;
  /** Calls `listener` after every change; answers how to stop that. */
  subscribe(listener: (flags: Flags) => void): () => void;
  /** Asks the server now. It never rejects: if the server cannot be reached, what counted before goes on counting. */
  refresh(): Promise<Flags>;
  /** Asks no more. */
  stop(): void;
}

/** Without a server and without flags: pages autosave. */
const DEFAULT: Flags = { phase: 'default', autosave: true };

const KEPT_AS = 'leasehold:flags';

/** Asks the server for its flags, and again every minute. */
export function watchFlags(options: FlagsOptions = {}): FlagsWatch {
  const { flags: named, url = '/api/flags', refreshMs = 60_000, timeoutMs = 3_000, clock = systemClock } = options;
  const ask = options.fetch ?? fetch;
  const storage = options.storage === undefined ? pageStorage() : options.storage;
  const listeners = new Set<(flags: Flags) => void>();
  let current: Flags | null = named ?? null;
  let isOver = false;
  let stopTimer = () => {};

  const settle = (flags: Flags) => {
    const isNew = !current || current.phase !== flags.phase || current.autosave !== flags.autosave;
    if (isNew && !isOver) {
      current = flags;
      for (const listener of [...listeners]) listener(flags);
    }
    return current ?? flags;
  };
  const refresh = async (): Promise<Flags> => {
    if (named) return named;
    stopTimer();
    const told = await answer(ask, url, timeoutMs, clock);
    if (told) keep(storage, told);
    const flags = settle(told ?? current ?? kept(storage) ?? options.fallback ?? DEFAULT);
    stopTimer();
    if (refreshMs > 0 && !isOver) stopTimer = clock.after(refreshMs, () => void refresh());
    return flags;
  };
  return {
    current: () => current,
    ready: refresh(),
    subscribe: (listener) => {
      listeners.add(listener);
      return () => { listeners.delete(listener); };
    },
    refresh,
    stop: () => {
      isOver = true;
      stopTimer();
      listeners.clear();
    },
  };
}

/** What the server says; null if it says nothing that can be understood, in time. */
async function answer(ask: typeof fetch, url: string, timeoutMs: number, clock: Clock): Promise<Flags | null> {
  const abort = new AbortController();
  const stopTimer = clock.after(timeoutMs, () => abort.abort());
  try {
    const response = await ask(url, { signal: abort.signal, cache: 'no-store', credentials: 'omit' });
    return response.ok ? flagsIn(await response.json()) : null;
  } catch {
    return null;
  } finally {
    stopTimer();
  }
}

function flagsIn(value: unknown): Flags | null {
  const { phase, autosave } = (value ?? {}) as Partial<Flags>;
  return typeof phase === 'string' && typeof autosave === 'boolean' ? { phase, autosave } : null;
}

/** The last answer is kept: a page that cannot reach the server must not turn on what was turned off. */
function keep(storage: FlagsOptions['storage'], flags: Flags): void {
  try {
    storage?.setItem(KEPT_AS, JSON.stringify(flags));
  } catch {
    // Full, or blocked: the next page asks the server anyway.
  }
}

function kept(storage: FlagsOptions['storage']): Flags | null {
  try {
    return flagsIn(JSON.parse(storage?.getItem(KEPT_AS) ?? 'null'));
  } catch {
    return null;
  }
}

/** Reading `localStorage` throws where storage is blocked. */
function pageStorage(): Storage | null {
  try {
    return globalThis.localStorage ?? null;
  } catch {
    return null;
  }
}

/** `initAutoSave` of `leasehold/autosave`, as long as the flags turn it on. */
export function initAutoSave<Document>(
  getSB: () => Document, { flags, ...options }: AutoSaveOptions<Document> & { readonly flags: FlagsWatch },
): AutoSave {
  return switchAutoSave(flags, async () => (await import('./autosave.js')).initAutoSave(getSB, options));
}

const OFF: AutoSaveSnapshot = {
  state: { kind: 'disabled' }, savedAt: null, isDirty: false, notice: null, request: null, hasDraft: false,
};

/** The same over any autosave: `begin` is called each time that it is turned on, and what it returned each time that it is turned
 * off, which saves what is unsaved, once, and releases the project. After that nothing is written. */
export function switchAutoSave(flags: FlagsWatch, begin: () => AutoSave | Promise<AutoSave>): AutoSave {
  const listeners = new Set<() => void>();
  let running: AutoSave | null = null;
  let off = OFF;
  let isOver = false;
  let turns = Promise.resolve();

  const show = (state: AutoSaveState) => { off = { ...OFF, state }; };
  const changed = () => { for (const listener of [...listeners]) listener(); };
  const isWanted = () => !isOver && flags.current()?.autosave === true;
  const turn = async () => {
    if (isWanted() && !running) {
      try {
        running = await begin();
        running.subscribe(changed);
      } catch (error) {
        show({ kind: 'unavailable', reason: 'not-loaded', message: String(error) });
      }
    }
    if (!isWanted() && running) {
      const ending = running;
      await ending();
      running = null;
      show(isOver ? { kind: 'stopped' } : OFF.state);
    }
    changed();
  };
  // One after the other: flags may change while an autosave is being started or ended.
  const obey = () => turns = turns.then(turn);

  const unsubscribe = flags.subscribe(() => void obey());
  void flags.ready.then(obey);
  const getSnapshot = () => running?.getSnapshot() ?? off;
  const dispose = () => {
    isOver = true;
    unsubscribe();
    if (!running) show({ kind: 'stopped' });
    return obey();
  };
  return Object.assign(dispose, {
    subscribe: (listener: () => void) => {
      listeners.add(listener);
      return () => { listeners.delete(listener); };
    },
    getSnapshot,
    snapshot: getSnapshot,
    markDirty: () => running?.markDirty(),
    flushNow: async () => running?.flushNow(),
    // What could not be loaded is loaded again.
    retry: async () => running ? running.retry() : obey(),
    takeOver: async (how?: Parameters<AutoSave['takeOver']>[0]) => running?.takeOver(how),
    ask: async (how?: Parameters<AutoSave['ask']>[0]) => running?.ask(how),
    handOver: async () => running?.handOver(),
    refuse: async (reason?: string) => running?.refuse(reason),
    history: {
      list: async () => await running?.history.list() ?? [],
      preview: async (ts: string) => await running?.history.preview(ts) ?? null,
      restore: async (ts: string) => await running?.history.restore(ts) ?? false,
    },
    restoreFromCurrent: async () => await running?.restoreFromCurrent() ?? false,
  });
}
