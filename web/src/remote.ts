// The messages between a page and the host of its lock. `postMessage` can send all of them.

import type { DialectsView } from './border.js';
import type { ErrorView } from './error.js';

/** The calls that go to the host. */
export type Method =
  | 'acquireProjectLock' | 'takeOverProjectLock' | 'renewProjectLock' | 'releaseProjectLock' | 'commitProjectFile'
  | 'requestProjectHandover' | 'refuseProjectHandover' | 'told' | 'lookProjectLock' | 'readProjectLockState' | 'files' | 'refresh' | 'freeze' | 'resume' | 'show';

/** From the page. */
export type ToHost =
  | { readonly wasmUrl: string | undefined }
  | { readonly call: number; readonly method: Method; readonly options: object | undefined }
  | { readonly abort: number };

/** From the host. */
export type ToPage =
  | { readonly call: number; readonly value: unknown }
  | { readonly call: number; readonly error: ErrorView }
  | { readonly call: number; readonly thrown: unknown }
  | { readonly event: DialectsView };
