// Calls of the server about one document, as the user of the token and as this tab. A call that is refused is an answer like any
// other; one that is not answered has the status 0.

/** An answer. */
export interface Answered {
  readonly status: number;
  // The server's own JSON; what is read of it is checked by the rules.
  readonly body: any;
  readonly retryAfterMs: number | undefined;
}

/** Whether the same call may succeed later. */
export function isTrouble({ status }: Answered): boolean {
  return status === 0 || status === 401 || status === 408 || status === 429 || status >= 500;
}

/** How long an answer may take. The server gives up on its store after ten seconds. */
const PATIENCE_MS = 12_000;

/** What a call carries. */
interface Carried {
  readonly body?: object;
  readonly leaseId?: string | null;
}

/** The calls of one document. */
export class Http {
  #token: Promise<string | null> | null = null;

  constructor(
    readonly settings: { readonly room: string; readonly server: string; readonly tab: string; readonly language: string },
    /** Asks the application for a token. */
    readonly askForToken: () => Promise<string | null>,
  ) {}

  /** A call about the document; `path` follows its name. */
  room(method: string, path: string, carried?: Carried): Promise<Answered> {
    return this.call(method, `/api/documents/${encodeURIComponent(this.settings.room)}/${path}`, carried);
  }

  async call(method: string, path: string, { body, leaseId }: Carried = {}): Promise<Answered> {
    try {
      const response = await this.fetch(path, {
        method,
        headers: { ...(body && { 'content-type': 'application/json' }), ...(leaseId && { 'lease-id': leaseId }) },
        ...(body && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      const text = await response.text();
      const seconds = Number(response.headers.get('retry-after'));
      return { status: response.status, body: text ? JSON.parse(text) : {}, retryAfterMs: seconds ? seconds * 1_000 : undefined };
    } catch {
      return { status: 0, body: {}, retryAfterMs: undefined };
    }
  }

  /** The response. A token that is refused is asked for anew, once. */
  async fetch(path: string, init: RequestInit): Promise<Response> {
    const token = this.#token ??= this.askForToken();
    const response = await this.#fetch(path, init, await token);
    if (response.status !== 401) return response;
    if (this.#token === token) this.#token = null;
    this.#token ??= this.askForToken();
    return this.#fetch(path, init, await this.#token);
  }

  /** The next call asks for another token. */
  forgetToken(): void {
    this.#token = null;
  }

  #fetch(path: string, init: RequestInit, token: string | null): Promise<Response> {
    const { server, tab, language } = this.settings;
    const headers = {
      'x-tab-id': tab, ...(language && { 'accept-language': language }), ...(token !== null && { authorization: `Bearer ${token}` }), ...init.headers,
    };
    return fetch(server + path, { ...init, headers, cache: 'no-store' });
  }
}
