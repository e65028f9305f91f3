// What a tab keeps over a reload: its id, and the lease ids of its locks. A duplicated tab has a copy of all that; it finds the Web
// Lock on the id taken, and becomes a tab of its own.

import { read, write } from './storage.js';

/** The lease id of a lock; while it is being resumed, the next one, so that a lost answer can be asked for again. */
export interface KeptLease {
  readonly leaseId: string;
  readonly next?: string;
}

const NAME = 'leasehold.tab';

/** A page that is reloaded may begin before the last one has let go of its Web Lock. */
const RELOAD_MS = 1_000;

let id: string;
/** Lets go of the Web Lock. */
let letGo: (() => void) | undefined;

/** The lease of a document, as this page or another one in this tab has left it. */
export function keptLease(document: string): KeptLease | undefined {
  return read('sessionStorage', NAME)?.leases?.[document];
}

/** Keeps the lease of a document, or forgets it. */
export function keepLease(document: string, lease?: KeptLease): void {
  write('sessionStorage', NAME, { id, leases: { ...read('sessionStorage', NAME)?.leases, [document]: lease } });
}

/** Finds out which tab this is: its id. */
export async function beginTab(): Promise<string> {
  const known = read('sessionStorage', NAME)?.id;
  id = known ?? newId();
  if (!await holdTab()) {
    // Another page has it: this tab is a copy.
    id = newId();
    await holdTab();
  }
  if (id !== known) write('sessionStorage', NAME, { id });
  return id;
}

/** The page is being left: the next one in this tab has the id. */
export function leaveTab(): void {
  letGo?.();
  letGo = undefined;
}

/** Holds the Web Lock on the id, unless this page has it already. False if another page has it. Where there are no Web Locks, nobody
 * can tell. */
export async function holdTab(): Promise<boolean> {
  const { locks } = navigator;
  return !locks || letGo !== undefined || new Promise((resolve) => {
    locks.request(`${NAME}.${id}`, { signal: AbortSignal.timeout(RELOAD_MS) }, () => {
      resolve(true);
      return new Promise<void>((end) => { letGo = end; });
    }).catch((error: Error) => resolve(!/Timeout|Abort/.test(error.name)));
  });
}

/** A random UUID of version 4. `crypto.randomUUID` exists in secure contexts alone. */
export function newId(): string {
  // A 0 becomes any digit, the 8 one of 8, 9, a and b.
  return '00000000-0000-4000-8000-000000000000'.replace(/[08]/g, (digit) => {
    const [random] = crypto.getRandomValues(new Uint8Array(1));
    return (digit === '8' ? 8 + random! % 4 : random! % 16).toString(16);
  });
}
