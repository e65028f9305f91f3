// Calls of the server about one document, as the user of the token and as this tab. A call that is refused is an answer like any
// other; one that is not answered has the status 0.

/** An answer. */
export interface Answered {
  readonly status: number;
  // The server's own JSON; what is read of it is checked by the rules.
  readonly body: any;
  readonly retryAfterMs: number;
}

/** Whether the same call may succeed later. */
export function isTrouble({ status }: Answered): boolean {
  return status === 0 || status === 401 || status === 408 || status === 429 || status >= 500;
}

/** How long the server asks to wait. */
export function retryAfter(response: Response): number {
  return 1_000 * Number(response.headers.get('retry-after'));
}

/** How long an answer may take, and a token of the application's. The server gives up on its store after ten seconds. */
const PATIENCE_MS = 12_000;

/** What a call carries. */
interface Carried {
  readonly body?: object;
  readonly leaseId?: string | null;
}

/** What calls are made with. */
export interface HttpSettings {
  readonly room: string;
  /** The server, without a slash at the end. */
  readonly server: string;
  readonly tab: string;
  readonly language: string;
}

/** The calls of one document. A path follows the document's name. */
export interface Http {
  call(method: string, path: string, carried?: Carried): Promise<Answered>;
  /** The response. A token that is refused is asked for anew, once. */
  fetch(path: string, init: RequestInit): Promise<Response>;
  /** The next call asks for another token. */
  forgetToken(): void;
}

/** Makes the calls of one document. `askForToken` asks the application. */
export function httpOf({ room, server, tab, language }: HttpSettings, askForToken: () => Promise<string | null>): Http {
  let known: Promise<string | null> | null = null;

  /** The token, which is asked for once. One that does not come in time is refused by the server, and asked for anew. */
  const token = () => known ??= Promise.race([askForToken(), new Promise<null>((resolve) => { setTimeout(resolve, PATIENCE_MS, null); })]);

  const send = (path: string, init: RequestInit, token: string | null) => {
    const headers = {
      'x-tab-id': tab, 'accept-language': language, ...(token !== null && { authorization: `Bearer ${token}` }), ...init.headers,
    };
    return fetch(`${server}/api/documents/${encodeURIComponent(room)}/${path}`, { ...init, headers, cache: 'no-store' });
  };

  const http: Http = {
    async call(method, path, { body, leaseId } = {}) {
      try {
        const response = await http.fetch(path, {
          method,
          headers: { 'content-type': 'application/json', ...(leaseId && { 'lease-id': leaseId }) },
          body: body ? JSON.stringify(body) : null,
          signal: AbortSignal.timeout(PATIENCE_MS),
        });
        const text = await response.text();
        return { status: response.status, body: text ? JSON.parse(text) : {}, retryAfterMs: retryAfter(response) };
      } catch {
        return { status: 0, body: {}, retryAfterMs: 0 };
      }
    },

    async fetch(path, init) {
      const first = token();
      const response = await send(path, init, await first);
      if (response.status !== 401) return response;
      if (known === first) known = null;
      return send(path, init, await token());
    },

    forgetToken() {
      known = null;
    },
  };
  return http;
}
