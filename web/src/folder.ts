// The files of one project folder. It reads and writes what it is told to, inside the guard: an exclusive access handle on
// `.lock.guard`, which the browser takes back when a tab dies. It decides nothing about leases, and writes nowhere else.

import type { StepView } from './border.js';
import { printLock, readLock, type Members } from './lockfile.js';
import type { AccessHandle, Clock, Directory, FileHandle } from './ports.js';

/** How long to try for the guard before the caller is told. A guarded section takes milliseconds. */
const GUARD_PATIENCE_MS = 2000;
/** Between two tries: doubled up to this, and spread, so that tabs do not try in step. */
const LONGEST_PAUSE_MS = 16;

/** What is written. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** What the names of held files begin with. */
const HELD = '.lock.held.';
/** What the names of files begin with that are being saved; their fence follows. */
const SAVE = '.lock.save.';

/** `.lock`, as it was found: null if there is none; without members if it is damaged. */
export type LockFile =
  | null
  | { readonly modified: number; readonly members: Members | null }
  | { readonly modified?: number; readonly said: string };

/** What was found under the guard. */
export interface Found {
  readonly guard: string;
  readonly lock: LockFile;
}

/** The steps after whose failure a section goes on. */
const MAY_FAIL: readonly StepView['do'][] = ['openHeld', 'closeHeld', 'sweepHeld'];

/** What could not be done. */
export type Trouble = 'guard-busy' | 'open' | 'read' | 'write';

/** Something in the folder could not be done. */
export class FolderError extends Error {
  constructor(readonly kind: Trouble, cause: unknown) {
    super(cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause), { cause });
  }
}

/** One project folder, as one tab sees it. */
export class ProjectFolder {
  readonly #root: Directory;
  readonly #path: readonly string[];
  readonly #clock: Clock;
  readonly #guarded: boolean;
  readonly #held = new Map<string, AccessHandle>();
  #last: Promise<unknown> = Promise.resolve();
  #lastSave: Promise<unknown> = Promise.resolve();

  constructor(root: Directory, path: readonly string[], clock: Clock, guarded: boolean) {
    this.#root = root;
    this.#path = path;
    this.#clock = clock;
    this.#guarded = guarded;
  }

  /** Runs `work` while no other tab, and nothing else in this one, is in a section of this folder. */
  guarded<T>(work: (section: Section) => Promise<T>): Promise<T> {
    const turn = this.#last.then(() => this.#enter(work));
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Replaces a file if `check` does not object, in the section in which it is swapped. One after the other: of two saves of
   * a file, the later call is what stays. */
  save(path: string, fence: number, data: Bytes, check: (section: Section) => Promise<void>): Promise<void> {
    const turn = this.#lastSave.then(() => this.#save(path, `${SAVE}${fence}`, data, check));
    this.#lastSave = turn.catch(() => {});
    return turn;
  }

  /** Writes it aside without the guard: a large file must not keep the other tabs waiting. */
  async #save(path: string, aside: string, data: Bytes, check: (section: Section) => Promise<void>): Promise<void> {
    const folder = await opening(() => this.#open());
    const names = path.split('/');
    const name = names.pop() ?? '';
    try {
      const target = await kind('write', () => into(folder, names));
      const file = await kind('write', () => folder.getFileHandle(aside, { create: true }));
      await kind('write', () => fill(file, data));
      await this.guarded(async (section) => {
        await check(section);
        await kind('write', () => takePlace(folder, file, target, name));
      });
    } catch (error) {
      await remove(folder, aside).catch(() => {});
      throw error;
    }
  }

  async #enter<T>(work: (section: Section) => Promise<T>): Promise<T> {
    const folder = await opening(() => this.#open());
    const file = await opening(() => folder.getFileHandle('.lock.guard', { create: true }));
    const guard = await this.#guard(file);
    try {
      return await work(new Section(folder, file, guard, this.#held));
    } finally {
      guard?.close();
    }
  }

  #open(): Promise<Directory> {
    return into(this.#root, this.#path);
  }

  /** The guard; null where it is known that there is none, and the lease is advice. It is never left out otherwise. */
  async #guard(file: FileHandle): Promise<AccessHandle | null> {
    if (!this.#guarded) return null;
    const end = this.#clock.monotonic() + GUARD_PATIENCE_MS;
    for (let pause = 1; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      const handle = await opening(() => openUnlessBusy(file));
      if (handle) return handle;
      if (this.#clock.monotonic() >= end) throw new FolderError('guard-busy', 'another tab is in .lock.guard');
      await new Promise<void>((resolve) => { this.#clock.after(pause * (0.5 + Math.random()), resolve); });
    }
  }
}

/** What can be done while one is alone. */
export class Section {
  readonly #folder: Directory;
  readonly #guardFile: FileHandle;
  readonly #guard: AccessHandle | null;
  readonly #held: Map<string, AccessHandle>;
  #holds = true;

  /** @internal */
  constructor(folder: Directory, guardFile: FileHandle, guard: AccessHandle | null, held: Map<string, AccessHandle>) {
    this.#folder = folder;
    this.#guardFile = guardFile;
    this.#guard = guard;
    this.#held = held;
  }

  /** Reads `.lock` and the guard. */
  async read(): Promise<Found> {
    return { guard: await kind('read', () => this.#guardText()), lock: await this.#readLock() };
  }

  async #readLock(): Promise<LockFile> {
    let times = {};
    try {
      const file = await (await this.#folder.getFileHandle('.lock')).getFile();
      const modified = Math.floor(file.lastModified);
      times = { modified };
      return { modified, members: readLock(new Uint8Array(await file.arrayBuffer())) };
    } catch (error) {
      return nameOf(error) === 'NotFoundError' ? null : { ...times, said: String(error) };
    }
  }

  /** Whether the tab that opened the held file of `fence` still has it open. */
  async probe(fence: number): Promise<'free' | 'busy' | 'unknown'> {
    const name = `${HELD}${fence}`;
    try {
      const file = await this.#folder.getFileHandle(name);
      if (!file.createSyncAccessHandle) return 'unknown';
      const handle = await openUnlessBusy(file);
      handle?.close();
      return handle ? 'free' : 'busy';
    } catch {
      return 'unknown';
    }
  }

  /** Does the steps in order. If one fails that may not, the held files that they name are closed, and stay: should `.lock`
   * name one after all, it shows that its holder is gone. */
  async perform(steps: readonly StepView[]): Promise<void> {
    try {
      for (const step of steps) await kind('write', () => this.#step(step));
    } catch (error) {
      for (const step of steps) if (step.do === 'openHeld' || step.do === 'closeHeld') this.#close(step.name);
      throw error;
    }
  }

  async #step(step: StepView): Promise<void> {
    try {
      await this.#do(step);
    } catch (error) {
      if (!MAY_FAIL.includes(step.do)) throw error;
      if (step.do === 'openHeld') this.#holds = false;
    }
  }

  #do(step: StepView): Promise<void> {
    switch (step.do) {
      case 'storeFence': return this.#storeGuard(step.text);
      case 'openHeld': return this.#openHeld(step.name);
      case 'writeLock': return this.#writeLock(printLock({ ...step.record, held: step.record.held && this.#holds }));
      case 'removeLock': return remove(this.#folder, '.lock');
      case 'closeHeld': return this.#closeHeld(step.name);
      case 'sweepHeld': return this.#sweepHeld(step.keep);
    }
  }

  async #guardText(): Promise<string> {
    if (!this.#guard) return (await this.#guardFile.getFile()).text();
    const bytes = new Uint8Array(this.#guard.getSize());
    this.#guard.read(bytes, { at: 0 });
    return new TextDecoder().decode(bytes);
  }

  async #storeGuard(text: string): Promise<void> {
    if (this.#guard) write(this.#guard, encode(text));
    else await fill(this.#guardFile, encode(text));
  }

  async #writeLock(text: string): Promise<void> {
    const file = await this.#folder.getFileHandle('.lock.tmp', { create: true });
    await fill(file, encode(text));
    await takePlace(this.#folder, file, this.#folder, '.lock');
  }

  async #openHeld(name: string): Promise<void> {
    if (this.#held.has(name)) return;
    const file = await this.#folder.getFileHandle(name, { create: true });
    if (!file.createSyncAccessHandle) throw new DOMException('no access handles', 'NotSupportedError');
    this.#held.set(name, await file.createSyncAccessHandle());
  }

  async #closeHeld(name: string): Promise<void> {
    this.#close(name);
    await remove(this.#folder, name);
  }

  #close(name: string): void {
    this.#held.get(name)?.close();
    this.#held.delete(name);
  }

  /** Removes what dead tabs left: their held files, and what they were saving. */
  async #sweepHeld(keep: string): Promise<void> {
    const keeps = [keep, SAVE + keep.slice(HELD.length)];
    for await (const name of this.#folder.keys?.() ?? []) {
      const isOurs = name.startsWith(HELD) || name.startsWith(SAVE);
      // A file that somebody has open cannot be removed.
      if (isOurs && !keeps.includes(name)) await remove(this.#folder, name).catch(() => {});
    }
  }
}

async function into(folder: Directory, names: readonly string[]): Promise<Directory> {
  let at = folder;
  for (const name of names) at = await at.getDirectoryHandle(name, { create: true });
  return at;
}

/** Replaces what is in an open file. A write may take less than it is given: what is missing must not become zeros. */
function write(handle: AccessHandle, bytes: Bytes): void {
  for (let at = 0; at < bytes.length;) {
    const count = handle.write(bytes.subarray(at), { at });
    if (!(count > 0)) throw new DOMException(`${at} of ${bytes.length} bytes could be written`, 'QuotaExceededError');
    at += count;
  }
  handle.truncate(bytes.length);
  handle.flush();
}

/** Replaces what is in a file. */
async function fill(file: FileHandle, bytes: Bytes): Promise<void> {
  if (!file.createSyncAccessHandle) return stream(file, bytes);
  const handle = await file.createSyncAccessHandle();
  try {
    write(handle, bytes);
  } finally {
    handle.close();
  }
}

/** The same by a writable: the browser fills a file of its own, and swaps it in when it is closed. */
async function stream(file: FileHandle, bytes: Bytes): Promise<void> {
  if (!file.createWritable) throw new DOMException('files cannot be written here', 'NotSupportedError');
  const writable = await file.createWritable();
  try {
    await writable.write(bytes);
    await writable.close();
  } catch (error) {
    await writable.abort?.().catch(() => {});
    throw error;
  }
}

/** Lets a file take the place of another: after a crash there is the old one or the new one. */
async function takePlace(from: Directory, file: FileHandle, folder: Directory, name: string): Promise<void> {
  if (file.move) return file.move(folder, name);
  const bytes = new Uint8Array(await (await file.getFile()).arrayBuffer());
  await stream(await folder.getFileHandle(name, { create: true }), bytes);
  await remove(from, file.name);
}

/** Removes a file, if it is there. */
async function remove(folder: Directory, name: string): Promise<void> {
  try {
    await folder.removeEntry(name);
  } catch (error) {
    if (nameOf(error) !== 'NotFoundError') throw error;
  }
}

/** An exclusive handle, or null while somebody else has one. */
async function openUnlessBusy(file: FileHandle): Promise<AccessHandle | null> {
  try {
    if (file.createSyncAccessHandle) return await file.createSyncAccessHandle();
  } catch (error) {
    // Safari says InvalidStateError.
    if (['NoModificationAllowedError', 'InvalidStateError'].includes(nameOf(error))) return null;
    throw error;
  }
  throw new DOMException('there are no access handles here', 'NotSupportedError');
}

function opening<T>(work: () => Promise<T>): Promise<T> {
  return kind('open', work);
}

/** Does something, and says what it was if it fails. */
async function kind<T>(trouble: Trouble, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    throw cause instanceof FolderError ? cause : new FolderError(trouble, cause);
  }
}

function nameOf(error: unknown): string {
  return error instanceof Error || error instanceof DOMException ? error.name : '';
}

function encode(text: string): Bytes {
  return new TextEncoder().encode(text);
}
