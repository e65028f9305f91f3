// The page at `/`: puts its parts together, and does what its user asks for.

import { Api, Refusal, Unreachable } from './api.js';
import { Board } from './board.js';
import { Holding } from './holding.js';
import { Live } from './live.js';
import { Presence } from './presence.js';
import { Feed, Table, askInDialog, banner, dressAvatar, drawAudit, find, show, toast, writeWords } from './view.js';
import { ago, chooseLanguage, currentLanguage, say } from './words.js';

/** How often the page is drawn, for the times on it. */
const DRAWN_EVERY_MS = 250;
/** How often the state is asked for: a renewal is no event, only this shows it. */
const ASKED_EVERY_MS = 3000;
/** How soon after an event: what the user may do with a document is in the answer alone. */
const ASKED_AFTER_MS = 150;

const api = new Api();
const model = { me: null, board: new Board(), holding: null, presence: null };
const link = { state: 'connecting', retryAt: 0, error: null };
let audit = [];
let asking = null;

model.holding = new Holding(api, {
  changed: () => askSoon(),
  got: (room) => { toast(say('t_locked', { room })); askSoon(); },
  lost: (room) => toast(say('t_lost', { room }), 'bad'),
  requested: (room, by) => toast(say('t_request', { room, name: model.board.nameOf(by) }), 'bad'),
  requestOver: (room, refusal) => {
    const words = refusal ? say('t_kept', { room, name: model.board.nameOf(refusal.holder) }) : say('t_over', { room });
    toast(words, 'bad');
  },
});
model.presence = new Presence(api);

const table = new Table(model, act);
const feed = new Feed();
const live = new Live(api, {
  state: (state, { retryAt = 0, error = null }) => {
    Object.assign(link, { state, retryAt, error });
    if (error instanceof Refusal && error.status === 401) signInAgain(error.message);
    if (state === 'live') askSoon();
    draw();
  },
  event: (event) => {
    model.board.handleEvent(event, performance.now());
    model.holding.handleEvent(event, model.me);
    if (event.reason === 'taken_over') void readAudit();
    askSoon();
    draw();
  },
  snapshot: (documents, asked) => {
    model.board.handleAll(documents, { asked, now: performance.now() });
    draw();
  },
  ended: () => signInAgain(say('token_expired')),
});

// --- what is known ---

function askSoon() {
  clearTimeout(asking);
  asking = setTimeout(ask, ASKED_AFTER_MS);
}

/** Asks for the state of everything, and again after a while. */
async function ask() {
  clearTimeout(asking);
  asking = setTimeout(ask, ASKED_EVERY_MS);
  if (model.me === null || document.visibilityState === 'hidden') return;
  const [me, asked] = [model.me, performance.now()];
  try {
    const { documents, isWhole } = await api.locks();
    if (model.me !== me) return;
    model.board.handleAll(documents, { asked, now: performance.now(), isWhole });
    await model.presence.ask(table.rooms);
  } catch (error) {
    if (model.me !== me) return;
    if (error instanceof Unreachable) live.broke(error);
    if (error instanceof Refusal && error.status === 401) signInAgain(error.message);
  }
  draw();
}

/** Reads the newest entries of the audit. Its tab is there for users who may read it. */
async function readAudit() {
  try {
    audit = (await api.call('GET', '/api/audit?newest=true&limit=100')).entries;
    show(find('tab-audit'), true);
  } catch (error) {
    if (!(error instanceof Refusal)) return;
    audit = null;
    show(find('tab-audit'), error.status === 404);
    if (error.status !== 404) choosePanel('events');
  }
  drawAudit(model.board, audit);
}

// --- what the user does ---

/** Does what a button in a row is for. */
function act(action, lock) {
  if (!lock) return;
  const { room } = lock;
  const name = model.board.nameOf(lock.holder);
  const { holding } = model;
  const isMine = holding.holds(lock);
  const words = { room, name };
  switch (action) {
    case 'release':
      if (isMine) void attempt(room, () => holding.release(room), say('t_released', words));
      else {
        askInDialog({
          title: say('release_title', words), text: say('release_text', words), button: say('end_lock'), reason: true,
          run: async ({ reason }) => { await holding.end(lock, reason); toast(say('t_ended', words)); },
        });
      }
      break;
    case 'take_over':
      askInDialog({
        title: say('take_over_title', words), text: say('take_over_text', words), button: say('take_over'), reason: true,
        run: ({ reason }) => holding.takeOver(lock, reason),
      });
      break;
    case 'ask':
      askInDialog({
        title: say('ask_title', words), text: say('ask_text', words), button: say('ask_do'), silence: say('silence_refuse', words),
        run: async ({ silence }) => { await holding.ask(lock, silence); toast(say('t_asked', words)); draw(); },
      });
      break;
    case 'withdraw': void attempt(room, () => holding.withdraw(room), say('t_withdrawn', words)); break;
    case 'hand_over': void attempt(room, () => holding.answer(room, lock.request?.id, true), say('t_released', words)); break;
    case 'keep': void attempt(room, () => holding.answer(room, lock.request?.id, false), ''); break;
    default:
  }
}

/** Does something whose refusal is shown as a message. */
async function attempt(room, work, done) {
  try {
    await work();
    if (done) toast(done);
  } catch (error) {
    toast(say('t_failed', { room, why: error.words ?? String(error) }), 'bad');
  }
  askSoon();
  draw();
}

async function lockNamed(submit) {
  submit.preventDefault();
  const field = find('lock-room');
  const room = field.value.trim();
  const complain = (words) => { find('lock-problem').textContent = words; };
  if (room === '') {
    complain(say('room_missing'));
    field.focus();
    return;
  }
  try {
    await model.holding.lock(room);
    complain('');
    field.value = '';
  } catch (error) {
    complain(error.words ?? String(error));
  }
}

// --- who the user is ---

/** Shows everything to a user who has signed in. */
function enter(me) {
  model.me = me;
  model.board = new Board();
  table.forget();
  feed.forget();
  link.error = null;
  live.forget();
  drawWho();
  void live.connect();
  void model.holding.comeBack().then(askSoon);
  void readAudit();
  draw();
}

/** The token is over: asks for another one. Made-up users get a new one by themselves. */
function signInAgain(why = '') {
  model.me = null;
  live.close();
  model.presence.forget();
  if (api.by === 'token') api.signOut();
  else if (api.by === 'user') setTimeout(begin, ASKED_EVERY_MS);
  find('token-problem').textContent = why;
  drawWho();
  draw();
}

async function signIn(submit) {
  submit.preventDefault();
  const field = find('token');
  const complain = (words) => { find('token-problem').textContent = words; };
  // A token is often copied with the words around it.
  const token = field.value.trim().replace(/^(authorization:\s*)?bearer\s+/i, '');
  if (token === '') {
    complain(say('token_missing'));
    field.focus();
    return;
  }
  try {
    const me = await api.signIn(token);
    field.value = '';
    complain('');
    enter(me);
  } catch (error) {
    complain(error.words ?? String(error));
    field.focus();
  }
}

async function leaveUser() {
  live.close();
  await model.holding.giveUp();
}

async function switchUser(id) {
  await leaveUser();
  api.chooseUser(id);
  await begin();
}

/** Who is signed in, and how that can be changed. */
function drawWho() {
  const isIn = model.me !== null;
  show(find('users'), api.by === 'user' && isIn);
  show(find('demo'), api.by === 'user');
  show(find('me'), isIn && api.by !== 'user');
  show(find('sign-out'), isIn && api.by === 'token');
  if (isIn) {
    dressAvatar(find('me').querySelector('.avatar'), model.me);
    find('me').querySelector('.name').textContent = api.by === 'nothing' ? say('anonymous') : model.me.name;
  }
  const choices = find('users');
  if (api.by !== 'user' || choices.querySelector('label')) return;
  for (const user of api.users) {
    const label = document.createElement('label');
    const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'user', value: user.id, checked: user === api.user });
    input.onchange = () => void switchUser(user.id);
    const name = Object.assign(document.createElement('span'), { textContent: user.name });
    label.append(input, name);
    choices.append(label);
  }
}

// --- drawing ---

function draw() {
  const now = performance.now();
  const isIn = model.me !== null;
  show(find('sign-in'), !isIn && api.by === 'token' && link.error === null);
  show(find('board'), isIn);
  drawLink(isIn, now);
  if (!isIn) return;
  const requests = [...model.board.locks.values()].filter((lock) => lock.request !== null && model.holding.holds(lock)).length;
  const title = requests > 0 ? `(${requests}) Leasehold` : 'Leasehold';
  if (document.title !== title) document.title = title;
  const filter = find('filter').value;
  table.draw(filter, now);
  feed.draw(model.board, filter, now);
  drawTryLine();
}

function drawLink(isIn, now) {
  const chip = find('link');
  const isLost = link.state === 'lost';
  show(chip, isIn || isLost);
  const state = isLost || (link.state === 'connecting' && model.board.isKnown) ? 'reconnecting' : link.state;
  chip.dataset.state = state;
  const words = say(state);
  if (chip.textContent !== words) chip.textContent = words;
  document.body.classList.toggle('stale', isLost && model.board.isKnown);
  const next = say('in_seconds', { seconds: Math.max(0, Math.ceil((link.retryAt - now) / 1000)) });
  // A stream that broke is usually back at once: nobody needs to be alarmed.
  const isAlarming = isLost && (link.error !== null || now - model.board.heardAt > 4000);
  if (!isAlarming) banner('');
  else if (link.error instanceof Refusal && link.error.status === 429) banner(say('too_many'), say('trying_again', { next }));
  else if (link.error instanceof Refusal) banner(link.error.words, say('trying_again', { next }), retry);
  else banner(say('unreachable'), say('stale', { ago: ago(now - model.board.heardAt), next }), retry);
}

function retry() {
  if (model.me === null) void begin();
  else void live.connect();
}

/** The command of the empty page. The made-up users' tokens are printed by the server anyway; another one is never shown. */
function drawTryLine() {
  const other = api.users.find((user) => user !== api.user);
  const token = other ? other.token : '$TOKEN';
  const header = api.by === 'nothing' ? '' : ` -H "Authorization: Bearer ${token}"`;
  const line = `curl -X POST ${location.origin}/api/documents/minutes/lock${header}`;
  if (find('try-line').textContent !== line) find('try-line').textContent = line;
}

async function copyTryLine() {
  try {
    await navigator.clipboard.writeText(find('try-line').textContent);
    toast(say('copied'));
  } catch {
    getSelection()?.selectAllChildren(find('try-line'));
  }
}

function choosePanel(name) {
  for (const panel of ['events', 'audit']) {
    const [tab, isChosen] = [find(`tab-${panel}`), panel === name];
    tab.setAttribute('aria-selected', String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
    show(find(panel), isChosen);
  }
  if (name === 'audit') void readAudit();
}

function drawLanguage() {
  document.documentElement.lang = currentLanguage();
  find('language').value = currentLanguage();
  writeWords();
  table.forget();
  feed.forget();
  drawAudit(model.board, audit);
  drawWho();
  draw();
}

// --- the beginning ---

function listen() {
  find('lock-form').onsubmit = lockNamed;
  find('sign-in').querySelector('form').onsubmit = signIn;
  find('sign-out').onclick = () => void leaveUser().then(() => signInAgain());
  find('filter').oninput = draw;
  find('filter').onkeydown = ({ key }) => { if (key === 'Escape') clearFilter(); };
  find('no-match').querySelector('button').onclick = clearFilter;
  find('try-copy').onclick = () => void copyTryLine();
  find('language').onchange = ({ target }) => { chooseLanguage(target.value); drawLanguage(); };
  find('tab-events').onclick = () => choosePanel('events');
  find('tab-audit').onclick = () => choosePanel('audit');
  document.querySelector('[role=tablist]').onkeydown = ({ key }) => {
    if (!['ArrowLeft', 'ArrowRight'].includes(key) || find('tab-audit').hidden) return;
    const next = find('tab-events').tabIndex === 0 ? 'audit' : 'events';
    choosePanel(next);
    find(`tab-${next}`).focus();
  };
  addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.target.closest?.('input, textarea, select, dialog')) return;
    event.preventDefault();
    find('filter').focus();
  });
  addEventListener('pagehide', () => model.holding.leave());
  // A page from the back/forward cache begins anew, and resumes what it held.
  addEventListener('pageshow', ({ persisted }) => { if (persisted) location.reload(); });
  addEventListener('online', () => { if (model.me !== null) void live.connect(); });
  addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible') { askSoon(); model.holding.tick(); } });
}

function clearFilter() {
  find('filter').value = '';
  find('filter').focus();
  draw();
}

/** Starts the clock that renews locks. A policy is needed: the page's own rules allow no script from an arbitrary text. */
function startTicking() {
  const policy = globalThis.trustedTypes?.createPolicy('leasehold', { createScriptURL: () => '/page/ticker.js' });
  const ticker = new Worker(policy ? policy.createScriptURL('') : '/page/ticker.js');
  ticker.onmessage = () => model.holding.tick();
  setInterval(draw, DRAWN_EVERY_MS);
}

/** Signs in with what there is, or shows how to. */
async function begin() {
  try {
    await api.begin();
    if (!api.hasToken) return signInAgain();
    enter(await api.me());
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return signInAgain(error.message);
    Object.assign(link, { state: 'lost', error, retryAt: performance.now() + ASKED_EVERY_MS });
    setTimeout(() => { if (model.me === null && link.state === 'lost') void begin(); }, ASKED_EVERY_MS);
    draw();
  }
  return undefined;
}

listen();
drawLanguage();
startTicking();
void begin();
