// Times and sizes, with input as it comes.

import { describe, expect, test } from 'vitest';
import { dateAndTime, dayAndTime, difference, machineTime, momentOf, size, timeOfDay } from '../../src/elements/format.js';

const AT = Date.UTC(2026, 0, 2, 3, 4, 5);
const local = (at: number) => [new Date(at).getHours(), new Date(at).getMinutes(), new Date(at).getSeconds()]
  .map((part) => String(part).padStart(2, '0')).join(':');

test.each(['en', 'ja', 'en-GB'])('a time of day is HH:MM:SS in %s, also at midnight', (locale) => {
  const midnight = new Date(2026, 5, 1).getTime();
  expect(timeOfDay(midnight, locale)).toBe('00:00:00');
  expect(timeOfDay(AT, locale)).toBe(local(AT));
  expect(dateAndTime(AT, locale)).toContain('2026');
  expect(dayAndTime(AT, locale)).toContain(local(AT));
});

describe('the moment of a version', () => {
  test.each([
    ['2026-01-02T03:04:05.000Z', AT], ['2026-01-02T03-04-05.000Z', AT], ['2026-01-02T03:04:05Z', AT],
  ])('%s', (ts, at) => { expect(momentOf(ts)).toBe(at); });

  test.each(['', 'current', '../../etc', '2026-99-99T99:99:99Z'])('%j is none', (ts) => {
    expect([machineTime(momentOf(ts)), dateAndTime(momentOf(ts), 'en')]).toEqual(['', '']);
  });

  test.each([Infinity, NaN, 1e300])('%s is none either', (at) => {
    expect([machineTime(at), timeOfDay(at, 'en')]).toEqual(['', '']);
  });
});

test.each([
  [0, '0 bytes', '0 バイト'], [1, '1 byte', '1 バイト'], [999, '999 bytes', '999 バイト'], [1_000, '1 kB', '1 KB'], [48_213, '48.2 kB', '48.2 KB'],
  [999_949, '999.9 kB', '999.9 KB'], [999_950, '1 MB', '1 MB'], [52_428_800, '52.4 MB', '52.4 MB'], [3e12, '3,000 GB', '3,000 GB'],
])('%i bytes', (bytes, english, japanese) => {
  expect([size(bytes, 'en'), size(bytes, 'ja')]).toEqual([english, japanese]);
});

test.each([[1_202_187, '+1.2 MB'], [-223, '\u2212223 bytes'], [1, '+1 byte'], [-999_960, '\u22121 MB']])('a difference of %i', (bytes, text) => {
  expect(difference(bytes, 'en')).toBe(text);
});
