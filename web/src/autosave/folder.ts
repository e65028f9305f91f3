// The files of an autosave, as a page lists and removes them in the private file system. The lock's Worker reads and writes them.

import { DEFAULT_ROOT } from '../arguments.js';
import type { Directory } from '../ports.js';

/** A file in a folder. */
export interface ListedFile {
  readonly name: string;
  readonly bytes: number;
  readonly modified: number;
}

/** The folder of a project. */
export class AutoSaveFolder {
  readonly #top: () => Promise<Directory>;
  readonly #root: string;

  constructor(top: () => Promise<Directory>, root = DEFAULT_ROOT) {
    this.#top = top;
    this.#root = root;
  }

  /** The files in a folder; none if there is no such folder. */
  async list(path: string): Promise<ListedFile[]> {
    const files: ListedFile[] = [];
    const folder = await orNull(() => this.#into(path.split('/')));
    for await (const name of folder?.keys?.() ?? []) {
      // What is a folder, or was removed meanwhile, is none.
      const file = await folder!.getFileHandle(name).then((file) => file.getFile()).catch(() => null);
      if (file) files.push({ name, bytes: file.size, modified: file.lastModified });
    }
    return files;
  }

  /** Removes a file, if it is there. */
  async remove(path: string): Promise<void> {
    await orNull(async () => {
      const [folder, name] = await this.#split(path);
      return folder.removeEntry(name);
    });
  }

  /** The folder that a file is in, and its name. */
  async #split(path: string): Promise<[Directory, string]> {
    const names = path.split('/');
    const name = names.pop()!;
    return [await this.#into(names), name];
  }

  async #into(names: readonly string[]): Promise<Directory> {
    let folder = await this.#top();
    for (const name of [...this.#root.split('/'), ...names]) folder = await folder.getDirectoryHandle(name);
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
