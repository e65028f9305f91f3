// A real server with tokens and an application of its own, and the clients that pages have: pusher-js and Laravel Echo.

import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { createInterface } from 'node:readline';

import Echo from 'laravel-echo';
import Pusher from 'pusher';
import PusherClient from 'pusher-js';

export const app = { appId: 'docs', key: 'app-key', secret: 'a secret of twenty bytes' };
const JWT_SECRET = 'a secret of at least thirty-two bytes';

/** `leasehold serve` with everything in memory, unless told otherwise. */
export async function startServer({ listen = '127.0.0.1:0', store = 'memory:', key = app.key, args = [] } = {}) {
  const program = process.env.LEASEHOLD_BIN ?? 'leasehold';
  const settings = ['--listen', listen, '--store', store, '--pusher-key', key, '--pusher-app-id', app.appId];
  const env = { ...process.env, LEASEHOLD_JWT_SECRET: JWT_SECRET, LEASEHOLD_PUSHER_SECRET: app.secret };
  const child = spawn(program, ['serve', '--json', ...(args.includes('--log') ? [] : ['--log', 'error']), ...settings, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env,
  });
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  const url = new URL(JSON.parse(line).url);
  const end = async () => {
    const gone = once(child, 'exit');
    child.kill();
    await gone;
  };
  return { url: url.origin, host: url.hostname, port: Number(url.port), jwtSecret: JWT_SECRET, end };
}

/** A token that a web application would issue. */
export function token(sub, documents = { '*': 'force' }, seconds = 3600) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const exp = Math.floor(Date.now() / 1000) + seconds;
  const signed = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode({ sub, name: sub.toUpperCase(), documents, exp })}`;
  return `${signed}.${createHmac('sha256', JWT_SECRET).update(signed).digest('base64url')}`;
}

/** A call about a document's lock. */
export async function lock(server, method, sub, room = 'minutes', headers = {}) {
  const response = await fetch(`${server.url}/api/documents/${room}/lock`, {
    method,
    headers: { authorization: `Bearer ${token(sub)}`, ...headers },
  });
  if (!response.ok) throw new Error(`${method}: ${response.status} ${await response.text()}`);
  return response.status === 204 ? undefined : response.json();
}

/** Laravel Echo as a page of `sub` would make it. */
export function echo(t, server, sub, options = {}) {
  const client = new Echo({
    broadcaster: 'reverb',
    Pusher: PusherClient,
    key: app.key,
    wsHost: server.host,
    wsPort: server.port,
    forceTLS: false,
    enabledTransports: ['ws'],
    authEndpoint: `${server.url}/broadcasting/auth`,
    bearerToken: token(sub),
    ...options,
  });
  atEnd(t, () => client.disconnect());
  return client;
}

/** pusher-js alone. */
export function pusherClient(t, server, options = {}) {
  const client = new PusherClient(options.key ?? app.key, {
    cluster: '',
    wsHost: server.host,
    wsPort: server.port,
    forceTLS: false,
    enabledTransports: ['ws'],
    ...options,
  });
  atEnd(t, () => client.disconnect());
  return client;
}

const endings = new WeakMap();

/** Does something when the test is over: what was begun last ends first. */
export function atEnd(t, end) {
  if (!endings.has(t)) {
    endings.set(t, []);
    t.after(async () => {
      for (const ending of endings.get(t).reverse()) await ending();
    });
  }
  endings.get(t).push(end);
}

/** An address that passes connections on to whichever server is there, and lets them wait while there is none. */
export async function frontDoor(t) {
  let present;
  let came;
  const next = () => new Promise((resolve) => (came = resolve));
  let coming = next();
  const door = net.createServer(async (socket) => {
    const backend = net.connect((present ?? (await coming)).port, '127.0.0.1');
    socket.pipe(backend).pipe(socket);
    for (const end of [socket, backend]) end.on('error', () => (socket.destroy(), backend.destroy()));
  });
  door.listen(0, '127.0.0.1');
  await once(door, 'listening');
  atEnd(t, () => door.close());
  const { port } = door.address();
  const show = (server) => ((present = server), server ? came(server) : (coming = next()));
  return { url: `http://127.0.0.1:${port}`, host: '127.0.0.1', port, show };
}

/** The web application's end: npm's `pusher`, which does what Laravel's `broadcast()` does. */
export function webApplication(server, credentials = {}) {
  return new Pusher({ ...app, host: server.host, port: String(server.port), useTLS: false, ...credentials });
}

/** The next call of a listener: `const next = heard(); channel.listen('x', next.listener); await next()`. */
export function heard() {
  const calls = [];
  const waiting = [];
  const next = () => {
    if (calls.length > 0) return Promise.resolve(calls.shift());
    return new Promise((resolve) => waiting.push(resolve));
  };
  next.listener = (...args) => (waiting.length > 0 ? waiting.shift()(args[0]) : calls.push(args[0]));
  next.calls = calls;
  return next;
}

/** Resolves when a channel of Echo is subscribed to. */
export function subscribed(channel) {
  return new Promise((resolve, reject) => channel.subscribed(resolve).error(reject));
}

/** Resolves when pusher-js is subscribed to a channel. */
export function ready(channel) {
  return new Promise((resolve, reject) => {
    channel.bind('pusher:subscription_succeeded', resolve);
    channel.bind('pusher:subscription_error', reject);
  });
}
