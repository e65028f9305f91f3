// A page that is made of the first lines of the guide alone, as they stand there: the import is pointed to the built package,
// and an editor is put around them.

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TestServer } from './server.js';
import type { Tab } from './browsers.js';

const web = fileURLToPath(new URL('../..', import.meta.url));

declare global {
  var app: {
    editor: { text: string; readOnly: boolean; shown: string; drafts: { id: string; path: string; data: string; at: number }[] };
    leasehold: typeof import('../../src/index.js');
    save(): Promise<void>;
    /** What became of the lines, where they come to an end. */
    result?: string;
    /** Whether the page came back from the back/forward cache. */
    wasKept: boolean;
    /** What the page asked to be saved or kept, and what became of it. */
    commits: { data: string; result: string }[];
  };
}

/** The first lines of code on a page of the documentation. */
export function firstLines(page: string): string {
  return /```js\n(.*?)```/s.exec(readFileSync(join(web, page), 'utf8'))?.[1] ?? '';
}

// Between the lines and the package: what it was asked to save is written down, and nothing else.
const PACKAGE = `
export * from './dist/index.js';
import * as leasehold from './dist/index.js';
const commits = [];
export const commitProjectFile = (commit) => {
  const entry = { data: commit.data, result: 'open' };
  commits.push(entry);
  const done = leasehold.commitProjectFile(commit);
  done.then(() => { entry.result = 'saved'; }, (error) => { entry.result = error.code ?? String(error); });
  return done;
};
export const keepProjectDraft = async (draft) => {
  await leasehold.keepProjectDraft(draft);
  commits.push({ data: draft.data, result: 'kept' });
};
export { commits, leasehold };
`;

const EDITOR = `
import { commits, leasehold } from './package.js';
const editor = { text: '', readOnly: true, shown: '', drafts: [], show(text) { this.shown = text; }, offer(drafts) { this.drafts = drafts; } };
addEventListener('pageshow', (event) => { globalThis.app.wasKept = event.persisted; });
globalThis.app = globalThis.tab = { editor, leasehold, commits, wasKept: false, save: () => save() };
`;

/** Serves a page that is made of these lines, with this before them and that after. */
export async function serveGuide(lines: string, before = EDITOR, after = ''): Promise<TestServer & { remove(): Promise<void> }> {
  const root = mkdtempSync(join(tmpdir(), 'leasehold-guide-'));
  cpSync(join(web, 'dist'), join(root, 'dist'), { recursive: true });
  mkdirSync(join(root, 'away'));
  writeFileSync(join(root, 'away/index.html'), '<!doctype html><title>elsewhere</title>');
  writeFileSync(join(root, 'index.html'), '<!doctype html><meta charset="utf-8"><script type="module" src="./app.js"></script>');
  writeFileSync(join(root, 'package.js'), PACKAGE);
  writeFileSync(join(root, 'app.js'), before + lines.replace("'leasehold'", "'./package.js'") + after);
  const server = await TestServer.start({ root });
  return Object.assign(server, {
    remove: async () => {
      await server.stop();
      rmSync(root, { recursive: true, force: true });
    },
  });
}

/** Waits until the user may type. */
export async function mayEdit(tab: Tab): Promise<void> {
  await tab.run(async () => {
    while (globalThis.app?.editor.readOnly !== false) await new Promise((resolve) => { setTimeout(resolve, 10); });
  }, null);
}

/** Waits until the page shows this text. */
export async function shows(tab: Tab, text: string): Promise<void> {
  await tab.run(async (text) => {
    while (globalThis.app?.editor.text !== text) await new Promise((resolve) => { setTimeout(resolve, 10); });
  }, text);
}

/** Types this, as a user does who may; and saves it, or does not. */
export async function type(tab: Tab, text: string, saves = true): Promise<void> {
  await mayEdit(tab);
  await tab.run(async ({ text, saves }) => {
    globalThis.app.editor.text = text;
    if (saves) await globalThis.app.save();
  }, { text, saves });
}

/** What is in the file. */
export function inFile(tab: Tab): Promise<string> {
  return tab.run(async () => {
    const project = await (await navigator.storage.getDirectory()).getDirectoryHandle('project');
    const file = await (await project.getDirectoryHandle('autosave')).getFileHandle('current.json');
    return (await file.getFile()).text();
  }, null);
}

/** Waits until the page offers these drafts to the user. */
export async function offers(tab: Tab, drafts: string[]): Promise<void> {
  await tab.run(async (wanted) => {
    const offered = () => JSON.stringify(globalThis.app?.editor.drafts.map(({ data }) => data));
    while (offered() !== wanted) await new Promise((resolve) => { setTimeout(resolve, 10); });
  }, JSON.stringify(drafts));
}
