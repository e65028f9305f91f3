// What a page loads. The bars are those of the specification, gzipped.

import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';

const dist = new URL('../dist/', import.meta.url);

function zipped(chosen: (name: string) => boolean): number {
  const size = (name: string) => gzipSync(readFileSync(new URL(name, dist)), { level: 9 }).length;
  return readdirSync(dist).filter(chosen).reduce((sum, name) => sum + size(name), 0);
}

test('the rules: at most 60 KB', () => {
  expect(zipped((name) => name === 'leasehold.wasm')).toBeLessThanOrEqual(60_000);
});

test('entry, Worker and what they share: at most 10 KB', () => {
  expect(zipped((name) => name.endsWith('.js') && name !== 'testing.js')).toBeLessThanOrEqual(10_000);
});
