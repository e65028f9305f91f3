// The page at `/` of the real server, in Chromium: signing in, locks as they come and go, asking, taking over, a restart, both
// languages and schemes, a phone, and what axe finds. `SCREENSHOTS=FOLDER` keeps pictures of it.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled } from './browsers.js';
import { LeaseholdServer, PROGRAM, token } from './leasehold.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SHOTS = process.env['SCREENSHOTS'];
const PHONE = { viewport: { width: 390, height: 844 } };
const canRun = PROGRAM !== undefined && isInstalled('chromium');

let browser: Browser;
/** With made-up users, and locks that expire soon. */
let dev: LeaseholdServer;
/** With tokens. */
let strict: LeaseholdServer;
const pages: Page[] = [];
/** What the browsers complained about: errors, and violations of the page's own policy. */
let complaints: string[] = [];

beforeAll(async () => {
  if (!canRun) return;
  browser = await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  dev = await LeaseholdServer.start('--dev', '--ttl', '4s', '--heartbeat', '1s');
  strict = await LeaseholdServer.start('--jwt-secret-file', 'secret');
});
afterEach(async () => {
  await Promise.all(pages.splice(0).map((page) => page.context().close()));
  const found = complaints;
  complaints = [];
  expect(found).toEqual([]);
});
afterAll(async () => { await Promise.all([browser?.close(), dev?.remove(), strict?.remove()]); });

async function open(server: LeaseholdServer, options: BrowserContextOptions = {}, path = '/'): Promise<Page> {
  const context = await browser.newContext({ locale: 'en-GB', viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  page.on('pageerror', (error) => complaints.push(String(error)));
  // A refused call is in the console too; what it was refused with is on the page.
  page.on('console', (message) => { if (message.type() === 'error' && !message.text().includes('Failed to load resource') && !message.text().includes('ERR_')) complaints.push(message.text()); });
  pages.push(page);
  await page.goto(server.url + path);
  return page;
}

/** A page as Ben, whose made-up colleague Anna is everybody's first choice. */
async function openAsBen(): Promise<Page> {
  const page = await open(dev);
  await page.getByRole('radio', { name: 'Ben' }).check({ force: true });
  await isLive(page);
  return page;
}

const row = (page: Page, room: string) => page.locator(`tr[data-room="${room}"]`);
const button = (page: Page, room: string, name: string) => row(page, room).getByRole('button', { name: `${name}: ${room}` });
const feed = (page: Page) => page.locator('#feed');
const isLive = (page: Page) => page.locator('#link[data-state=live]').waitFor();
const gone = (page: Page, room: string) => row(page, room).waitFor({ state: 'detached' });

async function lockAsPage(page: Page, room: string): Promise<void> {
  await page.getByLabel('Document to lock').fill(room);
  await page.getByRole('button', { name: 'Lock', exact: true }).click();
  await row(page, room).getByText('you', { exact: true }).waitFor();
}

async function lockByProgram(server: LeaseholdServer, as: string, room: string): Promise<void> {
  const answer = await server.call(as, 'POST', `${room}/lock`, {});
  expect(answer.status).toBe(200);
}

async function inDialog(page: Page, fill: string | null, press: string): Promise<void> {
  const dialog = page.getByRole('dialog');
  if (fill !== null) await dialog.getByLabel('Reason').fill(fill);
  await dialog.getByRole('button', { name: press, exact: true }).click();
}

async function shoot(page: Page, name: string): Promise<void> {
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png` });
}

/** What axe finds below these nodes, by all of its rules. */
async function axe(page: Page, below = ':root'): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async (below) => {
    type Violation = { id: string; nodes: { html: string; failureSummary: string }[] };
    const { axe } = globalThis as unknown as { axe: { run(below: string): Promise<{ passes: unknown[]; violations: Violation[] }> } };
    const { passes, violations } = await axe.run(below);
    if (passes.length < 10) throw new Error('axe looked at almost nothing');
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join('\n')}`);
  }, below);
}

/** A few of each kind: axe takes seconds for all calls and types, which look the same. */
const SOME_DOCS = 'nav, h1, h2, main > p, pre, main > section:nth-of-type(-n+4), main > table tr:nth-child(-n+3)';

const overflow = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

describe.skipIf(!canRun)('the page at /', () => {
  test('signs a made-up user in, and shows a lock that comes and expires as it happens', async () => {
    const page = await open(dev);
    await isLive(page);
    expect(await page.getByRole('radio', { name: 'Anna' }).isChecked()).toBe(true);
    await page.getByText('Nothing is locked').waitFor();
    expect(await page.locator('#try-line').textContent()).toContain(`${dev.url}/api/documents/minutes/lock -H "Authorization: Bearer ey`);
    await shoot(page, 'empty');
    await lockByProgram(dev, dev.tokens['user-b']!, 'minutes');
    await row(page, 'minutes').getByText('Ben').waitFor();
    expect(await row(page, 'minutes').locator('.left').textContent()).toMatch(/^[1-4] s$/);
    await feed(page).getByText('Ben locked minutes').waitFor();
    await gone(page, 'minutes');
    await feed(page).getByText('minutes expired; Ben held it').waitFor();
    await page.getByText('Nothing is locked').waitFor();
  });

  test('a filter finds documents and people, and / leads to it', async () => {
    const page = await open(dev);
    await isLive(page);
    await lockAsPage(page, 'minutes');
    await lockAsPage(page, 'plans');
    await page.locator('h1').click();
    await page.keyboard.press('/');
    await page.keyboard.type('PLA');
    await gone(page, 'minutes');
    expect(await page.locator('#rows tr').count()).toBe(1);
    await page.keyboard.type('x');
    await page.getByText('No lock matches “PLAx”.').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.type('anna');
    await row(page, 'minutes').waitFor();
    await button(page, 'minutes', 'Release').click();
    await gone(page, 'minutes');
    await feed(page).getByText('Anna released minutes').waitFor();
  });

  test('a lock is taken over with a reason, which its holder and the audit see; without one it is not', async () => {
    const [anna, ben] = [await open(dev), await openAsBen()];
    await isLive(anna);
    await lockAsPage(anna, 'minutes');
    await button(ben, 'minutes', 'Take over').click();
    await inDialog(ben, ' ', 'Take over');
    await ben.getByText('Say why; the holder sees it.').waitFor();
    await shoot(ben, 'take-over');
    await inDialog(ben, 'the deadline is at noon', 'Take over');
    await row(ben, 'minutes').getByText('you', { exact: true }).waitFor();
    await anna.getByText('You no longer hold minutes.').waitFor();
    await feed(anna).getByText('Ben took minutes from Anna').waitFor();
    await feed(anna).getByText('the deadline is at noon').waitFor();
    await button(anna, 'minutes', 'Release').click();
    await inDialog(anna, 'I was not done', 'End the lock');
    await gone(anna, 'minutes');
    await anna.getByRole('tab', { name: 'Audit' }).click();
    await anna.locator('#audit-list').getByText('Anna ended Ben’s lock on minutes').waitFor();
    expect(await anna.locator('#audit-list li').first().textContent()).toContain('I was not done');
    await shoot(anna, 'audit');
  });

  test('a holder is asked, and hands over or keeps it; a page that is loaded again has its lock', async () => {
    const [anna, ben] = [await open(dev), await openAsBen()];
    await isLive(anna);
    await lockAsPage(anna, 'plan');
    await anna.reload();
    await row(anna, 'plan').getByText('you', { exact: true }).waitFor();
    for (const answer of ['Keep it', 'Hand over']) {
      await button(ben, 'plan', 'Ask').click();
      await inDialog(ben, null, 'Ask');
      await row(ben, 'plan').getByText('You asked Anna').waitFor();
      await row(anna, 'plan').getByText(/^Ben asks for it · \d+ s to answer$/).waitFor();
      if (answer === 'Keep it') await shoot(anna, 'asked');
      await button(anna, 'plan', answer).click();
      if (answer === 'Keep it') await ben.getByText('Anna keeps plan.').waitFor();
    }
    await row(ben, 'plan').getByText('you', { exact: true }).waitFor();
    await feed(anna).getByText('Anna handed plan over to Ben').waitFor();
    await button(ben, 'plan', 'Release').click();
    await gone(anna, 'plan');
  });

  test('a restart is shown, and the page is live again by itself, with its locks and its user', async () => {
    const page = await open(dev);
    await isLive(page);
    await lockAsPage(page, 'minutes');
    await dev.stop();
    await page.locator('#link[data-state=reconnecting]').waitFor();
    await page.getByText('The server cannot be reached.').waitFor();
    await shoot(page, 'reconnecting');
    await dev.begin();
    await isLive(page);
    await row(page, 'minutes').getByText('you', { exact: true }).waitFor();
    await page.locator('#banner').waitFor({ state: 'hidden' });
    await button(page, 'minutes', 'Release').click();
    await gone(page, 'minutes');
  });

  test('without made-up users a token is needed, and kept in this tab only; a wrong one is refused with the reason', async () => {
    const page = await open(strict);
    const field = page.getByRole('textbox', { name: 'Token' });
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Paste a token first.').waitFor();
    await field.fill(token({ sub: 'x', exp: 1 }));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('expired').waitFor();
    await field.fill(token({ sub: 42 }));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('the claim `sub` is a number').waitFor();
    await shoot(page, 'error');
    await field.fill(`Bearer ${token({ sub: 'r', name: 'Rea', documents: { '*': 'read' } })}`);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await isLive(page);
    await page.locator('#me').getByText('Rea').waitFor();
    expect(await page.evaluate(() => JSON.stringify(localStorage) + document.cookie)).not.toContain('ey');
    await page.reload();
    await isLive(page);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await field.waitFor();
    expect(await page.evaluate(() => JSON.stringify(sessionStorage))).not.toContain('ey');
  });

  test('a user sees only what it may do; names are text, and have their ids where two are the same', async () => {
    const evil = '<img src=x onerror=alert(1)>';
    const may = (level: string) => ({ documents: { '*': level } });
    await lockByProgram(strict, token({ sub: 'e', name: evil, ...may('lock') }), 'evil');
    await lockByProgram(strict, token({ sub: 'k1', name: 'Kim', ...may('lock') }), 'first');
    const page = await open(strict);
    await page.getByRole('textbox', { name: 'Token' }).fill(token({ sub: 'r', name: 'Rea', ...may('read') }));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await row(page, 'evil').getByText(evil).waitFor();
    await row(page, 'first').getByText('Kim', { exact: true }).waitFor();
    expect(await page.locator('#rows button').count()).toBe(0);
    expect(await page.getByRole('tab', { name: 'Audit' }).count()).toBe(0);
    await lockByProgram(strict, token({ sub: 'k2', name: 'Kim', ...may('lock') }), 'second');
    await row(page, 'first').getByText('Kim (k1)').waitFor();
    await row(page, 'second').getByText('Kim (k2)').waitFor();
    expect(await page.content()).not.toContain('lease_id');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('textbox', { name: 'Token' }).fill(token({ sub: 'l', name: 'Lo', ...may('lock') }));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await button(page, 'first', 'Ask').waitFor();
    expect(await page.locator('#rows button[data-action=take_over]').count()).toBe(0);
    await shoot(page, 'names');
  });

  test('on a phone nothing is wider than the screen, in Japanese too, and /docs neither', async () => {
    const page = await open(dev, { ...PHONE, locale: 'ja-JP' });
    await isLive(page);
    await page.getByText('ロックされている文書はありません').waitFor();
    expect(await overflow(page)).toBe(0);
    await lockByProgram(dev, dev.tokens['user-b']!, `${'long-name-'.repeat(12)}x`);
    await row(page, `${'long-name-'.repeat(12)}x`).getByText('残り時間').or(row(page, `${'long-name-'.repeat(12)}x`).getByText('Ben')).first().waitFor();
    await page.getByRole('button', { name: /^引き継ぐ/ }).waitFor();
    expect(await overflow(page)).toBe(0);
    await shoot(page, 'phone-japanese');
    await page.getByLabel('言語').selectOption('en');
    await feed(page).getByText('Ben locked').waitFor();
    expect(await page.evaluate(() => document.documentElement.lang)).toBe('en');
    await shoot(page, 'phone');
    await page.goto(`${dev.url}/docs`);
    expect(await overflow(page)).toBe(0);
    await shoot(page, 'docs-phone');
  });

  test.each(['light', 'dark'] as const)('axe finds nothing when it is %s', async (colorScheme) => {
    // Half of a transition has colours of its own.
    const page = await open(strict, { colorScheme, reducedMotion: 'reduce' });
    expect(await axe(page)).toEqual([]);
    await page.getByRole('textbox', { name: 'Token' }).fill(token({ sub: 'f', name: 'Fay', documents: { '*': 'force' } }));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await isLive(page);
    await lockAsPage(page, `${colorScheme}-mine`);
    await lockByProgram(strict, token({ sub: 'k1', name: 'Kim', documents: { '*': 'lock' } }), `${colorScheme}-asked`);
    await button(page, `${colorScheme}-asked`, 'Ask').click();
    await inDialog(page, null, 'Ask');
    await row(page, `${colorScheme}-asked`).getByText('You asked Kim').waitFor();
    expect(await axe(page)).toEqual([]);
    await shoot(page, `desktop-${colorScheme}`);
    await button(page, `${colorScheme}-asked`, 'Take over').click();
    expect(await axe(page, 'dialog')).toEqual([]);
    await page.keyboard.press('Escape');
    await page.goto(`${strict.url}/docs`);
    expect(await axe(page, SOME_DOCS)).toEqual([]);
    await shoot(page, `docs-${colorScheme}`);
  });
});
