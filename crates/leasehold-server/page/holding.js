// The locks that this tab holds or asks for: renewed, answered for and given back. The server decides everything; this only
// sends what is due. Lease ids stay in here. They are written to the session's storage while the page is being left, and
// taken out when it is back, so that a duplicated tab does not get them.

import { Refusal, uuid } from './api.js';

const KEPT = 'leasehold.leaving';
/** How often a request is repeated. It lapses after thirty seconds. */
const REPEAT_MS = 10_000;
/** How soon a renewal that got no answer is tried again. */
const AGAIN_MS = 2_000;

/**
 * `to` is told: `changed()`, `lost(room)`, `got(room)`, `requested(room, by)` and `requestOver(room, refusal)`.
 */
export class Holding {
  #api;
  #to;
  #leases = new Map();
  #asks = new Map();

  constructor(api, to) {
    this.#api = api;
    this.#to = to;
  }

  /** Whether this tab holds this very lock. */
  holds(lock) {
    return this.#leases.get(lock.room)?.fence === lock.fence;
  }

  /** The request that this tab has made for a document. */
  asking(room) {
    return this.#asks.has(room);
  }

  async lock(room) {
    const leaseId = uuid();
    this.#keep(room, await this.#api.room('POST', room, 'lock', { body: { lease_id: leaseId } }));
  }

  async takeOver({ room, fence }, reason) {
    const body = { fence, reason, lease_id: uuid() };
    this.#keep(room, await this.#api.room('POST', room, 'lock/take-over', { body }));
  }

  /** Ends another user's lock. */
  async end({ room, fence }, reason) {
    await this.#api.room('POST', room, 'lock/force-release', { body: { fence, reason } });
  }

  /** Gives back a lock of this tab. */
  async release(room) {
    const lease = this.#leases.get(room);
    if (!lease) return;
    this.#leases.delete(room);
    await this.#api.room('DELETE', room, 'lock', { leaseId: lease.leaseId });
    this.#to.changed();
  }

  async ask({ room, fence }, onSilence) {
    const ask = { fence, onSilence, leaseId: uuid(), next: 0, isBusy: false };
    this.#asks.set(room, ask);
    try {
      await this.#repeat(room, ask);
    } catch (error) {
      this.#asks.delete(room);
      throw error;
    }
  }

  async withdraw(room) {
    const ask = this.#asks.get(room);
    if (!ask) return;
    this.#asks.delete(room);
    await this.#api.room('DELETE', room, 'lock/request', { leaseId: ask.leaseId });
    this.#to.changed();
  }

  /** Answers a request for a lock of this tab. */
  async answer(room, request, handOver) {
    const lease = this.#leases.get(room);
    if (!lease) return;
    const body = { request, hand_over: handOver };
    await this.#api.room('POST', room, 'lock/request/answer', { body, leaseId: lease.leaseId });
    if (handOver) this.#leases.delete(room);
    this.#to.changed();
  }

  /** Something happened to a document: what this tab has there is looked after at once. */
  handleEvent(event, me) {
    const room = event.roomId;
    const lease = this.#leases.get(room);
    if (lease && event.event === 'DocumentUnlocked' && event.fence === lease.fence) {
      this.#leases.delete(room);
      if (event.reason !== 'released' && event.reason !== 'handed_over') this.#to.lost(room);
    } else if (lease && event.event === 'HandoverRequested') {
      lease.next = 0;
    }
    const ask = this.#asks.get(room);
    if (ask && event.by === me.id && ['HandoverRefused', 'HandoverWithdrawn'].includes(event.event)) {
      this.#asks.delete(room);
      this.#to.requestOver(room, event.event === 'HandoverRefused' ? event : null);
    } else if (ask && ['DocumentUnlocked', 'DocumentLocked'].includes(event.event)) {
      ask.next = 0;
    }
    this.tick();
  }

  /** Sends what is due. */
  tick() {
    const now = performance.now();
    for (const [room, lease] of this.#leases) if (now >= lease.next && !lease.isBusy) void this.#renew(room, lease);
    for (const [room, ask] of this.#asks) if (now >= ask.next && !ask.isBusy) void this.#askAgain(room, ask);
  }

  /** The page is being left, perhaps to be loaded again: its locks are cut short, and kept for a page that comes back. */
  leave() {
    const leases = [...this.#leases].map(([room, { leaseId }]) => ({ room, leaseId }));
    for (const { room, leaseId } of leases) {
      navigator.sendBeacon(`/api/documents/${encodeURIComponent(room)}/lock/release`, JSON.stringify({ lease_id: leaseId }));
    }
    for (const [room, { leaseId }] of this.#asks) this.#api.leave(room, leaseId);
    if (leases.length > 0) sessionStorage.setItem(KEPT, JSON.stringify(leases));
  }

  /** The page is back: resumes what it held. */
  async comeBack() {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? '[]');
    sessionStorage.removeItem(KEPT);
    for (const { room, leaseId } of kept) {
      const body = { lease_id: leaseId, next_lease_id: uuid() };
      try {
        this.#keep(room, await this.#api.room('POST', room, 'lock/resume', { body }));
      } catch {
        // It ended meanwhile: the page shows who has it now.
      }
    }
  }

  /** Gives everything back, before another user signs in. */
  async giveUp() {
    const all = [...[...this.#leases.keys()].map((room) => this.release(room)), ...[...this.#asks.keys()].map((room) => this.withdraw(room))];
    await Promise.allSettled(all);
    this.#leases.clear();
    this.#asks.clear();
  }

  #keep(room, grant) {
    this.#asks.delete(room);
    const { lease_id: leaseId, fence, heartbeat_seconds: seconds } = grant;
    const lease = { leaseId, fence, every: seconds * 1000, next: performance.now() + seconds * 1000, told: null, isBusy: false };
    this.#leases.set(room, lease);
    this.#to.got(room);
  }

  async #renew(room, lease) {
    lease.isBusy = true;
    lease.next = performance.now() + lease.every;
    try {
      const { request } = await this.#api.room('PUT', room, 'lock', { leaseId: lease.leaseId });
      if (request) await this.#heed(room, lease, request);
    } catch (error) {
      const isOver = error instanceof Refusal && [403, 404].includes(error.status);
      if (!isOver) lease.next = performance.now() + AGAIN_MS;
      else if (this.#leases.get(room) === lease) {
        this.#leases.delete(room);
        this.#to.lost(room);
      }
    } finally {
      lease.isBusy = false;
    }
  }

  /** A request that is pending. Its countdown begins when the user can see it. */
  async #heed(room, lease, request) {
    if (lease.told === request.id) return;
    if (document.visibilityState !== 'visible') {
      this.#to.requested(room, request.by);
      lease.next = performance.now() + AGAIN_MS;
      return;
    }
    lease.told = request.id;
    this.#to.requested(room, request.by);
    await this.#api.room('POST', room, 'lock/request/told', { body: { request: request.id }, leaseId: lease.leaseId });
  }

  async #askAgain(room, ask) {
    try {
      await this.#repeat(room, ask);
    } catch (error) {
      if (!(error instanceof Refusal) || error.status === 429 || error.status >= 500) return;
      if (this.#asks.get(room) !== ask) return;
      this.#asks.delete(room);
      this.#to.requestOver(room, null);
    }
  }

  async #repeat(room, ask) {
    ask.isBusy = true;
    ask.next = performance.now() + REPEAT_MS;
    try {
      const body = { fence: ask.fence, on_silence: ask.onSilence, lease_id: ask.leaseId };
      const answer = await this.#api.room('POST', room, 'lock/request', { body });
      // A grant says how often to renew; while the holder is being asked, there is nothing to renew.
      if (answer.heartbeat_seconds !== undefined && this.#asks.get(room) === ask) this.#keep(room, answer);
    } finally {
      ask.isBusy = false;
    }
  }
}
