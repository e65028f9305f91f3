// The real program `leasehold`, as a server on a free port, for pages that talk to it.

import { spawn, type ChildProcess } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Where the program is; `cargo xtask test` builds it and says so. */
export const PROGRAM = process.env['LEASEHOLD_PROGRAM'];

/** What tokens of a server without made-up users are signed with. */
export const SECRET = 'a secret that has thirty-two bytes or more';

/** A server with a folder of its own, which can be stopped and started again at the same address. */
export class LeaseholdServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'leasehold-page-'));
  url = 'http://127.0.0.1:0';
  tokens: Record<string, string> = {};
  readonly #options: string[];
  #process: ChildProcess | null = null;

  private constructor(options: string[]) {
    this.#options = options;
    writeFileSync(join(this.folder, 'secret'), SECRET);
  }

  /** A server with these options. */
  static async start(...options: string[]): Promise<LeaseholdServer> {
    const server = new LeaseholdServer(options);
    await server.begin();
    return server;
  }

  /** Starts it; the first line says where it is. */
  async begin(): Promise<void> {
    const address = this.url.slice('http://'.length);
    const options = ['serve', '--json', '--store', 'leases.db', '--log', 'warn', '--listen', address, ...this.#options];
    const child = spawn(PROGRAM!, options, { cwd: this.folder, stdio: ['ignore', 'pipe', 'inherit'] });
    this.#process = child;
    const first = await new Promise<string>((resolve, reject) => {
      createInterface({ input: child.stdout! }).once('line', resolve);
      child.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    });
    const { url, tokens } = JSON.parse(first) as { url: string; tokens?: Record<string, string> };
    this.url = url;
    this.tokens = tokens ?? {};
  }

  /** Stops it, as an operator does. */
  async stop(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    await gone;
  }

  /** Deletes its leases, once it is stopped. */
  forgetStore(): void {
    for (const name of readdirSync(this.folder)) if (name.startsWith('leases.db')) rmSync(join(this.folder, name), { recursive: true });
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A call about a document, by another program than the page. */
  async call(token: string, method: string, path: string, body?: unknown): Promise<Response> {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    return fetch(`${this.url}/api/documents/${path}`, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  }
}

/** A token that a server with `SECRET` accepts. */
export function token(claims: Record<string, unknown>): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const exp = Math.floor(Date.now() / 1000) + 3600;
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ exp, ...claims })}`;
  return `${signed}.${createHmac('sha256', SECRET).update(signed).digest('base64url')}`;
}
