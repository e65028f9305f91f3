// Draws the page. Texts from documents and people are only ever set as text, never as HTML.

import { ago, clock, parts, say, span } from './words.js';

/** How many rows are drawn. The filter finds the others. */
const ROWS = 200;
/** How many people are named as looking at a document. */
const NAMED = 3;
/** How long a row that changed is highlighted. */
const HIGHLIGHT_MS = 1600;
/** How long a message stays. */
const TOAST_MS = 6000;

export const find = (id) => document.getElementById(id);

function make(name, properties = {}, ...children) {
  const { class: names, role, ...rest } = properties;
  const element = Object.assign(document.createElement(name), rest);
  if (names) element.className = names;
  if (role) element.setAttribute('role', role);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/** Sets a text if it is another: a screen reader and a selection notice every change. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows or hides an element. */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/** A circle with the first letter of a name, in one of eight colours that go by the user. */
export function dressAvatar(element, { id, name }) {
  let sum = 0;
  for (const letter of id) sum = (sum * 31 + letter.codePointAt(0)) % 1_000_003;
  element.dataset.colour = String(sum % 8);
  write(element, [...name][0]?.toUpperCase() ?? '?');
}

function avatar(person) {
  const element = make('span', { class: 'avatar' });
  element.setAttribute('aria-hidden', 'true');
  dressAvatar(element, person);
  return element;
}

/** Writes all words that do not change, in the current language. */
export function writeWords() {
  for (const element of document.querySelectorAll('[data-say]')) write(element, say(element.dataset.say));
  find('lock-room').placeholder = say('lock_hint');
  find('filter').placeholder = say('filter_hint');
  find('activity').setAttribute('aria-label', `${say('events')}, ${say('audit')}`);
}

/** The table of locks. `act(action, lock)` is called for a button; `model` has `board`, `holding`, `presence` and `me`. */
export class Table {
  #model;
  #act;
  #rows = new Map();

  constructor(model, act) {
    this.#model = model;
    this.#act = act;
  }

  draw(filter, now) {
    const { board } = this.#model;
    const found = board.matching(filter);
    const shown = found.slice(0, ROWS);
    const body = find('rows');
    for (const [room, row] of this.#rows) {
      if (shown.some((lock) => lock.room === room)) continue;
      row.element.remove();
      this.#rows.delete(room);
    }
    shown.forEach((lock, at) => {
      let row = this.#rows.get(lock.room);
      if (!row) this.#rows.set(lock.room, (row = new Row(lock.room, (action) => this.#act(action, board.locks.get(lock.room)))));
      // A row is moved only if it is at another place, so that the focus stays where it is.
      if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at] ?? null);
      row.draw(lock, this.#model, now);
    });
    this.#drawRest(filter, found, shown);
  }

  /** What the user of the table sees instead of rows, or below them. */
  #drawRest(filter, found, shown) {
    const { board } = this.#model;
    write(find('count'), board.isKnown ? String(found.length) : '');
    show(find('table'), shown.length > 0);
    show(find('more'), found.length > shown.length);
    write(find('more'), say('more', { count: found.length - shown.length }));
    show(find('waiting'), !board.isKnown);
    show(find('empty'), board.isKnown && board.locks.size === 0);
    show(find('no-match'), board.isKnown && board.locks.size > 0 && found.length === 0);
    write(find('no-match').firstElementChild, say('no_match', { filter: filter.trim() }));
  }

  /** The rooms of the rows that are drawn. */
  get rooms() {
    return [...this.#rows.keys()];
  }

  /** Draws the words of all rows again, after the language has changed. */
  forget() {
    for (const row of this.#rows.values()) row.element.remove();
    this.#rows.clear();
  }
}

class Row {
  #act;
  #name = make('span', { class: 'name' });
  #badge = make('span', { class: 'badge' });
  #face = avatar({ id: '', name: '' });
  #since = make('time');
  #left = make('span', { class: 'left' });
  #meter = make('span', { class: 'meter' }, make('span'));
  #presence = make('span', { class: 'presence soft' });
  #request = make('span', { class: 'request' });
  #actions = make('td', { class: 'actions', role: 'cell' });
  #shownActions = '';

  constructor(room, act) {
    this.#act = act;
    this.room = room;
    const cell = (label, ...content) => {
      const td = make('td', { role: 'cell' }, ...content);
      td.dataset.label = say(label);
      return td;
    };
    const head = make('th', { role: 'rowheader', scope: 'row' }, make('span', { class: 'room' }, room), this.#presence);
    const holder = make('span', { class: 'person' }, this.#face, this.#name, this.#badge);
    this.element = make('tr', { role: 'row' }, head, cell('holder', holder, this.#request),
      cell('since', this.#since), cell('left', this.#left, this.#meter), this.#actions);
    this.element.dataset.room = room;
  }

  draw(lock, model, now) {
    const { board, holding } = model;
    const isMine = holding.holds(lock);
    const name = board.nameOf(lock.holder);
    dressAvatar(this.#face, { id: lock.holder.id, name });
    write(this.#name, name);
    const isSameUser = lock.sameUser || lock.holder.id === model.me?.id;
    const badge = isMine ? say('you') : isSameUser ? say('you_elsewhere') : '';
    write(this.#badge, lock.leaving ? [badge, say('leaving')].filter(Boolean).join(' · ') : badge);
    show(this.#badge, this.#badge.textContent !== '');
    write(this.#since, ago(now - lock.since));
    const since = new Date(Date.now() - (now - lock.since));
    if (!this.#since.title) Object.assign(this.#since, { title: clock(since), dateTime: since.toISOString() });
    this.#drawLeft(lock, now);
    this.#drawPresence(model);
    this.#drawRequest(lock, isMine, model, now);
    this.#drawActions(actionsFor(lock, isMine, model), lock);
    this.element.classList.toggle('mine', isMine);
    this.element.classList.toggle('changed', now - lock.changed < HIGHLIGHT_MS);
  }

  #drawLeft(lock, now) {
    const left = lock.expires - now;
    write(this.#left, left > 0 ? span(left) : say('expired'));
    const share = Math.max(0, Math.min(1, left / Math.max(1, lock.full)));
    this.#meter.style.setProperty('--share', share.toFixed(3));
    this.#meter.dataset.level = share > 0.5 ? 'high' : share > 0.2 ? 'middle' : 'low';
  }

  #drawPresence({ board, presence }) {
    const looking = presence.of(this.room);
    const names = looking.slice(0, NAMED).map((person) => board.nameOf(person)).join(', ');
    const named = looking.length > NAMED ? say('and_others', { names, count: looking.length - NAMED }) : names;
    write(this.#presence, looking.length === 0 ? '' : say('looking', { names: named, count: looking.length }));
    show(this.#presence, looking.length > 0);
  }

  #drawRequest(lock, isMine, { board, holding }, now) {
    const { request } = lock;
    const isAsking = holding.asking(lock.room);
    let text = '';
    if (isAsking) text = say('you_ask', { name: board.nameOf(lock.holder) });
    else if (request) text = say(isMine ? 'asks_you' : 'asks', { name: board.nameOf(request.by) });
    if (request && request.ends === null) text += ` · ${say('not_told')}`;
    else if (request) text += ` · ${say('answer_left', { left: span(request.ends - now) })}`;
    write(this.#request, text);
    show(this.#request, text !== '');
    this.#request.classList.toggle('urgent', isMine && request !== null);
  }

  #drawActions(actions, lock) {
    const wanted = `${actions.join()} ${lock.fence}`;
    if (this.#shownActions === wanted) return;
    const focused = this.#actions.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this.#shownActions = wanted;
    this.#actions.replaceChildren(...actions.map((action) => {
      const button = make('button', { type: 'button', onclick: () => this.#act(action) }, say(action));
      button.dataset.action = action;
      button.setAttribute('aria-label', say('about', { action: say(action), room: this.room }));
      if (action === 'hand_over') button.className = 'primary';
      return button;
    }));
    // The button that had the focus is another one now.
    if (focused) (this.#actions.querySelector(`[data-action="${focused}"]`) ?? this.#actions.querySelector('button'))?.focus();
  }
}

/** What the user may do with a lock. The server decides in the end. */
function actionsFor(lock, isMine, { holding }) {
  if (isMine) return lock.request ? ['hand_over', 'keep', 'release'] : ['release'];
  if (holding.asking(lock.room)) return ['withdraw', ...(lock.may === 'force' ? ['take_over'] : [])];
  const isOwn = lock.sameUser && lock.may !== 'read';
  return [
    ...(lock.may !== 'read' && !lock.request ? ['ask'] : []),
    ...(lock.may === 'force' || isOwn ? ['take_over'] : []),
    ...(lock.may === 'force' ? ['release'] : []),
  ];
}

const KINDS = {
  DocumentLocked: ['locked', 'e_locked'], DocumentLeaving: ['leaving', 'e_leaving'], DocumentResumed: ['back', 'e_back'],
  HandoverRequested: ['asks', 'e_asks'], HandoverTold: ['asks', 'e_told'], HandoverRefused: ['locked', 'e_kept'],
  HandoverWithdrawn: ['released', 'e_withdrawn'],
};
const ENDS = {
  released: ['released', 'e_released'], expired: ['expired', 'e_expired'], disconnected: ['expired', 'e_disconnected'],
  taken_over: ['taken', 'e_taken'], handed_over: ['handed', 'e_handed'], force_released: ['released', 'e_ended'],
};

/** A sentence about a document and one or two people. */
function sentence(key, { room, name, by }) {
  const values = { room: () => make('b', { class: 'room' }, room), name: () => make('b', {}, name), by: () => make('b', {}, by) };
  return make('span', { class: 'sentence' }, ...parts(key).map((part) => (part.place ? values[part.place]() : part)));
}

function entry(kind, words, note, time) {
  const quoted = note ? make('q', {}, note) : null;
  return make('li', { class: kind }, icon(kind), make('div', {}, words, quoted, time));
}

/** The newest events. */
export class Feed {
  #items = new Map();

  draw(board, filter, now) {
    const wanted = filter.trim().toLowerCase();
    const list = find('feed');
    const shown = board.events.filter((event) => matches(board, event, wanted)).slice(0, 60);
    for (const [key, item] of this.#items) {
      if (shown.some((event) => event.key === key)) continue;
      item.remove();
      this.#items.delete(key);
    }
    shown.forEach((event, at) => {
      let item = this.#items.get(event.key);
      if (!item) this.#items.set(event.key, (item = this.#make(board, event)));
      if (list.children[at] !== item) list.insertBefore(item, list.children[at] ?? null);
      write(item.querySelector('time'), ago(now - event.at));
    });
    show(find('feed-empty'), shown.length === 0);
  }

  #make(board, event) {
    const end = event.force_released ? 'force_released' : event.reason;
    const [kind, key] = event.event === 'DocumentUnlocked' ? ENDS[end] ?? ENDS.released : KINDS[event.event];
    const by = event.by ? board.nameOf({ id: event.by, name: event.by_name }) : say('someone');
    const happened = new Date();
    const time = make('time', { dateTime: happened.toISOString(), title: clock(happened) });
    return entry(kind, sentence(key, { room: event.roomId, name: board.nameOf(event.holder), by }), event.note, time);
  }

  forget() {
    for (const item of this.#items.values()) item.remove();
    this.#items.clear();
  }
}

function matches(board, event, wanted) {
  const names = [event.roomId, board.nameOf(event.holder), event.by ? board.nameOf({ id: event.by, name: event.by_name }) : ''];
  return names.some((text) => text.toLowerCase().includes(wanted));
}

/** The audit, newest first; `null` if the server keeps none. */
export function drawAudit(board, entries) {
  const items = (entries ?? []).map((line) => {
    const at = new Date(line.at);
    const time = make('time', { dateTime: line.at }, clock(at));
    const [kind, key] = line.action === 'taken_over' ? ['taken', 'e_taken'] : ['released', 'e_ended'];
    const name = board.nameOf({ id: line.holder, name: line.holder_name });
    const by = board.nameOf({ id: line.by, name: line.by_name });
    return entry(kind, sentence(key, { room: line.roomId, name, by }), line.reason, time);
  });
  find('audit-list').replaceChildren(...items.reverse());
  write(find('audit-empty'), say(entries === null ? 'audit_none' : 'audit_empty'));
  show(find('audit-empty'), items.length === 0);
}

/** A message that goes away by itself. */
export function toast(text, kind = 'good') {
  const element = make('p', { class: `toast ${kind}` }, text);
  find('toasts').append(element);
  setTimeout(() => element.remove(), TOAST_MS);
}

/**
 * The banner above everything; empty for none. `detail` may change every second: only `text` is read out by screen readers.
 * `retry` is what its button does, if it has one.
 */
export function banner(text, detail = '', retry = null) {
  show(find('banner'), text !== '');
  write(find('banner-text'), text);
  write(find('banner-detail'), detail);
  show(find('banner-action'), retry !== null);
  find('banner-action').onclick = retry;
}

/**
 * Asks for a reason, or for what silence shall mean, and does `run(answer)`. The dialog stays open with the refusal's words if
 * that fails.
 */
export function askInDialog({ title, text, button, reason, silence, run }) {
  const dialog = find('dialog');
  const form = dialog.querySelector('form');
  const go = dialog.querySelector('.go');
  write(find('dialog-title'), title);
  write(find('dialog-text'), text);
  write(go, button);
  show(find('dialog-reason'), reason === true);
  show(find('dialog-silence'), silence !== undefined);
  write(find('silence-refuse'), silence ?? '');
  form.reset();
  const complain = (words) => write(find('dialog-problem'), words);
  complain('');
  form.onsubmit = async (submit) => {
    submit.preventDefault();
    const given = find('reason').value.trim();
    if (reason && given === '') {
      complain(say('reason_missing'));
      find('reason').focus();
      return;
    }
    go.disabled = true;
    try {
      await run({ reason: given, silence: new FormData(form).get('silence') });
      dialog.close();
    } catch (error) {
      complain(error.words ?? String(error));
    } finally {
      go.disabled = false;
    }
  };
  dialog.querySelector('.cancel').onclick = () => dialog.close();
  dialog.showModal();
  if (reason) find('reason').focus();
}
