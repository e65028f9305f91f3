// The elements in real browsers: what is shown and announced, the keyboard, both languages, and what axe finds. Time is virtual.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isInstalled, start, type Browser, type Kind, type Tab } from './browsers.js';
import { TestServer } from './server.js';

let server: TestServer;
let strict: TestServer;
const STRICT = "default-src 'none'; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'";
beforeAll(async () => {
  server = await TestServer.start();
  strict = await TestServer.start({ headers: { 'content-security-policy': STRICT } });
});
afterAll(async () => { await Promise.all([server.stop(), strict.stop()]); });

/** What axe finds below these nodes, by all of its rules. */
async function axe(tab: Tab, below = ':root'): Promise<string[]> {
  return tab.run(async (below) => {
    type Axe = { run(below: string): Promise<{ passes: unknown[]; violations: Violation[] }> };
    const global = globalThis as typeof globalThis & { axe?: Axe };
    type Violation = { id: string; nodes: { html: string; failureSummary: string }[] };
    if (!global.axe) {
      const script = Object.assign(document.createElement('script'), { src: '/node_modules/axe-core/axe.min.js' });
      document.head.append(script);
      await new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }));
    }
    const { passes, violations } = await global.axe!.run(below);
    if (passes.length < 10) throw new Error('axe looked at almost nothing');
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join('\n')}`);
  }, below);
}

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let browser: Browser;
  let tab: Tab;
  beforeAll(async () => {
    if (!isInstalled(kind)) return;
    browser = await start(kind);
    tab = await browser.open(server.page('elements', 'tests/browsers/elements.html'));
  });
  afterAll(async () => { await browser?.close(); });
  /** Goes to another page for a while. In a second tab, the first one would be hidden, and its timers slow. */
  const visit = async <Answer>(url: string, work: () => Promise<Answer>): Promise<Answer> => {
    await tab.away(url);
    try {
      return await work();
    } finally {
      await tab.away(server.page('elements', 'tests/browsers/elements.html'));
    }
  };
  const check = test.skipIf(!isInstalled(kind));
  const focused = () => tab.run(() => stage.focused(), null);
  /** Goes on by the Tab key until that part has the focus. */
  const reach = async (part: string) => {
    for (let presses = 0; presses < 15; presses += 1) {
      await tab.press('Tab');
      if ((await focused()).split(' ').includes(part)) return;
    }
    throw new Error(`the Tab key does not reach ${part}`);
  };

  // Not all of it by axe, which takes seconds: both languages, both schemes.
  check('the gallery has every state in both languages and schemes, and axe finds nothing', async () => {
    const [counts, found] = await visit(server.page('gallery', 'gallery/index.html'), async () => [await tab.run(async () => {
      const isReady = () => document.documentElement.dataset['ready'] === 'yes';
      if (!isReady()) await new Promise<void>((resolve) => new MutationObserver(() => resolve()).observe(document.documentElement, { attributes: true }));
      const all = (name: string) => [...document.querySelectorAll(name)];
      const text = (element: Element) => element.shadowRoot!.querySelector<HTMLElement>('[part=base]')!.innerText.trim();
      const names = ['autosave-indicator', 'autosave-history', 'document-lock'];
      return [...names.map((name) => all(name).length), all(names.join()).filter((element) => !text(element)).length];
    }, null), await axe(tab, kind === 'chromium' ? 'tr:not(.document) [lang=en].light, [lang=ja].dark' : 'tr:not(.document) [lang=ja].dark')] as const);
    expect(counts).toEqual([31 * 4, 10 * 4, 29 * 4, 0]);
    expect(found).toEqual([]);
  });

  check('the lock of a document: a request counts down and is an alert, who edits is said politely', async () => {
    const seen = await tab.run(async () => {
      await stage.showDocument('mine');
      const [alerts, announcements] = [stage.listen('alert'), stage.listen('status')];
      stage.becomeDocument('mine: a request that silence grants');
      const details = [stage.texts('[part=detail]')[0]];
      await stage.clock.advance(4_000);
      details.push(stage.texts('[part=detail]')[0]);
      stage.find('button[part~=handOver]').click();
      await stage.settle();
      stage.becomeDocument('held');
      await stage.settle();
      // Nobody heard that a request was refused: what went wrong was neither shown nor said.
      await stage.clock.advance(30_000);
      stage.becomeDocument('held: a request was refused');
      await stage.settle();
      return { details, alerts, announcements, asked: stage.document.asked };
    }, null);
    expect(seen).toEqual({
      details: ['Handed over in 9 s without an answer.', 'Handed over in 5 s without an answer.'],
      alerts: ['Ben asks to edit'], announcements: ['Ben is editing', 'Ben is editing. Your request was refused'], asked: [['answer', 'hand-over']],
    });
  });

  check('the lock of a document is taken over by the keyboard, and not without a reason', async () => {
    await tab.run(async () => {
      await stage.showDocument('held: may take over');
      document.querySelector<HTMLElement>('#before')!.focus();
    }, null);
    await reach('takeOver');
    await tab.press('Enter');
    expect(await focused()).toBe('reason');
    const without = await tab.run(() => {
      stage.find('button[part~=confirm]').click();
      return [stage.document.asked.length, stage.find('dialog').hasAttribute('open'), stage.focused()];
    }, null);
    expect(without).toEqual([0, true, 'reason']);
    expect(await axe(tab, 'document-lock')).toEqual([]);
    const asked = await tab.run(() => {
      (stage.find('#reason') as HTMLTextAreaElement).value = ' closing time ';
      stage.find('button[part~=confirm]').click();
      return stage.document.asked;
    }, null);
    expect(asked).toEqual([['takeOver', 'closing time']]);
    expect((await focused()).split(' ')).toContain('takeOver');
  });

  check('a draft is shown as text, and given to the page that takes it; otherwise it stays', async () => {
    const seen = await tab.run(async () => {
      await stage.showDocument('mine, with a draft');
      const use = () => {
        stage.find('button[part~=show]').click();
        const text = stage.find('pre').textContent;
        stage.find('button[part~=use]').click();
        return text;
      };
      const text = use();
      const kept = stage.document.asked.length;
      const got: string[] = [];
      addEventListener('use-draft', (event) => {
        got.push((event as CustomEvent<{ text: string }>).detail.text);
        event.preventDefault();
      }, { once: true });
      use();
      return { text, kept, got, asked: stage.document.asked };
    }, null);
    const draft = 'The storm.\nA harbour at night. <b>Rain</b>.';
    expect(seen).toEqual({ text: draft, kept: 0, got: [draft], asked: [['discardDraft']] });
  });

  check('the live regions are there, and empty, from the first render on', async () => {
    const regions = await tab.run(async () => {
      await stage.show('autosave-indicator', 'saved');
      const before = ['status', 'alert'].map((role) => stage.find(`[role=${role}]`));
      const texts = before.map((region) => region.textContent);
      stage.become('error');
      const isSame = before.every((region) => region === stage.find(`[role=${region.getAttribute('role')}]`));
      const hasTime = before.some((region) => region.contains(stage.find('time')));
      return { texts, isSame, hasTime, atomic: before.map((region) => region.getAttribute('aria-atomic')), alert: before[1]!.textContent };
    }, null);
    expect(regions).toEqual({
      texts: ['', ''], isSame: true, hasTime: false, atomic: ['true', 'true'], alert: 'Not saved: the file could not be written.',
    });
  });

  check('"Saving…" is shown after 300 ms, not before', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-indicator', 'dirty');
      stage.become('saving');
      const texts = [stage.texts('[part=text]')[0]];
      for (const ms of [299, 1]) {
        await stage.clock.advance(ms);
        texts.push(stage.texts('[part=text]')[0]);
      }
      // The next save begins anew.
      stage.become('saved');
      stage.become('saving');
      await stage.clock.advance(299);
      return [...texts, stage.texts('[part=text]')[0]];
    }, null);
    expect(seen).toEqual(['Unsaved changes', 'Unsaved changes', 'Saving…', 'Unsaved changes']);
  });

  check('at most one polite announcement in 30 s, whatever happens; an error is an alert at once', async () => {
    const { moments, errors, silent } = await tab.run(async () => {
      await stage.show('autosave-indicator', 'saved: nothing yet');
      const names = Object.keys(stage.SNAPSHOTS);
      const moments: number[] = [];
      const status = stage.find('[role=status]');
      new MutationObserver(() => { if (status.textContent) moments.push(stage.clock.monotonic()); }).observe(status, { childList: true });
      let [seed, errors, silent] = [7, 0, 0];
      const next = (below: number) => { seed = (seed * 48_271) % 2_147_483_647; return seed % below; };
      for (let number = 1; number <= 250; number += 1) {
        const name = names[next(names.length)]!;
        const last = stage.store.getSnapshot();
        const snapshot = stage.SNAPSHOTS[name]!;
        const notice = snapshot.notice && { ...snapshot.notice, number };
        stage.become({ ...snapshot, notice, savedAt: stage.clock.now() });
        if (snapshot.state.kind === 'error' && last.state.kind !== 'error') {
          errors += 1;
          if (!stage.find('[role=alert]').textContent!.startsWith('Not saved')) silent += 1;
        }
        await stage.clock.advance(next(9_000));
      }
      return { moments, errors, silent };
    }, null);
    const gaps = moments.slice(1).map((at, before) => at - moments[before]!);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(30_000);
    expect(gaps.length).toBeGreaterThan(10);
    expect(errors).toBeGreaterThan(5);
    expect(silent).toBe(0);
  });

  check('ten minutes of typing, saved every five seconds, are announced once', async () => {
    const heard = await tab.run(async () => {
      await stage.show('autosave-indicator', 'saved: nothing yet');
      const heard = stage.listen('status');
      for (let save = 0; save < 120; save += 1) {
        const savedAt = stage.store.getSnapshot().savedAt;
        stage.become(stage.snapshotOf({ kind: 'dirty' }, { savedAt }));
        stage.become(stage.snapshotOf({ kind: 'saving' }, { savedAt }));
        stage.become(stage.snapshotOf({ kind: 'saved', at: stage.clock.now() }, { savedAt: stage.clock.now() }));
        await stage.clock.advance(5_000);
      }
      return heard;
    }, null);
    expect(heard).toEqual(['Saved']);
  });

  check('a draft that waits is shown, in either language', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-indicator', 'saved, with a draft');
      const english = stage.texts('[part=detail]')[0];
      stage.element.setAttribute('lang', 'ja');
      const japanese = stage.texts('[part=detail]')[0];
      stage.become('saved');
      return [english, japanese, stage.texts('[part=detail]')[0]];
    }, null);
    expect(seen).toEqual(['There is a draft.', '下書きがあります。', '']);
  });

  check('read-only: try again and ask are passed on, once, and what came of them is told', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-indicator', 'readonly');
      let go = () => {};
      stage.store.answer = () => new Promise<void>((resolve) => { go = resolve; });
      const press = (action: string) => stage.find(`[data-name=${action}]`).click();
      press('ask');
      press('ask');
      press('retry');
      const meanwhile = [stage.texts('[part=text]')[0], stage.find('[data-name=ask]').getAttribute('aria-disabled')];
      go();
      await stage.settle();
      const after = [stage.texts('[part=text]')[0], stage.texts('[part=toast-text]')[0]];
      press('retry');
      stage.become('saved');
      go();
      await stage.settle();
      return { meanwhile, after, asked: stage.store.asked, last: stage.texts('[part=text]')[0], buttons: stage.texts('[part=actions] button') };
    }, null);
    expect(seen).toEqual({
      meanwhile: ['Asked the other tab…', 'true'],
      after: ['Another tab is editing (Ann)', 'The other tab did not hand over.'],
      asked: [['ask'], ['retry']], last: 'Saved', buttons: [],
    });
  });

  check('a take-over by keyboard: confirmed first, and once more where clocks disagree', async () => {
    await tab.run(async () => {
      await stage.show('autosave-indicator', 'readonly');
      document.querySelector<HTMLElement>('#before')!.focus();
      stage.store.answer = (_, options) => {
        const isAccepted = (options as { acceptClockSkew?: boolean } | undefined)?.acceptClockSkew;
        stage.become(isAccepted ? 'saved' : 'readonly: clock skew');
      };
    }, null);
    await reach('takeOver');
    await tab.press('Enter');
    expect(await focused()).toContain('cancel');
    expect(await axe(tab)).toEqual([]);
    await tab.press('Escape');
    expect(await focused()).toContain('takeOver');
    expect(await tab.run(() => stage.store.asked, null)).toEqual([]);

    await tab.press('Enter');
    await reach('confirm');
    await tab.press('Enter');
    await tab.run(() => stage.settle(), null);
    expect(await tab.run(() => [stage.store.asked, stage.texts('h2')], null)).toEqual([[['takeOver', { seen: 7 }]], ['Is the other tab really gone?']]);
    expect(await focused()).toContain('cancel');
    await tab.press('Enter');
    expect(await tab.run(() => stage.store.asked.length, null)).toBe(1);

    // Pressed again, the warning comes first.
    await tab.press('Enter');
    expect(await tab.run(() => stage.texts('h2'), null)).toEqual(['Is the other tab really gone?']);
    await reach('confirm');
    await tab.press('Enter');
    await tab.run(() => stage.settle(), null);
    expect(await tab.run(() => stage.store.asked[1], null)).toEqual(['takeOver', { seen: 7, acceptClockSkew: true }]);
    // Its button is gone, and the focus is still in the element.
    expect(await focused()).toBe('base');
  });

  check('a dialog closes when its reason is gone', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-indicator', 'readonly: not released');
      const isOpen = () => stage.find('dialog').hasAttribute('open');
      stage.find('[data-name=steps]').click();
      const steps = stage.texts('[part=dialog-text]')[0];
      const before = isOpen();
      stage.become('readonly');
      const then = isOpen();
      stage.find('[data-name=takeOver]').click();
      const again = isOpen();
      stage.become('saved');
      return { steps, open: [before, then, again, isOpen()] };
    }, null);
    expect(seen.open).toEqual([true, false, true, false]);
    expect(seen.steps).toContain('delete the file `.lock`');
  });

  check('another tab asks: the time runs, and the answer is passed on', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-indicator', 'saved');
      const alerts = stage.listen('alert');
      stage.become('another tab asks');
      const details = [stage.texts('[part=detail]')[0]];
      await stage.clock.advance(8_500);
      details.push(stage.texts('[part=detail]')[0]);
      stage.find('[data-name=refuse]').click();
      await stage.settle();
      stage.find('[data-name=handOver]').click();
      await stage.settle();
      stage.become('saved');
      return { alerts, details, asked: stage.store.asked, detail: stage.texts('[part=detail]')[0] };
    }, null);
    expect(seen).toEqual({
      alerts: ['Another tab (Ann) asks to edit: the title is wrong'],
      details: ['Refused in 10 s without an answer.', 'Refused in 2 s without an answer.'],
      asked: [['refuse'], ['handOver']], detail: '',
    });
  });

  check('a toast goes after 8 s, but not while it has the focus; old notices are not shown', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-indicator', 'saved');
      const isShown = () => !stage.find('[part=toast]').hidden;
      stage.become('notice: history dropped');
      const text = stage.texts('[part=toast-text]')[0];
      await stage.clock.advance(7_999);
      stage.find('[part~=dismiss]').focus();
      await stage.clock.advance(60_000);
      const shown = [isShown()];
      stage.find('[part~=dismiss]').click();
      shown.push(isShown());
      const focused = stage.focused();
      const old = stage.SNAPSHOTS['notice: recovered']!;
      await stage.show('autosave-indicator', { ...old, notice: { ...old.notice!, at: stage.AT - 10_000 } });
      shown.push(isShown());
      await stage.show('autosave-indicator', old);
      shown.push(isShown());
      await stage.clock.advance(8_000);
      return { text, focused, shown: [...shown, isShown()] };
    }, null);
    expect(seen).toEqual({ text: '4 old versions were removed to make space.', focused: 'base', shown: [true, false, false, true, false] });
  });

  check('the language is that of the nearest lang, and follows it', async () => {
    const seen = await tab.run(async () => {
      const text = () => `${stage.texts('[part=text]')[0]} ${stage.find('[part=base]').lang}`;
      const seen: string[] = [];
      await stage.show('autosave-indicator', 'releasing', { lang: 'ja-JP' });
      seen.push(text());
      stage.element.removeAttribute('lang');
      seen.push(text());
      document.documentElement.lang = 'ja';
      await stage.settle();
      seen.push(text());
      document.documentElement.lang = 'de';
      await stage.settle();
      seen.push(text());
      document.documentElement.lang = 'en';
      await stage.show('autosave-indicator', 'readonly', { lang: 'ja' });
      return [...seen, text()];
    }, null);
    expect(seen).toEqual(['解放中... ja', 'Releasing... en', '解放中... ja', 'Releasing... en', '別タブが編集中（Ann） ja']);
  });

  check('properties that were set before registration count, and nothing stays behind a removed element', async () => {
    const seen = await tab.run(async () => {
      const store = new stage.FixtureStore(stage.SNAPSHOTS['saved']!);
      const early = Object.assign(document.createElement('early-indicator'), { autosave: store });
      document.body.append(early);
      customElements.define('early-indicator', class extends stage.elements.AutoSaveIndicatorElement {});
      const text = early.shadowRoot?.querySelector('[part=text]')?.textContent;
      const listeners = [store.listeners];
      early.remove();
      listeners.push(store.listeners);
      // As React's StrictMode does.
      document.body.append(early);
      early.remove();
      document.body.append(early);
      listeners.push(store.listeners);
      (early as unknown as { autosave: null }).autosave = null;
      listeners.push(store.listeners);
      early.remove();
      await stage.show('autosave-indicator', 'dirty');
      stage.become('saving');
      stage.element.remove();
      await stage.clock.advance(60_000);
      return { text, listeners, after: stage.find('[part=text]').textContent };
    }, null);
    expect(seen).toEqual({ text: 'Saved', listeners: [1, 0, 1, 0], after: 'Unsaved changes' });
  });

  check('parts and custom properties style it', async () => {
    const seen = await tab.run(async () => {
      const style = document.createElement('style');
      style.textContent = `autosave-indicator { --autosave-good: rgb(1, 2, 3) } autosave-indicator::part(text) { color: rgb(4, 5, 6) }
        autosave-indicator::part(retry) { color: rgb(7, 8, 9) }`;
      document.head.append(style);
      await stage.show('autosave-indicator', 'saved');
      const colour = (part: string) => getComputedStyle(stage.find(`[part~=${part}]`)).color;
      const seen = [colour('icon'), colour('text')];
      stage.become('error');
      seen.push(colour('retry'));
      style.remove();
      return seen;
    }, null);
    expect(seen).toEqual(['rgb(1, 2, 3)', 'rgb(4, 5, 6)', 'rgb(7, 8, 9)']);
  });

  // There is no command for it in Firefox.
  if (kind === 'chromium') check('nothing turns for users who prefer reduced motion', async () => {
    const animation = () => tab.run(async () => {
      await stage.show('autosave-indicator', 'releasing');
      return getComputedStyle(stage.find('svg')).animationName;
    }, null);
    expect(await animation()).toBe('turn');
    await tab.reduceMotion();
    expect(await animation()).toBe('none');
  });

  check('a strict Content-Security-Policy with Trusted Types: styled all the same', async () => {
    const seen = await visit(strict.page('strict', 'tests/browsers/elements.html'), () => tab.run(async () => {
      await stage.show('autosave-indicator', 'readonly');
      const display = getComputedStyle(stage.find('[part=base]')).display;
      await stage.show('autosave-history', 'saved', { inline: '' });
      return [display, stage.texts('tbody tr').length];
    }, null));
    expect(seen).toEqual(['flex', 5]);
  });

  check('the history by keyboard: opened, looked at, restored, undone, closed', async () => {
    await tab.run(async () => {
      await stage.show('autosave-history', 'saved');
      document.querySelector<HTMLElement>('#before')!.focus();
      stage.store.answer = (name, ts) => {
        const notice = { number: 1, at: stage.AT, kind: 'restored', ts: String(ts), before: 'the present' } as const;
        if (name === 'restore') stage.become(stage.snapshotOf({ kind: 'saved', at: stage.AT }, { notice }));
      };
    }, null);
    const settle = () => tab.run(() => stage.settle(), null);
    await reach('open');
    await tab.press('Enter');
    await settle();
    expect(await focused()).toBe('title');
    expect(await tab.run(() => [stage.texts('th[scope=col]'), stage.texts('tbody tr:nth-child(3) > *')], null)).toEqual([
      ['Time', 'Size', 'Difference', 'Action'], [expect.stringMatching(/^Nov 16,\s\d\d:40:02$/), '48 kB', '−223 bytes', 'Preview'],
    ]);
    expect(await axe(tab)).toEqual([]);

    await reach('preview');
    await reach('preview');
    await tab.press('Enter');
    await settle();
    expect(await focused()).toBe('title');
    expect(await tab.run(() => [stage.find('pre').textContent, stage.find('pre').children.length], null)).toEqual([expect.stringContaining('<b>Ann</b> &'), 0]);
    expect(await axe(tab)).toEqual([]);
    await reach('restore');
    await tab.press('Enter');
    await settle();
    expect(await tab.run(() => stage.texts('[role=status]')[0], null)).toMatch(/^Restored the version of Nov 16, 2026, \d\d:41:02\.$/);
    expect(await focused()).toContain('undo');
    await tab.press('Enter');
    await settle();
    expect(await tab.run(() => stage.texts('[role=status]')[0], null)).toBe('Restoring was undone.');
    expect(await tab.run(() => stage.store.asked.filter(([name]) => name === 'restore'), null)).toEqual([['restore', expect.stringContaining(':41:02')], ['restore', 'the present']]);
    await tab.press('Escape');
    expect(await focused()).toContain('open');
  });

  check('the history: empty, failed and tried again, gone, not restored, read-only', async () => {
    const seen = await tab.run(async () => {
      const seen: Record<string, unknown> = {};
      const texts = (selector: string) => stage.texts(selector).join();
      await stage.show('autosave-history', 'saved');
      stage.store.entries = [];
      stage.find('[part~=open]').click();
      await stage.settle();
      seen['empty'] = texts('[part=empty]');
      stage.element.setAttribute('lang', 'ja');
      seen['ja'] = texts('[part=empty]');

      await stage.show('autosave-history', 'saved', { inline: '' });
      stage.store.answer = () => Promise.reject(new Error('no'));
      stage.store.become(stage.snapshotOf({ kind: 'saved', at: stage.AT + 1 }, { savedAt: stage.AT + 1 }));
      await stage.settle();
      seen['failed'] = stage.find('[part=body] [role=alert]').textContent;
      stage.store.answer = () => undefined;
      stage.find('[part~=retry]').click();
      await stage.settle();
      seen['again'] = stage.texts('tbody tr').length;

      stage.store.answer = (name) => (name === 'preview' ? null : undefined);
      stage.find('tbody tr:nth-child(2) button').click();
      await stage.settle();
      seen['gone'] = texts('[part=error]');
      stage.store.answer = (name) => (name === 'restore' ? false : undefined);
      stage.find('tbody tr:nth-child(2) button').click();
      await stage.settle();
      stage.find('[part~=restore]').click();
      await stage.settle();
      seen['not restored'] = texts('[part=error]');
      // Back to the list while the autosave restores: what comes of it is told there.
      let go = (_: boolean) => {};
      stage.store.answer = (name) => (name === 'restore' ? new Promise<boolean>((resolve) => { go = resolve; }) : undefined);
      stage.find('[part~=restore]').click();
      stage.find('[part~=back]').click();
      await stage.settle();
      go(true);
      await stage.settle();
      seen['late'] = texts('[role=status]').startsWith('Restored the version of');
      // What was restored comes into the history when it is saved: without this, the list called another version the current one.
      stage.store.entries = stage.ENTRIES.slice(0, 2);
      stage.become(stage.snapshotOf({ kind: 'saved', at: stage.AT + 2 }, { savedAt: stage.AT + 2 }));
      await stage.settle();
      seen['then'] = stage.texts('tbody tr').length;
      stage.find('tbody tr:nth-child(2) button').click();
      await stage.settle();
      stage.become('readonly');
      stage.find('[part~=restore]').click();
      await stage.settle();
      seen['read-only'] = [texts('[part=hint]'), stage.store.asked.filter(([name]) => name === 'restore').length];
      return seen;
    }, null);
    expect(seen).toEqual({
      empty: 'There are no saved versions yet.', ja: '保存履歴はまだありません。', failed: 'The saved versions could not be read.',
      again: 5, gone: 'This version is no longer there.', 'not restored': 'The version could not be restored. Nothing was changed.',
      'read-only': ['Restoring is not possible while the project is read-only.', 2], late: true, then: 2,
    });
  });

  check('a save while the history is open: the list is new, the focus stays; late answers are not shown', async () => {
    const seen = await tab.run(async () => {
      await stage.show('autosave-history', 'saved');
      stage.find('[part~=open]').click();
      await stage.settle();
      const name = stage.ENTRIES[1]!.ts;
      stage.find(`[data-name="look ${name}"]`).focus();
      stage.store.entries = [{ ts: new Date(stage.AT + 1_000).toISOString(), bytes: 5, difference: 0, isCurrent: true }, ...stage.ENTRIES];
      stage.become(stage.snapshotOf({ kind: 'saved', at: stage.AT + 1_000 }, { savedAt: stage.AT + 1_000 }));
      await stage.settle();
      const list = [stage.texts('tbody tr').length, stage.element.shadowRoot!.activeElement?.getAttribute('data-name') === `look ${name}`];

      // Two previews are asked for, and the first one answers last.
      const answers: ((text: string) => void)[] = [];
      stage.store.answer = (name) => (name === 'preview' ? new Promise((resolve) => answers.push(resolve)) : undefined);
      stage.find('tbody tr:nth-child(2) button').click();
      stage.find('tbody tr:nth-child(3) button').click();
      answers[1]!('second');
      await stage.settle();
      answers[0]!('first');
      await stage.settle();
      const text = stage.find('pre').textContent;
      // Closed and opened at once: the list is there.
      const history = stage.element as InstanceType<typeof stage.elements.AutoSaveHistoryElement>;
      history.close();
      history.show();
      await stage.settle();
      await stage.settle();
      return [...list, text, stage.texts('tbody tr').length];
    }, null);
    expect(seen).toEqual([6, true, 'second', 6]);
  });
});
