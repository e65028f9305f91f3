// The guide "Add edit locks to any web app", as it stands, in an empty folder and a real browser.

import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium, type Browser, type Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isInstalled } from './browsers.js';
import { LeaseholdServer, PROGRAM, SECRET } from './leasehold.js';

const web = fileURLToPath(new URL('../..', import.meta.url));
const canRun = PROGRAM !== undefined && isInstalled('chromium');

/** The files of the guide, by name. */
function filesOfGuide(): Map<string, string> {
  const blocks = readFileSync(join(web, '../docs/web-app.md'), 'utf8').matchAll(/\*\*`([\w.]+)`\*\*[^]*?\n```\w+\n([^]*?)```/g);
  return new Map([...blocks].map(([, name, content]) => [name!, content!]));
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

let folder: string;
let port: number;
let server: LeaseholdServer;
let app: ChildProcess;
let browser: Browser;
beforeAll(async () => {
  if (!canRun) return;
  folder = mkdtempSync(join(tmpdir(), 'leasehold-web-app-'));
  port = await freePort();
  server = await LeaseholdServer.start('--jwt-secret-file', 'secret', '--grace', '1s', '--cors-origins', `http://localhost:${port}`);
  for (const [name, content] of filesOfGuide()) {
    writeFileSync(join(folder, name), content.replaceAll('http://localhost:7420', server.url).replaceAll('3000', String(port)));
  }
  writeFileSync(join(folder, 'jwt-secret'), SECRET);
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(web, join(folder, 'node_modules/leasehold'));
  app = spawn('node', ['app.mjs'], { cwd: folder, stdio: 'inherit' });
  browser = await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
});
afterAll(async () => {
  app?.kill();
  await Promise.all([browser?.close(), server?.remove()]);
  if (folder) rmSync(folder, { recursive: true, force: true });
});

async function open(user: string): Promise<Page> {
  const page = await (await browser.newContext({ locale: 'en-GB' })).newPage();
  page.setDefaultTimeout(15_000);
  for (;;) {
    const came = await page.goto(`http://localhost:${port}/?user=${user}`).catch(() => null);
    if (came) return page;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const says = (page: Page, text: string) => page.locator('document-lock').getByText(text).first().waitFor();
const shows = (page: Page, text: string) => page.waitForFunction((text) => document.querySelector('textarea')!.value === text, text);

/** What the application has. */
const saved = async () => (await fetch(`http://localhost:${port}/minutes`)).text();

test.skipIf(!canRun)('two people edit a document by the guide, one after the other, and a third takes it over', async () => {
  // Anna's page is the last one, so that it finds the others when it first looks around.
  const [ben, chief, anna] = [await open('ben'), await open('chief'), await open('anna')];
  await says(anna, 'Nobody is editing');
  await says(anna, 'Here: anna, ben, chief');
  await press(anna, 'Edit');
  await says(anna, 'You are editing');
  await anna.locator('textarea').fill('by Anna');
  await says(ben, 'anna is editing');
  expect(await ben.locator('textarea').isEditable()).toBe(false);
  // A reload keeps the lock; Ben asks; Anna's page saves and hands over.
  while (await saved() !== 'by Anna') await new Promise((resolve) => { setTimeout(resolve, 50); });
  await anna.reload();
  await says(anna, 'You are editing');
  await shows(anna, 'by Anna');
  await anna.locator('textarea').fill('by Anna, and more');
  await press(ben, 'Ask to edit');
  await says(anna, 'ben asks to edit');
  await press(anna, 'Save and hand over');
  await says(ben, 'You are editing');
  await shows(ben, 'by Anna, and more');
  await says(anna, 'You handed over to ben');
  // Taken over, with a reason: what Ben had typed is kept, and comes back when he has the lock again.
  await ben.route('**/minutes?*', (route) => route.abort());
  await ben.locator('textarea').fill('not saved in time');
  await press(chief, 'Take over…');
  await chief.getByLabel('Reason').fill('closing time');
  await press(chief, 'Take over');
  await says(ben, 'chief took over: “closing time”');
  await says(ben, 'What you had not saved is kept.');
  await ben.unroute('**/minutes?*');
  // A page that is closed frees the document after the grace.
  await chief.close({ runBeforeUnload: true });
  await says(ben, 'Nobody is editing');
  await press(ben, 'Edit');
  await says(ben, 'You are editing');
  await press(ben, 'Show…');
  await press(ben, 'Use it');
  await shows(ben, 'not saved in time');
  await press(ben, 'Done');
  await says(anna, 'Nobody is editing');
  expect(await saved()).toBe('not saved in time');
}, 60_000);
