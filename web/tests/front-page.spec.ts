// What the server's page knows and says, without a browser: its board takes answers and events in any order, and both languages
// have the same words. The whole page is tested in tests/browsers/front-page.spec.ts.

import { beforeAll, describe, expect, test, vi } from 'vitest';

const file = (name: string) => new URL(`../../crates/leasehold-server/page/${name}`, import.meta.url).href;
type Loose = Record<string, any>; // The page has no build step, and so no types.
let Board: new () => Loose;
let words: Loose;
beforeAll(async () => {
  vi.stubGlobal('navigator', { language: 'en' });
  ({ Board } = await import(/* @vite-ignore */ file('board.js')));
  words = await import(/* @vite-ignore */ file('words.js'));
});

const state = (roomId: string, seq: number, holder: Loose, left = 30_000) => ({
  roomId, seq, locked: true, may: 'force', holder, fence: seq, held_for_ms: 5_000, expires_in_ms: left, same_user: false, yours: false,
});
const event = (name: string, roomId: string, seq: number, holder: Loose, more: Loose = {}) => (
  { event: name, roomId, seq, fence: seq, holder, expires_in_ms: 30_000, ...more }
);
const ANNA = { id: 'a', name: 'Anna' };
const BEN = { id: 'b', name: 'Ben' };

describe('the board', () => {
  test('an answer that is older than an event undoes nothing, a newer one is the truth', () => {
    const board = new Board();
    const rooms = () => board['matching']('').map((lock: Loose) => lock['room']);
    board['handleAll']([state('a', 1, ANNA)], { asked: 0, now: 1 });
    board['handleEvent'](event('DocumentLocked', 'b', 1, BEN), 20);
    expect(rooms()).toEqual(['a', 'b']);
    board['handleAll']([state('a', 1, ANNA)], { asked: 10, now: 30 });
    expect(rooms()).toEqual(['a', 'b']);
    board['handleEvent'](event('DocumentLocked', 'a', 7, BEN), 40);
    board['handleAll']([state('a', 6, ANNA)], { asked: 35, now: 50 });
    expect(board['locks'].get('a').holder).toEqual(BEN);
    board['handleAll']([], { asked: 60, now: 70 });
    expect(rooms()).toEqual([]);
  });

  test('a part of the answer takes nothing away', () => {
    const board = new Board();
    board['handleAll']([state('a', 1, ANNA), state('b', 1, BEN)], { asked: 0, now: 1 });
    board['handleAll']([state('a', 1, ANNA)], { asked: 10, now: 11, isWhole: false });
    expect(board['locks'].size).toBe(2);
  });

  test('what was there before is not highlighted, what comes later is', () => {
    const board = new Board();
    board['handleAll']([state('a', 1, ANNA)], { asked: 0, now: 1000 });
    board['handleAll']([state('a', 1, ANNA), state('b', 1, BEN)], { asked: 2000, now: 2001 });
    expect([board['locks'].get('a').changed, board['locks'].get('b').changed]).toEqual([-Infinity, 2001]);
  });

  test('the id is shown where two users have the same name', () => {
    const board = new Board();
    board['handleAll']([state('a', 1, ANNA), state('b', 1, BEN)], { asked: 0, now: 1 });
    expect(board['nameOf'](ANNA)).toBe('Anna');
    board['handleEvent'](event('HandoverRequested', 'b', 2, BEN, { by: 'a2', by_name: 'Anna' }), 2);
    expect([board['nameOf'](ANNA), board['nameOf']({ id: 'a2' })]).toEqual(['Anna (a)', 'Anna (a2)']);
    expect(board['locks'].get('b').request).toEqual({ id: 2, by: { id: 'a2', name: 'Anna' }, ends: null });
  });

  test('only the newest events are kept', () => {
    const board = new Board();
    for (let seq = 1; seq <= 300; seq += 1) board['handleEvent'](event('DocumentUnlocked', 'a', seq, ANNA, { reason: 'released' }), seq);
    expect([board['events'].length, board['events'][0].seq]).toEqual([200, 300]);
  });
});

describe('the words', () => {
  const said = (text: unknown) => (typeof text === 'function' ? text({ room: 'R', name: 'N', by: 'B', names: 'N', count: 2 }) : text) as string;

  test('are the same in both languages, with the same places', () => {
    const { en, ja } = words['WORDS'];
    expect(Object.keys(ja)).toEqual(Object.keys(en));
    for (const key of Object.keys(en)) {
      const places = (text: unknown) => [...said(text).matchAll(/\{\w+\}/g)].map(String).sort();
      expect(places(ja[key]), key).toEqual(places(en[key]));
    }
  });

  test('times are said as people do', () => {
    const { span, ago } = words;
    expect([span(0), span(1), span(59_001), span(65_000), span(7_800_000)]).toEqual(['0 s', '1 s', '1 min 00 s', '1 min 05 s', '2 h 10 min']);
    expect([ago(0), ago(12_000), ago(125_000), ago(7_300_000)]).toEqual(['now', '12s ago', '2m ago', '2h ago']);
  });
});
