// The types of the built package, as an application's compiler sees them.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { install } from './archive.js';

const web = fileURLToPath(new URL('..', import.meta.url));

const APP = `
  import { acquireProjectLock, requestProjectHandover, subscribeLockEvents, withProjectLock, ProjectLockError } from 'leasehold';
  import { createProjectLock } from 'leasehold/local';
  import type { ProjectLockErrorCode, ProjectLockLease } from 'leasehold';
  // @ts-expect-error: how an error is sent is nobody's business
  import { errorOf } from 'leasehold';
  import { FakeClock, MockNavigatorLocks, MockOPFS } from 'leasehold/testing';
  import { initAutoSave } from 'leasehold/autosave';
  import { AutoSaveIndicatorElement } from 'leasehold/elements';
  import 'leasehold/elements/define';

  class Mine extends AutoSaveIndicatorElement {}
  const [indicator, history] = [document.createElement('autosave-indicator'), document.createElement('autosave-history')];
  indicator.autosave = history.autosave = new Mine().autosave = initAutoSave(() => ({}));
  history.show();
  // @ts-expect-error: an autosave has more than a state
  indicator.autosave = { kind: 'saved' };

  const lease: Promise<ProjectLockLease> = acquireProjectLock({ autoResume: true }).then(({ lease }) => lease);
  const count: Promise<number> = withProjectLock({}, async (lease, signal) => (signal.aborted ? 0 : lease.fence));
  const clock = new FakeClock();
  createProjectLock({ locks: new MockNavigatorLocks(), folder: new MockOPFS(clock).root, clock, channel: null });
  const [signal, root]: [AbortSignal | undefined, string | undefined] = [undefined, undefined];
  acquireProjectLock({ signal, root, label: undefined, retryPolicy: { maxAttempts: undefined }, onReadonly: undefined });
  subscribeLockEvents(() => {}, { root, lockName: undefined, dialect: undefined });
  createProjectLock({ locks: navigator.locks, folder: await navigator.storage.getDirectory() });
  requestProjectHandover({ onSilence: 'grant', countdownMs: undefined, signal });
  // @ts-expect-error: silence is one or the other
  requestProjectHandover({ onSilence: 'maybe' });
  subscribeLockEvents((event) => {
    if (event.type === 'lock:handover-requested') console.log(event.request.label, event.request.countdownMs);
    if (event.type === 'lock:acquired') console.log(event.lease.fence);
    if (event.type === 'lock:readonly-entered') console.log(event.reason, event.lastError.code);
    // @ts-expect-error: there is no such event in this dialect
    if (event.type === 'backoff') console.log(event);
    // @ts-expect-error: not every event has a lease
    console.log(event.lease);
  });
  subscribeLockEvents((event) => { if (event.type === 'backoff') console.log(event.delayMs); }, { dialect: 'service' });
  const code: ProjectLockErrorCode = 'lease-stale';
  // @ts-expect-error: there is no such code
  const wrong: ProjectLockErrorCode = 'lease-stail';
  lease.catch((error: unknown) => { if (error instanceof ProjectLockError) console.log(error.code === code, count, wrong, errorOf); });
`;

test.each(['bundler', 'nodenext'])('an application compiles, with module resolution %s', { timeout: 60_000 }, (resolution) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-types-'));
  try {
    install(folder);
    writeFileSync(join(folder, 'app.ts'), APP);
    const module = resolution === 'bundler' ? 'esnext' : resolution;
    const strict = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess', '--noPropertyAccessFromIndexSignature'];
    const options = ['--noEmit', ...strict, '--skipLibCheck', 'false', '--target', 'es2022', '--lib', 'es2022,dom', '--module', module];
    const args = [...options, '--moduleResolution', resolution, 'app.ts'];
    const compiled = spawnSync(join(web, 'node_modules/.bin/tsc'), args, { cwd: folder, encoding: 'utf8' });
    expect(compiled.stdout).toBe('');
  } finally {
    rmSync(folder, { recursive: true });
  }
});
