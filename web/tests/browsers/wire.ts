// What stands between a page and the real server in the tests: a network that can fail, and a store for texts that checks fences.

import { createServer as createHttp, type Server as HttpServer } from 'node:http';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A proxy that passes bytes on, until it cuts, delays or swallows them. */
export class Wire {
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  #mode: 'pass' | 'cut' | 'hole' = 'pass';
  #delayMs = 0;
  /** Answers to requests that begin with one of these are lost, once each. */
  readonly #losing: string[] = [];
  /** Answers to requests that begin with one of these do not come, and their connections stay. */
  readonly #holding: string[] = [];

  private constructor(server: Server, readonly port: number) {
    this.#server = server;
  }

  /** A wire to the server at this address. */
  static async to(address: string): Promise<Wire> {
    const port = Number(new URL(address).port);
    const server = createServer({ pauseOnConnect: false });
    const wire = new Wire(server, port);
    server.on('connection', (near) => wire.#join(near));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return wire;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** All connections are broken off, and none can be made. */
  cut(): void {
    this.#mode = 'cut';
    this.#pairs.forEach((pair) => pair.forEach((socket) => socket.destroy()));
  }

  /** Nothing comes through any more, and nothing is said about it. */
  hole(): void {
    this.#mode = 'hole';
  }

  /** Everything comes through again. What was swallowed is lost, and so are its connections. */
  mend(): void {
    if (this.#mode === 'hole') this.cut();
    this.#mode = 'pass';
    this.#delayMs = 0;
  }

  /** Everything takes longer. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** The next such request arrives, and its answer does not. */
  loseAnswerTo(request: string): void {
    this.#losing.push(request);
  }

  /** The next such request arrives, and its answer stays away. */
  holdAnswerTo(request: string): void {
    this.#holding.push(request);
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(near: Socket): void {
    if (this.#mode === 'cut') {
      near.destroy();
      return;
    }
    const far = connect(this.port, '127.0.0.1');
    const pair = [near, far] as const;
    this.#pairs.add(pair);
    let [isLost, isHeld] = [false, false];
    near.on('data', (data) => {
      isLost ||= isNext(this.#losing, data);
      isHeld ||= isNext(this.#holding, data);
      this.#pass(far, data);
    });
    far.on('data', (data) => {
      if (isLost) near.destroy();
      else if (!isHeld) this.#pass(near, data);
    });
    for (const socket of pair) {
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#pairs.delete(pair);
        pair.forEach((other) => other.destroy());
      });
    }
  }

  #pass(to: Socket, data: Buffer): void {
    if (this.#mode === 'hole') return;
    if (this.#delayMs === 0) to.write(data);
    else setTimeout(() => { if (!to.destroyed) to.write(data); }, this.#delayMs);
  }
}

/** Whether these bytes begin as one of the requests does, which is taken out. */
function isNext(requests: string[], data: Buffer): boolean {
  const at = requests.findIndex((request) => data.toString('latin1').startsWith(request));
  if (at >= 0) requests.splice(at, 1);
  return at >= 0;
}

/** A save that the store was asked for. */
export interface Save {
  readonly room: string;
  readonly who: string;
  readonly fence: number;
  readonly text: string;
  readonly isAccepted: boolean;
}

/** Keeps texts, as an application's database does: a save with a lower fence than the last one changes nothing. */
export class Store {
  readonly saves: Save[] = [];
  readonly #texts = new Map<string, { fence: number; text: string }>();
  readonly #server: HttpServer = createHttp();

  static async start(): Promise<Store> {
    const store = new Store();
    store.#server.on('request', async (request, response) => {
      const url = new URL(request.url!, 'http://localhost');
      const room = url.pathname.slice(1);
      const headers = { 'access-control-allow-origin': '*', 'access-control-allow-methods': 'PUT', 'content-type': 'text/plain; charset=utf-8' };
      // A browser that is sent here stays where it is.
      if (url.search === '?nothing') return response.writeHead(204).end();
      if (request.method !== 'PUT') return response.writeHead(200, headers).end(store.text(room));
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      const fence = Number(url.searchParams.get('fence'));
      const text = Buffer.concat(parts).toString();
      const isAccepted = fence >= (store.#texts.get(room)?.fence ?? 0);
      if (isAccepted) store.#texts.set(room, { fence, text });
      store.saves.push({ room, who: url.searchParams.get('who') ?? '', fence, text, isAccepted });
      return response.writeHead(isAccepted ? 204 : 412, headers).end();
    });
    await new Promise<void>((resolve) => store.#server.listen(0, '127.0.0.1', resolve));
    return store;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  text(room: string): string {
    return this.#texts.get(room)?.text ?? '';
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
