// A tab of the tests in node: a project lock on the doubles, and what its events were.

import { expect } from 'vitest';
import { createProjectLock, type Channel, type LocalProjectLock } from '../src/local.js';
import type { ProjectLockError } from '../src/index.js';
import type { Dialect, ProjectLockEvents, ProjectLockHolder, ProjectLockLease } from '../src/types.js';
import { setWasm } from '../src/wasm.js';
import { EventProbe, FakeClock, MockNavigatorLocks, MockOPFS, settled } from '../src/testing.js';

setWasm(new URL('../dist/leasehold.wasm', import.meta.url));

/** What a save is refused with where there is no space. */
export const NO_SPACE = {
  name: 'LockRenewalError', code: 'fallback-write-failed', operation: 'save', retryable: true, cause: expect.stringContaining('QuotaExceededError'),
};

/** Another tab's record. */
export const OTHER = '3f1c0b1e-0000-4000-8000-000000000001';

/** A browser with one tab, whose time a test moves. */
export class Tab {
  readonly clock: FakeClock;
  readonly locks: MockNavigatorLocks;
  readonly opfs: MockOPFS;
  readonly lock: LocalProjectLock;
  /** The top of the files, as this tab sees it. */
  readonly folder: MockOPFS['root'];
  readonly #probes = new Map<Dialect, EventProbe<ProjectLockEvents[Dialect]>>();

  constructor(options: { beside?: Tab; webLocks?: boolean; folder?: boolean; channel?: () => Channel } = {}) {
    const { beside, webLocks = true, folder = true, channel = null } = options;
    this.clock = beside?.clock ?? new FakeClock();
    this.locks = beside ? beside.locks.tab() : new MockNavigatorLocks();
    this.opfs = beside?.opfs ?? new MockOPFS(this.clock);
    const root = this.opfs.tab();
    this.folder = root.root;
    this.lock = createProjectLock({
      locks: webLocks ? this.locks : null, folder: folder ? root.root : null, clock: this.clock, channel,
    });
    this.crash = () => {
      root.crash();
      this.locks.crash();
    };
    this.crashAfter = root.crashAfter;
    for (const dialect of ['lock', 'service', 'autosave'] as Dialect[]) {
      const probe = new EventProbe<ProjectLockEvents[Dialect]>();
      this.#probes.set(dialect, probe);
      this.lock.subscribeLockEvents(probe.listener, { dialect });
    }
  }

  /** Ends the tab as a crash does. */
  readonly crash: () => void;
  /** Ends it so after so many calls to the file system. */
  readonly crashAfter: (steps: number) => void;

  /** What was heard in a dialect. */
  heard<In extends Dialect = 'lock'>(dialect?: In): EventProbe<ProjectLockEvents[In]> {
    return this.#probes.get(dialect ?? 'lock') as never;
  }

  /** `.lock`, parsed. */
  record(): Record<string, unknown> {
    return JSON.parse(this.opfs.read('project/.lock') ?? 'null');
  }

  /** Lets a call come to its end, moving time as far as it needs, second by second. */
  async run<T>(call: Promise<T>, seconds = 60): Promise<T> {
    let over = false;
    call.then(() => { over = true; }, () => { over = true; });
    for (let second = 0; second < seconds && !over; second += 1) {
      await settled();
      if (!over) await this.clock.advance(1000);
    }
    return call;
  }
}

/** An event, whatever it has. */
interface Loose {
  readonly type: string;
  readonly root: string;
  readonly lockName: string;
  readonly lease?: ProjectLockLease;
  readonly leaseId?: string;
  readonly error?: ProjectLockError | string;
  readonly lastError?: ProjectLockError;
  readonly holder?: ProjectLockHolder;
}

/** Events as a snapshot shows them: what differs from run to run is left out, and the name of the project. */
export function told(events: readonly Loose[]): unknown[] {
  return events.map(({ lease, leaseId, error, lastError, root, lockName, holder, ...rest }) => ({
    ...rest,
    ...(lease && { lease: lease.strategy }),
    ...(holder && { holder: holder.owner === 'other' ? 'other' : 'a tab' }),
    ...(leaseId && { leaseId: 'of the lease' }),
    ...(error && { error: code(error) }),
    ...(lastError && { lastError: code(lastError) }),
  }));
}

/** What a tab was told, in all three dialects. */
export function story(tab: Tab): unknown {
  const dialects = ['lock', 'service', 'autosave'] as const;
  return Object.fromEntries(dialects.map((dialect) => [dialect, told(tab.heard(dialect).events)]));
}

function code(error: ProjectLockError | string): string {
  return typeof error === 'string' ? error : error.code;
}

/** The code of the error that a call ends with. */
export async function codeOf(call: Promise<unknown>): Promise<string> {
  return call.then(() => 'none', (error: ProjectLockError) => error.code ?? String(error));
}

/** Takes the guard of a tab's project and keeps it, as a frozen tab does. */
export async function stickGuard(tab: Tab): Promise<{ close(): void }> {
  const project = await tab.opfs.root.getDirectoryHandle('project');
  return (await project.getFileHandle('.lock.guard')).createSyncAccessHandle();
}
