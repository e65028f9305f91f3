// What `<document-lock>` shows of every state, and that both languages have all of it.

import { expect, test } from 'vitest';
import { DOCUMENTS } from '../../gallery/document-fixture.js';
import { documentView } from '../../src/elements/document-view.js';
import { JAPANESE } from '../../src/elements/document-words-ja.js';
import { documentWords } from '../../src/elements/document-words.js';

const ENGLISH = documentWords('en', () => {})!;

/** The text, the second sentence and the actions of a state. */
const shown = (name: string, words = ENGLISH) => {
  const { text, detail, actions } = documentView(DOCUMENTS[name]!, words);
  return [text, detail, actions.join(' ')];
};

test.each([
  ['free', 'Nobody is editing', '', 'edit'],
  ['free: may only read', 'Nobody is editing', '', ''],
  ['mine', 'You are editing', '', 'done'],
  ['mine: a request that silence grants', 'Ben asks to edit', '', 'handOver refuse'],
  ['mine: not saved', 'You are editing', 'That did not work. HTTP 500', 'done'],
  ['held', 'Ben is editing', 'Read-only', 'ask'],
  ['held: may take over', 'Ben is editing', 'Read-only', 'ask takeOver'],
  ['held: may only read', 'Ben is editing', 'Read-only', ''],
  ['held: own, in another tab', 'You are editing in another tab', 'Read-only', 'takeOver'],
  ['held: its page was left', 'Ben is editing', 'The page was left. Free in a few seconds.', 'ask'],
  ['held: a request was refused', 'Ben is editing', 'Your request was refused', 'ask'],
  ['asking', 'You have asked Ben', '', 'withdraw'],
  ['taken over', 'Ben is editing', 'Ben took over: “closing time”', 'ask'],
  ['taken over, and free again', 'Nobody is editing', 'Ben ended your lock: “closing time”', 'edit'],
  ['not found', 'Nobody is editing', 'Your lock has ended', 'edit'],
  ['offline', 'Read-only: the server cannot be reached. Trying again…', 'The connection was lost for too long', ''],
])('%s', (name, ...expected) => {
  expect(shown(name)).toEqual(expected);
});

test('the server\'s own words for a lock that is gone or another\'s', () => {
  const text = 'ロックを保持していません';
  const state = DOCUMENTS['not the holder']!;
  expect(documentView({ ...state, lost: { ...state.lost!, text } }, JAPANESE).detail).toBe(text);
});

test('that another page holds the lock is said once, after an attempt as before it', () => {
  const refused = { ...DOCUMENTS['held']!, problem: { code: 'held', text: 'Another user or tab holds the lock' } };
  expect(documentView(refused, ENGLISH).detail).toBe('Read-only');
});

test('every state has a text in both languages, and they offer the same actions', () => {
  for (const name of Object.keys(DOCUMENTS)) {
    const [english, japanese] = [shown(name), shown(name, JAPANESE)];
    expect(english[0] && japanese[0], name).not.toBe('');
    expect(english[2], name).toBe(japanese[2]);
    expect(english[0], name).not.toBe(japanese[0]);
  }
});
