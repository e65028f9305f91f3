// What the indicator shows of every state, in both languages.

import { describe, expect, test } from 'vitest';
import { SNAPSHOTS, snapshotOf } from '../../gallery/fixture.js';
import { SLOW_MS, viewOf, type Action } from '../../src/elements/view.js';
import { localeFor } from '../../src/elements/language.js';
import { wordsFor, type Words } from '../../src/elements/words.js';

const ENGLISH = wordsFor('en');
const JAPANESE = wordsFor('ja');

const shown = (name: string, words: Words) => {
  const { text, detail, atText, actions, tone } = viewOf(SNAPSHOTS[name]!, words, true);
  return [tone, [text, atText, detail].filter(Boolean).join(' | '), ...actions.map((action) => `[${words[action]}]`)].join('  ');
};

test.each([ENGLISH, JAPANESE])('every state, language $lang', (words) => {
  const lines = Object.keys(SNAPSHOTS).filter((name) => !name.startsWith('notice')).map((name) => `${name}: ${shown(name, words)}`);
  expect(`${lines.join('\n')}\n`).toMatchSnapshot();
});

test('the texts of AutoSave 5 and 6.2', () => {
  expect(viewOf(SNAPSHOTS['saving']!, ENGLISH, true).text).toBe('Saving…');
  expect(viewOf(SNAPSHOTS['saved']!, ENGLISH, true).text).toBe('Saved');
  expect(viewOf(SNAPSHOTS['readonly: nameless holder, unsaved']!, JAPANESE, true).text).toBe('別タブが編集中');
  expect(viewOf(SNAPSHOTS['releasing']!, JAPANESE, true).text).toBe('解放中...');
});

test('a save that is not slow looks like what it saves', () => {
  expect(SLOW_MS).toBe(300);
  expect(viewOf(SNAPSHOTS['saving']!, ENGLISH, false)).toEqual(viewOf(SNAPSHOTS['dirty']!, ENGLISH, false));
});

test('what is not known yet is shown as such, and a code or reason that is new does no harm', () => {
  expect(viewOf(null, ENGLISH, false).text).toBe('AutoSave is off');
  const error = snapshotOf({ kind: 'error', code: 'from-the-future' as 'write-failed', message: '' });
  expect(viewOf(error, ENGLISH, false)).toMatchObject({ text: 'Not saved: the file could not be written.', actions: ['retry'] });
  const unavailable = snapshotOf({ kind: 'unavailable', reason: 'toString', message: '' });
  expect(viewOf(unavailable, ENGLISH, false).text).toBe('Nothing can be saved: this browser gives this page no files.');
});

describe('read-only offers what can help', () => {
  const cases: [string, Action[]][] = [
    ['readonly', ['retry', 'ask', 'takeOver']],
    ['readonly: free', ['edit']],
    ['readonly: timeout', ['retry', 'takeOver']],
    ['readonly: irrecoverable', ['retry']],
    ['readonly: not released', ['steps', 'retry']],
    ['another tab asks', ['handOver', 'refuse']],
  ];
  test.each(cases)('%s', (name, actions) => {
    expect(viewOf(SNAPSHOTS[name]!, ENGLISH, false).actions).toEqual(actions);
  });
});

describe('languages', () => {
  test.each([
    ['en', 'en', 'en'], ['en-GB', 'en', 'en-GB'], ['ja', 'ja', 'ja'], ['JA-jp', 'ja', 'ja-JP'], ['de', 'en', 'en'], ['', 'en', 'en'],
    ['en_US', 'en', 'en'], ['not a tag', 'en', 'en'], ['jam', 'en', 'en'],
  ])('%j', (tag, lang, locale) => {
    expect([wordsFor(tag).lang, localeFor(tag)]).toEqual([lang, locale]);
  });

  test('no text is missing, and none was forgotten to be translated', () => {
    const english = Object.entries(ENGLISH).flatMap(flat);
    const japanese = new Map(Object.entries(JAPANESE).flatMap(flat));
    expect(japanese.size).toBe(english.length);
    const same = english.filter(([name, text]) => !text.trim() || japanese.get(name) === text).map(([name]) => name);
    expect(same).toEqual([]);
    const notices = Object.values(SNAPSHOTS).flatMap(({ notice }) => notice ?? []);
    expect(notices.map((notice) => [ENGLISH.notice(notice, 'en'), JAPANESE.notice(notice, 'ja')])).toMatchSnapshot();
  });
});

/** The texts below a name. Those that are made of something are the types' business. */
function flat([name, value]: [string, unknown]): [string, string][] {
  if (typeof value === 'string') return [[name, value]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(flat).map(([below, text]) => [`${name}.${below}`, text]);
}
