// `leasehold/autosave`: saves what a page edits while it is quiet, keeps its versions and brings them back. It runs over the
// functions of the lock, whose Worker does the writing. Importing it has no side effect.

import { FINGERPRINT } from './autosave/border.js';
import { Engine, look, type Around, type AutoSaveOptions, type AutoSaveRules } from './autosave/engine.js';
import { AutoSaveFolder } from './autosave/folder.js';
import type { AutoSave, AutoSaveGeneration } from './autosave/state.js';
import { systemClock } from './clock.js';
import * as lock from './index.js';
import type { LocalProjectLock } from './local.js';
import type { Clock, Directory } from './ports.js';
import type { SomeProject } from './types.js';
import { loadModule, type WasmSource } from './wasm.js';

export type { AutoSaveOptions } from './autosave/engine.js';
export type * from './autosave/state.js';

let source: WasmSource | undefined;
let loaded: Promise<AutoSaveRules> | undefined;

/** Says where leasehold-autosave.wasm is, if it is not beside this file; before the first call. */
export function init({ wasmUrl }: { readonly wasmUrl: WasmSource }): void {
  source = wasmUrl;
}

function rules(): Promise<AutoSaveRules> {
  loaded ??= loadModule<AutoSaveRules>(source ?? new URL('./leasehold-autosave.wasm', import.meta.url), FINGERPRINT).catch((error) => {
    loaded = undefined; // a network may come back
    throw error;
  });
  return loaded;
}

const folder = async () => await navigator.storage.getDirectory() as unknown as Directory;

/** The page's own. */
const page: Around = { lock, folder, rules, clock: systemClock };

/** The autosaves of this page that run, by project. */
const running = new Map<string, Pick<Engine<unknown>, 'restore'>>();

/** Those that are about to end. The next one of the project waits for them: a component may be mounted again at once. */
const ending = new Map<string, Promise<void>>();

function nameOf({ root, lockName }: SomeProject): string {
  return JSON.stringify([root, lockName]);
}

/** Acquires the project and saves what `getSB` returns: two seconds after the last change, which is noticed by another object or
 * by `markDirty()`. Call what it returns to save, release the project and stop. */
export function initAutoSave<Document>(getSB: () => Document, options: AutoSaveOptions<Document> = {}): AutoSave {
  return begin(page, getSB, options);
}

/** The same on what the caller brings, for tests with the doubles. */
export function createAutoSave<Document>(
  on: { readonly lock: LocalProjectLock; readonly folder: Directory; readonly clock: Clock },
  getSB: () => Document, options: AutoSaveOptions<Document> = {},
): AutoSave {
  return begin({ ...on, folder: async () => on.folder, rules }, getSB, options, false);
}

function begin<Document>(around: Around, getSB: () => Document, options: AutoSaveOptions<Document>, isOfPage = true): AutoSave {
  const name = nameOf(options);
  const before = isOfPage ? ending.get(name) : undefined;
  const engine = new Engine({ ...around, rules: async () => { await before; return around.rules(); } }, getSB, options);
  if (isOfPage) running.set(name, engine);
  const dispose = () => {
    const stopped = engine.stop();
    if (running.get(name) === engine) running.delete(name);
    if (isOfPage) ending.set(name, stopped);
    return stopped;
  };
  return Object.assign(dispose, {
    subscribe: (listener: () => void) => engine.subscribe(listener),
    getSnapshot: () => engine.getSnapshot(),
    snapshot: () => engine.getSnapshot(),
    markDirty: () => engine.markDirty(),
    flushNow: async () => { await engine.flush(); },
    retry: () => engine.retry(),
    takeOver: (how?: Parameters<AutoSave['takeOver']>[0]) => engine.takeOver(how),
    ask: (how?: Parameters<AutoSave['ask']>[0]) => engine.ask(how),
    handOver: () => engine.handOver(),
    refuse: (reason?: string) => engine.refuse(reason),
    history: {
      list: () => engine.list(),
      preview: (ts: string) => engine.preview(ts),
      restore: (ts: string) => engine.restore(ts),
    },
    restoreFromCurrent: () => engine.restore(),
  });
}

/** What is there to be restored, for example after a crash; null if there is nothing. Where there can be no files there is
 * nothing either: the autosave says why. */
export async function restorePrompt({ root }: SomeProject = {}): Promise<null | AutoSaveGeneration> {
  const found = await look(await rules(), new AutoSaveFolder(folder, root)).catch(() => null);
  if (!found) return null;
  const { current, generations: [newest] } = found;
  const ts = newest?.ts ?? new Date(current?.modified ?? 0).toISOString();
  const bytes = current?.bytes ?? newest?.bytes;
  return bytes === undefined ? null : { ts, bytes };
}

/** Gives what was saved last to the application, through `apply` of its autosave. True if it was applied. */
export async function restoreFromCurrent(project: SomeProject = {}): Promise<boolean> {
  return running.get(nameOf(project))?.restore() ?? false;
}

/** The saved versions, the newest first. */
export async function listHistory({ root }: SomeProject = {}): Promise<AutoSaveGeneration[]> {
  const { generations } = await look(await rules(), new AutoSaveFolder(folder, root));
  return generations.map(({ ts, bytes }) => ({ ts, bytes }));
}

/** Gives a saved version to the application, through `apply` of its autosave, and keeps the present one. True if it was applied. */
export async function restoreFrom(ts: string, project: SomeProject = {}): Promise<boolean> {
  return running.get(nameOf(project))?.restore(ts) ?? false;
}
