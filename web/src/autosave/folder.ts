// The files of an autosave beside `current.json`: versions and index, as a page reaches them in the private file system. Only the
// holder of the project writes them, and each is replaced as a whole. `current.json` itself is saved through the lock.

import { DEFAULT_ROOT } from '../arguments.js';
import type { Bytes } from '../hash.js';
import type { Directory } from '../ports.js';

/** A file in a folder. */
export interface ListedFile {
  readonly name: string;
  readonly bytes: number;
  readonly modified: number;
}

/** The end of the name of a file that is being written. */
export const ASIDE = '.tmp';

/** The folder of a project. */
export class AutoSaveFolder {
  readonly #top: () => Promise<Directory>;
  readonly #root: string;

  constructor(top: () => Promise<Directory>, root = DEFAULT_ROOT) {
    this.#top = top;
    this.#root = root;
  }

  /** What is in a file; null if there is none. */
  async read(path: string): Promise<Bytes | null> {
    return orNull(async () => {
      const [folder, name] = await this.#split(path, false);
      return new Uint8Array(await (await (await folder.getFileHandle(name)).getFile()).arrayBuffer());
    });
  }

  /** The files in a folder; none if there is no such folder. */
  async list(path: string): Promise<ListedFile[]> {
    const files: ListedFile[] = [];
    const folder = await orNull(() => this.#into(path.split('/'), false));
    for await (const name of folder?.keys?.() ?? []) {
      // What is a folder, or was removed meanwhile, is none.
      const file = await folder!.getFileHandle(name).then((file) => file.getFile()).catch(() => null);
      if (file) files.push({ name, bytes: file.size, modified: file.lastModified });
    }
    return files;
  }

  /** Replaces a file. It is filled under another name first: a new one is empty, and a crash would leave that. False where pages
   * cannot do that. */
  async write(path: string, data: Bytes): Promise<boolean> {
    const [folder, name] = await this.#split(path, true);
    const file = await folder.getFileHandle(name + ASIDE, { create: true });
    if (!file.createWritable || !file.move) {
      await this.remove(path + ASIDE);
      return false;
    }
    const writable = await file.createWritable();
    try {
      await writable.write(data);
      await writable.close();
    } catch (error) {
      await writable.abort?.().catch(() => {});
      await this.remove(path + ASIDE).catch(() => {});
      throw error;
    }
    await file.move(folder, name);
    return true;
  }

  /** Removes a file, if it is there. */
  async remove(path: string): Promise<void> {
    await orNull(async () => {
      const [folder, name] = await this.#split(path, false);
      return folder.removeEntry(name);
    });
  }

  /** The folder that a file is in, and its name. */
  async #split(path: string, create: boolean): Promise<[Directory, string]> {
    const names = path.split('/');
    const name = names.pop()!;
    return [await this.#into(names, create), name];
  }

  async #into(names: readonly string[], create: boolean): Promise<Directory> {
    let folder = await this.#top();
    for (const name of [...this.#root.split('/'), ...names]) folder = await folder.getDirectoryHandle(name, { create });
    return folder;
  }
}

/** What comes of this; null if a file or folder on the way is not there. */
async function orNull<T>(work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (error) {
    if ((error as Error).name === 'NotFoundError') return null;
    throw error;
  }
}
