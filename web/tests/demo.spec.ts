// What the demo decides and says, without a browser. The whole page is tested in tests/browsers/demo.spec.ts.

import { describe, expect, test } from 'vitest';
import { entryOf } from '../demo/entry.js';
import { actionAfter, mayEdit, type Document, type Project, type Standing } from '../demo/standing.js';
import { asText, edited, moved, storyboardOf, withScene, withoutScene } from '../demo/storyboard.js';
import { WORDS } from '../demo/words.js';

const at = (project: Project, document: Document, hasLost = false): Standing => ({ project, document, hasLost });

describe('two locks belong together', () => {
  test('a tab edits while it has both', () => {
    expect(mayEdit(at('held', 'mine'))).toBe(true);
    for (const other of [at('readonly', 'mine'), at('unknown', 'mine'), at('held', 'free'), at('held', 'others'), at('held', 'unknown')]) {
      expect(mayEdit(other)).toBe(false);
    }
  });

  test.each([
    ['the project comes first', at('unknown', 'free'), at('held', 'free'), 'acquire-document'],
    ['the server answers later', at('held', 'unknown'), at('held', 'free'), 'acquire-document'],
    ['the other person is done', at('held', 'others'), at('held', 'free'), 'acquire-document'],
    ['the user is done', at('held', 'mine'), at('held', 'free'), null],
    ['a loss waits for the user', at('held', 'mine'), at('held', 'free', true), null],
    ['so does one that was noticed late', at('held', 'unknown'), at('held', 'free', true), null],
    ['the user went on at the indicator', at('readonly', 'free', true), at('held', 'free', true), 'acquire-document'],
    ['another tab took the project', at('held', 'mine'), at('readonly', 'mine'), 'release-document'],
    ['another person took the document', at('held', 'mine'), at('held', 'others', true), 'release-project'],
    ['the document came back', at('readonly', 'others'), at('readonly', 'mine'), 'retry-project'],
    ['a second tab waits for both', at('unknown', 'others'), at('readonly', 'others'), null],
    ['a second tab leaves a free document alone', at('readonly', 'others'), at('readonly', 'free'), null],
    ['the server is away', at('held', 'mine'), at('held', 'unknown'), null],
    ['nothing has changed', at('held', 'free'), at('held', 'free'), null],
  ] as const)('%s', (_, before, now, action) => {
    expect(actionAfter(before, now)).toBe(action);
  });
});

describe('the storyboard', () => {
  const board = { scenes: ['a', 'b', 'c'].map((id) => ({ id, title: id.toUpperCase(), text: '' })) };
  const ids = ({ scenes }: typeof board | { scenes: readonly { id: string }[] }) => scenes.map(({ id }) => id).join('');

  test('scenes are added, edited, moved and deleted, each time as another object', () => {
    expect(ids(withScene(board, { id: 'd', title: '', text: '' }))).toBe('abcd');
    expect(ids(withoutScene(board, 'b'))).toBe('ac');
    expect([ids(moved(board, 'c', -1)), ids(moved(board, 'a', 1)), moved(board, 'a', -1), moved(board, 'c', 1), moved(board, 'x', 1)])
      .toEqual(['acb', 'bac', board, board, board]);
    expect(edited(board, 'b', { text: 'new' }).scenes[1]).toEqual({ id: 'b', title: 'B', text: 'new' });
    expect(edited(board, 'b', {})).not.toBe(board);
    expect(asText(edited(board, 'a', { text: 'x' }))).toBe('1. A\nx\n\n2. B\n\n\n3. C\n');
  });

  test('what was saved by something else is read as far as it goes, and ids are never twice', () => {
    for (const nothing of [null, undefined, 7, 'x', {}, { scenes: 7 }]) expect(storyboardOf(nothing)).toBeNull();
    const read = storyboardOf({ scenes: [{ id: 'a', title: 1 }, null, { id: 'a', text: 'x' }] })!;
    expect(read.scenes.map(({ title, text }) => [title, text])).toEqual([['', ''], ['', ''], ['', 'x']]);
    expect(new Set(read.scenes.map(({ id }) => id)).size).toBe(3);
    expect(storyboardOf({ scenes: Array(500).fill({}) })!.scenes).toHaveLength(100);
  });
});

describe('an event in a line', () => {
  test('no lease id is shown, and an error says its code', () => {
    const error = Object.assign(new Error('held'), { code: 'fallback-conflict' });
    const entry = entryOf({ type: 'lock:error', operation: 'acquire', error, lease: { leaseId: 'secret', fence: 7 }, lease_id: 'secret' }, 5);
    expect(entry).toMatchObject({ name: 'lock:error', summary: 'fallback-conflict, operation acquire', isBad: true });
    expect(entry.json).toContain('fallback-conflict');
    expect(entry.json).not.toContain('secret');
  });

  test('an event of the server names the person', () => {
    const entry = entryOf({ event: 'DocumentLocked', seq: 3, fence: 8, holder: { id: 'user-a', name: 'Anna' } }, 5);
    expect(entry).toMatchObject({ name: 'DocumentLocked', summary: 'Anna, seq 3, fence 8', isBad: false });
  });
});

test('both languages have the same words, with the same places', () => {
  const { en, ja } = WORDS;
  expect(Object.keys(ja)).toEqual(Object.keys(en));
  for (const key of Object.keys(en) as (keyof typeof en)[]) {
    const places = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();
    expect(places(ja[key]), key).toEqual(places(en[key]));
  }
});
