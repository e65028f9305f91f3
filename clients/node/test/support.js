// A real server with made-up users, a made-up server, and a network that can be cut.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/** `leasehold serve --dev` on a free port, with everything in memory unless another store is named. */
export async function startServer(store = 'memory:') {
  const program = process.env.LEASEHOLD_BIN ?? 'leasehold';
  const args = ['serve', '--dev', '--json', '--listen', '127.0.0.1:0', '--store', store, '--log', 'error'];
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  const { url, tokens, jobs_only: jobsOnly } = JSON.parse(line);
  const end = async () => {
    child.kill();
    await once(child, 'exit');
  };
  return { url, tokens, jobsOnly, port: Number(new URL(url).port), end };
}

// It ends with this program, in whatever way that ends: the other end of its standard input closes.
const KEEPER = `trap '' INT TERM HUP
  java -Xmx512m -cp "$1" com.google.cloud.datastore.emulator.firestore.CloudFirestore start --host=127.0.0.1 --port="$2" &
  java=$!; cat; kill -KILL $java`;

/** Google's Firestore emulator, from its package, or the one that FIRESTORE_EMULATOR_HOST names; `undefined` if there is none. */
export async function startEmulator() {
  const named = process.env.FIRESTORE_EMULATOR_HOST;
  if (named) return { host: named, end() {} };
  const listed = spawnSync('dpkg', ['-L', 'google-cloud-cli-firestore-emulator'], { encoding: 'utf8' }).stdout ?? '';
  const jar = listed.split('\n').find((line) => line.endsWith('firestore-emulator.jar'));
  if (!jar || spawnSync('java', ['-version']).status !== 0) return undefined;
  const free = net.createServer().listen(0, '127.0.0.1');
  await once(free, 'listening');
  const { port } = free.address();
  free.close();
  const keeper = spawn('sh', ['-c', KEEPER, 'keeper', jar, String(port)], { stdio: ['pipe', 'ignore', 'ignore'] });
  await until(() => listens(port), 60);
  return { host: `127.0.0.1:${port}`, end: () => keeper.stdin.end() };
}

function listens(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => resolve(true) ?? socket.destroy());
    socket.on('error', () => resolve(false));
  });
}

/** The address of a server whose answers are those of a function: the status, the headers and the body. */
export async function startFake(t, answer) {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const [status, headers, content] = await answer(request.url, body && JSON.parse(body));
    response.writeHead(status, headers).end(content);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

/** Passes connections on to a port until it is cut, and again when it is healed. */
export class Proxy {
  #open = new Set();
  #cut = false;
  #swallow = 0;

  static async to(port) {
    const proxy = new Proxy();
    proxy.server = net.createServer((client) => proxy.#connect(client, port));
    proxy.server.listen(0, '127.0.0.1');
    await once(proxy.server, 'listening');
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
    return proxy;
  }

  #connect(client, port) {
    client.on('error', () => {});
    if (this.#cut) return client.destroy();
    const server = net.connect(port, '127.0.0.1');
    this.#open.add(client).add(server);
    client.on('data', (data) => {
      // From now on, this request arrives and its answer does not.
      if (this.#swallow > 0) {
        this.#swallow -= 1;
        server.swallows = true;
      }
      server.write(data);
    });
    server.on('data', (data) => (server.swallows ? client.destroy() : client.write(data)));
    server.on('error', () => {});
    for (const [one, other] of [[client, server], [server, client]]) {
      one.on('close', () => {
        other.destroy();
        this.#open.delete(one);
      });
    }
  }

  /** Ends every connection, and closes new ones at once. */
  cut() {
    this.#cut = true;
    for (const one of this.#open) one.destroy();
  }

  heal() {
    this.#cut = false;
  }

  /** The next so many requests arrive, and their answers do not. */
  swallowAnswers(count) {
    this.#swallow = count;
  }

  end() {
    this.cut();
    this.server.close();
  }
}

/** Waits for a thing to be so. */
export async function until(what, seconds = 30) {
  const end = Date.now() + seconds * 1_000;
  while (!(await what())) {
    if (Date.now() > end) throw new Error('waited in vain');
    await sleep(10);
  }
}
