// The commands of the package, installed by npm into an empty folder, with the one line that docs/rollout.md prints for the
// application's package.json. The program that they call is a double which says what it was asked.

import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test, vi } from 'vitest';
import { install } from './archive.js';

// npm takes its time on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const guide = readFileSync(fileURLToPath(new URL('../../docs/rollout.md', import.meta.url)), 'utf8');
const app = mkdtempSync(join(tmpdir(), 'leasehold-app-'));
afterAll(() => rmSync(app, { recursive: true }));

install(app);
const manifest = JSON.parse(readFileSync(join(app, 'package.json'), 'utf8'));
const line = /^ *("scripts": .*\})$/m.exec(guide)?.[1] ?? '';
writeFileSync(join(app, 'package.json'), JSON.stringify({ ...manifest, ...JSON.parse(`{${line}}`) }));
const programs = join(app, 'programs');
mkdirSync(programs);
writeFileSync(join(programs, 'leasehold'), '#!/bin/sh\necho "called with: $*"\nexit 3\n');
chmodSync(join(programs, 'leasehold'), 0o755);

function run(command: string, args: string[], path = `${programs}${delimiter}${process.env.PATH}`) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: app, encoding: 'utf8', env: { ...process.env, PATH: path } });
  return { status, stdout, stderr };
}

test('npm run flags:rollback -- --phase PREV', () => {
  const { status, stdout } = run('npm', ['run', '--silent', 'flags:rollback', '--', '--phase', 'PREV']);
  expect([status, stdout.trim()]).toEqual([3, 'called with: flags rollback --phase PREV']);
});

test('collect-metrics --window=15m, by itself and as a script', () => {
  const called = [3, 'called with: telemetry report --window=15m'];
  const bare = run(join(app, 'node_modules/.bin/collect-metrics'), ['--window=15m']);
  expect([bare.status, bare.stdout.trim()]).toEqual(called);
  const script = run('npm', ['run', '--silent', 'collect-metrics', '--', '--window=15m']);
  expect([script.status, script.stdout.trim()]).toEqual(called);
});

test('without the program it says what to do', () => {
  const node = join(process.execPath, '..');
  const { status, stderr } = run(process.execPath, [join(app, 'node_modules/leasehold/bin/leasehold-flags.mjs'), 'show'], node);
  expect(status).toBe(127);
  expect(stderr).toContain('it is not installed here, or not on the PATH');
  expect(stderr).toContain('LEASEHOLD_PROGRAM=');
});
