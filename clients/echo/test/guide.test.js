// The guide "Add edit locks to any web app", as it stands, in an empty folder and a real browser.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { chromium } from 'playwright-core';

import { atEnd, startServer } from './support.js';

const guide = new URL('../../../docs/web-app.md', import.meta.url);
const modules = new URL('../node_modules', import.meta.url).pathname;
const browserPath = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** The files of the guide, by name. */
async function filesOfGuide() {
  const text = await readFile(guide, 'utf8');
  const blocks = text.matchAll(/\*\*`([\w.]+)`\*\*[^]*?\n```\w+\n([^]*?)```/g);
  return new Map([...blocks].map(([, name, content]) => [name, content]));
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

/** The guide's application and server, on ports that are free, with a page for each user. */
async function follow(t, args) {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-guide-'));
  atEnd(t, () => rm(folder, { recursive: true }));
  const port = await freePort();
  const origins = ['--cors-origins', `http://localhost:${port}`];
  const server = await startServer({ key: 'leasehold', args: [...origins, ...args] });
  atEnd(t, () => server.end());
  for (const [name, content] of await filesOfGuide()) {
    const moved = content.replaceAll('7420', String(server.port)).replaceAll('3000', String(port));
    await writeFile(join(folder, name), moved.replaceAll(`localhost:${server.port}`, `127.0.0.1:${server.port}`));
  }
  await writeFile(join(folder, 'jwt-secret'), `${server.jwtSecret}\n`);
  await symlink(modules, join(folder, 'node_modules'));
  const app = spawn('node', ['app.mjs'], { cwd: folder, stdio: 'inherit' });
  atEnd(t, () => app.kill());
  const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox'] });
  atEnd(t, () => browser.close());
  const open = async (user) => {
    const page = await (await browser.newContext()).newPage();
    for (let tries = 0; tries < 100; tries += 1) {
      const came = await page.goto(`http://localhost:${port}/?user=${user}`).catch(() => sleep(50));
      if (came) return page;
    }
    throw new Error('the application of the guide does not answer');
  };
  return { open };
}

const skip = existsSync(browserPath) ? false : 'there is no Chromium';

test('two people edit a document by the guide, one after the other', { skip, timeout: 60_000 }, async (t) => {
  const { open } = await follow(t, ['--grace', '1s']);
  const [anna, ben] = [await open('anna'), await open('ben')];
  const says = (page, id, text) => page.locator(`#${id}`, { hasText: new RegExp(`^${text}$`) }).waitFor();
  for (const page of [anna, ben]) {
    await says(page, 'who', 'Free');
    await says(page, 'here', 'anna, ben');
  }
  await anna.click('#edit');
  for (const page of [anna, ben]) await says(page, 'who', 'anna is editing');
  assert.equal(await ben.locator('#edit').isDisabled(), true);
  assert.equal(await anna.locator('#text').isEditable(), true);
  await anna.click('#done');
  for (const page of [anna, ben]) await says(page, 'who', 'Free');
  await ben.click('#edit');
  await says(anna, 'who', 'ben is editing');
  // A reloaded page has the current state at once.
  await anna.reload();
  await says(anna, 'who', 'ben is editing');
  await says(anna, 'here', 'anna, ben');
  // A closed page leaves, and its lock ends after the grace.
  await ben.close({ runBeforeUnload: true });
  await says(anna, 'here', 'anna');
  await says(anna, 'who', 'Free');
});

test('a browser that is killed leaves at once, and its lock ends with its time', { skip, timeout: 60_000 }, async (t) => {
  const { open } = await follow(t, ['--ttl', '4s', '--heartbeat', '2s']);
  const anna = await open('anna');
  const doomed = await chromium.launchServer({ executablePath: browserPath, args: ['--no-sandbox'] });
  atEnd(t, () => doomed.kill());
  const browser = await chromium.connect(doomed.wsEndpoint());
  const ben = await (await browser.newContext()).newPage();
  await ben.goto(anna.url().replace('anna', 'ben'));
  const says = (id, text) => anna.locator(`#${id}`, { hasText: new RegExp(`^${text}$`) }).waitFor();
  await says('here', 'anna, ben');
  await ben.click('#edit');
  await says('who', 'ben is editing');
  await doomed.kill();
  await says('here', 'anna');
  assert.equal(await anna.locator('#who').textContent(), 'ben is editing', 'a lost socket alone never shortens a lease');
  await says('who', 'Free');
});
