// The demo of the real server, in Chromium and Firefox: two tabs, two users, everything that can be broken, and in Chromium how it
// looks: both languages and schemes, a phone, and what axe finds. `SCREENSHOTS=FOLDER` keeps pictures of it.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { chromium, type Browser as Chromium, type BrowserContextOptions, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { LeaseholdServer, PROGRAM } from './leasehold.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SHOTS = process.env['SCREENSHOTS'];
const canRun = (kind: Kind) => PROGRAM !== undefined && isInstalled(kind);

test('the demo was built with the package', () => {
  expect(existsSync(fileURLToPath(new URL('../../dist/demo/index.html', import.meta.url)))).toBe(true);
});

/** What a tab shows. */
interface Shown {
  readonly edits: boolean;
  readonly standing: string;
  readonly indicator: string;
  readonly document: string;
  readonly first: string;
  readonly isReadOnly: boolean;
  readonly events: readonly string[];
}

function shown(tab: Tab): Promise<Shown> {
  return tab.run(() => {
    const text = (element: Element | null | undefined) => (element as HTMLElement | null)?.innerText ?? '';
    const inside = (name: string) => text(document.querySelector(name)?.shadowRoot?.querySelector('[part~=base]'));
    const field = document.querySelector('textarea');
    return {
      edits: document.querySelector<HTMLElement>('#standing')?.dataset['edits'] === 'yes',
      standing: text(document.querySelector('#standing')),
      indicator: inside('autosave-indicator'), document: inside('document-lock'),
      first: field?.value ?? '', isReadOnly: field?.readOnly ?? true,
      events: [...document.querySelectorAll('#feed b')].map((name) => name.textContent ?? ''),
    };
  }, null);
}

/** Waits until the tab shows it. */
async function until(tab: Tab, what: string, is: (now: Shown) => boolean): Promise<Shown> {
  for (const began = Date.now(); ;) {
    const now = await shown(tab);
    if (is(now)) return now;
    if (Date.now() - began > 40_000) throw new Error(`${what}: ${JSON.stringify(now)}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

/** Presses a button of the page, or of one of its elements, as soon as that can be pressed. */
async function press(tab: Tab, selector: string, element = ''): Promise<void> {
  await tab.run(async ([selector, element]) => {
    const below = () => (element ? document.querySelector(element)?.shadowRoot : document);
    const button = () => [...below()?.querySelectorAll<HTMLButtonElement>(selector) ?? []].at(-1);
    const can = () => button() && !button()!.disabled && button()!.ariaDisabled !== 'true';
    while (!can()) await new Promise((resolve) => { setTimeout(resolve, 20); });
    button()!.click();
  }, [selector, element] as const);
}

/** Types into the first scene, as a user who may. */
async function type(tab: Tab, text: string): Promise<void> {
  await until(tab, 'the first scene can be typed in', ({ edits, isReadOnly }) => edits && !isReadOnly);
  await tab.run((text) => {
    const field = document.querySelector('textarea')!;
    field.focus();
    field.value = text;
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }, text);
}

const saved = (tab: Tab) => until(tab, 'it is saved', ({ indicator }) => indicator.includes('Saved'));

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let server: LeaseholdServer;
  beforeAll(async () => {
    if (!canRun(kind)) return;
    server = await LeaseholdServer.start('--dev', '--ttl', '6s', '--heartbeat', '2s');
    browser = await start(kind);
  });
  afterAll(async () => { await Promise.all([browser?.close(), server?.remove()]); });
  const tabs: Tab[] = [];
  // A tab that a failed test left would have the locks.
  afterEach(async () => { await Promise.all(tabs.splice(0).map((tab) => tab.close())); });
  const open = async (path = '/demo') => {
    const tab = await browser.open(server.url + path);
    tabs.push(tab);
    return tab;
  };
  const check = test.skipIf(!canRun(kind));

  check('it opens signed in; what is typed is saved; the second tab, as Ben, reads it, asks for it and goes on with it', async () => {
    const anna = await open();
    await type(anna, 'Anna was here.');
    await saved(anna);
    const [field, user, file] = await anna.run(async () => {
      const project = await (await navigator.storage.getDirectory()).getDirectoryHandle('project');
      const current = await (await project.getDirectoryHandle('autosave')).getFileHandle('current.json');
      const first = document.querySelector<HTMLElement>('input[type=text], textarea');
      return [
        first?.closest('li') === document.querySelector('#scenes > li'),
        document.querySelector<HTMLInputElement>('#users :checked')?.value,
        await (await current.getFile()).text(),
      ] as const;
    }, null);
    expect([field, user]).toEqual([true, 'user-a']);
    expect(file).toContain('Anna was here.');

    const ben = await open('/demo?user=user-b');
    const read = await until(ben, 'Ben reads', ({ first, standing }) => first === 'Anna was here.' && standing.includes('Anna edits'));
    expect([read.edits, read.isReadOnly]).toEqual([false, true]);
    await press(ben, 'button[part~=ask]', 'document-lock');
    await press(anna, 'button[part~=handOver]', 'document-lock');
    await type(ben, 'Ben went on.');
    await saved(ben);
    await until(anna, 'Anna reads', ({ edits, first, standing }) => !edits && first === 'Ben went on.' && standing.includes('Ben edits'));
  });

  check('a lock that is ended, a full disk and a cut socket: nothing is lost, and the user knows', async () => {
    const tab = await open();
    await until(tab, 'it edits', ({ edits }) => edits);
    await tab.run(() => { Object.assign(document.querySelector('#dialect')!, { value: 'documents' }).dispatchEvent(new Event('change')); }, null);
    await type(tab, 'this was not saved in time');
    await press(tab, '#break-lose');
    const lost = await until(tab, 'the lock is lost', ({ edits, events }) => !edits && events.includes('DocumentUnlocked'));
    expect(lost.document).toContain('Ben ended your lock: “to show what happens then”');
    await press(tab, 'button[part~=edit]', 'document-lock');
    await until(tab, 'it edits again', ({ edits }) => edits);
    // The page did nothing with a draft that its user wanted to use.
    await press(tab, 'button[part~=show]', 'document-lock');
    await press(tab, 'button[part~=use]', 'document-lock');
    const used = await tab.run(() => [...document.querySelectorAll('textarea')].at(-1)!.value, null);
    expect(used).toContain('this was not saved in time');
    expect((await shown(tab)).document).not.toContain('kept');
    await press(tab, '#break-socket');
    await press(tab, '#break-full');
    await type(tab, 'there is no room for this');
    await until(tab, 'the disk is full', ({ indicator }) => indicator.includes('no space left'));
    await press(tab, '#break-full');
    await press(tab, 'button[part~=retry]', 'autosave-indicator');
    await saved(tab);
    // The lock was kept without events, by its heartbeat alone.
    expect((await shown(tab)).edits).toBe(true);
    await press(tab, '#break-socket');
  });

  check('without a heartbeat the tab stops by itself, and asleep it is replaced', async () => {
    const anna = await open();
    // Before Ben comes: of two that open at once, either may be the one that edits.
    await type(anna, 'awake');
    const ben = await open('/demo?user=user-b');
    await until(ben, 'Ben reads', ({ standing }) => standing.includes('Anna edits'));
    await press(anna, kind === 'chromium' ? '#break-heart' : '#break-freeze');
    await until(ben, 'the document is free', ({ standing }) => !standing.includes('Anna edits'));
    if (kind === 'chromium') await until(anna, 'Anna stops', ({ edits }) => !edits);
    else expect(await anna.run(() => document.querySelector<HTMLElement>('#main')!.inert, null)).toBe(true);
  });
});

describe.skipIf(!canRun('chromium'))('how it looks', () => {
  let browser: Chromium;
  let server: LeaseholdServer;
  const pages: Page[] = [];
  /** What the browser complained about: errors, and violations of the page's own policy. */
  let complaints: string[] = [];
  beforeAll(async () => {
    server = await LeaseholdServer.start('--dev');
    browser = await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  });
  afterEach(async () => {
    await Promise.all(pages.splice(0).map((page) => page.context().close()));
    const found = complaints;
    complaints = [];
    expect(found).toEqual([]);
  });
  afterAll(async () => { await Promise.all([browser?.close(), server?.remove()]); });

  async function open(options: BrowserContextOptions, path = '/demo'): Promise<Page> {
    const context = await browser.newContext({ locale: 'en-GB', reducedMotion: 'reduce', viewport: { width: 1280, height: 900 }, ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(30_000);
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => { if (message.type() === 'error' && !message.text().includes('Failed to load resource')) complaints.push(message.text()); });
    pages.push(page);
    await page.goto(server.url + path);
    return page;
  }
  const edits = (page: Page) => page.locator('#standing[data-edits=yes]').waitFor();
  const shoot = async (page: Page, name: string) => { if (SHOTS) await page.screenshot({ path: `${SHOTS}/demo-${name}.png`, fullPage: true }); };
  const overflow = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

  async function axe(page: Page): Promise<string[]> {
    await page.evaluate(AXE);
    return page.evaluate(async () => {
      type Violation = { id: string; nodes: { html: string; failureSummary: string }[] };
      const { axe } = globalThis as unknown as { axe: { run(): Promise<{ passes: unknown[]; violations: Violation[] }> } };
      const { passes, violations } = await axe.run();
      if (passes.length < 10) throw new Error('axe looked at almost nothing');
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join('\n')}`);
    });
  }

  test('axe finds nothing: editing in the light, on a phone, and reading in the dark in Japanese', async () => {
    const page = await open({ colorScheme: 'light' });
    await edits(page);
    expect(await axe(page)).toEqual([]);
    await shoot(page, 'light');
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await overflow(page)).toBe(0);
    await shoot(page, 'phone');
    // Another person, in another browser: read-only.
    const other = await open({ colorScheme: 'dark', locale: 'ja-JP', viewport: { width: 390, height: 844 } }, '/demo?user=user-b');
    await other.locator('#standing-text', { hasText: 'Anna さんが' }).waitFor();
    expect(await overflow(other)).toBe(0);
    expect(await axe(other)).toEqual([]);
    await shoot(other, 'phone-japanese-dark');
    await other.setViewportSize({ width: 1280, height: 900 });
    await shoot(other, 'japanese-dark');
    await other.getByLabel('言語').selectOption('en');
    await other.getByText('Read-only.', { exact: true }).waitFor();
    expect(await other.evaluate(() => document.documentElement.lang)).toBe('en');
    await shoot(other, 'dark');
  });

  test('scenes are added, moved and deleted by the keyboard, which keeps its place; events are shown in each dialect', async () => {
    const page = await open({ locale: 'en-US' });
    await edits(page);
    await page.getByRole('button', { name: 'Add a scene' }).press('Enter');
    await page.keyboard.type('The end');
    await page.getByRole('button', { name: 'Move scene 4 up' }).press('Enter');
    expect(await page.getByLabel('Title of scene 3').inputValue()).toBe('The end');
    expect(await page.evaluate(() => document.activeElement?.ariaLabel)).toBe('Move scene 3 up');
    await page.getByRole('button', { name: 'Delete scene 1' }).press('Enter');
    expect(await page.locator('#scenes > li').count()).toBe(3);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('scenes');
    const feed = page.locator('#feed');
    for (const [dialect, event] of [['service', 'acquired'], ['autosave', 'autosave.lock.stateChanged'], ['documents', 'DocumentLocked'], ['lock', 'lock:acquired']]) {
      await page.getByLabel('Dialect of the events').selectOption(dialect!);
      await feed.getByText(event!, { exact: true }).first().waitFor();
    }
    // Twelve hours stood beside the twenty-four of the elements.
    expect(await feed.locator('time').first().innerText()).toMatch(/^\d\d:\d\d:\d\d$/);
    expect(await page.content()).not.toMatch(/lease_?id"?:/i);
    await shoot(page, 'events');
  });
});
