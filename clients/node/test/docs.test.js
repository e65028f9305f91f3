// The code of docs/worker.md, as it stands there.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Jobs } from '../index.js';
import { startServer } from './support.js';

const here = path.dirname(fileURLToPath(import.meta.url));
let server;
let folder;

before(async () => {
  server = await startServer();
  folder = await mkdtemp(path.join(tmpdir(), 'leasehold-'));
  await mkdir(path.join(folder, 'node_modules'));
  await symlink(path.join(here, '..'), path.join(folder, 'node_modules/leasehold-jobs'));
  const page = await readFile(path.join(here, '../../../docs/worker.md'), 'utf8');
  const [, code] = page.match(/^```javascript\n(\/\/ handler\.mjs\n[^]*?)^```$/m);
  await writeFile(path.join(folder, 'handler.mjs'), code);
});
after(async () => {
  await server.end();
  await rm(folder, { recursive: true });
});

// Tasks that make no sense. The handlers crashed on some, and ran a job `analyses/undefined` for others.
const nonsense = [
  'nonsense', '', '[]', '"x"', 'null', '7', '{}', '{"analysisId": "42"}', '{"payload": {"pages": 3}}',
  '{"analysisId": 42, "payload": {"pages": 3}}', '{"analysisId": null, "payload": {"pages": 3}}',
  '{"analysisId": "", "payload": {"pages": 3}}', '{"analysisId": "a/b", "payload": {"pages": 3}}',
  '{"analysisId": "..", "payload": {"pages": 3}}', '{"analysisId": "42", "payload": null}',
  '{"analysisId": "42", "payload": []}', '{"analysisId": "42", "payload": {"pages": "3"}}',
];

for (const [onLocked, expected] of [['', 503], ['skip', 200]]) {
  test(`the handler behind Cloud Tasks, ON_LOCKED=${onLocked}`, async (t) => {
    const env = { ...process.env, LEASEHOLD_URL: server.url, LEASEHOLD_TOKEN: server.tokens['user-a'], PORT: '0', ON_LOCKED: onLocked };
    const child = spawn(process.execPath, ['handler.mjs'], { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] });
    t.after(() => child.kill());
    const [url] = await once(createInterface({ input: child.stdout }), 'line');
    const post = async (body) => {
      const answer = await fetch(url, { method: 'POST', body });
      return [answer.status, await answer.json(), answer.headers.get('retry-after')];
    };
    const task = (analysisId, pages) => JSON.stringify({ analysisId, payload: { pages } });
    const id = randomUUID();
    assert.deepEqual(await post(task(id, 3)), [200, { outcome: 'done', result: { pages: 3 } }, null]);
    assert.deepEqual(await post(task(id, 3)), [200, { outcome: 'already_finished', result: { pages: 3 } }, null]);
    assert.equal((await post(task(id, 4)))[0], 400);
    for (const body of nonsense) assert.equal((await post(body))[0], 400, body);
    const locked = randomUUID();
    const jobs = new Jobs(server.url, server.tokens['user-a']);
    await jobs.create(`analyses/${locked}`, { pages: 3 });
    const attempt = await jobs.acquire(`analyses/${locked}`);
    assert.deepEqual(await post(task(locked, 3)), [expected, { outcome: 'locked' }, expected === 503 ? '10' : null]);
    await attempt.release();
  });
}
