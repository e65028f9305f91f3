// Faults on purpose, in the page and in its Workers: a full disk, a heartbeat that does not get through, an event stream that is cut,
// a thread that stands still. The package itself is the shipped one: what breaks is the browser around it. The page sends what is
// broken over a channel that has the tab's name, so that no other tab breaks.

/** What is broken at the moment. */
export interface Faults {
  full: boolean;
  heart: boolean;
  socket: boolean;
}

/** What the page tells its Workers. */
export type FaultMessage = { readonly faults: Faults } | { readonly sleepMs: number };

export const faults: Faults = { full: false, heart: false, socket: false };

/** The channel between a tab and its Workers. */
export function channelOf(tab: string): BroadcastChannel {
  return new BroadcastChannel(`leasehold-demo-${tab}`);
}

/** In a Worker: does what the page says. */
export function obey(tab: string): void {
  channelOf(tab).onmessage = ({ data }: MessageEvent<FaultMessage>) => {
    if ('sleepMs' in data) return sleep(data.sleepMs);
    Object.assign(faults, data.faults);
    if (faults.socket) streams.abort(new TypeError('the demo has cut the socket'));
  };
}

/** Stands still, with everything else in this Worker. */
function sleep(ms: number): void {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  Atomics.wait(new Int32Array(memory.buffer), 0, 0, ms);
}

type Data = Parameters<FileSystemWritableFileStream['write']>;

/** Lets files fail: the user's when the disk is full, the lock's record while it cannot be renewed. */
export function breakFiles(): void {
  const names = new WeakMap<object, string>();
  const check = (handle: object) => {
    const name = names.get(handle) ?? '';
    // A save is written aside first, among the files of the lock.
    const isUsers = !name.startsWith('.lock') || name.startsWith('.lock.save');
    if (faults.full && isUsers) throw new DOMException('the demo has filled the disk', 'QuotaExceededError');
    if (faults.heart && name === '.lock.tmp') throw new DOMException('the demo has killed the heartbeat', 'UnknownError');
  };
  const files = FileSystemFileHandle.prototype as unknown as Record<Opens, Open | undefined>;
  for (const opens of ['createSyncAccessHandle', 'createWritable'] as const) {
    const real = files[opens];
    if (!real) continue;
    files[opens] = async function (this: FileSystemFileHandle, ...options: unknown[]) {
      const handle = await real.apply(this, options);
      names.set(handle, this.name);
      return handle;
    };
  }
  const writers = [globalThis.FileSystemWritableFileStream, (globalThis as { FileSystemSyncAccessHandle?: unknown }).FileSystemSyncAccessHandle];
  for (const writer of writers as ({ prototype: { write(...data: Data): unknown } } | undefined)[]) {
    if (!writer) continue;
    const real = writer.prototype.write;
    writer.prototype.write = function (...data) {
      check(this);
      return real.apply(this, data);
    };
  }
}

type Opens = 'createSyncAccessHandle' | 'createWritable';
type Open = (this: FileSystemFileHandle, ...options: unknown[]) => Promise<object>;

/** Ends the event streams that are open. */
let streams = new AbortController();

/** Lets calls fail: those that renew or get a lock while the heartbeat is dead, event streams while the socket is cut. */
export function breakNetwork(): void {
  const real = globalThis.fetch;
  globalThis.fetch = async (address, options = {}) => {
    const { pathname } = new URL(String(address instanceof Request ? address.url : address), location.href);
    // Nor can the lock be had anew: a page that finds its events alive would try.
    const isAboutLock = pathname.endsWith('/lock') && (options.method ?? 'GET') !== 'GET';
    if (faults.heart && isAboutLock) throw new TypeError('the demo has killed the heartbeat');
    if (!pathname.endsWith('/events')) return real(address, options);
    if (faults.socket) throw new TypeError('the demo has cut the socket');
    if (streams.signal.aborted) streams = new AbortController();
    const signals = [streams.signal, ...(options.signal ? [options.signal] : [])];
    return real(address, { ...options, signal: AbortSignal.any(signals) });
  };
}
