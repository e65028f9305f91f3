// The files of one project folder: does the steps that the rules ask for, one at a time, and prepares saves. The guard is an
// exclusive access handle on `.lock.guard`, which the browser takes back when a tab dies. It decides nothing: in which order
// steps come, what may fail and how long to wait for the guard is crates/leasehold-project-rules/src/section.rs.

import { FILES, type RecordView, type StepView } from './border.js';
import { versionOf, type Bytes } from './hash.js';
import { printLock, readLock } from './lockfile.js';
import { bytesOf, joined, textOf } from './text.js';
import type { AccessHandle, Directory, FileHandle } from './ports.js';
import type { ProjectDraft } from './types.js';
import type { Request } from './wasm.js';

/** What came of a step: the request that reports it. */
export type Reply = { [Name in ReplyName]: readonly [name: Name, fields: Request<Name>] }[ReplyName];
type ReplyName =
  | 'ioDone' | 'ioFailed' | 'guardBusy' | 'guardAbsent' | 'guardRead' | 'heldProbed'
  | 'lockMissing' | 'lockRead' | 'lockDamaged' | 'lockUnreadable' | 'versionRead';

const DONE: Reply = ['ioDone', {}];

/** The beginning of the name of a file that is being saved; the fence of its lease follows. */
const SAVE = '.lock.save.';

/** How many drafts a project has at most: the oldest is dropped. */
const MOST_DRAFTS = 20;

/** The guard, from `takeGuard` to `dropGuard`. */
interface Guard {
  readonly folder: Directory;
  readonly file: FileHandle;
  /** None where there are no access handles, and the lease is advice. */
  readonly handle: AccessHandle | null;
}

/** A method for each step. */
type Steps = { [Do in StepView['do']]: (step: Extract<StepView, { do: Do }>) => Promise<Reply | void> | void };

/** One project folder, as one tab sees it. */
export class ProjectFolder implements Steps {
  readonly #root: Directory;
  readonly #path: readonly string[];
  readonly #guarded: boolean;
  readonly #held = new Map<number, AccessHandle>();
  #guard: Guard | null = null;
  /** Lets the prepared file take its place. */
  #swap: (() => Promise<void>) | undefined;
  #lastSave: Promise<unknown> = Promise.resolve();
  /** The last draft that this tab kept of a file. */
  readonly #drafts = new Map<string, { readonly base: string; readonly name: string }>();

  constructor(root: Directory, path: readonly string[], guarded: boolean) {
    this.#root = root;
    this.#path = path;
    this.#guarded = guarded;
  }

  /** Does a step. */
  async do(step: StepView): Promise<Reply> {
    try {
      return await (this as Steps)[step.do](step as never) ?? DONE;
    } catch (error) {
      return ['ioFailed', { said: String(error) }];
    }
  }

  /** Works after the saves that were asked for before. So of two saves of a file the later call is what stays, and what the
   * application has read since a save is not what that save was made from. */
  inTurn<T>(work: () => T | Promise<T>): Promise<T> {
    const turn = this.#lastSave.then(work);
    this.#lastSave = turn.catch(() => {});
    return turn;
  }

  /** A file of the project; null if there is none. */
  async read(path: string): Promise<Bytes | null> {
    for (let tries = 1; ; tries += 1) {
      const file = await this.#file(path);
      try {
        return file && new Uint8Array(await (await file.getFile()).arrayBuffer());
      } catch (error) {
        // It was replaced while it was read.
        if (tries === 3) throw error;
      }
    }
  }

  async #file(path: string): Promise<FileHandle | null> {
    const [names, name] = split(path);
    try {
      return await (await into(await this.#open(), names, false)).getFileHandle(name);
    } catch (error) {
      if (nameOf(error) === 'NotFoundError') return null;
      throw error;
    }
  }

  /** Prepares a file, and lets `commit` bring about the step that swaps it. It is written aside without the guard: a large one
   * must not keep the other tabs waiting. */
  async prepare(path: string, fence: number, data: Bytes, commit: () => Promise<unknown>): Promise<void> {
    const folder = await this.#open(true);
    const [names, name] = split(path);
    const aside = SAVE + fence;
    try {
      const [target, file] = await Promise.all([into(folder, names, true), folder.getFileHandle(aside, { create: true })]);
      await fill(file, data);
      this.#swap = () => takePlace(folder, file, target, name);
      await commit();
    } catch (error) {
      await remove(folder, aside).catch(() => {});
      throw error;
    } finally {
      this.#swap = undefined;
    }
  }

  async #open(create = false): Promise<Directory> {
    return this.#guard?.folder ?? into(this.#root, this.#path, create);
  }

  async takeGuard({ look }: { look: boolean }): Promise<Reply> {
    const create = !look;
    let [folder, file]: [Directory?, FileHandle?] = [];
    try {
      folder = await this.#open(create);
      file = await folder.getFileHandle(FILES.guard, { create });
    } catch (error) {
      if (look && nameOf(error) === 'NotFoundError') return ['guardAbsent', {}];
      throw error;
    }
    const handle = this.#guarded ? await openUnlessBusy(file) : null;
    if (this.#guarded && !handle) return ['guardBusy', {}];
    this.#guard = { folder, file, handle };
    return DONE;
  }

  async dropGuard(): Promise<void> {
    this.#guard?.handle?.close();
    this.#guard = null;
  }

  async readGuard(): Promise<Reply> {
    const { file, handle } = this.#guard!;
    return ['guardRead', { text: handle ? textOf(contentOf(handle), false) : await (await file.getFile()).text() }];
  }

  async writeGuard({ text }: { text: string }): Promise<void> {
    const { file, handle } = this.#guard!;
    if (handle) write(handle, bytesOf(text));
    else await fill(file, bytesOf(text));
  }

  async readLock(): Promise<Reply> {
    let times = {};
    try {
      const file = await (await (await this.#open()).getFileHandle(FILES.lock)).getFile();
      const modified = Math.floor(file.lastModified);
      times = { modified };
      const lock = readLock(new Uint8Array(await file.arrayBuffer()));
      return lock ? ['lockRead', { modified, ...lock }] : ['lockDamaged', { modified }];
    } catch (error) {
      if (nameOf(error) === 'NotFoundError') return ['lockMissing', {}];
      // A folder in its place: no file can take that, however old it gets.
      if (nameOf(error) === 'TypeMismatchError') throw error;
      return ['lockUnreadable', { ...times, said: String(error) }];
    }
  }

  async writeLock({ record }: { record: RecordView }): Promise<void> {
    const folder = await this.#open();
    const file = await folder.getFileHandle(FILES.temporary, { create: true });
    await fill(file, bytesOf(printLock(record)));
    await takePlace(folder, file, folder, FILES.lock);
  }

  async readVersion({ path }: { path: string }): Promise<Reply> {
    // Under the guard nobody else needs the file, and a handle reads it in a tenth of the time.
    const file = this.#guard?.handle && await this.#file(path);
    const handle = file && await openUnlessBusy(file);
    const bytes = handle ? closing(handle, contentOf) : await this.read(path);
    return ['versionRead', { version: bytes ? await versionOf(bytes) : '' }];
  }

  save(): Promise<void> {
    return this.#swap!();
  }

  removeLock(): Promise<void> {
    return this.#remove(FILES.lock);
  }

  async #remove(name: string): Promise<void> {
    await remove(await this.#open(), name);
  }

  /** Whether the tab that opened the held file still has it open. */
  async probeHeld({ fence }: { fence: number }): Promise<Reply> {
    const file = await (await this.#open()).getFileHandle(held(fence));
    const handle = await openUnlessBusy(file);
    handle?.close();
    return ['heldProbed', { held: handle ? 'free' : 'busy' }];
  }

  async openHeld({ fence }: { fence: number }): Promise<void> {
    if (this.#held.has(fence)) return;
    const file = await (await this.#open()).getFileHandle(held(fence), { create: true });
    this.#held.set(fence, await file.createSyncAccessHandle!());
  }

  async closeHeld({ fence }: { fence: number }): Promise<void> {
    this.dropHeld({ fence });
    await this.#remove(held(fence));
  }

  /** Closes a held file, at once: a page that is about to be frozen cannot wait. */
  dropHeld({ fence }: { fence: number }): void {
    this.#held.get(fence)?.close();
    this.#held.delete(fence);
  }

  /** Keeps what could not be saved, in place of this tab's last draft that was made from the same version. */
  async keepDraft(path: string, base: string, data: Bytes, isText: boolean, now: number): Promise<void> {
    const folder = await this.#open(true);
    const about = JSON.stringify({ path, base, isText, size: data.length });
    const whole = joined([bytesOf(`${about}\n`), data]);
    // The hash of the whole, and not of the content alone: two files may have the same.
    const name = `${FILES.draft}${now}.${(await versionOf(whole)).slice(0, 16)}`;
    await fill(await folder.getFileHandle(name, { create: true }), whole);
    if (this.#drafts.get(path)?.name !== name) await this.dropDraft(path, base);
    this.#drafts.set(path, { base, name });
    for (const old of (await this.#draftNames()).slice(0, -MOST_DRAFTS)) await this.discardDraft(old);
  }

  /** Removes this tab's last draft of a file, if it was made from this version: what has been saved since contains it. */
  async dropDraft(path: string, base?: string): Promise<void> {
    const draft = this.#drafts.get(path);
    if (draft && draft.base === base) await this.discardDraft(draft.name);
  }

  /** Removes a draft. */
  async discardDraft(name: string): Promise<void> {
    if (name.startsWith(FILES.draft)) await this.#remove(name);
  }

  /** The drafts, the oldest first. One that a crash has cut off is left out. */
  async drafts(): Promise<Draft[]> {
    const drafts: Draft[] = [];
    for (const id of await this.#draftNames()) {
      const bytes = await this.read(id) ?? new Uint8Array();
      const end = bytes.indexOf(10);
      try {
        const { path, base, isText, size } = JSON.parse(textOf(bytes.subarray(0, end)));
        const data = bytes.subarray(end + 1);
        const at = Number(id.split('.')[3]);
        if (data.length === size) drafts.push({ id, path, base: base || null, at, data: isText ? textOf(data) : data });
      } catch {
        // Nothing that could be offered.
      }
    }
    return drafts;
  }

  async #draftNames(): Promise<string[]> {
    const names: string[] = [];
    const folder = await this.#open(true);
    for await (const name of folder.keys?.() ?? []) if (name.startsWith(FILES.draft)) names.push(name);
    return names.sort();
  }

  /** Removes what dead tabs left: their held files, and the files that they were saving. */
  async sweepHeld({ keep }: { keep: number }): Promise<void> {
    const folder = await this.#open();
    const keeps = [held(keep), SAVE + keep];
    for await (const name of folder.keys?.() ?? []) {
      const isOurs = name.startsWith(FILES.held) || name.startsWith(SAVE);
      // A file that some tab has open cannot be removed.
      if (isOurs && !keeps.includes(name)) await remove(folder, name).catch(() => {});
    }
  }
}

/** A draft, as its project knows it. */
export type Draft = Omit<ProjectDraft, 'root' | 'lockName'>;

/** The folders on the way to a file, and its name. */
function split(path: string): [names: string[], name: string] {
  const names = path.split('/');
  return [names, names.pop() ?? ''];
}

function held(fence: number): string {
  return FILES.held + fence;
}

async function into(folder: Directory, names: readonly string[], create: boolean): Promise<Directory> {
  let at = folder;
  for (const name of names) at = await at.getDirectoryHandle(name, { create });
  return at;
}

/** The content of an open file. */
function contentOf(handle: AccessHandle): Bytes {
  const bytes = new Uint8Array(handle.getSize());
  handle.read(bytes, { at: 0 });
  return bytes;
}

/** Replaces the content of an open file. A write may take less than it is given: what is missing must not become zeros. */
function write(handle: AccessHandle, bytes: Bytes): void {
  for (let at = 0; at < bytes.length;) {
    const count = handle.write(bytes.subarray(at), { at });
    if (!(count > 0)) throw new DOMException(`${at} of ${bytes.length} bytes could be written`, 'QuotaExceededError');
    at += count;
  }
  handle.truncate(bytes.length);
  handle.flush();
}

/** Replaces the content of a file. */
async function fill(file: FileHandle, bytes: Bytes): Promise<void> {
  if (!file.createSyncAccessHandle) return stream(file, bytes);
  closing(await file.createSyncAccessHandle(), (handle) => write(handle, bytes));
}

/** Works on an open file, and closes it whatever comes of that. */
function closing<T>(handle: AccessHandle, work: (handle: AccessHandle) => T): T {
  try {
    return work(handle);
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

/** An exclusive handle, or null while another tab has one. */
async function openUnlessBusy(file: FileHandle): Promise<AccessHandle | null> {
  try {
    return await file.createSyncAccessHandle!();
  } catch (error) {
    // Safari says InvalidStateError.
    if (['NoModificationAllowedError', 'InvalidStateError'].includes(nameOf(error) ?? '')) return null;
    throw error;
  }
}

function nameOf(error: unknown): string | undefined {
  return (error as Error | null)?.name;
}
