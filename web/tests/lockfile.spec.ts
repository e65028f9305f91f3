// `.lock` between bytes and members, by the cases that programs on disk are tested with too.

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { printLock, readLock } from '../src/lockfile.js';

interface Case {
  readonly about: string;
  readonly text?: string;
  readonly hex?: string;
  readonly padded?: number;
  readonly members: Record<string, unknown> | null;
}

const url = new URL('../../crates/leasehold-project/tests/lock_files.json', import.meta.url);
const cases: Case[] = JSON.parse(readFileSync(url, 'utf8'));

function bytesOf({ text = '', hex, padded = 0 }: Case): Uint8Array {
  return new Uint8Array(hex === undefined ? Buffer.from(text.padEnd(padded)) : Buffer.from(hex, 'hex'));
}

test('there are as many cases as on disk', () => {
  expect(cases.length).toBeGreaterThanOrEqual(100);
});

test.each(cases)('$about', (one) => {
  const members = readLock(bytesOf(one));
  // An array and an object are both something else: the table has an object for them.
  const shown = members && Object.fromEntries(Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, typeof value === 'object' ? {} : value === 0 ? 0 : value]));
  expect(shown).toEqual(one.members);
});

test('what a page has added to every object is in no file', () => {
  Object.defineProperty(Object.prototype, 'fence', { value: 9, configurable: true });
  try {
    expect(readLock(new TextEncoder().encode('{}'))?.fence).toBeUndefined();
  } finally {
    delete (Object.prototype as { fence?: number }).fence;
  }
});

test('what is printed is what a program prints on disk', () => {
  const [{ text = '', members }] = cases as [Case];
  const { updatedAt, ttlSeconds, ...rest } = members as { updatedAt: number; ttlSeconds: number };
  const record = { ...rest, updatedAt, ttlMillis: ttlSeconds * 1000 } as unknown as Parameters<typeof printLock>[0];
  expect(printLock(record)).toBe(text);
  expect(printLock({ ...record, ttlMillis: 6025 })).toContain('"ttlSeconds":6.025,');
});
