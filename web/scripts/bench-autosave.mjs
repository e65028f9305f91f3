// What an autosave costs in Chromium: how long a save takes, for how long the page stands still, and how long it is from the last
// input to the file. Prints one JSON object. `cargo xtask bench autosave` builds the package and runs it.

import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const dist = fileURLToPath(new URL('../dist', import.meta.url));
const TYPES = { '.js': 'text/javascript', '.wasm': 'application/wasm' };
const SAVES = 60;
const INPUTS = 5;

const server = createServer(async (request, response) => {
  const path = new URL(request.url, 'http://localhost').pathname;
  if (path === '/') return response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>bench</title>');
  const body = await readFile(dist + path).catch(() => null);
  response.writeHead(body ? 200 : 404, { 'content-type': TYPES[extname(path)] ?? 'text/plain' }).end(body);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const profile = mkdtempSync(join(tmpdir(), 'leasehold-bench-'));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: ['--no-sandbox', '--disable-gpu'],
});
try {
  const page = await context.newPage();
  await page.goto(`http://localhost:${server.address().port}/`);
  const { one, ten, waits } = await page.evaluate(measure, { saves: SAVES, inputs: INPUTS });
  const of = (share) => (times) => Number(times.sort((a, b) => a - b)[Math.ceil(times.length * share) - 1].toFixed(1));
  const [median, p95] = [of(0.5), of(0.95)];
  const medians = [one, ten].map((runs) => `${median(runs.map(({ took }) => took))} ms, blocked ${median(runs.map(({ blocked }) => blocked))} ms`);
  console.error(`medians: 1 MB ${medians[0]}; 10 MB ${medians[1]}`);
  console.log(JSON.stringify({
    save_1mb_p95_ms: p95(one.map(({ took }) => took)),
    main_thread_block_1mb_ms: p95(one.map(({ blocked }) => blocked)),
    input_to_saved_ms: p95(waits),
    save_10mb_p95_ms: p95(ten.map(({ took }) => took)),
  }));
} finally {
  await context.close();
  server.close();
  rmSync(profile, { recursive: true, force: true });
}

/** Runs in the page. */
async function measure({ saves, inputs }) {
  const { initAutoSave } = await import('/autosave.js');
  const made = (megabytes, number) => ({
    number,
    pages: Array.from({ length: megabytes * 1000 }, (_, page) => ({
      page, title: `Page ${page} of version ${number}`, points: [page / 7, number / 3, 0.5], text: 'The quick brown fox. '.repeat(41),
    })),
  });
  let project = made(1, 0);
  const autosave = initAutoSave(() => project, {});

  /** The longest time for which the page did nothing else. */
  const watch = () => {
    const { port1, port2 } = new MessageChannel();
    let [last, longest, isOver] = [performance.now(), 0, false];
    port1.onmessage = () => {
      const now = performance.now();
      longest = Math.max(longest, now - last);
      last = now;
      if (!isOver) port2.postMessage(null);
    };
    port2.postMessage(null);
    return () => {
      isOver = true;
      port1.close();
      return longest;
    };
  };

  const runs = async (megabytes, count) => {
    const results = [];
    for (let number = 0; number <= count; number += 1) {
      project = made(megabytes, number);
      await new Promise((resolve) => { setTimeout(resolve, 20); });
      const blocked = watch();
      const began = performance.now();
      await autosave.flushNow();
      results.push({ took: performance.now() - began, blocked: blocked() });
      if (autosave.snapshot().isDirty) throw new Error(JSON.stringify(autosave.snapshot()));
    }
    return results.slice(1); // the first one waits for the lock, and for the modules
  };

  const one = await runs(1, saves);
  const waits = [];
  for (let number = 0; number < inputs; number += 1) {
    const { savedAt } = autosave.snapshot();
    const began = performance.now();
    project = { ...project, number: `input ${number}` };
    await new Promise((resolve) => {
      const stop = autosave.subscribe(() => {
        if (autosave.snapshot().savedAt === savedAt) return;
        stop();
        resolve();
      });
    });
    waits.push(performance.now() - began);
  }
  const ten = await runs(10, Math.ceil(saves / 4));
  await autosave();
  return { one, ten, waits };
}
