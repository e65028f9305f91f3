// The files of one project folder. It reads and writes what it is told to, inside the guard: an exclusive access handle on
// `.lock.guard`, which the browser takes back when a tab dies. It decides nothing about leases, and writes nowhere else.

import type { AccessHandle, Clock, Directory, FileHandle } from './ports.js';

/** How long to try for the guard before the caller is told. A guarded section takes milliseconds. */
const GUARD_PATIENCE_MS = 2000;
/** Between two tries: doubled up to this, and spread, so that tabs do not try in step. */
const LONGEST_PAUSE_MS = 16;

/** What is written. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** What the names of held files begin with. */
const HELD = '.lock.held.';

/** What was found under the guard; `.lock` is missing unless it has a text, or a reason why it has none. */
export interface Found {
  readonly guard: string;
  readonly text?: string;
  readonly unreadable?: string;
  readonly modified?: number;
}

/** What the rules want to have done. */
export interface Step {
  readonly do: 'storeFence' | 'openHeld' | 'writeLock' | 'removeLock' | 'closeHeld' | 'sweepHeld';
  /** What to write; and what, if the held file could not be opened. */
  readonly text?: string;
  readonly withoutHeld?: string;
  /** The held file; the one to keep, in `sweepHeld`. */
  readonly name?: string;
  /** Whether it goes on if this fails. */
  readonly mayFail: boolean;
}

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

  /** Writes what is to become `path`, beside it, without the guard: a large file must not keep the other tabs waiting. */
  async prepare(path: string, mark: number, data: Bytes): Promise<Prepared> {
    const folder = await opening(() => this.#open());
    return kind('write', async () => {
      const names = path.split('/');
      const name = names.pop() ?? '';
      const at = await into(folder, names);
      const file = await at.getFileHandle(`${name}.tmp.${mark}`, { create: true });
      await fill(file, data);
      return { swap: () => kind('write', () => takePlace(at, file, name)), drop: () => remove(at, `${name}.tmp.${mark}`) };
    });
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

/** A file that is ready to take its place. */
export interface Prepared {
  /** Lets it. */
  swap(): Promise<void>;
  /** Throws it away. */
  drop(): Promise<void>;
}

/** What can be done while one is alone. */
export class Section {
  readonly #folder: Directory;
  readonly #guardFile: FileHandle;
  readonly #guard: AccessHandle | null;
  readonly #held: Map<string, AccessHandle>;
  #opened: string | undefined;
  #holds = true;

  /** @internal */
  constructor(folder: Directory, guardFile: FileHandle, guard: AccessHandle | null, held: Map<string, AccessHandle>) {
    this.#folder = folder;
    this.#guardFile = guardFile;
    this.#guard = guard;
    this.#held = held;
  }

  /** What stands in `.lock` and in the guard. */
  async read(): Promise<Found> {
    const guard = await kind('read', () => this.#guardText());
    let modified = {};
    try {
      const file = await (await this.#folder.getFileHandle('.lock')).getFile();
      modified = { modified: Math.floor(file.lastModified) };
      return { guard, ...modified, text: await file.text() };
    } catch (error) {
      return nameOf(error) === 'NotFoundError' ? { guard } : { guard, ...modified, unreadable: String(error) };
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

  /** Does the steps in order. If one fails that may not, the held file that was opened here is closed, and stays: should
   * `.lock` name it after all, it shows that its holder is gone. */
  async perform(steps: readonly Step[]): Promise<void> {
    try {
      for (const step of steps) await kind('write', () => this.#step(step));
    } catch (error) {
      if (this.#opened) this.#close(this.#opened);
      throw error;
    }
  }

  async #step(step: Step): Promise<void> {
    try {
      await this.#do(step);
    } catch (error) {
      if (!step.mayFail) throw error;
      if (step.do === 'openHeld') this.#holds = false;
    }
  }

  #do({ do: what, text = '', withoutHeld = '', name = '' }: Step): Promise<void> {
    switch (what) {
      case 'storeFence': return this.#storeGuard(text);
      case 'openHeld': return this.#openHeld(name);
      case 'writeLock': return this.#writeLock(this.#holds ? text : withoutHeld);
      case 'removeLock': return remove(this.#folder, '.lock');
      case 'closeHeld': return this.#closeHeld(name);
      case 'sweepHeld': return this.#sweepHeld(name);
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
    await takePlace(this.#folder, file, '.lock');
  }

  async #openHeld(name: string): Promise<void> {
    if (this.#held.has(name)) return;
    const file = await this.#folder.getFileHandle(name, { create: true });
    if (!file.createSyncAccessHandle) throw new DOMException('no access handles', 'NotSupportedError');
    this.#held.set(name, await file.createSyncAccessHandle());
    this.#opened = name;
  }

  async #closeHeld(name: string): Promise<void> {
    this.#close(name);
    await remove(this.#folder, name);
  }

  #close(name: string): void {
    this.#held.get(name)?.close();
    this.#held.delete(name);
  }

  async #sweepHeld(keep: string): Promise<void> {
    for await (const name of this.#folder.keys?.() ?? []) {
      // A file that somebody has open cannot be removed.
      if (name.startsWith(HELD) && name !== keep) await remove(this.#folder, name).catch(() => {});
    }
  }
}

async function into(folder: Directory, names: readonly string[]): Promise<Directory> {
  let at = folder;
  for (const name of names) at = await at.getDirectoryHandle(name, { create: true });
  return at;
}

function write(handle: AccessHandle, bytes: Bytes): void {
  handle.write(bytes, { at: 0 });
  handle.truncate(bytes.length);
  handle.flush();
}

/** Replaces what is in a file. */
async function fill(file: FileHandle, bytes: Bytes): Promise<void> {
  if (file.createSyncAccessHandle) {
    const handle = await file.createSyncAccessHandle();
    try {
      write(handle, bytes);
    } finally {
      handle.close();
    }
  } else {
    const stream = await file.createWritable?.();
    await stream?.write(bytes);
    await stream?.close();
  }
}

/** Lets a file take the place of another: after a crash there is the old one or the new one. */
async function takePlace(folder: Directory, file: FileHandle, name: string): Promise<void> {
  if (file.move) return file.move(name);
  // Without `move`, a writable does the same: the browser fills a file of its own and swaps it in when it is closed.
  const target = await folder.getFileHandle(name, { create: true });
  if (!target.createWritable) throw new DOMException('files cannot be replaced here', 'NotSupportedError');
  const stream = await target.createWritable();
  await stream.write(await (await file.getFile()).arrayBuffer());
  await stream.close();
  await remove(folder, file.name);
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
