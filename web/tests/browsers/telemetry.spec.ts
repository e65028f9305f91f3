// Telemetry whole: a page in Chromium autosaves and is left, and what it counted is in the folder of the real program.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isInstalled, start, type Browser } from './browsers.js';
import { LeaseholdServer, PROGRAM, token } from './leasehold.js';
import { TestServer } from './server.js';

const isReady = isInstalled('chromium') && PROGRAM !== undefined;
let browser: Browser;
let pages: TestServer;
beforeAll(async () => {
  if (!isReady) return;
  [browser, pages] = await Promise.all([start('chromium'), TestServer.start()]);
});
afterAll(async () => {
  await browser?.close();
  await pages?.stop();
});

/** A page that saves something, and goes elsewhere. */
async function visit(origin: string, server: LeaseholdServer, query = ''): Promise<void> {
  const url = encodeURIComponent(`${server.url}/api/telemetry`);
  const tab = await browser.open(pages.page(origin, `tests/browsers/telemetry.html?url=${url}${query}`));
  await tab.run(() => globalThis.telemetry.save('private words'), null);
  await tab.away(pages.page(origin));
  await tab.close();
}

/** What the server has counted, as soon as it has counted a session. */
async function counted(server: LeaseholdServer): Promise<string> {
  for (;;) {
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    if (metrics.includes('leasehold_telemetry_sessions_total 1')) break;
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
  await server.stop();
  const folder = join(server.folder, 'telemetry');
  return readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8')).join('');
}

/** The counts of a session, an acquire and a save, and nothing of the page. */
function isWhole(text: string): void {
  for (const event of ['autosave.session', 'lock:acquired","reason":"web-lock', 'autosave.saved']) {
    expect(text).toContain(`{"phase":"default","event":"${event}","n":1}`);
  }
  expect(text.match(/"le":/g)).toHaveLength(2);
  expect(text).not.toMatch(/private words|[0-9a-f]{8}-[0-9a-f]{4}-/);
}

test.skipIf(!isReady)('a page without a token sends a beacon when it is left', async () => {
  const server = await LeaseholdServer.start('--telemetry-folder', 'telemetry', '--telemetry-anonymous', 'true', '--dev');
  try {
    await visit('telemetry-beacon', server);
    isWhole(await counted(server));
  } finally {
    await server.remove();
  }
});

test.skipIf(!isReady)('a page with a token sends a request that outlives it', async () => {
  const origin = new URL(pages.page('telemetry-token')).origin;
  const server = await LeaseholdServer.start('--telemetry-folder', 'telemetry', '--jwt-secret-file', 'secret', '--cors-origins', origin);
  try {
    await visit('telemetry-token', server, `&token=${token({ sub: 'anna' })}`);
    isWhole(await counted(server));
  } finally {
    await server.remove();
  }
});
