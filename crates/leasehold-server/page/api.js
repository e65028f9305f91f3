// Calls of the HTTP API, as the signed-in user and as this tab.

import { currentLanguage, say } from './words.js';

const TOKEN = 'leasehold.token';
const USER = 'leasehold.user';

/** The server refused a call. Its words are in the language of the page. */
export class Refusal extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail ?? problem.title ?? `HTTP ${status}`);
    this.status = status;
    this.code = problem.code ?? '';
    this.title = problem.title ?? `HTTP ${status}`;
    this.retryAfterMs = 1000 * (Number(retryAfter) || 0);
  }

  /** What to show: the title says what happened, the detail what to do. */
  get words() {
    return this.message === this.title ? this.title : `${this.title}: ${this.message}`;
  }
}

/** The server did not answer. */
export class Unreachable extends Error {
  get words() {
    return say('offline');
  }
}

/** How long an answer may take. The server itself gives up on its store after ten seconds. */
const PATIENCE_MS = 12_000;

/** A random UUID of version 4. `crypto.randomUUID` exists in secure contexts only. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

export class Api {
  /** How this server lets users in: by `nothing`, by `token`, or as one of its made-up users (`user`). */
  by = 'token';
  users = [];
  #token = null;
  #tab = `page-${uuid()}`;

  /** Asks how to sign in, and takes up what this tab has kept. */
  async begin() {
    const { by, users } = await this.#fetch('GET', '/page/sign-in');
    this.by = by;
    this.users = users;
    if (by === 'user') this.chooseUser(sessionStorage.getItem(USER));
    if (by === 'token') this.#token = sessionStorage.getItem(TOKEN);
  }

  get hasToken() {
    return this.by === 'nothing' || this.#token !== null;
  }

  /** The made-up user whose token is in use. */
  get user() {
    return this.users.find((user) => user.token === this.#token);
  }

  chooseUser(id) {
    const user = this.users.find((known) => known.id === id) ?? this.users[0];
    this.#token = user.token;
    sessionStorage.setItem(USER, user.id);
  }

  /** Keeps a token for this tab, if the server accepts it. Returns the user. */
  async signIn(token) {
    const before = this.#token;
    this.#token = token;
    try {
      const me = await this.me();
      sessionStorage.setItem(TOKEN, token);
      return me;
    } catch (error) {
      this.#token = before;
      throw error;
    }
  }

  signOut() {
    this.#token = null;
    sessionStorage.removeItem(TOKEN);
  }

  me() {
    return this.call('GET', '/api/me');
  }

  /** The locks that the user may see: at most four pages. */
  async locks() {
    const documents = [];
    let after = '';
    for (let page = 0; page < 4; page += 1) {
      const { documents: found, next } = await this.call('GET', `/api/documents?limit=500&after=${encodeURIComponent(after)}`);
      documents.push(...found);
      if (next === undefined) return { documents, isWhole: true };
      after = next;
    }
    return { documents, isWhole: false };
  }

  /** A call about one document. `path` follows `…/documents/{roomId}/`. */
  room(method, room, path, { body, leaseId } = {}) {
    const headers = leaseId === undefined ? {} : { 'lease-id': leaseId };
    return this.call(method, `/api/documents/${encodeURIComponent(room)}/${path}`, { body, headers });
  }

  call(method, path, { body, headers = {} } = {}) {
    const token = this.#token === null ? {} : { authorization: `Bearer ${this.#token}` };
    return this.#fetch(method, path, body, { ...token, 'x-tab-id': this.#tab, ...headers });
  }

  /** Withdraws a request although the page is being closed. */
  leave(room, leaseId) {
    const headers = { 'lease-id': leaseId, ...(this.#token === null ? {} : { authorization: `Bearer ${this.#token}` }) };
    fetch(`/api/documents/${encodeURIComponent(room)}/lock/request`, { method: 'DELETE', headers, keepalive: true }).catch(() => {});
  }

  async #fetch(method, path, body, headers = {}) {
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    const init = {
      method, headers: { 'accept-language': currentLanguage(), ...type, ...headers }, signal: AbortSignal.timeout(PATIENCE_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    };
    let response;
    let answer;
    try {
      response = await fetch(path, init);
      const text = await response.text();
      answer = text === '' ? {} : JSON.parse(text);
    } catch {
      throw new Unreachable();
    }
    if (!response.ok) throw new Refusal(response.status, answer, response.headers.get('retry-after'));
    return answer;
  }
}
