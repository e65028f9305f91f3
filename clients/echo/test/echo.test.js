// Unmodified clients against a real server: pusher-js and Laravel Echo as pages have them, and npm's `pusher` as the web
// application.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import {
  app, atEnd, echo, frontDoor, heard, lock, pusherClient, ready, startServer, subscribed, token, webApplication,
} from './support.js';

let server;
before(async () => {
  server = await startServer();
});
after(() => server.end());

test('Echo hears of every lock, with the number that HTTP has', async (t) => {
  const channel = echo(t, server, 'ben').private('document.minutes');
  const [locked, unlocked] = [heard(), heard()];
  channel.listen('DocumentLocked', locked.listener).listen('DocumentUnlocked', unlocked.listener);
  await subscribed(channel);
  const grant = await lock(server, 'POST', 'anna');
  const event = await locked();
  assert.deepEqual(event.holder, { id: 'anna', name: 'ANNA' });
  assert.equal(event.fence, grant.fence);
  assert.equal(event.roomId, 'minutes');
  assert.equal(event.seq, (await lock(server, 'GET', 'ben')).seq);
  await lock(server, 'PUT', 'anna');
  await lock(server, 'DELETE', 'anna');
  const { seq, reason } = await unlocked();
  assert.deepEqual([seq, reason], [event.seq + 1, 'released']);
  assert.equal(locked.calls.length, 0, 'a heartbeat announces nothing');
});

test('the bare names of events are for the dot form of listen', async (t) => {
  const bare = await startServer({ args: ['--pusher-namespace', ''] });
  atEnd(t, () => bare.end());
  const locked = heard();
  const channel = echo(t, bare, 'ben').private('document.minutes').listen('.DocumentLocked', locked.listener);
  await subscribed(channel);
  await lock(bare, 'POST', 'anna');
  assert.equal((await locked()).holder.id, 'anna');
});

test('people join with their first page and leave with their last', async (t) => {
  const [here, joining, leaving] = [heard(), heard(), heard()];
  const annas = echo(t, server, 'anna').join('document.people');
  annas.here(here.listener).joining(joining.listener).leaving(leaving.listener);
  assert.deepEqual(await here(), [{ name: 'ANNA' }]);
  const bens = [echo(t, server, 'ben'), echo(t, server, 'ben')];
  for (const page of bens) await subscribed(page.join('document.people'));
  assert.deepEqual(await joining(), { name: 'BEN' });
  const get = await fetch(`${server.url}/api/documents/people/presence`, {
    headers: { authorization: `Bearer ${token('anna')}` },
  });
  const person = (id) => ({ id, name: id.toUpperCase() });
  assert.deepEqual(await get.json(), { editing: [], asking: [], looking: [person('anna'), person('ben')] });
  bens[0].disconnect();
  bens[1].leave('document.people');
  assert.deepEqual(await leaving(), { name: 'BEN' });
  assert.deepEqual([joining.calls, leaving.calls], [[], []]);
});

test('pages whisper to each other', async (t) => {
  const typing = heard();
  const [annas, bens] = ['anna', 'ben'].map((sub) => echo(t, server, sub).private('document.whispers'));
  bens.listenForWhisper('typing', typing.listener);
  await Promise.all([subscribed(annas), subscribed(bens)]);
  annas.whisper('typing', { at: 7 });
  assert.deepEqual(await typing(), { at: 7 });
});

test('a cache channel begins with the current state', async (t) => {
  const grant = await lock(server, 'POST', 'anna', 'cached');
  const client = pusherClient(t, server, auth('ben'));
  const locked = heard();
  client.subscribe('private-cache-document.cached').bind('App\\Events\\DocumentLocked', locked.listener);
  const state = await locked();
  assert.deepEqual([state.fence, state.holder.id], [grant.fence, 'anna']);
  const missed = heard();
  client.subscribe('private-cache-document.new').bind('pusher:cache_miss', missed.listener);
  await missed();
});

/** Leasehold signs the channels of `sub`. */
function auth(sub, documents) {
  const headers = { authorization: `Bearer ${token(sub, documents)}` };
  return { channelAuthorization: { endpoint: `${server.url}/broadcasting/auth`, transport: 'ajax', headers } };
}

test('who may not read a document is refused, and the page is told', async (t) => {
  const refused = heard();
  const documents = { bearerToken: token('eve', { other: 'read' }) };
  echo(t, server, 'eve', documents).private('document.minutes').error(refused.listener);
  assert.equal((await refused()).status, 404);
  const forged = pusherClient(t, server, {
    channelAuthorization: { customHandler: (_, done) => done(null, { auth: `${app.key}:00` }) },
  });
  const wrong = heard();
  forged.subscribe('private-document.minutes').bind('pusher:subscription_error', wrong.listener);
  const { type, status } = await wrong();
  assert.deepEqual([type, status], ['AuthError', 401]);
});

test('the web application signs channels with the shared secret', async (t) => {
  const application = webApplication(server);
  const user = { user_id: 7, user_info: { name: 'Anna' } };
  const client = pusherClient(t, server, {
    channelAuthorization: {
      customHandler: ({ socketId, channelName }, done) =>
        done(null, application.authorizeChannel(socketId, channelName, channelName.startsWith('presence-') && user)),
    },
  });
  const locked = heard();
  const channel = client.subscribe('private-document.signed');
  channel.bind('App\\Events\\DocumentLocked', locked.listener);
  const members = client.subscribe('presence-document.signed');
  await Promise.all([ready(channel), ready(members)]);
  assert.deepEqual(members.members.me, { id: 7, info: { name: 'Anna' } });
  await lock(server, 'POST', 'anna', 'signed');
  assert.equal((await locked()).holder.id, 'anna');
});

test('the web application broadcasts its own events', async (t) => {
  const application = webApplication(server);
  const sign = { customHandler: ({ socketId, channelName }, done) => done(null, signed(application, socketId, channelName)) };
  const [one, two] = [1, 2].map(() => pusherClient(t, server, { channelAuthorization: sign }));
  const [first, second] = [heard(), heard()];
  const channels = [one, two].map((client) => client.subscribe('private-orders.1'));
  channels[0].bind('App\\Events\\Shipped', first.listener);
  channels[1].bind('App\\Events\\Shipped', second.listener);
  await Promise.all([...channels, one.subscribe('presence-orders')].map(ready));
  await application.trigger('private-orders.1', 'App\\Events\\Shipped', { order: 1 });
  assert.deepEqual([await first(), await second()], [{ order: 1 }, { order: 1 }]);
  await application.trigger('private-orders.1', 'App\\Events\\Shipped', { order: 2 }, { socket_id: one.connection.socket_id });
  assert.deepEqual(await second(), { order: 2 });
  await application.triggerBatch([{ channel: 'private-orders.1', name: 'App\\Events\\Shipped', data: { order: 3 } }]);
  assert.deepEqual([await first(), await second()], [{ order: 3 }, { order: 3 }], 'not the second to its own page');
  const get = async (path, params) => (await application.get({ path, params })).json();
  const found = await get('/channels', { filter_by_prefix: 'presence-orders', info: 'user_count' });
  assert.deepEqual(found, { channels: { 'presence-orders': { user_count: 1 } } });
  assert.deepEqual(await get('/channels/presence-orders/users'), { users: [{ id: 'anna' }] });
  assert.equal((await get('/channels/private-orders.1', { info: 'subscription_count' })).subscription_count, 2);
  const cut = new Promise((resolve) => one.connection.bind('disconnected', resolve));
  await application.terminateUserConnections('anna');
  await cut;
  await assert.rejects(webApplication(server, { secret: 'another secret of the kind' }).trigger('private-a', 'x', {}), {
    status: 401,
  });
});

function signed(application, socketId, channel) {
  const user = channel.startsWith('presence-') ? { user_id: 'anna', user_info: {} } : undefined;
  return application.authorizeChannel(socketId, channel, user);
}

test('a page survives a restart of the server, and has the current state again', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-echo-'));
  atEnd(t, () => rm(folder, { recursive: true }));
  const store = join(folder, 'leases.db');
  const [door, first] = [await frontDoor(t), await startServer({ store })];
  door.show(first);
  const headers = { authorization: `Bearer ${token('ben')}` };
  const client = pusherClient(t, door, {
    channelAuthorization: { endpoint: `${door.url}/broadcasting/auth`, transport: 'ajax', headers },
  });
  const [locked, unlocked, failures] = [heard(), heard(), heard()];
  const channel = client.subscribe('private-cache-document.minutes');
  channel.bind('App\\Events\\DocumentLocked', locked.listener);
  channel.bind('App\\Events\\DocumentUnlocked', unlocked.listener);
  client.connection.bind('error', failures.listener);
  const { fence } = await lock(door, 'POST', 'anna');
  assert.equal((await locked()).fence, fence);
  door.show(undefined);
  await first.end();
  assert.equal((await failures()).data.code, 4200);
  const second = await startServer({ store });
  atEnd(t, () => second.end());
  door.show(second);
  const again = await locked();
  assert.deepEqual([again.fence, again.seq], [fence, 1]);
  await lock(second, 'DELETE', 'anna');
  assert.equal((await unlocked()).seq, 2);
});

test('a page with a wrong key stays away', async (t) => {
  const client = pusherClient(t, server, { key: 'another' });
  const failures = heard();
  client.connection.bind('error', failures.listener);
  const disconnected = new Promise((resolve) => client.connection.bind('disconnected', resolve));
  assert.equal((await failures()).error.data.code, 4001);
  await disconnected;
});

test('the sender of a call can be left out of its event', async (t) => {
  const server = await startServer({ args: ['--pusher-skip-sender', 'true'] });
  atEnd(t, () => server.end());
  const pages = ['anna', 'ben'].map((sub) => echo(t, server, sub));
  const listeners = [heard(), heard()];
  const channels = pages.map((page, at) => page.private('document.minutes').listen('DocumentLocked', listeners[at].listener));
  channels[0].listen('DocumentUnlocked', listeners[0].listener);
  await Promise.all(channels.map(subscribed));
  await lock(server, 'POST', 'anna', 'minutes', { 'x-socket-id': pages[0].socketId() });
  assert.equal((await listeners[1]()).holder.id, 'anna');
  await lock(server, 'DELETE', 'anna');
  assert.equal((await listeners[0]()).reason, 'released', 'only the event of the call that names it');
});
