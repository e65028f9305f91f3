// Serves the built package and the pages of the browser tests, and keeps the register that the tabs sign: who says that it
// owns the project, from when to when. The register knows nothing of locks, so it can contradict them.

import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const web = fileURLToPath(new URL('../..', import.meta.url));
const TYPES: Record<string, string> = {
  '.js': 'text/javascript', '.html': 'text/html', '.wasm': 'application/wasm', '.json': 'application/json',
};

/** Who says that it owns the project. */
export class Register {
  /** What was wrong: two owners at a time. */
  readonly overlaps: string[] = [];
  #inside = new Set<string>();

  /** A tab says that it owns the project now. */
  enter(who: string): void {
    if (this.#inside.size > 0) this.overlaps.push(`${who} entered while ${[...this.#inside].join(', ')} was inside`);
    this.#inside.add(who);
  }

  /** A tab says that it stops being the owner. */
  leave(who: string): void {
    this.#inside.delete(who);
  }

  /** Who is inside. */
  inside(): string[] {
    return [...this.#inside];
  }
}

/** A server on a free port of this machine. Every name before `.localhost` is an origin of its own, with its own files. */
export class TestServer {
  readonly register = new Register();
  readonly #server: Server;
  readonly #root: string;
  #waiting: (() => void)[] = [];

  private constructor(server: Server, root: string) {
    this.#server = server;
    this.#root = root;
  }

  static async start(options: { headers?: Record<string, string>; root?: string } = {}): Promise<TestServer> {
    const { headers = {}, root = web } = options;
    const server = createServer();
    const running = new TestServer(server, root);
    server.on('request', async (request, response) => {
      const answer = running.#answer(request).catch((error) => [404, 'text/plain', String(error)] as const);
      const [status, type, body] = await answer;
      const clears = request.url === '/clear' ? { 'clear-site-data': '"storage"' } : {};
      response.writeHead(status, { 'content-type': type, 'cache-control': 'no-cache', ...headers, ...clears }).end(body);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return running;
  }

  /** The address of a page, on an origin of its own. */
  page(origin: string, path = 'tests/browsers/page.html'): string {
    return `http://${origin}.localhost:${(this.#server.address() as AddressInfo).port}/${path}`;
  }

  /** The same on an origin that browsers do not take for secure. Chromium alone is told where that is. */
  insecurePage(path = 'tests/browsers/page.html'): string {
    return `http://insecure.test:${(this.#server.address() as AddressInfo).port}/${path}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Answers all of them when the last one has come, so that they start together. */
  async #barrier(count: number): Promise<void> {
    const arrived = new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#waiting.length >= count) this.#waiting.splice(0).forEach((go) => go());
    await arrived;
  }

  async #answer(request: IncomingMessage): Promise<readonly [number, string, string | Buffer]> {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const who = url.searchParams.get('who') ?? '';
    if (url.pathname === '/barrier') await this.#barrier(Number(url.searchParams.get('count')));
    if (url.pathname === '/enter') this.register.enter(who);
    if (url.pathname === '/leave') this.register.leave(who);
    if (['/barrier', '/enter', '/leave', '/clear'].includes(url.pathname)) return [200, 'text/plain', ''];
    if (url.pathname === '/favicon.ico') return [200, 'image/x-icon', ''];
    if (url.pathname.includes('..')) return [400, 'text/plain', ''];
    if (url.pathname.startsWith('/bundle/')) return [200, 'text/javascript', await bundle(`tests/browsers/${url.pathname.slice(8)}`)];
    if (url.pathname === '/gallery/gallery.js') return [200, 'text/javascript', await bundle(url.pathname.slice(1))];
    return [200, TYPES[extname(url.pathname)] ?? 'text/plain', await readFile(this.#root + url.pathname)];
  }
}

/** A script that was not built, with what it imports. */
async function bundle(name: string): Promise<string> {
  const entry = `${web}/${name.replace(/\.js$/, '.ts')}`;
  const external = ['/dist/*', '/bundle/*'];
  const built = await build({ entryPoints: [entry], bundle: true, external, write: false, format: 'esm', target: 'es2022' });
  return built.outputFiles[0]?.text ?? '';
}
