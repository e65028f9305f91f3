// Workers in Node against a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

import {
  AnalysisLocks,
  Inexact,
  Invalid,
  JobDiffers,
  JobRunning,
  Jobs,
  JsonText,
  LeaseLost,
  NoSuchJob,
  NotAllowed,
  NotRetryable,
  Unauthenticated,
  Unavailable,
} from '../index.js';
import { Clock } from '../lib/http.js';
import { Proxy, startFake, startServer, until } from './support.js';

const quiet = { warn: () => {} };
let server;
let jobs;
let other;

before(async () => {
  server = await startServer();
  jobs = new Jobs(server.url, server.tokens['user-a'], { worker: 'w1', ...quiet });
  other = new Jobs(server.url, server.tokens['user-b'], { worker: 'w2', ...quiet });
});
after(() => server.end());

const newId = () => `analyses/${randomUUID()}`;

/** A queued job, and jobs behind a network that can be cut. */
async function behindProxy(t, warn = () => {}) {
  const proxy = await Proxy.to(server.port);
  t.after(() => proxy.end());
  return { proxy, cutOff: new Jobs(proxy.url, server.tokens['user-a'], { worker: 'w1', warn }) };
}

async function fake(t, answer) {
  return new Jobs(await startFake(t, answer), undefined, quiet);
}

/** What a server answers to somebody who gets a job. */
function granted(leaseId, times) {
  const answer = { acquired: true, lease_id: leaseId, fence: 1, attempt: 1, recovered: false, payload: null };
  return [200, {}, JSON.stringify({ ...answer, ...times })];
}

async function queued(payload, options) {
  const id = newId();
  assert.equal(await jobs.create(id, payload, options), true);
  return id;
}

async function acquired(from, id, options) {
  const attempt = await from.acquire(id, options);
  assert.equal(attempt.acquired, true, JSON.stringify(attempt));
  return attempt;
}

// --- Job lock: tests (docs/sources.md) ---

test('the first acquire succeeds', async () => {
  const id = await queued({ page: 7 });
  const attempt = await acquired(jobs, id);
  assert.deepEqual([attempt.payload, attempt.attempt, attempt.recovered], [{ page: 7 }, 1, false]);
  assert.ok(attempt.timeLeftMs() > 269_000 && attempt.timeLeftMs() <= 270_000);
  assert.ok(!JSON.stringify(attempt).includes('lease'), 'the lease id does not show');
  await attempt.release();
});

test('of two at once one succeeds', async () => {
  const id = await queued();
  const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => jobs.acquire(id, { worker: `w${n}` })));
  const winners = answers.filter((answer) => answer.acquired);
  assert.equal(winners.length, 1);
  assert.deepEqual(new Set(answers.filter((answer) => !answer.acquired).map((answer) => answer.reason)), new Set(['locked']));
  await winners[0].release();
});

test('after the ttl it is acquired again, and the recovery is visible', async (t) => {
  const id = await queued();
  const { proxy, cutOff } = await behindProxy(t);
  const first = await acquired(cutOff, id, { ttl: 1 });
  proxy.cut();
  let second;
  await until(async () => (second = await other.acquire(id)).acquired);
  assert.equal(first.signal.aborted, true, 'it was told before anybody else could begin');
  assert.equal(second.recovered, true);
  assert.ok(second.fence > first.fence);
  await second.release();
});

test('ready and failed are never acquired', async () => {
  const id = await queued();
  await (await acquired(jobs, id)).complete([1, 2]);
  const ready = await other.acquire(id);
  assert.deepEqual([ready.acquired, ready.reason, ready.status, ready.result], [false, 'already_finished', 'READY', [1, 2]]);
  const second = await queued();
  assert.equal(await (await acquired(jobs, second)).fail('no such page', false), false);
  const failed = await other.acquire(second);
  assert.deepEqual([failed.reason, failed.status, failed.error], ['already_finished', 'FAILED', 'no such page']);
});

test('a foreign release changes nothing, and the three functions have their own names', async () => {
  const id = await queued();
  const name = id.split('/')[1];
  const locks = new AnalysisLocks(jobs);
  assert.deepEqual(await locks.acquireAnalysisLock(name, 'w1'), { acquired: true });
  assert.deepEqual(await locks.acquireAnalysisLock(name, 'w2', 300), { acquired: false, reason: 'locked' });
  await locks.releaseAnalysisLock(name, 'w2');
  await new AnalysisLocks(other).releaseAnalysisLock(name, 'w1');
  await assert.rejects(locks.refreshAnalysisLock(name, 'w2'), LeaseLost);
  await locks.refreshAnalysisLock(name, 'w1', 600);
  assert.ok(locks.attempt(name, 'w1').timeLeftMs() > 500_000);
  assert.equal((await other.look(id)).status, 'RUNNING');
  await locks.releaseAnalysisLock(name, 'w1');
  assert.equal((await locks.acquireAnalysisLock(name, 'w3')).acquired, true);
  await locks.releaseAnalysisLock(name, 'w3');
  await assert.rejects(locks.acquireAnalysisLock('absent', 'w1'), NoSuchJob);
});

// It was refreshed in the background, so that a worker that hung kept its lock for ever.
test('an analysis lock is refreshed only when that is called, and says when it is lost', async () => {
  const id = await queued();
  const name = id.split('/')[1];
  const locks = new AnalysisLocks(jobs);
  await locks.acquireAnalysisLock(name, 'w1', 2);
  assert.equal(locks.isLost(name, 'w1'), false);
  const { signal } = locks.attempt(name, 'w1');
  if (!signal.aborted) await once(signal, 'abort');
  assert.equal(locks.isLost(name, 'w1'), true);
  await until(async () => (await locks.acquireAnalysisLock(name, 'w2')).acquired);
  await locks.releaseAnalysisLock(name, 'w2');
});

test('releasing what is not held here is a warning', async () => {
  const warnings = [];
  await new AnalysisLocks(new Jobs(server.url, 'x', { warn: (text) => warnings.push(text) })).releaseAnalysisLock('42', 'w1');
  assert.deepEqual(warnings, ['there is no lock on 42 by w1 to release']);
});

// --- attempts ---

test('an attempt refreshes itself', async () => {
  const id = await queued();
  const attempt = await acquired(jobs, id, { ttl: 3 });
  const end = Date.now() + 4_000;
  while (Date.now() < end) {
    assert.equal(attempt.check(), attempt.fence);
    assert.equal((await other.acquire(id)).reason, 'locked');
    await sleep(200);
  }
  await attempt.complete();
  assert.equal((await other.look(id)).result, null);
});

test('a lost lease is told, and a late word is refused', async (t) => {
  const id = await queued();
  const { proxy, cutOff } = await behindProxy(t);
  const told = [];
  const first = await acquired(cutOff, id, { ttl: 3, onLost: (attempt) => told.push(attempt.id) });
  proxy.cut();
  await until(() => first.signal.aborted);
  assert.ok(first.signal.reason instanceof LeaseLost);
  assert.deepEqual([first.signal.reason.because, told, first.isHeld()], ['deadline', [id], false]);
  assert.throws(() => first.check(), LeaseLost);
  await until(async () => (await jobs.look(id)).status === 'QUEUED');
  const second = await acquired(other, id);
  proxy.heal();
  await assert.rejects(first.complete('late'), (error) => error.because === 'expired' && error.held.name === 'w2');
  await second.complete('in time');
  assert.equal((await jobs.look(id)).result, 'in time');
});

test('a short break is survived', async (t) => {
  const id = await queued();
  const { proxy, cutOff } = await behindProxy(t);
  const attempt = await acquired(cutOff, id, { ttl: 5 });
  proxy.cut();
  await until(() => attempt.timeLeftMs() < 2_500);
  proxy.heal();
  await until(() => attempt.timeLeftMs() > 3_000);
  assert.equal(attempt.signal.aborted, false);
  await attempt.release();
});

test('calls whose answers got lost are repeated and lead to one attempt', async (t) => {
  const id = newId();
  const { proxy, cutOff } = await behindProxy(t);
  proxy.swallowAnswers(2);
  await cutOff.create(id, 1);
  proxy.swallowAnswers(2);
  const attempt = await acquired(cutOff, id);
  assert.equal(attempt.attempt, 1);
  proxy.swallowAnswers(2);
  await attempt.complete('once');
  const { status, result, attempts } = await other.look(id);
  assert.deepEqual([status, result, attempts], ['READY', 'once', 1]);
});

test('a release that fails is only a warning', async (t) => {
  const id = await queued();
  const warnings = [];
  const { proxy, cutOff } = await behindProxy(t, (text) => warnings.push(text));
  const attempt = await acquired(cutOff, id);
  proxy.cut();
  await attempt.release();
  assert.match(warnings.at(-1), /could not be given back/);
  assert.doesNotMatch(warnings.join(), /[0-9a-f]{8}-[0-9a-f]{4}-4.*[0-9a-f]{8}-[0-9a-f]{4}-4/, 'no lease id');
});

// A worker that called `refresh()` after its deadline was told nothing, went on with work that was not its own any more, and kept
// everybody else out for another TTL.
test('what is lost is not refreshed', async (t) => {
  const asked = [];
  const jobs = await fake(t, (path, body) => {
    asked.push(path.split('/').at(-1));
    return granted(body.lease_id, { refresh_after_ms: 60_000, stop_after_ms: 50 });
  });
  const attempt = await jobs.acquire(newId());
  await until(() => attempt.signal.aborted);
  await assert.rejects(attempt.refresh(), (error) => error instanceof LeaseLost && error.because === 'deadline');
  assert.deepEqual(asked, ['acquire']);
});

// The same worker, with a server that was stopped for a while in the middle of the refresh.
test('an answer to a refresh that comes too late is a loss', async (t) => {
  let lost;
  const isLost = new Promise((resolve) => (lost = resolve));
  const jobs = await fake(t, async (path, body) => {
    if (path.endsWith('/refresh')) await isLost;
    return granted(body.lease_id, { refresh_after_ms: 60_000, stop_after_ms: 300 });
  });
  const attempt = await jobs.acquire(newId(), { onLost: () => lost() });
  await assert.rejects(attempt.refresh(600), (error) => error instanceof LeaseLost && error.because === 'deadline');
  assert.equal(attempt.timeLeftMs(), 0);
});

test('an attempt keeps no program alive', { timeout: 60_000 }, async (t) => {
  const id = await queued();
  const program = `
    import { Jobs } from ${JSON.stringify(new URL('../index.js', import.meta.url).href)};
    const attempt = await new Jobs(process.env.URL_OF_SERVER, process.env.TOKEN).acquire(${JSON.stringify(id)});
    console.log(attempt.acquired);`;
  const env = { ...process.env, URL_OF_SERVER: server.url, TOKEN: server.tokens['user-a'] };
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill());
  const [said] = await once(child.stdout, 'data');
  assert.equal(String(said).trim(), 'true');
  const [code] = await once(child, 'exit');
  assert.equal(code, 0);
});

// --- runs ---

test('what the work comes to is the result and is replayed', async () => {
  const id = await queued({ page: 7 });
  const run = await jobs.run(id, async (attempt) => ({ pages: attempt.payload.page + 1 }));
  assert.deepEqual([run.outcome, run.result, run.finished], ['done', { pages: 8 }, true]);
  const again = await other.run(id, () => assert.fail('it must not run again'));
  assert.deepEqual([again.outcome, again.result, again.finished], ['already_finished', { pages: 8 }, true]);
});

test('an error fails the attempt and is tried again as often as it may', async () => {
  const id = await queued(null, { maxAttempts: 2 });
  const broken = () => {
    throw new Error('no disk');
  };
  for (const again of [true, false]) {
    const run = await jobs.run(id, broken);
    assert.deepEqual([run.outcome, run.error, run.again, run.finished], ['failed', 'no disk', again, !again]);
  }
  assert.equal((await jobs.run(id, broken)).outcome, 'already_finished');
  assert.equal((await jobs.reset(id)).attempts, 0);
  const hopeless = async () => {
    throw new NotRetryable('never');
  };
  assert.equal((await jobs.run(id, hopeless)).again, false);
  assert.equal((await jobs.look(id)).error, 'never');
});

// `run` rejected and never let go: the job was refreshed for as long as the program lived, and nobody could do it. Where it was let
// go, the same work was done again and again for the same refusal.
// 2^70 + 1 and 2^70 + 2 counted as the same payload, and came back as floats.
test('a number that a double does not carry is not rounded', async () => {
  const big = 2n ** 70n + 1n;
  const id = await queued({ n: big, d: new JsonText('0.1000000000000000055511151231257827'), one: 1, text: '"1e400"' });
  const text = `{"d":0.1000000000000000055511151231257827,"n":${big},"one":1,"text":"\\"1e400\\""}`;
  assert.equal(await jobs.create(id, new JsonText(text)), false, 'the same payload');
  await assert.rejects(jobs.create(id, new JsonText(text.replace('425', '426'))), JobDiffers);
  const attempt = await acquired(jobs, id);
  assert.equal(attempt.payloadText, text);
  assert.throws(() => attempt.payload, (error) => error instanceof Inexact && /payloadText/.test(error.message));
  await attempt.complete([big, 1.5]);
  const job = await jobs.look(id);
  assert.equal(job.resultText, `[${big},1.5]`);
  assert.throws(() => job.result, Inexact);
  const run = await jobs.run(id, () => assert.fail());
  assert.deepEqual([run.outcome, run.resultText], ['already_finished', `[${big},1.5]`]);
  assert.throws(() => new JsonText('{'), Invalid);
});

test('a number that a double carries is a number, however it is written', async () => {
  const text = '{"a":[1.10,1e2,-0,0.1,9007199254740992,1.7976931348623157e308],"deep":{"payload":"x, }"},"empty":[]}';
  const id = await queued(new JsonText(text));
  const attempt = await acquired(jobs, id);
  assert.equal(attempt.payloadText, text);
  assert.deepEqual(attempt.payload, JSON.parse(text));
  for (const rounded of ['9007199254740993', '1e400', '0.10000000000000000001', '-1180591620717411303425']) {
    const inner = await queued(new JsonText(`{"a":["\\\\",${rounded}]}`));
    const job = await jobs.look(inner);
    assert.throws(() => job.payload, Inexact, rounded);
  }
  await attempt.release();
});

test('work that reads a number that would be rounded fails for good', async () => {
  const other = await queued({ n: 2n ** 70n + 1n });
  const run = await jobs.run(other, (attempt) => attempt.payload.n);
  assert.deepEqual([run.outcome, run.again], ['failed', false]);
  assert.match(run.error, /payloadText/);
});

test('a collection may be below a document of another', async () => {
  const id = `users/u1/${newId()}`;
  assert.equal(await jobs.create(id, 7), true);
  assert.equal((await jobs.look(id)).id, id);
  await assert.rejects(jobs.look('users/u1/42'), Invalid);
});

// The attempt of an acquire whose answer never came counted, although nobody worked on it.
test('an acquire that is given up, or whose answer never comes, is withdrawn', async (t) => {
  const id = await queued(null, { maxAttempts: 1 });
  const { proxy, cutOff } = await behindProxy(t);
  proxy.swallowAnswers(6);
  await assert.rejects(cutOff.acquire(id), Unavailable);
  await until(async () => (await jobs.look(id)).attempts === 0 && (await jobs.look(id)).status === 'QUEUED');
  const giveUp = new AbortController();
  const acquiring = jobs.acquire(id, { signal: giveUp.signal });
  giveUp.abort();
  await assert.rejects(acquiring, { name: 'AbortError' });
  await assert.rejects(jobs.acquire(id, { signal: giveUp.signal }), { name: 'AbortError' });
  await until(async () => (await jobs.look(id)).status === 'QUEUED');
  const attempt = await acquired(jobs, id);
  assert.equal(attempt.attempt, 1);
  await attempt.release();
});

test('a result that cannot be kept fails the job for good', async () => {
  const circle = {};
  circle.circle = circle;
  for (const result of ['x'.repeat(70_000), { toJSON() { throw new Error('no JSON'); } }, () => {}, Symbol('x'), circle, '\ud800']) {
    const id = await queued();
    const run = await jobs.run(id, () => result);
    assert.deepEqual([run.outcome, run.again, run.finished], ['failed', false, true]);
    assert.match(run.error, /the result cannot be kept/);
    const job = await jobs.look(id);
    assert.deepEqual([job.status, job.error], ['FAILED', run.error]);
  }
});

test('a job whose end nobody heard of is given back', async (t) => {
  const id = await queued();
  const asked = [];
  const jobs = await fake(t, (path, body) => {
    asked.push(path.split('/').at(-1));
    if (path.endsWith('/acquire')) return granted(body.lease_id, { refresh_after_ms: 60_000, stop_after_ms: 120_000 });
    return path.endsWith('/release') ? [204, {}, ''] : [403, {}, '{"code":"not_allowed","title":"no"}'];
  });
  await assert.rejects(jobs.run(id, () => 1), NotAllowed);
  assert.deepEqual(asked, ['acquire', 'complete', 'release']);
});

// An error with a whole page in it was refused, and the attempt was neither failed nor counted.
test('of a very long error the beginning is kept', async () => {
  const id = await queued(null, { maxAttempts: 1 });
  const run = await jobs.run(id, () => {
    throw new Error(`no disk\0${'\x01\ud800😀'.repeat(30_000)}`);
  });
  assert.equal(run.again, false);
  assert.ok((await jobs.look(id)).error.startsWith('no disk\x01\ufffd😀'));
});

test('a lost lease cancels the work', async (t) => {
  const id = await queued();
  const { proxy, cutOff } = await behindProxy(t);
  let told;
  const run = cutOff.run(id, (attempt) => {
    proxy.cut();
    told = once(attempt.signal, 'abort');
    return new Promise(() => {}); // work that looks at nothing
  }, { ttl: 1 });
  await assert.rejects(run, LeaseLost);
  await told;
  await until(async () => (await jobs.look(id)).status === 'QUEUED');
});

test('while somebody works on it, it is locked', async () => {
  const id = await queued();
  const attempt = await acquired(jobs, id);
  const run = await other.run(id, () => {});
  assert.deepEqual([run.outcome, run.held.name, run.finished], ['locked', 'w1', false]);
  await assert.rejects(other.reset(id), (error) => error instanceof JobRunning && error.held.name === 'w1');
  await attempt.complete();
});

// --- errors ---

test('what goes wrong has a name', async () => {
  const id = newId();
  assert.equal(await jobs.look(id), null);
  await assert.rejects(jobs.acquire(id), NoSuchJob);
  await jobs.create(id, 1);
  assert.equal(await jobs.create(id, 1), false);
  await assert.rejects(jobs.create(id, 2), JobDiffers);
  await assert.rejects(new Jobs(server.url, 'nonsense').look(id), Unauthenticated);
  await assert.rejects(jobs.acquire(id, { ttl: 0 }), (error) => error instanceof Invalid && /between 1s and 24h/.test(error.message));
  for (const bad of ['42', '/42', 'a/', 'a/..', 'a/b/c']) await assert.rejects(jobs.look(bad), Invalid);
  const circle = [];
  circle.push(circle);
  await assert.rejects(jobs.create(id, circle), (error) => error instanceof Invalid && /no JSON/.test(error.message));
  for (const url of ['ftp://x', 'leases.example.com', 'http://me:hunter2@x']) {
    assert.throws(() => new Jobs(url), (error) => error instanceof TypeError && !error.message.includes('hunter2'));
  }
  await assert.rejects(new Jobs('http://127.0.0.1:9', undefined, quiet).look(id), Unavailable);
});

test('a server that asks to be left alone is', async (t) => {
  const locked = '{"acquired":false,"reason":"locked","status":"RUNNING"}';
  const wait = { 'retry-after': '1' };
  const answers = [[503, wait, '{}'], [429, wait, '{}'], [408, wait, '{"code":"too_slow"}'], [200, {}, locked]];
  const asked = [];
  const jobs = await fake(t, (_, body) => answers[asked.push({ at: performance.now(), body }) - 1]);
  assert.equal((await jobs.acquire(newId())).reason, 'locked');
  assert.equal(new Set(asked.map(({ body }) => body.lease_id)).size, 1, 'the same lease id each time');
  assert.ok(asked.every(({ at }, n) => n === 0 || at - asked[n - 1].at >= 990));
});

// A token with a line break inside was in the error that fetch throws, seven times over.
test('a token that cannot be one is refused without being shown', async () => {
  assert.equal(await new Jobs(server.url, `${server.tokens['user-a']}\n`).look(newId()), null);
  for (const token of ['se cret', 'se\ncret', 's\u00e9cret', Buffer.from('secret'), () => 'se\rcret']) {
    await assert.rejects(new Jobs(server.url, token).look(newId()), (error) => {
      assert.doesNotMatch(inspect(error), /cret/);
      return error instanceof Unauthenticated;
    });
  }
});

// A proxy's own page made a worker end with a TypeError, or with a deadline that never came.
test('an answer of another shape says nothing', async (t) => {
  const calls = ['create', 'look', 'acquire', 'reset'];
  for (const content of ['null', '[]', '{}', '"x"', '7', '', '{"acquired":true}', '{"acquired":false}']) {
    const jobs = await fake(t, () => [200, {}, content]);
    for (const call of calls) await assert.rejects(jobs[call](newId()), Unavailable, `${call}: ${content}`);
  }
  for (const times of [{}, { refresh_after_ms: 1, stop_after_ms: null }, { refresh_after_ms: 1, stop_after_ms: 'x' }]) {
    const jobs = await fake(t, () => granted('x', times));
    await assert.rejects(jobs.acquire(newId()), Unavailable);
  }
  for (const holder of ['null', '"x"', '{}', '[]']) {
    const jobs = await fake(t, () => [410, {}, `{"code":"lease_over","because":"expired","fence":7,"holder":${holder}}`]);
    await assert.rejects(jobs.acquire(newId()), (error) => {
      assert.deepEqual([error instanceof LeaseLost, error.because, error.held], [true, 'expired', undefined]);
      return true;
    });
  }
});

test('the clock notices a sleep and minds no clock that is set back', (t) => {
  const [monotonic, wall] = [performance.now(), Date.now()];
  let [awake, shown] = [0, 0];
  t.mock.method(performance, 'now', () => monotonic + awake);
  t.mock.method(Date, 'now', () => wall + shown);
  const clock = new Clock();
  [awake, shown] = [50, 50];
  assert.equal(Math.round(clock.now()), 50);
  [awake, shown] = [60, 600_000];
  assert.equal(Math.round(clock.now()), 600_000);
  [awake, shown] = [1_060, 0];
  assert.equal(Math.round(clock.now()), 601_000);
});
