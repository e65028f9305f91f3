// Workers in Node on Firestore documents, through a server, with Google's own client for Node beside them.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { AnalysisLocks, Inexact, Invalid, Jobs, LeaseLost, NoSuchJob } from '../index.js';
import { startEmulator, startServer } from './support.js';

/** A folder whose node_modules has @google-cloud/firestore; `cargo xtask test --only clients` makes one. */
const folder = process.env.LEASEHOLD_FIRESTORE_NODE;
const google = folder && createRequire(path.join(folder, 'package.json'))('@google-cloud/firestore');
const emulator = google && (await startEmulator());
const skip = !google
  ? 'LEASEHOLD_FIRESTORE_NODE names no folder with @google-cloud/firestore; cargo xtask test --only clients makes one'
  : !emulator && 'google-cloud-cli-firestore-emulator or java is not installed';
const onFirestore = (name, work) => test(name, { skip }, work);

const projectId = `node-${process.pid}`;
let server, jobs, documents;

before(async () => {
  if (skip) return;
  process.env.FIRESTORE_EMULATOR_HOST = emulator.host;
  server = await startServer(`firestore:${projectId}?emulator=${emulator.host}`);
  jobs = new Jobs(server.url, server.tokens['user-a'], { worker: 'w1', warn: () => {} });
  documents = new google.Firestore({ projectId });
});
after(async () => {
  if (skip) return;
  await server.end();
  await documents.terminate();
  emulator.end();
});

function newDocument() {
  const id = `analyses/${randomUUID()}`;
  const document = documents.doc(id);
  return { id, document, fields: async () => (await document.get()).data() };
}

/** What a program does that follows Job lock (docs/sources.md) with Google's client, and knows nothing of Leasehold. */
function lock(document, lockOwner) {
  return documents.runTransaction(async (transaction) => {
    const data = (await transaction.get(document)).data();
    if (data.lockOwner && new Date(data.lockExpiresAt) > new Date()) return false;
    transaction.update(document, { lockOwner, lockExpiresAt: new Date(Date.now() + 300_000).toISOString() });
    return true;
  });
}

onFirestore("a document of Google's client is acquired as it is, and gets a map as its result", async () => {
  const { id, document, fields } = newDocument();
  await assert.rejects(jobs.acquire(id), NoSuchJob);
  const payload = { page: 7, deep: { tags: ['a', 1.5, null, true] } };
  await document.set({ status: 'PROCESSING', payload, title: 'theirs' });
  const attempt = await jobs.acquire(id);
  assert.deepEqual(attempt.payload, payload);
  const held = await fields();
  assert.deepEqual([held.status, held.lockOwner, held.lockFence], ['PROCESSING', 'user-a', attempt.fence]);
  await attempt.complete({ pages: [1, 2] });
  const done = await fields();
  assert.deepEqual([done.status, done.result, done.title, done.payload], ['READY', { pages: [1, 2] }, 'theirs', payload]);
  assert.equal('lockOwner' in done, false);
});

onFirestore("what this client creates is a map for Google's, and what that finishes is finished", async () => {
  const { id, document, fields } = newDocument();
  const payload = { page: 7, deep: { tags: ['a', 1.5, null, true] } };
  assert.equal(await jobs.create(id, payload), true);
  assert.deepEqual((await fields()).payload, payload);
  await document.update({ status: 'READY', result: { pages: 7 } });
  const refused = await jobs.acquire(id);
  assert.deepEqual([refused.reason, refused.result], ['already_finished', { pages: 7 }]);
});

onFirestore('a number that no double carries is not rounded on the way', async () => {
  const { id, fields } = newDocument();
  assert.equal(await jobs.create(id, { n: 2n ** 53n + 1n }), true);
  const job = await jobs.look(id);
  assert.equal(job.payloadText, '{"n":9007199254740993}');
  assert.throws(() => job.payload, Inexact);
  const large = newDocument();
  assert.equal(await jobs.create(large.id, { n: 2n ** 70n + 1n }), true);
  assert.equal((await large.fields()).payload, '{"n":1180591620717411303425}', 'Firestore has no type for it');
  assert.equal((await jobs.look(large.id)).payloadText, '{"n":1180591620717411303425}');
  assert.equal(typeof (await fields()).payload.n, 'number', "Google's own client rounds, unless it is told otherwise");
});

onFirestore("a lock of Google's client and one of ours keep each other out", async () => {
  const { id, document, fields } = newDocument();
  await document.set({ status: 'PROCESSING' });
  assert.equal(await lock(document, 'theirs'), true);
  const refused = await jobs.acquire(id);
  assert.deepEqual([refused.reason, refused.held.id], ['locked', 'theirs']);
  const gone = google.FieldValue.delete();
  await document.update({ lockOwner: gone, lockExpiresAt: gone });
  const attempt = await jobs.acquire(id);
  assert.equal(await lock(document, 'theirs'), false);
  // It takes it all the same, as a program may that decides by its own rules.
  await document.update({ lockOwner: 'theirs', lockExpiresAt: '2999-01-01T00:00:00Z' });
  await assert.rejects(attempt.refresh(), LeaseLost);
  await assert.rejects(attempt.complete('late'), LeaseLost);
  assert.deepEqual([(await fields()).status, (await fields()).lockOwner], ['PROCESSING', 'theirs']);
});

onFirestore('a fence of another program is followed, or refused with what to do', async () => {
  const { id, document } = newDocument();
  await document.set({ status: 'PROCESSING', lockFence: 2 ** 52 });
  const attempt = await jobs.acquire(id);
  assert.equal(attempt.fence, 2 ** 52 + 1);
  await attempt.release();
  for (const lockFence of ['the last one', 1e300, new Date()]) {
    await document.update({ lockFence });
    await assert.rejects(jobs.acquire(id), (error) => error instanceof Invalid && /lockFence/.test(error.message));
  }
});

onFirestore('a document in a subcollection, and the three functions', async () => {
  const name = randomUUID();
  const document = documents.doc(`users/u1/analyses/${name}`);
  await document.set({ status: 'PROCESSING' });
  const locks = new AnalysisLocks(jobs, { collection: 'users/u1/analyses' });
  assert.deepEqual(await locks.acquireAnalysisLock(name, 'w1'), { acquired: true });
  assert.equal(await lock(document, 'theirs'), false);
  await locks.releaseAnalysisLock(name, 'w1');
  assert.equal(await lock(document, 'theirs'), true);
  assert.deepEqual(await locks.acquireAnalysisLock(name, 'w1'), { acquired: false, reason: 'locked' });
});

onFirestore('the server says that it has jobs only', async () => {
  assert.equal(server.jobsOnly, true);
  const refused = await fetch(`${server.url}/api/documents/minutes/lock`);
  assert.deepEqual([refused.status, (await refused.json()).code], [404, 'jobs_only']);
  assert.equal(await (await fetch(`${server.url}/healthz`)).text(), 'ok, jobs only\n');
});
