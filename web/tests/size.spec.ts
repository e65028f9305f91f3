// What a page loads. The bars are those of the specification, gzipped.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build as vite } from 'vite';
import { expect, test } from 'vitest';
import webpack from 'webpack';
import { install } from './archive.js';

const dist = fileURLToPath(new URL('../dist/', import.meta.url));

/** What only the code has that does the work of a lock. */
const ENGINE = 'createSyncAccessHandle';

function zipped(folder: string, names: Iterable<string>): number {
  return [...names].reduce((sum, name) => sum + gzipSync(readFileSync(join(folder, name)), { level: 9 }).length, 0);
}

/** A module and what it imports, in turn. What it may import later is not among them. */
function loaded(folder: string, name: string, found = new Set<string>()): Set<string> {
  if (found.has(name)) return found;
  found.add(name);
  const text = readFileSync(join(folder, name), 'utf8');
  for (const [, other] of text.matchAll(/(?:import|from)\s*["']\.\/([^"']+)["']/g)) loaded(folder, other!, found);
  return found;
}

const has = (folder: string, name: string) => readFileSync(join(folder, name), 'utf8').includes(ENGINE);

test('the rules: at most 60 KB', () => {
  expect(zipped(dist, ['leasehold.wasm'])).toBeLessThanOrEqual(60_000);
});

test('entry, Worker and what they share: at most 10 KB', () => {
  const names = loaded(dist, 'worker.js', loaded(dist, 'index.js'));
  expect(names.size).toBeGreaterThan(2);
  expect(zipped(dist, names)).toBeLessThanOrEqual(10_000);
});

test('the rules with those of an autosave: at most 85 KB', () => {
  expect(zipped(dist, ['leasehold.wasm', 'leasehold-autosave.wasm'])).toBeLessThanOrEqual(85_000);
});

test('the same with an autosave: at most 16 KB', () => {
  const names = loaded(dist, 'worker.js', loaded(dist, 'autosave.js'));
  expect([...names]).toContain('index.js');
  expect(zipped(dist, names)).toBeLessThanOrEqual(16_000);
});

test('flags: at most 2 KB, and no autosave before they turn it on', () => {
  const names = loaded(dist, 'flags.js');
  expect([...names]).toEqual(['flags.js']);
  expect(zipped(dist, names)).toBeLessThanOrEqual(2_000);
});

test('telemetry, beside the lock: at most 2.5 KB', () => {
  const names = loaded(dist, 'telemetry.js');
  expect(zipped(dist, [...names].filter((name) => name.startsWith('telemetry')))).toBeLessThanOrEqual(2_500);
  expect([...loaded(dist, 'autosave.js')]).not.toContain('telemetry.js');
});

test('the elements: at most 12 KB', () => {
  const names = loaded(dist, 'elements-define.js', loaded(dist, 'elements.js'));
  expect(names.size).toBeGreaterThan(1);
  expect(zipped(dist, names)).toBeLessThanOrEqual(12_000);
});

test('the rules of documents: at most 18 KB', () => {
  expect(zipped(dist, ['leasehold-documents.wasm'])).toBeLessThanOrEqual(18_000);
});

// Counted is every script that a page with `leasehold/documents` and `<document-lock>` loads in English: the entry, the Worker with
// its own copy of what loads and calls the rules, and the element. A page with the project lock loads none of these, so all of it is
// beyond the lock's. Not counted: the rules (above), and what is loaded on demand: Japanese texts, and what listens to an Echo.
test('documents with their Worker and their element: at most 14 KB beyond the lock\'s', () => {
  const names = loaded(dist, 'document-lock-define.js', loaded(dist, 'documents-worker.js', loaded(dist, 'documents.js')));
  expect([...names].sort()).toEqual(['document-lock-define.js', 'documents-worker.js', 'documents.js']);
  const lock = loaded(dist, 'worker.js', loaded(dist, 'index.js'));
  expect([...names].filter((name) => lock.has(name))).toEqual([]);
  expect(zipped(dist, names)).toBeLessThanOrEqual(14_000);
  // On demand is what an import() brings, and nothing else: one file each.
  const later = [...names].flatMap((name) => [...readFileSync(join(dist, name), 'utf8').matchAll(/import\(["']\.\/([^"']+)["']\)/g)]);
  expect(later.map(([, name]) => /JAPANESE|DocumentLeaving/.exec(readFileSync(join(dist, name!), 'utf8'))?.[0]).sort()).toEqual(['DocumentLeaving', 'JAPANESE']);
});

test('the code that does the work is loaded by the Worker, and by a page only if it can have none', { timeout: 60_000 }, async () => {
  const root = mkdtempSync(join(tmpdir(), 'leasehold-loads-'));
  try {
    install(root);
    const packed = join(root, 'node_modules/leasehold/dist');
    const page = [...loaded(packed, 'index.js')];
    expect(page.filter((name) => has(packed, name))).toEqual([]);
    expect(page.some((name) => /import\(["']\.\/local\.js["']\)/.test(readFileSync(join(packed, name), 'utf8')))).toBe(true);
    for (const name of ['local.js', 'worker.js']) {
      expect([...loaded(packed, name)].some((name) => has(packed, name)), name).toBe(true);
    }
    // And so it is in an application that was built.
    writeFileSync(join(root, 'app.js'), "import { acquireProjectLock } from 'leasehold'; acquireProjectLock();");
    writeFileSync(join(root, 'index.html'), '<!doctype html><script type="module" src="./app.js"></script>');
    await vite({ root, configFile: false, logLevel: 'error' });
    const assets = join(root, 'dist/assets');
    const [entry] = /assets\/[\w-]+\.js/.exec(readFileSync(join(root, 'dist/index.html'), 'utf8')) ?? [''];
    expect([...loaded(assets, entry.slice('assets/'.length))].filter((name) => has(assets, name))).toEqual([]);
    expect(readdirSync(assets).filter((name) => name.endsWith('.js') && has(assets, name))).toHaveLength(2);
    await new Promise<void>((resolve, reject) => {
      const output = { path: join(root, 'out'), filename: 'app.js' };
      webpack({ context: root, entry: './app.js', mode: 'production', output })?.run((error, stats) => {
        if (error || stats?.hasErrors()) reject(error ?? new Error(stats?.toString()));
        else resolve();
      });
    });
    expect(has(join(root, 'out'), 'app.js')).toBe(false);
  } finally {
    rmSync(root, { recursive: true });
  }
});
