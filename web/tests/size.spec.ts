// What a page loads. The bars are those of the specification, gzipped.

import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';

const dist = new URL('../dist/', import.meta.url);

function zipped(chosen: (name: string) => boolean): number {
  const sizes = readdirSync(dist).filter(chosen).map((name) => gzipSync(readFileSync(new URL(name, dist)), { level: 9 }).length);
  return sizes.reduce((sum, size) => sum + size, 0);
}

test('the rules: at most 60 KB', () => {
  expect(zipped((name) => name === 'leasehold.wasm')).toBeLessThanOrEqual(60_000);
});

test('entry, Worker and what they share: at most 10 KB', () => {
  expect(zipped((name) => name.endsWith('.js') && name !== 'testing.js')).toBeLessThanOrEqual(10_000);
});
