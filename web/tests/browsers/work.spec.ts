// The way whole: three tabs of a page that is made of the guide's first lines alone, in which users type and save while tabs are
// closed, crash, are reloaded, frozen and taken over at random. Every save that was acknowledged is in the file or was replaced
// by a save that was made from it, and what a tab lost is offered. `SEED=…` repeats a run.

import { describe, expect, test } from 'vitest';
import { isInstalled, start, type Kind, type Tab } from './browsers.js';
import { firstLines, inFile, mayEdit, serveGuide } from './guide.js';

const ROUNDS = Number(process.env['WORK_ROUNDS'] ?? 30);
/** Instead of rounds, if it is set. */
const SECONDS = Number(process.env['WORK_SECONDS'] ?? 0);
const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000);

/** Numbers that a seed decides (mulberry32). */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Three tabs, and what became of what was typed in them. */
class Work {
  readonly saved = new Set<string>();
  readonly lost = new Set<string>();
  readonly offered = new Set<string>();
  readonly story: string[] = [];
  readonly #tabs: { tab: Tab; frozen: boolean }[] = [];
  #words = 0;

  constructor(
    readonly kind: Kind, readonly open: () => Promise<Tab>, readonly url: string, readonly random: (below: number) => number,
  ) {}

  async begin(): Promise<void> {
    for (let at = 0; at < 3; at += 1) this.#tabs.push({ tab: await this.open(), frozen: false });
  }

  /** Something happens to one of the tabs. */
  async round(): Promise<void> {
    const at = this.random(3);
    const entry = this.#tabs[at]!;
    const what = this.random(100);
    if (entry.frozen) return this.#thaw(at);
    if (what < 55) return this.#type(at, true);
    if (what < 65) return this.#type(at, false);
    if (what < 75) return this.#takeOver(at);
    if (what < 82) return this.#end(at, 'closes', () => entry.tab.close());
    if (what < 88) return this.#end(at, 'reloads', () => entry.tab.away(this.url), true);
    if (this.kind === 'firefox') return this.#type(at, true); // it has no command for a crash, or a freeze
    if (what < 94) return this.#end(at, 'crashes', () => entry.tab.crash());
    this.#tell(at, 'is frozen');
    await this.#note(entry.tab);
    await entry.tab.freeze();
    entry.frozen = true;
  }

  /** The tab that has the project in the end, and what is in the file. */
  async end(): Promise<string> {
    for (let at = 0; at < 3; at += 1) if (this.#tabs[at]!.frozen) await this.#thaw(at);
    const last = await this.open();
    await last.run(() => globalThis.app.leasehold.takeOverProjectLock(), null);
    await mayEdit(last);
    for (const { tab } of this.#tabs) await this.#note(tab);
    await this.#note(last);
    return inFile(last);
  }

  async #thaw(at: number): Promise<void> {
    this.#tell(at, 'goes on');
    const entry = this.#tabs[at]!;
    await entry.tab.thaw();
    entry.frozen = false;
  }

  /** The user types a word where they may, and saves it or does not. */
  async #type(first: number, saves: boolean): Promise<void> {
    for (const at of [first, (first + 1) % 3, (first + 2) % 3]) {
      if (!this.#tabs[at]!.frozen && await this.#typeIn(at, saves)) return;
    }
    this.#tell(first, 'may not type');
  }

  async #typeIn(at: number, saves: boolean): Promise<boolean> {
    const word = ` ${this.#words += 1}`;
    const { tab } = this.#tabs[at]!;
    const typed = await tab.run(async ({ word, saves }) => {
      const { editor } = globalThis.app ?? {};
      if (editor?.readOnly !== false) return false;
      editor.text += word;
      if (saves) await globalThis.app.save();
      return true;
    }, { word, saves });
    if (!typed) return false;
    this.#tell(at, `types${word}${saves ? ' and saves' : ''}`);
    await this.#note(tab);
    return true;
  }

  /** A tab takes the project from one in which something was typed and not saved. */
  async #takeOver(at: number): Promise<void> {
    await this.#type((at + 1) % 3, false);
    const { tab } = this.#tabs[at]!;
    this.#tell(at, 'takes over');
    await tab.run(() => globalThis.app.leasehold.takeOverProjectLock().then(() => {}, () => {}), null);
    await this.#type(at, true);
  }

  /** A tab ends, perhaps in the middle of a save; another one takes its place. */
  async #end(at: number, how: string, end: () => Promise<void>, goesOn = false): Promise<void> {
    const entry = this.#tabs[at]!;
    const saves = this.random(2) === 0;
    this.#tell(at, saves ? `${how} while it saves` : how);
    await this.#note(entry.tab);
    if (saves) entry.tab.run(() => { void globalThis.app.save(); }, null).catch(() => {});
    await end();
    if (!goesOn) entry.tab = await this.open();
  }

  /** Writes down what the tab asked for and what is offered; the user looks at the drafts, and discards them. */
  async #note(tab: Tab): Promise<void> {
    const { commits, drafts } = await tab.run(async () => {
      while (!globalThis.app) await new Promise((resolve) => { setTimeout(resolve, 10); });
      const { leasehold, commits } = globalThis.app;
      const drafts = await leasehold.listProjectDrafts();
      for (const draft of drafts) await leasehold.discardProjectDraft(draft);
      const over = commits.filter(({ result }) => result !== 'open');
      commits.splice(0, commits.length, ...commits.filter(({ result }) => result === 'open'));
      return { commits: over, drafts: drafts.map(({ data }) => String(data)) };
    }, null);
    drafts.forEach((data) => this.offered.add(data));
    for (const { data, result } of commits) (result === 'saved' ? this.saved : this.lost).add(data);
  }

  #tell(at: number, what: string): void {
    this.story.push(`${this.story.length}: tab ${at} ${what}`);
  }
}

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  test.skipIf(!isInstalled(kind))('no acknowledged save is lost, and what a tab lost is offered', async () => {
    console.log(`${kind}: SEED=${SEED}`);
    const server = await serveGuide(firstLines('../docs/browser.md'));
    const browser = await start(kind, { hides: true });
    try {
      const url = server.page('work', 'index.html');
      const work = new Work(kind, () => browser.open(url), url, randomOf(SEED));
      await work.begin();
      const until = Date.now() + SECONDS * 1_000;
      for (let round = 0; SECONDS ? Date.now() < until : round < ROUNDS; round += 1) await work.round();
      const file = await work.end();
      const story = `SEED=${SEED}\n${work.story.join('\n')}\nthe file:${file}`;
      expect([...work.saved].filter((data) => !file.startsWith(data)), story).toEqual([]);
      const isThere = (data: string) => file.startsWith(data) || [...work.offered].some((draft) => draft.startsWith(data));
      expect([...work.lost].filter((data) => !isThere(data)), story).toEqual([]);
      expect(work.saved.size, story).toBeGreaterThan(0);
      console.log(`${kind}: ${work.story.length} rounds, ${work.saved.size} saved, ${work.lost.size} refused or kept, ${work.offered.size} offered`);
    } finally {
      await browser.close();
      await server.remove();
    }
  });
});
