// A page that edits one document with the package as it is shipped. What it opens is in its address, so that it does the same after
// a reload; its text goes to the store of the test, under the fence.

import { openDocument, subscribeDocumentEvents } from '/dist/documents.js';
import type { DocumentEvent, DocumentLock, DocumentOptions } from '../../src/documents/types.js';

/** What the page opens. */
export interface Opened {
  readonly server: string;
  readonly store: string;
  readonly room: string;
  readonly token: string;
  /** Who the page says that it is, to the store. */
  readonly who: string;
  /** Locks whenever the document becomes free. */
  readonly isEager?: boolean;
  /** Locks at once when it is loaded. */
  readonly isHasty?: boolean;
  /** Listens to no events. */
  readonly isDeaf?: boolean;
  /** Has the events from the application's own socket. */
  readonly hasEcho?: boolean;
  /** Does not answer when it is asked for a token the first time. */
  readonly tokenHangs?: boolean;
  readonly options?: Partial<DocumentOptions>;
}

const opened = JSON.parse(decodeURIComponent(location.hash.slice(1))) as Opened;
const { server, store, room, who, isEager, isHasty, isDeaf, hasEcho, tokenHangs, options } = opened;
let asked = 0;
const token = tokenHangs ? () => (++asked === 1 ? new Promise<string>(() => {}) : opened.token) : opened.token;

/** An application's socket that stays silent. */
const SILENT = { private: () => ({ listen: () => {}, subscribed: (work: () => void) => work(), error: () => {} }), leave: () => {} };

const echo = hasEcho ? (await import('/bundle/echo.js')).makeEcho(server, opened.token) : isDeaf ? SILENT : undefined;

const app = {
  text: '',
  isDirty: false,
  /** What happened in the page, in its order. */
  log: [] as string[],
  events: [] as DocumentEvent[],
  /** When the page last had a fence. */
  lastFenceAt: 0,
  /** Locks whenever the document becomes free. */
  isEager: isEager ?? false,

  lock: openDocument(room, {
    server, token, ...options, ...(echo && { echo }),
    reload: async (): Promise<void> => {
      app.log.push('reload');
      app.text = await (await fetch(`${store}/${room}`)).text();
      app.isDirty = false;
    },
    save: async (): Promise<void> => { await app.save(); },
    unsaved: (): string | null => (app.isDirty ? app.text : null),
  }) as DocumentLock,

  type(text: string): void {
    app.text = text;
    app.isDirty = true;
  },

  /** Saves under the fence; says what became of it. */
  async save(): Promise<string> {
    const { fence } = app.lock;
    if (fence === null) return 'no fence';
    const { status } = await fetch(`${store}/${room}?fence=${fence}&who=${who}`, { method: 'PUT', body: app.text });
    const result = status === 204 ? 'saved' : 'stale';
    if (result === 'saved') app.isDirty = false;
    app.log.push(result);
    return result;
  },

  /** Resolves when the document is in this status. */
  until(...wanted: string[]): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        if (!wanted.includes(app.lock.getState().status)) return;
        stop();
        resolve();
      };
      const stop = app.lock.subscribe(look);
      look();
    });
  },

  /** Resolves when this is so. */
  async when(isSo: () => boolean): Promise<void> {
    while (!isSo()) await new Promise((resolve) => { setTimeout(resolve, 10); });
  },
};

let status = '';
app.lock.subscribe(() => {
  const next = app.lock.getState().status;
  if (next === status) return;
  status = next;
  app.log.push(status);
  if (app.isEager && status === 'free') void app.lock.acquire();
});
subscribeDocumentEvents((event) => { app.events.push(event); });
if (isHasty) void app.lock.acquire();
setInterval(() => { if (app.lock.fence !== null) app.lastFenceAt = Date.now(); }, 5);

declare global {
  var doc: typeof app;
}
globalThis.doc = app;
// What `Tab.back` waits for.
Object.assign(globalThis, { tab: app });
