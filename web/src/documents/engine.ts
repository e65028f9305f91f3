// Keeps one document in the Worker: sends what the rules ask for, brings them the answers, follows the events, and tells the page
// what it knows. When to renew, when to stop and how long to wait is the rules' to say; whose lock it is, the server's.

import type { Answer, Requests } from './border.js';
import { httpOf, isTrouble, retryAfter, type Answered, type Http } from './http.js';
import type { Bid, EngineCalls, EngineSettings, EngineState } from './remote.js';
import { readEvents } from './stream.js';
import type { DocumentEvent, Loss, LossReason } from './types.js';

/** Asks the rules something about a document, at a time. */
export type DocumentRules =
  <Name extends keyof Requests>(machine: number, name: Name, fields: Requests[Name], wall: number, monotonic: number) => Answer;

/** What the page is told. */
export type Said = { readonly state: EngineState } | { readonly event: DocumentEvent } | { readonly wants: 'token' };

/** A request is repeated as often as this, and lapses after so long when the page is gone. */
const ASK_AGAIN_MS = 4_000;
const ASK_PATIENCE_SECONDS = 12;
/** How often the page asks who else is there, and how soon after an event. */
const PRESENCE_MS = 10_000;
const PRESENCE_SOON_MS = 300;

/** Nothing is known about the end of a lock. */
const NO_END: Omit<Loss, 'reason'> = { by: null, note: null, text: '' };

/** When a countdown ends; null if it has not begun. */
function endOf({ ends_in_ms: left }: { ends_in_ms?: number }): number | null {
  return left === undefined ? null : Date.now() + left;
}

/** One document. */
export class DocumentEngine implements EngineCalls {
  readonly #rules: DocumentRules;
  #machine = 0;
  readonly #say: (said: Said) => void;
  readonly #http: Http;
  readonly #streams: boolean;
  #state: EngineState;
  /** The lock that this page holds; and the lease id of one that it may still hold, although it could not be renewed. */
  #own: { readonly leaseId: string; readonly fence: number } | null = null;
  #maybe: string | null = null;
  /** The lease id of an attempt that is not answered yet. */
  #attempt: string | null = null;
  #seq = -1;
  #tokens: ((token: string | null) => void)[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #presence: ReturnType<typeof setTimeout> | undefined;
  #stream: AbortController | null = null;
  /** Ends a wait early. */
  readonly #waits = new Set<() => void>();
  #isResting = false;
  #isClosed = false;
  #isVisible: boolean;
  #isAboutToSay = false;
  /** The request that the user has seen. */
  #told = 0;
  /** What is known about the end of the page's own lock, beyond the rules' word for it. */
  #end = NO_END;
  #unknown: LossReason = 'not-found';

  constructor(rules: DocumentRules, settings: EngineSettings, say: (said: Said) => void) {
    this.#rules = rules;
    this.#say = say;
    this.#streams = settings.streams;
    this.#state = settings.state;
    this.#isVisible = settings.isVisible;
    this.#http = httpOf(settings, () => this.#askForToken());
    const [random] = crypto.getRandomValues(new Uint32Array(1));
    this.#machine = this.#tell('open', { random: random! }).machine!;
    if (this.#streams) void this.#follow();
  }

  // --- tokens ---

  takeToken(token: string | null): void {
    for (const take of this.#tokens.splice(0)) take(token);
  }

  #askForToken(): Promise<string | null> {
    return new Promise((resolve) => {
      this.#tokens.push(resolve);
      this.#say({ wants: 'token' });
    });
  }

  get #leaseId(): string | null {
    return this.#own?.leaseId ?? null;
  }

  // --- the rules ---

  /** Tells the rules what happened, and does what follows. */
  #tell<Name extends keyof Requests>(name: Name, fields: Requests[Name]): Answer {
    const answer = this.#rules(this.#machine, name, fields, Date.now(), performance.now());
    if (answer.invalid) return answer;
    clearTimeout(this.#timer);
    if (answer.timeoutMs !== undefined) this.#timer = setTimeout(() => this.#tell('timeout', {}), answer.timeoutMs);
    if (answer.lost) this.#lost(answer.lost);
    if (answer.leftMs !== undefined) this.#holds(answer.leftMs, answer.request);
    if (answer.renew) void this.#renew(answer.at);
    return answer;
  }

  /** The page may act for so long. */
  #holds(leftMs: number, request: number | undefined): void {
    if (!this.#own) return;
    const [wall, monotonic] = [Date.now() + leftMs, performance.timeOrigin + performance.now() + leftMs];
    const isOver = this.#state.request && this.#state.request.id !== request;
    this.#set({ mine: { ...this.#own, wall, monotonic }, ...(isOver && { request: null }) });
  }

  async #renew(sent: number): Promise<void> {
    const leaseId = this.#leaseId;
    this.#replied(sent, leaseId, await this.#http.call('PUT', 'lock', { leaseId }));
  }

  /** Takes in the answer to a call of the holder. */
  #replied(sent: number, leaseId: string | null, reply: Answered, request?: number): void {
    // The page may have lost the lock meanwhile, and have another.
    if (leaseId === null || leaseId !== this.#leaseId) return;
    const { status, body } = reply;
    if (status === 200 && request === undefined) this.#kept(sent, body, false);
    else if (status === 200) this.#tell('counting', { sent, request: request!, endsInMs: body.ends_in_ms });
    else if (isTrouble(reply)) this.#tell('failed', { sent });
    else {
      const { title: text = '', code = '', because } = body;
      this.#end = { ...NO_END, text };
      this.#unknown = code === 'not_holder' ? 'not-holder' : 'not-found';
      this.#tell('refused', { sent, code, because, request });
    }
  }

  /** The server says that this page holds the lock. False if the rules do not believe it. */
  #kept(sent: number, body: any, granted: boolean): boolean {
    const { request, fence } = body;
    if (granted) this.#own = { leaseId: body.lease_id, fence };
    const asked = request && {
      request: request.id, by: request.by.id, onSilence: request.on_silence, countdownMs: request.countdown_ms, endsInMs: request.ends_in_ms,
    };
    const answer = this.#tell('held', { sent, granted, fence, expiresInMs: body.expires_in_ms, heartbeatMs: body.heartbeat_seconds * 1_000, ...asked });
    if (answer.invalid) {
      if (granted) this.#own = null;
      else this.#tell('failed', { sent });
      return false;
    }
    if (request && answer.request === request.id) this.#heed(request);
    return this.#state.mine !== null;
  }

  #lost(word: string): void {
    const names: Record<string, LossReason> = { deadline: 'offline', unknown: this.#unknown };
    const reason = names[word] ?? word.replace('_', '-') as LossReason;
    // Without an answer, the server may still count the lock as this page's.
    this.#maybe = word === 'deadline' ? this.#leaseId : null;
    this.#own = null;
    this.#set({ mine: null, request: null, lost: { reason, ...this.#end } });
    // Where renewals failed, the stream may be silent without having ended.
    if (word === 'deadline') this.#stream?.abort();
  }

  // --- requests of others ---

  #heed(request: any): void {
    this.#set({ request: { id: request.id, by: request.by, onSilence: request.on_silence, endsAt: endOf(request) } });
    void this.#confirm();
  }

  /** The countdown begins when the user can see the request. */
  async #confirm(): Promise<void> {
    const { request } = this.#state;
    const leaseId = this.#leaseId;
    if (!request || !this.#isVisible || this.#told === request.id) return;
    this.#told = request.id;
    const { confirm, at } = this.#tell('confirm', { request: request.id });
    if (confirm !== 'send') return;
    const reply = await this.#http.call('POST', 'lock/request/told', { body: { request: request.id }, leaseId });
    if (isTrouble(reply)) this.#told = 0; // the next renewal brings the request again
    this.#replied(at, leaseId, reply, request.id);
    if (reply.status !== 200 || this.#state.request?.id !== request.id) return;
    this.#set({ request: { ...this.#state.request, endsAt: endOf(reply.body) } });
  }

  async answer(handOver: boolean): Promise<void> {
    const [{ request }, leaseId] = [this.#state, this.#leaseId];
    if (!request || leaseId === null) return;
    // Before the message is sent: it may arrive even if its answer does not.
    if (handOver) this.#giveUp();
    const send = () => this.#http.call('POST', 'lock/request/answer', { body: { request: request.id, hand_over: handOver }, leaseId });
    const { status, body } = await this.#patiently(send);
    if (handOver && status === 200) this.#set({ lost: { ...NO_END, reason: 'handed-over', by: body.holder.name } });
    if (!handOver && (status === 200 || body.code === 'no_request')) {
      this.#tell('settled', { request: request.id });
      this.#set({ request: null });
    }
  }

  // --- getting the lock and giving it back ---

  async bid(bid: Bid): Promise<boolean> {
    // A lock that the page could not renew may be there still: then nobody else has had the document.
    if (this.#maybe !== null && bid.how === 'acquire' && await this.#send({ how: 'acquire', leaseId: this.#maybe })) return true;
    this.#maybe = null;
    return bid.how === 'ask' ? this.#ask(bid) : this.#send(bid);
  }

  async #send({ how, leaseId, ...more }: Exclude<Bid, { how: 'ask' }>): Promise<boolean> {
    const path = how === 'acquire' ? 'lock' : `lock/${how}`;
    const body = { lease_id: leaseId, ...(how === 'take-over' && { fence: this.#state.lock?.fence }), ...more };
    this.#attempt = 'next_lease_id' in more ? more.next_lease_id : leaseId;
    let sent = 0;
    // A page that was reloaded goes on until there is an answer: what it had may be lost, and must not be left uncertain.
    const isWaitedFor = how !== 'resume';
    const post = (path: string, body: object) => this.#patiently(() => {
      sent = this.#tell('look', {}).at;
      return this.#http.call('POST', path, { body });
    }, isWaitedFor);
    let reply = await post(path, body);
    // Another page of this tab may have resumed the lock since, under a lease id that Firefox does not show to a page from its cache.
    if (!isWaitedFor && reply.status === 403) reply = await post('lock', {});
    return this.#granted(sent, reply, isWaitedFor);
  }

  /** Takes in the answer to a bid. */
  #granted(sent: number, { status, body }: Answered, isShown = true): boolean {
    this.#attempt = null;
    if (status === 200 && this.#isClosed) return false; // what closes the document ends it
    if (status === 200) {
      this.#end = NO_END;
      this.#locked(body);
      this.#set({ me: body.holder, lost: null, asking: null });
      return this.#kept(sent, body, true);
    }
    const code = body.because === 'refused' ? 'refused' : body.code ?? 'unreachable';
    this.#set({ asking: null, ...(isShown && { problem: { code, text: body.title ?? '' } }) });
    if (body.holder && this.#state.lock?.fence !== body.fence) this.#locked(body);
    return false;
  }

  async #ask({ how: _, leaseId, ...more }: Bid & { how: 'ask' }): Promise<boolean> {
    const fence = this.#state.lock?.fence;
    if (fence === undefined) return this.#send({ how: 'acquire', leaseId });
    const body = { fence, lease_id: leaseId, patience_seconds: ASK_PATIENCE_SECONDS, ...more };
    this.#attempt = leaseId;
    this.#set({ asking: { endsAt: null }, problem: null });
    while (this.#attempt === leaseId) {
      const sent = this.#tell('look', {}).at;
      const seq = this.#seq;
      const reply = await this.#http.call('POST', 'lock/request', { body });
      if (this.#attempt !== leaseId) return false;
      if (reply.status === 202) {
        this.#set({ asking: { endsAt: endOf(reply.body.request) } });
        // What happened since the call was sent may be the answer.
        if (this.#seq === seq) await this.#pause(ASK_AGAIN_MS);
      } else if (isTrouble(reply)) {
        await this.#pause(this.#tell('retry', { waits: false, retryAfterMs: reply.retryAfterMs }).pauseMs!);
      } else {
        return this.#granted(sent, reply);
      }
    }
    return false;
  }

  /** Cancels a request, whatever became of it: a lock that it has brought is released. */
  async withdraw(): Promise<void> {
    const leaseId = this.#attempt;
    if (leaseId === null || !this.#state.asking) return;
    this.#attempt = null;
    this.#set({ asking: null });
    this.hurry();
    await this.#patiently(() => this.#http.call('DELETE', 'lock/request', { leaseId }));
  }

  async release(reason?: LossReason): Promise<void> {
    const leaseId = this.#leaseId;
    if (leaseId === null) return;
    this.#giveUp();
    if (reason) this.#set({ lost: { ...NO_END, reason } });
    const { status } = await this.#patiently(() => this.#http.call('DELETE', 'lock', { leaseId }));
    // Not answered: it may be held still, and the next attempt may find it so.
    if (status === 0) this.#maybe = leaseId;
  }

  /** From now on the page does not act on its lock. */
  #giveUp(): void {
    this.#own = null;
    this.#tell('release', {});
    this.#set({ mine: null, request: null });
  }

  leave(): void {
    this.#giveUp();
    this.#isResting = true;
    this.#stream?.abort();
  }

  back(): void {
    if (!this.#isResting) return;
    this.#isResting = false;
    if (this.#streams) void this.#follow();
  }

  async close(): Promise<void> {
    const leaseId = this.#leaseId ?? this.#attempt ?? this.#maybe;
    this.#isClosed = true;
    this.#attempt = null;
    this.#giveUp();
    this.#stream?.abort();
    clearTimeout(this.#presence);
    this.hurry();
    // Ends whatever the lease id stands for: a lock, a request, or an attempt whose answer was lost.
    if (leaseId !== null) await this.#patiently(() => this.#http.call('DELETE', 'lock/request', { leaseId }));
    this.#tell('close', {});
  }

  // --- waiting ---

  /** Repeats a call that is in trouble. `waits`: a user waits for it, so it is given up after a while. */
  async #patiently(send: () => Promise<Answered>, waits = true): Promise<Answered> {
    for (;;) {
      const reply = await send();
      if (!isTrouble(reply)) {
        this.#tell('succeeded', { waits });
        return reply;
      }
      const { pauseMs } = this.#tell('retry', { waits, retryAfterMs: reply.retryAfterMs });
      if (pauseMs === undefined || (this.#isClosed && !waits)) return reply;
      await this.#pause(pauseMs);
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#waits.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.#waits.add(end);
    });
  }

  /** Ends all waits, and renews. */
  hurry(): void {
    for (const end of [...this.#waits]) end();
    this.#tell('news', {});
  }

  visible(is: boolean): void {
    this.#isVisible = is;
    if (!is) return;
    void this.#confirm();
    this.#lookAround(0);
  }

  // --- events ---

  async #follow(): Promise<void> {
    while (!this.#isClosed && !this.#isResting && this.#stream === null) {
      const stream = this.#stream = new AbortController();
      let retryAfterMs: number | undefined;
      try {
        void this.#learnMe();
        const headers: Record<string, string> = this.#seq < 0 ? {} : { 'last-event-id': String(this.#seq) };
        const response = await this.#http.fetch('events', { headers, signal: stream.signal });
        if (response.ok) {
          this.#tell('succeeded', { waits: false });
          this.#set({ connection: 'live', isRefused: false });
          this.#lookAround(PRESENCE_SOON_MS);
          await readEvents(response, () => stream.abort(), (name, data) => {
            // The server begins anew: also with lower numbers, if its store is another one.
            if (name === 'snapshot') this.#seq = -1;
            this.#hear(name, data);
          });
        } else {
          retryAfterMs = retryAfter(response);
          const { code = '', title: text = '' } = await response.json();
          const isRefused = response.status < 429 && response.status !== 408;
          this.#set({ isRefused, ...(isRefused && { problem: { code, text } }) });
        }
      } catch {
        // Broken off, or never there: it is opened anew.
      }
      this.#stream = null;
      if (this.#isClosed || this.#isResting) return;
      this.#set({ connection: 'lost' });
      await this.#pause(this.#tell('retry', { waits: false, retryAfterMs }).pauseMs!);
    }
  }

  async #learnMe(): Promise<void> {
    if (this.#state.me) return;
    const { status, body } = await this.#http.call('GET', '../../me');
    if (status === 200) this.#set({ me: { id: body.id, name: body.name } });
  }

  look(isLive: boolean): void {
    this.#set({ connection: isLive ? 'live' : 'lost' });
    this.#seq = -1; // the server may have another store by now
    if (isLive) void this.#look();
  }

  /** Asks for the current state: the events that the page brings may have a gap. */
  async #look(): Promise<void> {
    void this.#learnMe();
    const { status, body } = await this.#http.call('GET', 'lock', { leaseId: this.#leaseId });
    if (status === 200) this.#hear('snapshot', body);
    this.#lookAround(PRESENCE_SOON_MS);
  }

  event(event: DocumentEvent): void {
    if (this.#seq >= 0 && event.seq > this.#seq + 1) void this.#look();
    this.#hear(event.event, event);
  }

  #hear(name: string, data: any): void {
    // The end of a stream has no number.
    if (data.reason === 'token_expired') this.#http.forgetToken();
    if (data.seq === undefined || data.seq <= this.#seq - (name === 'snapshot' ? 1 : 0)) return;
    this.#seq = data.seq;
    if (name === 'snapshot') this.#see(data);
    else this.#happened(data);
    // What was asked may be answered; who is there may have changed.
    if (this.#state.asking) this.hurry();
    this.#lookAround(PRESENCE_SOON_MS);
  }

  /** The current state of the lock. */
  #see({ locked, holder, fence, held_for_ms: heldFor = 0, leaving = false, may }: any): void {
    const lock = locked ? { holder, fence, since: Date.now() - heldFor, leaving } : null;
    this.#set({ lock, may });
    // It may be older than a grant that has just come: a renewal finds out.
    if (this.#state.mine && this.#state.mine.fence !== lock?.fence) this.#tell('news', {});
  }

  /** The lock has a new holder. */
  #locked({ holder, fence }: Pick<DocumentEvent, 'holder' | 'fence'>): void {
    const { lock } = this.#state;
    this.#set({ lock: { holder, fence, since: lock?.fence === fence ? lock.since : Date.now(), leaving: false }, problem: null });
  }

  #happened(event: DocumentEvent): void {
    const { lock, mine } = this.#state;
    const { fence } = event;
    this.#say({ event });
    switch (event.event) {
      case 'DocumentLocked':
        this.#locked(event);
        break;
      case 'DocumentUnlocked':
        if (mine?.fence === fence) this.#end = { ...NO_END, by: event.by_name ?? event.by ?? null, note: event.note ?? null };
        if (!lock || lock.fence <= fence) this.#set({ lock: null });
        this.#tell('ended', { fence, reason: event.force_released ? 'force_released' : event.reason! });
        break;
      case 'DocumentLeaving':
      case 'DocumentResumed':
        if (lock?.fence === fence) this.#set({ lock: { ...lock, leaving: event.event === 'DocumentLeaving' } });
        break;
      default:
        // A request, or its end: a renewal's answer has all of it.
        if (mine) this.#tell('news', {});
    }
  }

  /** Asks who is there, now and then. */
  #lookAround(ms: number): void {
    clearTimeout(this.#presence);
    this.#presence = setTimeout(async () => {
      if (!this.#isVisible || this.#isResting || this.#isClosed) return;
      const { status, body } = await this.#http.call('GET', 'presence');
      if (this.#isClosed) return;
      if (status === 200) this.#set({ presence: body });
      this.#lookAround(PRESENCE_MS);
    }, ms);
  }

  /** Changes what is known. The page hears of it once, when all of it is changed. */
  #set(change: Partial<EngineState>): void {
    this.#state = { ...this.#state, ...change };
    if (this.#isAboutToSay) return;
    this.#isAboutToSay = true;
    queueMicrotask(() => {
      this.#isAboutToSay = false;
      this.#say({ state: this.#state });
    });
  }
}
