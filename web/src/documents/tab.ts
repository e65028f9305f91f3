// What a tab keeps over a reload: its id, and the lease ids of its locks. A duplicated tab has a copy of all that; it finds the Web
// Lock on the id taken, and becomes a tab of its own.

/** The lease id of a lock; while it is being resumed, the next one, so that a lost answer can be asked for again. */
export interface KeptLease {
  readonly leaseId: string;
  readonly next?: string;
}

const ID = 'leasehold.tab';
const LEASE = 'leasehold.lease ';

/** A page that is reloaded may begin before the last one has let go of its Web Lock. */
const RELOAD_MS = 1_000;

/** This tab. */
export class Tab {
  id = newId();
  /** Resolves when it is known whose id this is. */
  readonly ready: Promise<void>;
  /** Lets go of the Web Lock. */
  #letGo: (() => void) | null = null;

  constructor() {
    this.ready = this.#begin();
  }

  /** The lease of a document that the page before this one has left, or null. */
  kept(document: string): KeptLease | null {
    return parsed(read(LEASE + document));
  }

  keep(document: string, lease: KeptLease): void {
    write(LEASE + document, JSON.stringify(lease));
  }

  forget(document: string): void {
    write(LEASE + document, null);
  }

  /** The page is being left: the next one in this tab has the id. */
  leave(): void {
    this.#letGo?.();
    this.#letGo = null;
  }

  /** The page is back from the back/forward cache. */
  back(): void {
    if (this.#letGo === null) void this.#hold(this.id);
  }

  async #begin(): Promise<void> {
    const known = read(ID);
    if (known !== null) this.id = known;
    if (!await this.#hold(this.id)) {
      // Another page has it: this tab is a copy.
      this.id = newId();
      leases().forEach((name) => write(name, null));
      await this.#hold(this.id);
    }
    write(ID, this.id);
  }

  /** Holds the Web Lock on an id. False if another page has it. Where there are no Web Locks, nobody can tell. */
  #hold(id: string): Promise<boolean> {
    const { locks } = navigator;
    if (!locks) return Promise.resolve(true);
    return new Promise((resolve) => {
      locks.request(`leasehold.tab.${id}`, { signal: AbortSignal.timeout(RELOAD_MS) }, () => {
        resolve(true);
        return new Promise<void>((letGo) => { this.#letGo = letGo; });
      }).catch((error: Error) => resolve(error.name !== 'TimeoutError' && error.name !== 'AbortError'));
    });
  }
}

/** A random UUID of version 4. `crypto.randomUUID` exists in secure contexts alone. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

function parsed(text: string | null): KeptLease | null {
  try {
    const lease = JSON.parse(text ?? 'null') as KeptLease | null;
    return typeof lease?.leaseId === 'string' ? lease : null;
  } catch {
    return null;
  }
}

// A page whose storage is blocked goes without: a reload then waits for its own lock to end.

function read(name: string): string | null {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name: string, value: string | null): void {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, value);
  } catch {
    // as above
  }
}

function leases(): string[] {
  try {
    return Object.keys(sessionStorage).filter((name) => name.startsWith(LEASE));
  } catch {
    return [];
  }
}
