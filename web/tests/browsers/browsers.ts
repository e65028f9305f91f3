// Real browsers behind one small interface: Debian's Chromium through playwright-core, or through puppeteer-core where tabs
// are to be hidden; its Firefox through puppeteer-core.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import puppeteer from 'puppeteer-core';

/** Which browser. */
export type Kind = 'chromium' | 'firefox';

const PROGRAMS = {
  chromium: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
  firefox: process.env['FIREFOX'] ?? '/usr/bin/firefox-esr',
};
const CHROMIUM_ARGUMENTS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--host-resolver-rules=MAP insecure.test 127.0.0.1',
];

/** One tab. */
export interface Tab {
  /** Runs a function in the page, with an argument that can be sent there. */
  run<Answer, Argument>(work: (argument: Argument) => Answer | Promise<Answer>, argument: Argument): Promise<Answer>;
  /** Presses a key. */
  press(key: 'Enter' | 'Escape' | 'Tab'): Promise<void>;
  /** Has its user prefer reduced motion. Chromium alone. */
  reduceMotion(): Promise<void>;
  /** Closes it, as a user does. */
  close(): Promise<void>;
  /** Crashes its renderer. Chromium alone. */
  crash(): Promise<void>;
  /** Goes to another page. */
  away(url: string): Promise<void>;
  /** Goes back to the page before, which may come from the back/forward cache. */
  back(): Promise<void>;
  /** Brings it to the front: the others are hidden. With `hides` alone. */
  front(): Promise<void>;
  /** Loads its page again, as a user does. */
  reload(): Promise<void>;
  /** Freezes it while it is hidden, as a browser does after a while; and lets it go on. Chromium with `hides` alone. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
}

/** One browser with a profile of its own. */
export interface Browser {
  readonly kind: Kind;
  open(url: string): Promise<Tab>;
  close(): Promise<void>;
  /** The processes in which a Worker runs. Chromium alone. */
  workers(): number[];
}

/** Whether this browser is installed. */
export function isInstalled(kind: Kind): boolean {
  return existsSync(PROGRAMS[kind]);
}

/** How to start a browser. */
interface StartOptions {
  /** In a private window; Firefox alone. */
  isPrivate?: boolean;
  /** With tabs that are hidden when another one is opened, and slow then, as a user's are. */
  hides?: boolean;
}

/** Starts a browser. */
export async function start(kind: Kind, options: StartOptions = {}): Promise<Browser> {
  // Firefox waits for the disk after every change in the private file system. In memory, the tests measure the lock.
  const profile = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'leasehold-'));
  const isPlaywright = kind === 'chromium' && !options.hides;
  const browser = await (isPlaywright ? startPlaywright(profile) : startPuppeteer(kind, profile, options.isPrivate ?? false));
  return {
    ...browser,
    workers: () => renderersBelow(profile).filter(hasWorker),
    close: async () => {
      await browser.close();
      rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

async function startPlaywright(profile: string): Promise<Omit<Browser, 'workers'>> {
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: PROGRAMS.chromium, headless: true, args: CHROMIUM_ARGUMENTS,
    ignoreDefaultArgs: ['--disable-back-forward-cache'],
  });
  return {
    kind: 'chromium',
    close: () => context.close(),
    open: async (url) => {
      const page = await context.newPage();
      await page.goto(url);
      const session = () => context.newCDPSession(page);
      return {
        run: (work, argument) => page.evaluate(work as never, argument) as never,
        press: (key) => page.keyboard.press(key),
        reduceMotion: () => page.emulateMedia({ reducedMotion: 'reduce' }),
        close: () => page.close(),
        away: async (to) => { await page.goto(to); },
        back: () => back(page),
        crash: async () => {
          const crashed = page.waitForEvent('crash');
          (await session()).send('Page.crash').catch(() => {});
          await crashed;
        },
        front: cannot,
        reload: async () => { await page.reload(); },
        freeze: cannot,
        thaw: cannot,
      };
    },
  };
}

/** What keeps hidden tabs awake. (Playwright keeps them awake in any case: it tells every tab that it is in front.) */
const AWAKE = [
  '--disable-background-timer-throttling', '--disable-renderer-backgrounding', '--disable-backgrounding-occluded-windows',
];

async function startPuppeteer(kind: Kind, profile: string, isPrivate: boolean): Promise<Omit<Browser, 'workers'>> {
  const browser = await puppeteer.launch({
    ...(kind === 'chromium'
      ? { browser: 'chrome', args: CHROMIUM_ARGUMENTS, ignoreDefaultArgs: AWAKE }
      : { browser: 'firefox', extraPrefsFirefox: { 'browser.privatebrowsing.autostart': isPrivate } }),
    executablePath: PROGRAMS[kind], headless: true, userDataDir: profile,
    // A test that takes too long is ended by the test's own limit: a tab may be asked to wait for ten minutes.
    protocolTimeout: 0,
  });
  let last: Promise<unknown> = Promise.resolve();
  /** Firefox fails to open a tab while it is closing another one. */
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const done = last.then(work);
    last = done.catch(() => {});
    return done;
  };
  return {
    kind,
    close: () => browser.close(),
    open: async (url) => {
      const page = await inTurn(() => browser.newPage());
      await page.goto(url);
      const become = async (state: 'frozen' | 'active') => {
        await (await page.createCDPSession()).send('Page.setWebLifecycleState', { state });
      };
      return {
        run: (work, argument) => page.evaluate(work as never, argument as never) as never,
        press: (key) => page.keyboard.press(key),
        reduceMotion: cannot,
        // As a user's click does, and a plain `close` does not, it tells Firefox to ask the page first (`beforeunload`).
        close: () => inTurn(() => page.close({ runBeforeUnload: kind === 'firefox' })),
        away: (to) => away(page, to),
        back: () => back(page),
        crash: async () => {
          const crashed = new Promise((resolve) => { page.once('error', resolve); });
          (await page.createCDPSession()).send('Page.crash').catch(() => {});
          await crashed;
          await page.close().catch(() => {});
        },
        front: () => page.bringToFront(),
        reload: async () => { await page.reload(); },
        freeze: () => become('frozen'),
        thaw: () => become('active'),
      };
    },
  };
}

function cannot(): Promise<never> {
  return Promise.reject(new Error('there is no command for it here'));
}

/** A page in which scripts can be run. */
interface Scripted {
  evaluate(code: string): Promise<unknown>;
}

/** Follows a link, perhaps to the same page. Once Firefox has brought a page back from its cache, `goto` never ends there. */
async function away(page: Scripted, to: string): Promise<void> {
  const address = JSON.stringify(to);
  page.evaluate(`wasLeft = true; location.assign(${address})`).catch(() => {});
  await isSo(page, `typeof wasLeft === 'undefined' && document.readyState === 'complete' && location.href === new URL(${address}).href`);
}

/** Goes back. A page from the cache never says that it was loaded, so what is waited for is that its script answers. */
async function back(page: Scripted): Promise<void> {
  page.evaluate('history.back()').catch(() => {});
  await isSo(page, "typeof tab === 'object'");
}

/** Asks a page again and again, until it answers yes. */
async function isSo(page: Scripted, question: string): Promise<void> {
  for (;;) {
    const answer = page.evaluate(question).catch(() => false);
    const patience = new Promise((resolve) => setTimeout(resolve, 500, false));
    if (await Promise.race([answer, patience]) === true) return;
  }
}

/** The renderers that descend from the browser with this profile. */
function renderersBelow(profile: string): number[] {
  const lines = execFileSync('ps', ['-eo', 'pid=,ppid=,args='], { encoding: 'utf8' }).trim().split('\n');
  const all = lines.map((line) => {
    const [, pid, parent, command = ''] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? [];
    return { pid: Number(pid), parent: Number(parent), command };
  });
  const descends = (pid: number): boolean => {
    const found = all.find((process) => process.pid === pid);
    return found !== undefined && (found.command.includes(profile) || descends(found.parent));
  };
  return all.filter(({ command, pid }) => command.includes('--type=renderer') && descends(pid)).map(({ pid }) => pid);
}

/** Chromium names its threads. */
function hasWorker(pid: number): boolean {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.some((thread) => readFileSync(`/proc/${pid}/task/${thread}/comm`, 'utf8').startsWith('DedicatedWorker'));
}
