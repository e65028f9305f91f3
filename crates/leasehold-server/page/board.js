// What the page knows: who holds what, what happened last, and how people are called. It takes news and the time, and draws
// nothing. Times are milliseconds of `performance.now()`.

/** How many events are kept for showing. */
const EVENTS_KEPT = 200;

export class Board {
  /** By document. */
  locks = new Map();
  /** Newest first. */
  events = [];
  /** Whether the state has been heard at least once. */
  isKnown = false;
  /** When the server was last heard. */
  heardAt = 0;
  #names = new Map();
  #serial = 0;

  /** All locks at once, as the answer to a question that was sent at `asked`. What was heard since then is newer. */
  handleAll(states, { asked, now, isWhole = true }) {
    this.heardAt = now;
    const named = new Set(states.map((state) => state.roomId));
    for (const [room, lock] of this.locks) {
      if (isWhole && lock.heard < asked && !named.has(room)) this.locks.delete(room);
    }
    for (const state of states) this.handleState(state, now);
    this.isKnown = true;
  }

  /** One document as it is. */
  handleState(state, now) {
    const known = this.locks.get(state.roomId);
    if (known && known.seq > state.seq) return;
    if (!state.locked) {
      this.locks.delete(state.roomId);
      return;
    }
    this.#learn(state.holder);
    if (state.request) this.#learn(state.request.by);
    const isSame = known?.fence === state.fence;
    const lock = {
      room: state.roomId, seq: state.seq, fence: state.fence, holder: state.holder, may: state.may, leaving: state.leaving ?? false,
      sameUser: state.same_user, since: now - state.held_for_ms, expires: now + state.expires_in_ms,
      full: Math.max(state.expires_in_ms, isSame ? known.full : 0), request: requestAt(state.request, now), heard: now,
      // What was there before the page is no change.
      changed: known?.changed ?? (this.isKnown ? now : -Infinity),
    };
    if (known && (!isSame || known.leaving !== lock.leaving || known.request?.id !== lock.request?.id)) lock.changed = now;
    this.locks.set(state.roomId, lock);
  }

  /** Something that happened. */
  handleEvent(event, now) {
    this.heardAt = now;
    this.#learn(event.holder);
    if (event.by && event.by_name) this.#learn({ id: event.by, name: event.by_name });
    this.#serial += 1;
    this.events.unshift({ ...event, at: now, key: this.#serial });
    this.events.length = Math.min(this.events.length, EVENTS_KEPT);
    const known = this.locks.get(event.roomId);
    if (known && known.seq > event.seq) return;
    if (event.event === 'DocumentUnlocked') this.locks.delete(event.roomId);
    else if (event.event === 'DocumentLocked') this.locks.set(event.roomId, granted(event, known, now));
    else if (known) Object.assign(known, changes(event, known, now), { seq: event.seq, heard: now, changed: now });
  }

  /** The locks whose document or holder has `filter` in it, by name. */
  matching(filter) {
    const wanted = filter.trim().toLowerCase();
    const has = (text) => text.toLowerCase().includes(wanted);
    const found = [...this.locks.values()].filter((lock) => has(lock.room) || has(lock.holder.name) || has(lock.holder.id));
    return found.sort((one, other) => (one.room < other.room ? -1 : 1));
  }

  /** The name of a user; with the id where two users have the same name. */
  nameOf({ id, name }) {
    const shown = this.#names.get(id) ?? name ?? id;
    const isShared = [...this.#names].some(([other, same]) => other !== id && same === shown);
    return isShared && shown !== id ? `${shown} (${id})` : shown;
  }

  #learn({ id, name }) {
    this.#names.set(id, name);
  }
}

/** A pending request, with the time at which silence counts. */
function requestAt(request, now) {
  if (!request) return null;
  return { id: request.id, by: request.by, ends: request.ends_in_ms === undefined ? null : now + request.ends_in_ms };
}

/** A lock that was just granted. Only an answer about the document says what the user may do with it. */
function granted(event, known, now) {
  const left = event.expires_in_ms ?? 0;
  return {
    room: event.roomId, seq: event.seq, fence: event.fence, holder: event.holder, may: known?.may ?? 'read', leaving: false,
    sameUser: false, since: now, expires: now + left, full: left, request: null, heard: now, changed: now,
  };
}

/** What an event changes about a lock that goes on. */
function changes(event, known, now) {
  const by = { id: event.by, name: event.by_name ?? event.by };
  switch (event.event) {
    case 'DocumentLeaving': return { leaving: true, expires: now + (event.expires_in_ms ?? 0) };
    case 'DocumentResumed': return { leaving: false, expires: now + (event.expires_in_ms ?? 0) };
    case 'HandoverRequested': return { request: { id: event.seq, by, ends: null } };
    case 'HandoverTold': return { request: { id: known.request?.id, by, ends: now + (event.ends_in_ms ?? 0) } };
    case 'HandoverRefused':
    case 'HandoverWithdrawn': return { request: null };
    default: return {};
  }
}
