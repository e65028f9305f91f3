// What a screen reader is told, and when.

import { describe, expect, test } from 'vitest';
import { AT, SNAPSHOTS, snapshotOf } from '../../gallery/fixture.js';
import type { AutoSaveSnapshot } from '../../src/autosave/state.js';
import { Announcer, QUIET_MS } from '../../src/elements/announcer.js';
import { Narrator } from '../../src/elements/narrator.js';
import { wordsFor } from '../../src/elements/words.js';

const WORDS = wordsFor('en');

/** What is said at each of these snapshots. */
function said(...snapshots: (string | AutoSaveSnapshot)[]): (string | null)[] {
  const narrator = new Narrator();
  return snapshots.map((snapshot) => {
    const speech = narrator.next(typeof snapshot === 'string' ? SNAPSHOTS[snapshot]! : snapshot, WORDS);
    return speech && `${speech.isAlert ? 'alert' : speech.canWait ? 'later' : 'now'}: ${speech.text}`;
  });
}

const saved = (at: number) => snapshotOf({ kind: 'saved', at }, { savedAt: at });
const dirty = (savedAt: number | null) => snapshotOf({ kind: 'dirty' }, { savedAt });

describe('the narrator', () => {
  test('what was so when the page came up is no news, unless nothing can be saved', () => {
    for (const silent of ['disabled', 'dirty', 'saving', 'saved', 'saved: nothing yet', 'retrying', 'releasing', 'stopped']) {
      expect(said(silent)).toEqual([null]);
    }
    expect(said('readonly')).toEqual(['later: Another tab is editing (Ann)']);
    expect(said('error')).toEqual(['alert: Not saved: the file could not be written.']);
    expect(said('unavailable')[0]).toMatch(/^alert: Nothing can be saved/);
    expect(said('readonly: not released')).toEqual(['alert: The project was not released']);
  });

  test('the first save after a quiet time', () => {
    expect(said(dirty(null), saved(AT))).toEqual([null, 'now: Saved']);
    expect(said(saved(AT), dirty(AT), saved(AT + QUIET_MS - 1))).toEqual([null, null, null]);
    expect(said(saved(AT), dirty(AT), saved(AT + QUIET_MS))).toEqual([null, null, 'now: Saved']);
  });

  test('an error once, not at every change around it; the save after it in any case', () => {
    const error = snapshotOf({ kind: 'error', code: 'no-space', message: '' });
    expect(said(saved(AT), error, { ...error, isDirty: true }, dirty(AT), error).map((text) => text?.slice(0, 5) ?? null))
      .toEqual([null, 'alert', null, null, 'alert']);
    expect(said(saved(AT), error, dirty(AT), saved(AT + 1))).toEqual([null, expect.stringContaining('alert'), null, 'later: Saved']);
  });

  test('another reason is another error', () => {
    expect(said('error', 'error: no space', 'error: no space').map((text) => text?.slice(0, 5) ?? null)).toEqual(['alert', 'alert', null]);
  });

  test('read-only: entered, free, left', () => {
    expect(said('saved', 'readonly', 'readonly', 'readonly: free', 'dirty')).toEqual([
      null, 'later: Another tab is editing (Ann)', null, 'later: Read-only. The project is free now.', 'later: You can edit again.',
    ]);
  });

  test('a request of another tab is an alert, once: there are seconds to answer', () => {
    expect(said('saved', 'another tab asks', 'another tab asks')[1]).toMatch(/^alert: Another tab \(Ann\) asks/);
    expect(said('saved', 'another tab asks', 'another tab asks')[2]).toBe(null);
  });
});

describe('the announcer', () => {
  test('one in 30 s; what comes too early waits, and the latest counts', () => {
    const announcer = new Announcer();
    expect(QUIET_MS).toBe(30_000);
    expect([announcer.say('a', 1_000), announcer.take(1_000)]).toEqual([0, 'a']);
    expect([announcer.say('b', 1_001), announcer.take(1_001)]).toEqual([29_999, undefined]);
    expect([announcer.say('c', 20_000), announcer.take(30_999)]).toEqual([11_000, undefined]);
    expect([announcer.take(31_000), announcer.take(31_000)]).toEqual(['c', undefined]);
  });

  test('nothing said takes no time, and what is true no longer is not said', () => {
    const announcer = new Announcer();
    expect(announcer.take(0)).toBe(undefined);
    announcer.say('a', 0);
    announcer.cancel();
    expect([announcer.take(0), announcer.wait(0)]).toEqual([undefined, 0]);
  });
});
