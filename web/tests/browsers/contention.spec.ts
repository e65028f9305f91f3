// Four tabs want the project at the same moment. In every round exactly one becomes the owner: never two, never nobody.
// Who owns is not asked of the lock: owners sign a register in the test's server.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { TestServer } from './server.js';

const ROUNDS = { chromium: rounds('CHROMIUM_ROUNDS', 600), firefox: rounds('FIREFOX_ROUNDS', 400) };
const PATIENT_ROUNDS = rounds('PATIENT_ROUNDS', 30);

/** Which Worker each of the four tabs has: the shipped one, or one without Web Locks. */
const MODES = {
  'with Web Locks': ['', '', '', ''],
  'without Web Locks': ['without', 'without', 'without', 'without'],
  'mixed': ['', 'without', '', 'without'],
};

/** One attempt each. Nobody waits long for the Web Lock: the winner keeps the project until all have answered. */
const ONCE = { retryPolicy: { maxAttempts: 1 }, webLockTimeoutMs: 30 };

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  beforeAll(async () => { if (isInstalled(kind)) browser = await start(kind); });
  afterAll(async () => { await browser?.close(); });

  test.skipIf(!isInstalled(kind)).each(Object.entries(MODES))('four tabs contend, %s', async (mode, workers) => {
    const count = Math.ceil(ROUNDS[kind] / Object.keys(MODES).length);
    const seen = await contend(browser, workers, count, ONCE);
    console.log(`${kind}, ${mode}: four tabs, ${JSON.stringify(seen)}`);
    expect(seen).toMatchObject({ twoOwners: 0, nobody: 0, overlaps: [] });
  });
});

describe.concurrent('the default policy', () => {
  // It is mostly waiting, so both browsers do it at once.
  test.for(['chromium', 'firefox'] as Kind[])('%s: four tabs contend with the default policy', async (kind, { skip }) => {
    skip(!isInstalled(kind), 'it is not installed');
    const browser = await start(kind);
    try {
      const seen = await contend(browser, MODES.mixed, PATIENT_ROUNDS, {}, oneAfterTheOther);
      const { nobody, overlaps, answers } = seen;
      console.log(`${kind}, default policy: ${PATIENT_ROUNDS} rounds, ${JSON.stringify({ nobody, overlaps, answers })}`);
      expect(seen).toMatchObject({ nobody: 0, overlaps: [] });
    } finally {
      await browser.close();
    }
  });
});

test.skipIf(!isInstalled('chromium'))('the check notices a guard that keeps nobody out', async () => {
  const browser = await start('chromium');
  try {
    const workers = ['broken', 'broken', 'broken', 'broken'];
    const seen = await contend(browser, workers, 200, ONCE, oneWins, (seen) => seen.twoOwners > 0);
    console.log(`chromium, broken guard: two owners after ${seen.rounds} rounds`);
    expect(seen.twoOwners).toBeGreaterThan(0);
    expect(seen.overlaps).not.toEqual([]);
  } finally {
    await browser.close();
  }
});

/** What was seen over all rounds. */
interface Seen {
  rounds: number;
  twoOwners: number;
  nobody: number;
  overlaps: string[];
  answers: Record<string, number>;
}

async function contend(
  browser: Browser, workers: readonly string[], count: number, options: object, round = oneWins,
  enough: (seen: Seen) => boolean = () => false,
): Promise<Seen> {
  const server = await TestServer.start();
  const open = (worker: string, at: number) =>
    browser.open(`${server.page('contention')}?who=tab${at}${worker && `&worker=${worker}`}`);
  const tabs = await Promise.all(workers.map(open));
  const seen: Seen = { rounds: 0, twoOwners: 0, nobody: 0, overlaps: [], answers: {} };
  try {
    while (seen.rounds < count && !enough(seen)) note(await round(tabs, options), seen);
  } finally {
    await Promise.all(tabs.map((tab) => tab.close()));
    await server.stop();
  }
  return { ...seen, overlaps: server.register.overlaps.slice(0, 5) };
}

/** All try once; the winner keeps the project until all have answered. */
async function oneWins(tabs: Tab[], options: object): Promise<string[]> {
  const turn = { together: tabs.length, options };
  const answers = await Promise.all(tabs.map((tab) => tab.run((turn) => globalThis.tab.attempt(turn), turn)));
  await Promise.all(tabs.map((tab) => tab.run(() => globalThis.tab.leave(), null)));
  return answers;
}

/** All try as the defaults have it; whoever gets the project leaves it to the next. */
async function oneAfterTheOther(tabs: Tab[], options: object): Promise<string[]> {
  const turn = { together: tabs.length, options };
  return Promise.all(tabs.map((tab) => tab.run((turn) => globalThis.tab.visit(turn), turn)));
}

function note(answers: string[], seen: Seen): void {
  const owners = answers.filter((answer) => answer === 'owner').length;
  seen.rounds += 1;
  if (owners > 1) seen.twoOwners += 1;
  if (owners === 0) seen.nobody += 1;
  for (const answer of answers) seen.answers[answer] = (seen.answers[answer] ?? 0) + 1;
}

function rounds(name: string, otherwise: number): number {
  return Number(process.env[name] ?? otherwise);
}
