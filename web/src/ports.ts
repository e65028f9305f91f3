// What a project lock needs from its surroundings: the parts of the browser's own interfaces that are used, so that
// `navigator.locks`, OPFS and their doubles all fit. No behaviour is in here.

/** The part of `navigator.locks` that is used. */
export interface Locks {
  request(
    name: string,
    options: { mode: 'exclusive'; signal?: AbortSignal },
    work: (lock: unknown) => Promise<unknown>,
  ): Promise<unknown>;
}

/** The part of a `FileSystemDirectoryHandle` that is used. */
export interface Directory {
  getDirectoryHandle(name: string, options?: { create?: boolean }): Promise<Directory>;
  getFileHandle(name: string, options?: { create?: boolean }): Promise<FileHandle>;
  removeEntry(name: string): Promise<void>;
  keys?(): AsyncIterable<string>;
}

/** The part of a `FileSystemFileHandle` that is used. What a browser may lack is optional. */
export interface FileHandle {
  readonly name: string;
  getFile(): Promise<{ size: number; lastModified: number; text(): Promise<string>; arrayBuffer(): Promise<ArrayBuffer> }>;
  createSyncAccessHandle?(): Promise<AccessHandle>;
  createWritable?(): Promise<Writable>;
  move?(folder: Directory, name: string): Promise<void>;
}

/** The part of a `FileSystemSyncAccessHandle` that is used. */
export interface AccessHandle {
  read(into: BufferSource, options?: { at: number }): number;
  write(data: BufferSource, options?: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  getSize(): number;
  close(): void;
}

/** The part of a `FileSystemWritableFileStream` that is used. */
export interface Writable {
  write(data: BufferSource): Promise<void>;
  close(): Promise<void>;
  abort?(): Promise<void>;
}

/** Time. */
export interface Clock {
  /** The wall clock, in milliseconds since 1970. */
  now(): number;
  /** A monotonic clock, in milliseconds. */
  monotonic(): number;
  /** Runs `work` after `ms`; answers how to cancel it. */
  after(ms: number, work: () => void): () => void;
}

/** The part of a `BroadcastChannel` that is used. */
export interface Channel {
  postMessage(message: unknown): void;
  onmessage: ((event: { data: unknown }) => void) | null;
  /** In node: lets the process end although the channel is open. */
  unref?(): void;
}
