// An origin private file system in memory, for tests: the same calls, the same errors and the same exclusive handles as in
// a browser (web/tests/faithful.ts runs on both). It must never be kinder than the real one, or a test proves nothing.

import type { Directory } from '../ports.js';
import type { FakeClock } from './clock.js';

/** What can be made to fail. */
export type Operation =
  | 'getDirectoryHandle' | 'getFileHandle' | 'removeEntry' | 'keys' | 'getFile' | 'createSyncAccessHandle'
  | 'createWritable' | 'move' | 'read' | 'write' | 'truncate' | 'flush' | 'getSize'
  /** Of a writable: an access handle can always be closed. */
  | 'close';

/** A fault on purpose. */
export interface Fault {
  /** Which call fails. */
  readonly operation: Operation;
  /** On which file or folder, for example `project/.lock`. All, when left out. */
  readonly path?: string;
  /** The name of the `DOMException`. */
  readonly error: string;
  /** How many times; once, when left out. */
  readonly times?: number;
}

/** An access handle that writes less than it is given, and says so: no exception comes with it. */
export interface ShortWrite extends Omit<Fault, 'operation' | 'error'> {
  readonly operation: 'write';
  /** So many bytes. */
  readonly short: number;
}

type Data = ArrayBufferView | ArrayBuffer;

interface FileNode { kind: 'file'; bytes: Uint8Array; mtime: number; open: Set<Tab>; writables: number }
interface FolderNode { kind: 'directory'; children: Map<string, FileNode | FolderNode> }
interface Tab { alive: boolean; stepsLeft: number; handles: Set<() => void> }

/** The files of one origin. Every tab that is to be told apart gets its own root from {@link MockOPFS.tab}. */
export class MockOPFS {
  /** The paths that were written, renamed to or removed, in order. */
  readonly writes: string[] = [];
  /** The root as the first tab sees it; what `navigator.storage.getDirectory()` gives. */
  readonly root: MockDirectoryHandle;
  /** @internal */ readonly top: FolderNode = folder();
  readonly #clock: { now(): number };
  #faults: { fault: Fault | ShortWrite; left: number }[] = [];

  constructor(clock: Pick<FakeClock, 'now'> = Date) {
    this.#clock = clock;
    this.root = this.tab().root;
  }

  /** Another tab on the same files. `crash` ends it as the browser would: its handles close, its calls never answer. */
  tab(): { root: MockDirectoryHandle; crash(): void; crashAfter(steps: number): void } {
    const tab: Tab = { alive: true, stepsLeft: Infinity, handles: new Set() };
    const crash = () => {
      tab.alive = false;
      for (const close of [...tab.handles]) close();
    };
    return {
      root: new MockDirectoryHandle(this, tab, this.top, '', crash),
      crash,
      crashAfter: (steps) => { tab.stepsLeft = steps; },
    };
  }

  /** Makes a call fail, or a write come short. */
  fail(fault: Fault | ShortWrite): void {
    this.#faults.push({ fault, left: fault.times ?? 1 });
  }

  /** Takes all faults back. */
  heal(): void {
    this.#faults = [];
  }

  /** A file's time of change and size, or null. */
  stat(path: string): { mtimeMs: number; size: number } | null {
    const node = this.#find(path);
    return node?.kind === 'file' ? { mtimeMs: node.mtime, size: node.bytes.length } : null;
  }

  /** A file's text, or null. */
  read(path: string): string | null {
    const node = this.#find(path);
    return node?.kind === 'file' ? new TextDecoder().decode(node.bytes) : null;
  }

  /** Puts a file there, with the folders it needs, as another program would. */
  write(path: string, text: string, mtimeMs = this.#clock.now()): void {
    const parts = path.split('/');
    const name = parts.pop() ?? '';
    let at = this.top;
    for (const part of parts) {
      const next = at.children.get(part) ?? folder();
      if (next.kind !== 'directory') throw exception('TypeMismatchError', part);
      at.children.set(part, next);
      at = next;
    }
    at.children.set(name, { ...file(mtimeMs), bytes: new TextEncoder().encode(text) });
  }

  /** Sets a file's time of change. */
  setMtime(path: string, mtimeMs: number): void {
    const node = this.#find(path);
    if (node?.kind === 'file') node.mtime = mtimeMs;
  }

  /** Removes a file or folder, if it is there. */
  remove(path: string): void {
    const parts = path.split('/');
    const name = parts.pop() ?? '';
    const parent = this.#find(parts.join('/'));
    if (parent?.kind === 'directory') parent.children.delete(name);
  }

  /** The paths of all files. */
  files(): string[] {
    const walk = (at: FolderNode, under: string): string[] =>
      [...at.children].flatMap(([name, node]) =>
        node.kind === 'file' ? [under + name] : walk(node, `${under}${name}/`));
    return walk(this.top, '').sort();
  }

  /** One file, under the name of Project lock service 6 (docs/sources.md). */
  file(path: string): InMemoryOpfsFile {
    return new InMemoryOpfsFile(this, path);
  }

  /** @internal */
  now(): number {
    return this.#clock.now();
  }

  /** @internal Throws when this call was made to fail; answers how many bytes it may write. */
  check(operation: Operation, path: string): number {
    const found = this.#faults.find(({ fault, left }) =>
      left > 0 && fault.operation === operation && (fault.path ?? path) === path);
    if (!found) return Infinity;
    found.left -= 1;
    if ('short' in found.fault) return found.fault.short;
    throw exception(found.fault.error, `${operation} on ${path} was made to fail`);
  }

  #find(path: string): FileNode | FolderNode | undefined {
    let at: FileNode | FolderNode | undefined = this.top;
    for (const part of path.split('/').filter(Boolean)) {
      at = at?.kind === 'directory' ? at.children.get(part) : undefined;
    }
    return at;
  }
}

/** One file of a {@link MockOPFS}, to prepare and to look at. */
export class InMemoryOpfsFile {
  readonly #opfs: MockOPFS;
  readonly #path: string;

  constructor(opfs: MockOPFS = new MockOPFS(), path = 'project/.lock') {
    this.#opfs = opfs;
    this.#path = path;
  }

  /** Its text, or null. */
  async read(): Promise<string | null> {
    return this.#opfs.read(this.#path);
  }

  /** Puts it there. */
  async write(text: string): Promise<void> {
    this.#opfs.write(this.#path, text);
  }

  /** Removes it. */
  async delete(): Promise<void> {
    this.#opfs.remove(this.#path);
  }
}

/** A `FileSystemDirectoryHandle`. */
export class MockDirectoryHandle {
  readonly kind = 'directory';
  readonly name: string;
  readonly #in: Place<FolderNode>;

  /** @internal */
  constructor(opfs: MockOPFS, tab: Tab, node: FolderNode, path: string, crash: () => void) {
    this.#in = { opfs, tab, node, path, crash };
    this.name = path.split('/').pop() ?? '';
  }

  async getDirectoryHandle(name: string, options: { create?: boolean } = {}): Promise<MockDirectoryHandle> {
    const path = await this.#step('getDirectoryHandle', name);
    const { opfs, tab, node, crash } = this.#in;
    const child = node.children.get(name) ?? (options.create ? folder() : undefined);
    if (!child) throw exception('NotFoundError', path);
    if (child.kind !== 'directory') throw exception('TypeMismatchError', path);
    node.children.set(name, child);
    return new MockDirectoryHandle(opfs, tab, child, path, crash);
  }

  async getFileHandle(name: string, options: { create?: boolean } = {}): Promise<MockFileHandle> {
    const path = await this.#step('getFileHandle', name);
    const { opfs, tab, node, crash } = this.#in;
    const child = node.children.get(name);
    if (child && child.kind !== 'file') throw exception('TypeMismatchError', path);
    if (!child && !options.create) throw exception('NotFoundError', path);
    if (!child) {
      node.children.set(name, file(opfs.now()));
      opfs.writes.push(path);
    }
    return new MockFileHandle({ opfs, tab, node, path, crash }, name);
  }

  async removeEntry(name: string, options: { recursive?: boolean } = {}): Promise<void> {
    const path = await this.#step('removeEntry', name);
    const child = this.#in.node.children.get(name);
    if (!child) throw exception('NotFoundError', path);
    if (isOpen(child)) throw exception('NoModificationAllowedError', path);
    if (child.kind === 'directory' && child.children.size > 0 && !options.recursive) {
      throw exception('InvalidModificationError', path);
    }
    this.#in.node.children.delete(name);
    this.#in.opfs.writes.push(path);
  }

  async *keys(): AsyncIterableIterator<string> {
    await step(this.#in);
    this.#in.opfs.check('keys', this.#in.path);
    for (const name of [...this.#in.node.children.keys()]) yield name;
  }

  /** @internal */
  get folder(): FolderNode {
    return this.#in.node;
  }

  /** @internal */
  get path(): string {
    return this.#in.path;
  }

  async #step(operation: Operation, name: string): Promise<string> {
    if (name === '' || name === '.' || name === '..' || name.includes('/')) throw new TypeError(`no name: ${name}`);
    const path = this.#in.path ? `${this.#in.path}/${name}` : name;
    await step(this.#in);
    this.#in.opfs.check(operation, path);
    return path;
  }
}

/** A `FileSystemFileHandle`: a name in a folder, whatever file has it. */
export class MockFileHandle {
  readonly kind = 'file';
  name: string;
  #in: Place<FolderNode>;

  /** @internal */
  constructor(place: Place<FolderNode>, name: string) {
    this.#in = place;
    this.name = name;
  }

  async getFile(): Promise<File> {
    const node = await this.#step('getFile');
    return new File([node.bytes.slice()], this.name, { lastModified: node.mtime });
  }

  async createSyncAccessHandle(): Promise<MockSyncAccessHandle> {
    const node = await this.#step('createSyncAccessHandle');
    if (isOpen(node)) throw exception('NoModificationAllowedError', this.#in.path);
    return new MockSyncAccessHandle({ ...this.#in, node });
  }

  async createWritable(): Promise<MockWritable> {
    const node = await this.#step('createWritable');
    const { opfs, path } = this.#in;
    if (node.open.size > 0) throw exception('NoModificationAllowedError', path);
    node.writables += 1;
    let next = new Uint8Array();
    const end = () => { node.writables -= 1; };
    return {
      write: async (data) => {
        await step(this.#in);
        opfs.check('write', path);
        next = concat(next, typeof data === 'string' ? new TextEncoder().encode(data) : bytesOf(data));
      },
      close: async () => {
        await step(this.#in);
        end();
        opfs.check('close', path);
        Object.assign(node, { bytes: next, mtime: opfs.now() });
        opfs.writes.push(path);
      },
      abort: async () => end(),
    };
  }

  async move(to: string | Directory, newName?: string): Promise<void> {
    const node = await this.#step('move');
    const here = { node: this.#in.node, under: parentOf(this.#in.path) };
    const there = to as MockDirectoryHandle;
    const target = typeof to === 'string' ? here : { node: there.folder, under: there.path };
    const name = typeof to === 'string' ? to : newName ?? this.name;
    if (name === '') throw new TypeError('no name');
    const path = target.under ? `${target.under}/${name}` : name;
    const replaced = target.node.children.get(name);
    if (isOpen(node) || (replaced && isOpen(replaced))) throw exception('NoModificationAllowedError', path);
    this.#in.node.children.delete(this.name);
    target.node.children.set(name, node);
    this.#in.opfs.writes.push(path);
    this.#in = { ...this.#in, node: target.node, path };
    this.name = name;
  }

  async #step(operation: Operation): Promise<FileNode> {
    await step(this.#in);
    this.#in.opfs.check(operation, this.#in.path);
    const node = this.#in.node.children.get(this.name);
    if (node?.kind !== 'file') throw exception('NotFoundError', this.#in.path);
    return node;
  }
}

/** A `FileSystemWritableFileStream`: what is written is seen when it is closed. */
export interface MockWritable {
  write(data: string | Data): Promise<void>;
  close(): Promise<void>;
  abort(): Promise<void>;
}

/** A `FileSystemSyncAccessHandle`: while it is open, there can be no other on this file. */
export class MockSyncAccessHandle {
  readonly #in: Place<FileNode>;
  readonly #close = () => {
    this.#in.node.open.delete(this.#in.tab);
    this.#in.tab.handles.delete(this.#close);
    this.#closed = true;
  };
  #closed = false;

  /** @internal */
  constructor(place: Place<FileNode>) {
    this.#in = place;
    place.node.open.add(place.tab);
    place.tab.handles.add(this.#close);
  }

  read(into: Data, options: { at?: number } = {}): number {
    const bytes = this.#use('read').node.bytes.subarray(options.at ?? 0).subarray(0, into.byteLength);
    viewOf(into).set(bytes);
    return bytes.length;
  }

  write(data: Data, options: { at?: number } = {}): number {
    const { node, most } = this.#use('write');
    const [bytes, at] = [bytesOf(data).subarray(0, most), options.at ?? 0];
    const next = new Uint8Array(Math.max(node.bytes.length, at + bytes.length));
    next.set(node.bytes);
    next.set(bytes, at);
    this.#changed(next);
    return bytes.length;
  }

  truncate(size: number): void {
    const { node } = this.#use('truncate');
    const next = new Uint8Array(size);
    next.set(node.bytes.subarray(0, size));
    this.#changed(next);
  }

  flush(): void {
    this.#use('flush');
  }

  getSize(): number {
    return this.#use('getSize').node.bytes.length;
  }

  close(): void {
    this.#close();
  }

  #changed(bytes: Uint8Array): void {
    Object.assign(this.#in.node, { bytes, mtime: this.#in.opfs.now() });
    this.#in.opfs.writes.push(this.#in.path);
  }

  #use(operation: Operation): { node: FileNode; most: number } {
    const { opfs, tab, node, path } = this.#in;
    if (this.#closed || !tab.alive) throw exception('InvalidStateError', 'the handle is closed');
    return { node, most: opfs.check(operation, path) };
  }
}

/** Where a handle is. */
interface Place<Node> { opfs: MockOPFS; tab: Tab; node: Node; path: string; crash(): void }

/** Every call answers later, as in a browser; in a tab that has crashed, never. */
async function step(place: Place<unknown>): Promise<void> {
  if (place.tab.alive && place.tab.stepsLeft-- <= 0) place.crash();
  await null;
  if (!place.tab.alive) await new Promise(() => {});
}

function isOpen(node: FileNode | FolderNode): boolean {
  if (node.kind === 'file') return node.open.size > 0 || node.writables > 0;
  return [...node.children.values()].some(isOpen);
}

function file(mtime: number): FileNode {
  return { kind: 'file', bytes: new Uint8Array(), mtime, open: new Set(), writables: 0 };
}

function folder(): FolderNode {
  return { kind: 'directory', children: new Map() };
}

function parentOf(path: string): string {
  return path.split('/').slice(0, -1).join('/');
}

function bytesOf(data: Data): Uint8Array {
  return viewOf(data).slice();
}

function viewOf(data: Data): Uint8Array {
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

function exception(name: string, message: string): DOMException {
  return new DOMException(message, name);
}
