// What the package promises beyond the tables: two tabs, crashes at every step, every way in which a browser can be short of
// something, and that saves are fenced.

import { readFile } from 'node:fs/promises';
import { describe, expect, test, vi } from 'vitest';
import {
  LockConflictError, ProjectLockError, type ProjectLockEvent, type ProjectLockLogger, type ProjectName,
} from '../src/index.js';
import { createProjectLock, type Channel } from '../src/local.js';
import { EventProbe, FakeClock, MockOPFS, settled } from '../src/testing.js';
import { MockFileHandle } from '../src/testing/opfs.js';
import { NO_SPACE, OTHER, Tab, codeOf } from './helpers.js';

const ONCE = { retryPolicy: { maxAttempts: 1 }, webLockTimeoutMs: 50 };

describe('two tabs', () => {
  test.each([[true, true], [true, false], [false, true], [false, false]])(
    'with Web Locks: %s and %s: one holds, the other is told who', async (first, second) => {
      const tab = new Tab({ webLocks: first });
      const other = new Tab({ beside: tab, webLocks: second });
      const { lease } = await tab.run(tab.lock.acquireProjectLock());
      expect(await codeOf(other.run(other.lock.acquireProjectLock(ONCE)))).toBe('acquire-timeout');
      expect(other.record()).toMatchObject({ leaseId: lease.leaseId });
      await tab.run(tab.lock.releaseProjectLock({ lease }));
      const { lease: next } = await other.run(other.lock.acquireProjectLock(ONCE));
      expect(next.fence).toBeGreaterThan(lease.fence);
    });

  test('a tab that waits for the Web Lock has the project when the other one releases it', async () => {
    const tab = new Tab();
    const other = new Tab({ beside: tab });
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const waiting = other.lock.acquireProjectLock({ webLockTimeoutMs: 60_000 });
    await tab.clock.advance(10_000);
    await tab.run(tab.lock.releaseProjectLock({ lease }));
    await expect(tab.run(waiting)).resolves.toMatchObject({ didFallback: false });
  });

  test('a read-only tab says when the project is free, or takes it by itself', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const told = new Tab({ beside: tab });
    await codeOf(told.run(told.lock.acquireProjectLock(ONCE)));
    await tab.run(tab.lock.releaseProjectLock({ lease }));
    await told.clock.advance(1_000);
    expect(told.heard().types().at(-1)).toBe('lock:available');

    const { lease: again } = await tab.run(tab.lock.acquireProjectLock());
    const takes = new Tab({ beside: tab });
    await codeOf(takes.run(takes.lock.acquireProjectLock({ ...ONCE, autoResume: true })));
    await tab.run(tab.lock.releaseProjectLock({ lease: again }));
    await takes.clock.advance(1_000);
    expect(takes.heard().types()).toContain('lock:acquired');
    expect(takes.record()['leaseId']).not.toBe(again.leaseId);
  });

  test('a folder that a desktop program holds is not to be had before its time is over', async () => {
    // The very text that a program writes, which its own tests compare it with.
    const text = await readFile(new URL('../../crates/leasehold-project/tests/disk/desktop.lock.json', import.meta.url), 'utf8');
    const tab = new Tab();
    const desktop = { ...JSON.parse(text), updatedAt: new Date(tab.clock.now()).toISOString(), expiresAt: tab.clock.now() + 30_000 };
    tab.opfs.write('project/.lock', JSON.stringify(desktop));
    expect(await codeOf(tab.run(tab.lock.acquireProjectLock(ONCE)))).toBe('acquire-timeout');
    await tab.clock.advance(30_000);
    const { lease } = await tab.run(tab.lock.acquireProjectLock(ONCE));
    expect(lease.fence).toBeGreaterThan(desktop.fence);
  });

  // The user reloaded the tab that held the project, and a tab in the background had it: the reloaded one was read-only.
  test('a hidden tab leaves the project to a tab that is reloaded, for two seconds', async () => {
    const one = new Tab();
    await one.lock.acquireProjectLock();
    const hidden = new Tab({ beside: one });
    await hidden.lock.show({ hidden: true });
    await hidden.run(hidden.lock.acquireProjectLock({ ...ONCE, autoResume: true })).catch(() => {});
    one.crash();
    await one.clock.advance(1_000);
    const again = new Tab({ beside: one });
    const { lease } = await again.lock.acquireProjectLock();
    expect(lease.strategy).toBe('web-lock');
    expect(hidden.heard().of('lock:acquired')).toHaveLength(0);
    await one.clock.advance(400);
    again.crash();
    await one.clock.advance(1_000);
    expect(hidden.heard().of('lock:acquired')).toHaveLength(0);
    await hidden.lock.show({ hidden: false });
    await one.clock.advance(10);
    expect(hidden.heard().of('lock:acquired')).toHaveLength(1);
  });

  // A second tab heard nothing for 4.7 s, and then "acquire-timeout": not that another tab edits, nor which.
  test('a refusal tells who: at once by an event, and in the error', async () => {
    const one = new Tab();
    const { lease } = await one.lock.acquireProjectLock({ label: 'Ann, at the window' });
    const two = new Tab({ beside: one });
    expect(await two.lock.lookProjectLock()).toEqual({
      owner: lease.owner, label: 'Ann, at the window', fence: lease.fence, since: lease.acquiredAt,
      expiresAt: lease.acquiredAt + 28_000,
    });
    expect(await two.lock.lookProjectLock({ root: 'free' })).toBeNull();
    let isOver = false;
    const acquired = two.lock.acquireProjectLock().finally(() => { isOver = true; });
    acquired.catch(() => {});
    for (let ms = 0; ms < 250; ms += 50) await one.clock.advance(50);
    expect(two.heard().of('lock:held')).toMatchObject([
      { holder: { owner: lease.owner, label: 'Ann, at the window', fence: lease.fence, since: lease.acquiredAt } },
    ]);
    expect(isOver).toBe(false);
    const error = await two.run(acquired).catch((thrown: ProjectLockError) => thrown) as ProjectLockError;
    expect(error).toMatchObject({
      code: 'acquire-timeout', holder: { fence: lease.fence, label: 'Ann, at the window' }, cause: { holder: { fence: lease.fence } },
    });
    expect(two.heard().of('lock:held')).toHaveLength(1);
    const taken = await two.lock.takeOverProjectLock({ seen: error.holder!.fence });
    expect(taken.lease.fence).toBeGreaterThan(lease.fence);
  });

  test.each([['grant', 'none'], ['refuse', 'fallback-conflict']] as const)(
    'the holder is asked to hand over: silence is %s', async (onSilence, code) => {
      const channels: Channel[] = [];
      const channel = () => {
        const own: Channel = {
          onmessage: null,
          postMessage: (data) => channels.filter((other) => other !== own).forEach((other) => other.onmessage?.({ data })),
        };
        channels.push(own);
        return own;
      };
      const one = new Tab({ channel });
      const { lease } = await one.lock.acquireProjectLock();
      const two = new Tab({ beside: one, channel });
      const ask = (options: object) => two.lock.requestProjectHandover({ label: 'Bob', reason: 'a typo', ...options });
      const silent = ask({ onSilence, countdownMs: 5_000 });
      await one.clock.advance(10);
      expect(one.heard().of('lock:handover-requested')).toMatchObject([
        { request: { label: 'Bob', reason: 'a typo', countdownMs: 5_000, onSilence } },
      ]);
      expect(await codeOf(two.run(silent))).toBe(code);
      if (code === 'none') return;
      const refused = ask({ onSilence: 'grant' });
      await one.clock.advance(10);
      await one.lock.refuseProjectHandover({ lease });
      expect(await codeOf(refused)).toBe('fallback-conflict');
      const given = ask({});
      await one.clock.advance(10);
      await one.lock.releaseProjectLock({ lease });
      expect((await two.run(given)).lease.fence).toBeGreaterThan(lease.fence);
    });

  test('a take-over ends the other lease, and its holder cannot save', async () => {
    const tab = new Tab();
    const other = new Tab({ beside: tab });
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const { lease: taken } = await other.run(other.lock.takeOverProjectLock({ seen: lease.fence, reason: 'I know better' }));
    expect(taken.fence).toBeGreaterThan(lease.fence);
    const save = tab.lock.commitProjectFile({ lease, path: 'current.json', data: 'stale' });
    await expect(tab.run(save)).rejects.toMatchObject({ code: 'lease-stale', operation: 'save', holder: { fence: taken.fence, owner: taken.owner } });
    expect(tab.opfs.read('project/current.json')).toBeNull();
    expect(tab.heard().of('lock:readonly-entered')).toMatchObject([{ lastError: { holder: { fence: taken.fence } } }]);
  });

  // The holder had lost its project to a call that said that it was aborted.
  test('a take-over that is aborted takes nothing, or says that it did', async () => {
    let [before, after] = [0, 0];
    for (let steps = 0; after < 5; steps += 1) {
      const tab = new Tab();
      const other = new Tab({ beside: tab });
      const { lease } = await tab.run(tab.lock.acquireProjectLock());
      await other.lock.readProjectLockState(); // its machine is open from here on
      const abort = new AbortController();
      const taking = other.lock.takeOverProjectLock({ signal: abort.signal });
      const came = taking.then(({ lease }) => lease.fence, (error) => error.code);
      for (let step = 0; step < steps; step += 1) await Promise.resolve();
      abort.abort();
      const answer = await other.run(came);
      const saved = await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })));
      if (answer === 'web-lock-aborted') {
        before += 1;
        expect(saved, `aborted after ${steps} turns`).toBe('none');
      } else {
        after += 1;
        expect(answer).toBeGreaterThan(lease.fence);
        expect(saved).toBe('lease-stale');
      }
    }
    expect(before).toBeGreaterThan(5);
  });

  test('a holder hears of a take-over over the channel, and looks', async () => {
    const channels: { onmessage: ((event: { data: unknown }) => void) | null }[] = [];
    const channel = () => {
      const own = { onmessage: null as never, postMessage: (data: unknown) => {
        for (const other of channels) if (other !== own) other.onmessage?.({ data });
      } };
      channels.push(own);
      return own;
    };
    const tab = new Tab({ webLocks: false, channel });
    const other = new Tab({ beside: tab, webLocks: false, channel });
    await tab.run(tab.lock.acquireProjectLock());
    await other.run(other.lock.takeOverProjectLock({ reason: 'it is on the other screen' }));
    await tab.clock.advance(100);
    expect(tab.heard().of('lock:readonly-entered')).toMatchObject([
      { reason: 'lease-stale', lastError: { cause: 'it is on the other screen' } },
    ]);
    channels[0]?.onmessage?.({ data: { nonsense: true } });
    channels[0]?.onmessage?.({ data: null });
  });

  test('a take-over of a lease that somebody else has taken is refused', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const other = new Tab({ beside: tab });
    const refused = other.lock.takeOverProjectLock({ seen: lease.fence - 1 });
    await expect(other.run(refused)).rejects.toBeInstanceOf(LockConflictError);
  });

  test('a Web Lock that is stolen does not end the lease: .lock rules', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    tab.locks.steal('imgponic:project');
    await tab.clock.advance(60_000);
    expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })))).toBe('none');
  });
});

describe('one tab', () => {
  test('a second acquire is detected, unless it is reentrant', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    expect(await codeOf(tab.run(tab.lock.acquireProjectLock()))).toBe('lease-mismatch');
    const { lease: same } = await tab.run(tab.lock.acquireProjectLock({ reentrant: true }));
    expect(same.leaseId).toBe(lease.leaseId);
    await tab.run(tab.lock.releaseProjectLock({ lease }));
    expect(tab.record()).toMatchObject({ leaseId: lease.leaseId });
    await tab.run(tab.lock.releaseProjectLock({ lease }));
    expect(tab.record()).toBeNull();
    expect(await codeOf(tab.run(tab.lock.releaseProjectLock({ lease })))).toBe('none');
  });

  test('a signal that was aborted before is as good as one that is aborted later', async () => {
    const tab = new Tab();
    const signal = AbortSignal.abort();
    expect(await codeOf(tab.run(tab.lock.acquireProjectLock({ signal })))).toBe('web-lock-aborted');
    expect(tab.record()).toBeNull();
  });

  test.each([
    [{ ttlMs: 5 }, /ttlMs.*at least 6000/], [{ maxWaitMs: -1 }, /maxWaitMs/], [{ retryPolicy: { multiplier: 0.5 } }, /"0.5/],
    [{ profile: 'nonsense' as never }, /profile.*autosave, service/], [{ preferredStrategy: 5 as never }, /preferredStrategy: expected a text/],
  ])('options that make no sense are refused: %j', async (options, message) => {
    const tab = new Tab();
    const call = tab.run(tab.lock.acquireProjectLock(options));
    await expect(call).rejects.toThrow(TypeError);
    await expect(call).rejects.toThrow(message);
  });

  test('attempts without end are possible', async () => {
    const tab = new Tab({ webLocks: false });
    tab.opfs.write('project/.lock', JSON.stringify({ leaseId: OTHER, expiresAt: tab.clock.now() + 30_000 }));
    const call = tab.lock.acquireProjectLock({ retryPolicy: { maxAttempts: Infinity } });
    await expect(tab.run(call)).resolves.toMatchObject({ didFallback: true });
  });

  test('two projects are two locks', async () => {
    const tab = new Tab();
    const { lease: one } = await tab.run(tab.lock.acquireProjectLock({ root: 'a/project', lockName: 'a' }));
    const { lease: two } = await tab.run(tab.lock.acquireProjectLock({ root: 'b/project', lockName: 'b' }));
    await tab.run(tab.lock.commitProjectFile({ lease: one, path: 'x', data: 'one' }));
    await tab.run(tab.lock.commitProjectFile({ lease: two, path: 'x', data: 'two' }));
    expect([tab.opfs.read('a/project/x'), tab.opfs.read('b/project/x')]).toEqual(['one', 'two']);
    await tab.run(tab.lock.releaseProjectLock({ lease: one }));
    await expect(tab.run(tab.lock.renewProjectLock({ lease: two }))).resolves.toMatchObject({ fence: two.fence });
  });

  // A page had one listener for two projects, like the first lines of the guide. The refusal of project two cleared the
  // lease of project one, and the text of one project was written into the other.
  test('every event and lease names its project, and a subscription can be for one', async () => {
    const one = new Tab();
    const two = new Tab({ beside: one });
    await two.lock.acquireProjectLock({ root: 'two', lockName: 'two' });
    const all = new EventProbe<ProjectLockEvent>();
    one.lock.subscribeLockEvents(all.listener);
    const dialects = ['lock', 'service', 'autosave'] as const;
    const narrow = dialects.map((dialect) => {
      const probe = new EventProbe<ProjectName & { type: string }>();
      one.lock.subscribeLockEvents(probe.listener as never, { root: 'one', dialect });
      return probe;
    });
    const named = new EventProbe<ProjectLockEvent>();
    one.lock.subscribeLockEvents(named.listener, { lockName: 'two' });
    const { lease } = await one.lock.acquireProjectLock({ root: 'one', lockName: 'one' });
    expect(lease).toMatchObject({ root: 'one', lockName: 'one' });
    const heard = narrow.map(({ events }) => events.length);
    await expect(one.run(one.lock.acquireProjectLock({ root: 'two', lockName: 'two' }))).rejects.toThrow();
    expect(narrow.map(({ events }) => events.length), 'nothing of project two').toEqual(heard);
    expect(named.events.map(({ type }) => type)).toContain('lock:readonly-entered');
    expect(named.events.every(({ root, lockName }) => root === 'two' && lockName === 'two')).toBe(true);
    expect(all.events.length).toBeGreaterThan(named.events.length);
    for (const dialect of dialects) {
      const names = one.heard(dialect).events.map(({ root, lockName }) => `${root} ${lockName}`);
      expect(new Set(names)).toEqual(new Set(['one one', 'two two']));
    }
    await one.lock.commitProjectFile({ lease, path: 'a.txt', data: 'one' });
    expect(one.opfs.read('one/a.txt')).toBe('one');
  });

  // A map of leases had an entry for each lease that the page ever had.
  test('a lease that went through JSON leads to its project', async () => {
    const tab = new Tab();
    const { lease } = await tab.lock.acquireProjectLock({ root: 'one', lockName: 'one' });
    const copy = JSON.parse(JSON.stringify(lease)) as typeof lease;
    await tab.lock.commitProjectFile({ lease: copy, path: 'a.txt', data: 'one' });
    await tab.lock.releaseProjectLock({ lease: copy });
    expect(tab.heard().events.at(-1)).toMatchObject({ type: 'lock:released', root: 'one' });
  });

  test('a subscriber that unsubscribes while it is told hears no more, in any dialect', async () => {
    const holder = new Tab();
    await holder.lock.acquireProjectLock();
    const tab = new Tab({ beside: holder });
    for (const dialect of ['lock', 'service', 'autosave'] as const) {
      const heard: string[] = [];
      const first = tab.lock.subscribeLockEvents(() => second.unsubscribe(), { dialect });
      const second = tab.lock.subscribeLockEvents(({ type }) => { heard.push(type); }, { dialect });
      const own = tab.lock.subscribeLockEvents(({ type }) => { heard.push(`own ${type}`); own.unsubscribe(); }, { dialect });
      // In dialect `autosave` a failed attempt is two events at once.
      await expect(tab.run(tab.lock.acquireProjectLock(ONCE))).rejects.toThrow();
      expect(heard.filter((type) => !type.startsWith('own')), dialect).toEqual([]);
      expect(heard.length, dialect).toBe(1);
      first.unsubscribe();
    }
  });

  test('a listener that throws keeps nobody from hearing', async () => {
    const tab = new Tab();
    const heard: string[] = [];
    const thrown: unknown[] = [];
    const original = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException').once('uncaughtException', (error) => thrown.push(error));
    tab.lock.subscribeLockEvents(({ type }) => { if (type === 'lock:acquired') throw new Error('mine'); });
    tab.lock.subscribeLockEvents(({ type }) => heard.push(type));
    await tab.run(tab.lock.acquireProjectLock());
    original.forEach((listener) => process.on('uncaughtException', listener));
    expect(heard).toContain('lock:acquired');
    expect(String(thrown)).toBe('Error: mine');
  });
});

describe('saves', () => {
  test('a save replaces the whole file, and a large one too', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    for (const data of ['short', 'x'.repeat(1_000_000), '']) {
      await tab.run(tab.lock.commitProjectFile({ lease, path: 'deep/er/file.json', data }));
      expect(tab.opfs.read('project/deep/er/file.json')).toBe(data);
    }
    await tab.run(tab.lock.commitProjectFile({ lease, path: 'b', data: new Uint8Array([104, 105]) }));
    expect(tab.opfs.read('project/b')).toBe('hi');
  });

  test('two saves at a time are both made', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    const save = (name: string) => tab.lock.commitProjectFile({ lease, path: name, data: name });
    await tab.run(Promise.all([save('a'), save('b'), save('c')]));
    expect(['a', 'b', 'c'].map((name) => tab.opfs.read(`project/${name}`))).toEqual(['a', 'b', 'c']);
  });

  test('no space is told as what it is, and leaves the old file', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    await tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'old' }));
    tab.opfs.fail({ operation: 'write', path: `project/.lock.save.${lease.fence}`, error: 'QuotaExceededError' });
    const save = tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'new' }));
    await expect(save).rejects.toMatchObject(NO_SPACE);
    expect(tab.opfs.read('project/a')).toBe('old');
    expect(tab.heard().of('lock:readonly-entered')).toEqual([]);
  });

  test('a tab that slept through its lease cannot save', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    tab.clock.jump(40_000);
    expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })))).toBe('lease-expired');
    expect(tab.opfs.read('project/a')).toBeNull();
  });

  test('a tab that does not know that it was taken over cannot save: .lock is asked in the same step', async () => {
    const tab = new Tab({ webLocks: false });
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    await tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'mine' }));
    const other = new Tab({ beside: tab, webLocks: false });
    await other.run(other.lock.takeOverProjectLock());
    expect(tab.heard().of('lock:readonly-entered')).toEqual([]);
    expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'too late' })))).toBe('lease-stale');
    expect(tab.opfs.read('project/a')).toBe('mine');
    expect(tab.heard().of('lock:readonly-entered')).toHaveLength(1);
    expect(tab.opfs.files().filter((name) => name.includes('.lock.save.'))).toEqual([]);
  });

  // AutoSave 8: the lock touches its own files and the file that is saved, whatever looks like them.
  test('only the files of the lock are touched', async () => {
    const tab = new Tab();
    const others = [
      'notes.txt', '.lock', 'collector/a.json', 'other/.lock', 'other/.lock.held.1', 'project/plan.json', 'project/.lockfile',
      'project/.lock.bak', 'project/.lock.heldover', 'project/.lock.held', 'project/.lock.saved', 'project/notes/.lock.held.1',
    ];
    others.forEach((name) => tab.opfs.write(name, name));
    const seen = () => tab.opfs.files().map((name) => `${name} ${tab.opfs.read(name)} ${tab.opfs.stat(name)?.mtimeMs}`);
    const before = seen();
    await tab.clock.advance(60_000);
    const { lease } = await tab.lock.acquireProjectLock();
    await tab.lock.commitProjectFile({ lease, path: 'autosave/current.json', data: '{}' });
    const other = new Tab({ beside: tab });
    await other.run(other.lock.acquireProjectLock(ONCE)).catch(() => {});
    const taken = await other.run(other.lock.takeOverProjectLock());
    await codeOf(tab.lock.commitProjectFile({ lease, path: 'autosave/current.json', data: 'late' }));
    other.crash();
    const { lease: last } = await tab.run(tab.lock.acquireProjectLock());
    expect(last.fence).toBeGreaterThan(taken.lease.fence);
    await tab.lock.releaseProjectLock({ lease: last });
    // What was refused is kept beside the project's files, until it is discarded.
    const drafts = await tab.lock.listProjectDrafts();
    expect(drafts.map(({ data }) => data)).toEqual(['late']);
    for (const draft of drafts) await tab.lock.discardProjectDraft(draft);
    const after = seen();
    expect(before.filter((file) => !after.includes(file)), 'nothing of the others changed').toEqual([]);
    const made = after.filter((file) => !before.includes(file)).map((file) => file.split(' ')[0]);
    expect(made).toEqual(['project/.lock.guard', 'project/autosave/current.json']);
  });

  test('errors carry the level of the log', async () => {
    const tab = new Tab();
    const { lease } = await tab.lock.acquireProjectLock();
    const other = new Tab({ beside: tab });
    const error = await other.run(other.lock.acquireProjectLock(ONCE)).catch((thrown: ProjectLockError) => thrown) as ProjectLockError;
    expect([error.level, (error.cause as ProjectLockError).level]).toEqual(['error', 'warn']);
    await tab.lock.releaseProjectLock({ lease });
  });

  // It said "renew: the project has another holder now", of a call that had renewed nothing.
  test('a save that fails says so', async () => {
    const tab = new Tab();
    const { lease } = await tab.lock.acquireProjectLock();
    tab.opfs.fail({ operation: 'getFile', path: 'project/.lock', error: 'NotReadableError' });
    const save = () => tab.lock.commitProjectFile({ lease, path: 'a', data: '' }).catch((error: ProjectLockError) => error);
    expect(await save()).toMatchObject({ operation: 'save', message: expect.stringMatching(/^save: /) });
    await tab.lock.releaseProjectLock({ lease });
    expect(await save()).toMatchObject({ operation: 'save', code: 'lease-stale', message: expect.stringMatching(/^save: /) });
    for (const data of [{ text: 'x' }, undefined, 5]) {
      await expect(tab.lock.commitProjectFile({ lease, path: 'a', data: data as never })).rejects.toThrow(/data: expected/);
    }
    await expect(tab.lock.releaseProjectLock({} as never)).rejects.toThrow(/lease: expected/);
  });

  test('a lease of nobody cannot save', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    await tab.run(tab.lock.releaseProjectLock({ lease }));
    expect(await codeOf(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' })))).toBe('lease-stale');
  });
});

test('a section that fails leaves the project to the next one, even if its .lock was written after all', async () => {
  const tab = new Tab({ webLocks: false });
  const original = MockFileHandle.prototype.move;
  const move = vi.spyOn(MockFileHandle.prototype, 'move').mockImplementationOnce(async function (this: MockFileHandle, ...to) {
    await original.apply(this, to);
    throw new DOMException('it was done, and said to have failed', 'UnknownError');
  });
  await codeOf(tab.run(tab.lock.acquireProjectLock(ONCE)));
  expect(move).toHaveBeenCalledOnce();
  expect(tab.record()).toMatchObject({ held: true });
  const other = new Tab({ beside: tab, webLocks: false });
  await expect(other.run(other.lock.acquireProjectLock(ONCE))).resolves.toBeDefined();
});

// On a full disk every attempt left a held file behind, until the next holder swept them.
test('a section that fails leaves no held file that .lock does not name', async () => {
  const tab = new Tab({ webLocks: false });
  tab.opfs.fail({ operation: 'move', path: 'project/.lock.tmp', error: 'QuotaExceededError' });
  await codeOf(tab.run(tab.lock.acquireProjectLock(ONCE)));
  expect(tab.opfs.files().filter((name) => name.includes('.lock.held.'))).toEqual([]);
});

describe('a crash', () => {
  /** What a tab does, as far as it comes. */
  async function live(tab: Tab): Promise<void> {
    const { lease } = await tab.lock.acquireProjectLock();
    await tab.lock.renewProjectLock({ lease });
    await tab.lock.commitProjectFile({ lease, path: 'current.json', data: '{"whole":true}' });
    await tab.lock.releaseProjectLock({ lease });
  }

  test('at any step leaves a whole .lock, whole files, and the project to the next one at once', async () => {
    let steps = 0;
    for (let over = false; !over; steps += 1) {
      const tab = new Tab();
      tab.opfs.write('project/current.json', '{"whole":true}');
      tab.crashAfter(steps);
      let done = false;
      live(tab).then(() => { done = true; }, () => {});
      await tab.clock.advance(10);
      over = done;
      tab.crash();
      expect(() => tab.record()).not.toThrow();
      expect(JSON.parse(tab.opfs.read('project/current.json') ?? '')).toEqual({ whole: true });
      const next = new Tab({ beside: tab });
      const before = tab.record()?.['fence'] ?? 0;
      const { lease } = await next.run(next.lock.acquireProjectLock(ONCE));
      expect(lease.fence).toBeGreaterThan(before as number);
      expect(next.opfs.files().filter((name) => name.includes('.held.'))).toEqual([`project/.lock.held.${lease.fence}`]);
    }
    expect(steps).toBeGreaterThan(20);
  });
});

test('the state is readable at any time', async () => {
  const tab = new Tab();
  const state = (of = tab) => of.lock.readProjectLockState();
  expect(await state()).toBe('idle');
  const acquiring = tab.lock.acquireProjectLock();
  await tab.lock.lookProjectLock();
  const { lease } = await acquiring;
  expect(await state()).toBe('acquired');
  const other = new Tab({ beside: tab });
  const refused = other.lock.acquireProjectLock({ ...ONCE, profile: 'service' }).catch(() => {});
  await settled();
  expect(await state(other)).toBe('acquire-web');
  await other.run(refused);
  expect(await state(other)).toBe('faulted');
  expect(await other.lock.readProjectLockState({ root: 'another' })).toBe('idle');
  await tab.run(tab.lock.releaseProjectLock({ lease }));
  expect(await state()).toBe('idle');
});

test('a logger gets every error at its level', async () => {
  const logged: unknown[] = [];
  const logger = Object.fromEntries(['info', 'warn', 'error'].map((level) => [level, (message: string, error: ProjectLockError) => {
    logged.push([level, error.code]);
    expect(message).toBe(error.message);
  }])) as unknown as ProjectLockLogger;
  const tab = new Tab();
  await tab.run(tab.lock.acquireProjectLock());
  const lock = createProjectLock({ locks: tab.locks.tab(), folder: tab.opfs.tab().root, clock: tab.clock, channel: null, logger });
  await tab.run(lock.acquireProjectLock(ONCE)).catch(() => {});
  const aborted = AbortSignal.abort();
  await tab.run(lock.acquireProjectLock({ signal: aborted })).catch(() => {});
  expect(logged).toEqual([['warn', 'acquire-denied'], ['warn', 'fallback-conflict'], ['info', 'web-lock-aborted']]);
});

describe('a browser that is short of something', () => {
  test('no folder: the Web Lock alone is a lease, and says so', async () => {
    const tab = new Tab({ folder: false });
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    expect(lease).toMatchObject({ guarantee: 'tab-exclusive', strategy: 'web-lock' });
    const other = new Tab({ beside: tab, folder: false });
    expect(await codeOf(other.run(other.lock.acquireProjectLock(ONCE)))).toBe('acquire-timeout');
    // It was a TypeError, as if an argument had been wrong.
    await expect(tab.run(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' }))).rejects.toMatchObject({
      name: 'LockIrrecoverableError', code: 'fallback-open-failed', operation: 'save', message: expect.stringContaining('no folder'), cause: 'no-folder',
    });
    await tab.run(tab.lock.releaseProjectLock({ lease }));
    await expect(other.run(other.lock.acquireProjectLock(ONCE))).resolves.toBeDefined();
  });

  test('neither folder nor Web Locks: unavailable, and why', async () => {
    const tab = new Tab({ folder: false, webLocks: false });
    const call = tab.run(tab.lock.acquireProjectLock());
    await expect(call).rejects.toMatchObject({ code: 'fallback-open-failed', cause: 'unavailable(no-folder)' });
    await expect(call).rejects.toBeInstanceOf(ProjectLockError);
  });

  test('no access handles: read-only, unless advice is enough', async () => {
    const clock = new FakeClock();
    const opfs = new MockOPFS(clock);
    const folder = without('createSyncAccessHandle', opfs.root);
    const lock = createProjectLock({ locks: null, folder, accessHandles: false, clock, channel: null });
    const refused = lock.acquireProjectLock();
    await expect(refused).rejects.toMatchObject({ code: 'fallback-open-failed' });
    await expect(refused).rejects.toThrow(/no-sync-access-handle.*allowAdvisory/);
    expect(opfs.files()).toEqual([]);
    const { lease } = await lock.acquireProjectLock({ allowAdvisory: true });
    expect(lease.guarantee).toBe('advisory');
    await lock.commitProjectFile({ lease, path: 'a', data: 'a' });
    expect(opfs.read('project/a')).toBe('a');
    await lock.releaseProjectLock({ lease });
  });

  test('no way to rename a file: it is replaced all the same, bytes and all', async () => {
    const clock = new FakeClock();
    const opfs = new MockOPFS(clock);
    const lock = createProjectLock({ locks: null, folder: without('move', opfs.root), clock, channel: null });
    const { lease } = await lock.acquireProjectLock();
    const data = new Uint8Array([0, 255, 128, 10]);
    await lock.commitProjectFile({ lease, path: 'a', data });
    expect(opfs.stat('project/a')?.size).toBe(4);
    expect(opfs.files().filter((name) => name.includes('.tmp'))).toEqual([]);
    await lock.releaseProjectLock({ lease });
    expect(opfs.files()).toEqual(['project/.lock.guard', 'project/a']);
  });

  test('no access handles although there should be: it fails, and is not bypassed', async () => {
    const clock = new FakeClock();
    const folder = without('createSyncAccessHandle', new MockOPFS(clock).root);
    const lock = createProjectLock({ locks: null, folder, clock, channel: null });
    expect(await codeOf(lock.acquireProjectLock({ allowAdvisory: true }))).toBe('fallback-open-failed');
  });

  test('a held file that cannot be opened: the record does not claim it', async () => {
    const tab = new Tab({ webLocks: false });
    const fence = tab.clock.now() + 1;
    const path = `project/.lock.held.${fence}`;
    tab.opfs.fail({ operation: 'createSyncAccessHandle', path, error: 'UnknownError' });
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    expect([lease.fence, tab.record()['held']]).toEqual([fence, false]);
  });

  test('a Web Lock that comes when nobody waits for it any more is given back at once', async () => {
    const tab = new Tab();
    let [late, released] = [() => {}, false];
    const locks = {
      // A grant can cross with an abort.
      request: (_name: string, _options: object, work: (lock: unknown) => Promise<unknown>) => new Promise((resolve) => {
        late = () => { void work({}).then(() => { released = true; resolve(null); }); };
      }),
    };
    const lock = createProjectLock({ locks, folder: tab.opfs.root, clock: tab.clock, channel: null });
    const call = lock.acquireProjectLock(ONCE);
    await tab.clock.advance(100);
    await expect(call).resolves.toMatchObject({ didFallback: true });
    late();
    await tab.clock.advance(1);
    expect(released).toBe(true);
  });

  test('a guard that somebody keeps: it is told, and never bypassed', async () => {
    const tab = new Tab({ webLocks: false });
    tab.opfs.write('project/.lock.guard', '');
    const project = await tab.opfs.root.getDirectoryHandle('project');
    const stuck = await (await project.getFileHandle('.lock.guard')).createSyncAccessHandle();
    const call = tab.lock.acquireProjectLock(ONCE);
    const code = codeOf(call);
    await tab.clock.advance(3_000);
    expect(await code).toBe('acquire-timeout');
    await expect(call).rejects.toMatchObject({ cause: { code: 'fallback-read-failed', cause: 'unavailable(guard-busy)' } });
    expect(tab.record()).toBeNull();
    stuck.close();
    await expect(tab.run(tab.lock.acquireProjectLock(ONCE))).resolves.toBeDefined();
  });

  test.each([
    ['getDirectoryHandle', 'project', 'NotAllowedError', 'fallback-open-failed'],
    ['getFileHandle', 'project/.lock.guard', 'QuotaExceededError', 'fallback-open-failed'],
    ['move', 'project/.lock.tmp', 'QuotaExceededError', 'fallback-write-failed'],
  ] as const)('%s of %s fails with %s: %s', async (operation, path, error, code) => {
    const tab = new Tab({ webLocks: false });
    tab.opfs.fail({ operation, path, error, times: 9 });
    const call = tab.run(tab.lock.acquireProjectLock(ONCE));
    const thrown = await call.catch((thrown: ProjectLockError) => thrown) as ProjectLockError;
    expect([thrown.code, (thrown.cause as ProjectLockError)?.code]).toContain(code);
    expect(JSON.stringify(tab.heard().of('lock:error'))).toContain(code);
  });

  test('a .lock that is damaged is somebody\'s until it is stale', async () => {
    const tab = new Tab({ webLocks: false });
    tab.opfs.write('project/.lock', '{"leaseId": "half');
    expect(await codeOf(tab.run(tab.lock.acquireProjectLock(ONCE)))).toBe('acquire-timeout');
    await tab.clock.advance(28_000);
    await expect(tab.run(tab.lock.acquireProjectLock(ONCE))).resolves.toBeDefined();
  });

  test('a .lock of a newer version is left alone', async () => {
    const tab = new Tab({ webLocks: false });
    tab.opfs.write('project/.lock', '{"version": 2, "leaseId": {"new": "shape"}}', 0);
    expect(await codeOf(tab.run(tab.lock.acquireProjectLock()))).toBe('fallback-open-failed');
    expect(tab.opfs.read('project/.lock')).toContain('"new": "shape"');
  });
});

describe('a page that was frozen', () => {
  test('has lost the project, and acquires it anew when it is back', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    await tab.lock.freeze();
    await tab.clock.advance(100);
    expect(tab.heard().of('lock:readonly-entered')).toMatchObject([{ reason: 'lease-stale' }]);
    expect(await codeOf(tab.lock.commitProjectFile({ lease, path: 'a', data: 'a' }))).toBe('lease-stale');
    tab.clock.jump(120_000);
    await tab.lock.resume();
    await tab.clock.advance(1_000);
    const acquired = tab.heard().of('lock:acquired');
    expect(acquired).toHaveLength(2);
    expect(acquired[1]?.lease?.fence).toBeGreaterThan(lease.fence);
  });

  // Chromium freezes the Worker with the page: when both went on, the Worker noticed the end of its lease before it heard
  // why, and the tab stayed read-only with the project free.
  test('acquires it anew also if it heard of the freeze when that was over', async () => {
    const tab = new Tab();
    const { lease } = await tab.run(tab.lock.acquireProjectLock());
    tab.clock.jump(120_000);
    await tab.clock.advance(0);
    expect(tab.heard().of('lock:readonly-entered')).toMatchObject([{ reason: 'renew-failed' }]);
    await tab.lock.freeze();
    await tab.lock.resume();
    await tab.clock.advance(1_000);
    expect(tab.heard().of('lock:acquired')[1]?.lease?.fence).toBeGreaterThan(lease.fence);
  });

  test('and one that was never frozen stays read-only after its machine slept', async () => {
    const tab = new Tab();
    await tab.run(tab.lock.acquireProjectLock());
    tab.clock.jump(120_000);
    await tab.clock.advance(60_000);
    expect(tab.heard().of('lock:acquired')).toHaveLength(1);
    expect(tab.heard().of('lock:available')).toHaveLength(1);
  });
});

/** The folder of a browser whose files lack something. */
function without(missing: string, folder: object): never {
  return new Proxy(folder, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (name === missing) return undefined;
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        const result: unknown = value.apply(target, args);
        return result instanceof Promise ? result.then((it) => (it?.kind ? without(missing, it) : it)) : result;
      };
    },
  }) as never;
}
