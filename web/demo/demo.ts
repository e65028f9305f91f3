// The demo: a small storyboard editor on the npm package, as it is shipped, and buttons that break the browser around it. Puts its
// parts together and draws where the tab stands.

import { init as initAutoSaveRules } from '/demo/leasehold/autosave.js';
import { init as initDocuments, openDocument, subscribeDocumentEvents } from '/demo/leasehold/documents.js';
import '/demo/leasehold/document-lock-define.js';
import '/demo/leasehold/elements-define.js';
import { discardProjectDraft, init, listProjectDrafts, type ProjectDraft } from '/demo/leasehold/index.js';
import { Editor } from './editor.js';
import { breakFiles } from './faults.js';
import { Feed, type Stream } from './feed.js';
import { addressFor, chosenUser, endLock, keepUser, readUsers, type User } from './session.js';
import { asText, edited, moved, storyboardOf, withScene, withoutScene, type Storyboard } from './storyboard.js';
import { Trouble } from './trouble.js';
import { Workplace } from './workplace.js';
import { beginLanguage, chooseLanguage, currentLanguage, say, writeWords } from './words.js';

const ROOM = 'storyboard';
/** Names the channel to this page's Workers. */
const TAB = [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

const find = <Node extends HTMLElement = HTMLElement>(id: string) => document.querySelector<Node>(`#${id}`)!;

/** Workers come from below /demo/ only, where a browser asks. */
function allowOwnWorkers(): void {
  type Policies = { createPolicy(name: string, rules: { createScriptURL(address: string): string }): unknown };
  (globalThis as { trustedTypes?: Policies }).trustedTypes?.createPolicy('default', {
    createScriptURL: (address) => {
      const { origin, pathname } = new URL(address, location.href);
      if (origin === location.origin && pathname.startsWith('/demo/')) return address;
      throw new TypeError(`no script comes from ${address}`);
    },
  });
}

function sample(): Storyboard {
  const numbers = [1, 2, 3] as const;
  return { scenes: numbers.map((number) => ({ id: `sample-${number}`, title: say(`sample_${number}`), text: say(`sample_${number}_text`) })) };
}

class Page {
  readonly #users: readonly User[];
  readonly #user: User;
  readonly #feed = new Feed(find('feed'));
  readonly #trouble: Trouble;
  readonly #work: Workplace;
  readonly #editor: Editor;
  #drafts: ProjectDraft[] = [];

  constructor(users: readonly User[], user: User) {
    this.#users = users;
    this.#user = user;
    this.#work = new Workplace({
      label: user.name, first: sample(), changed: () => queueMicrotask(() => this.#draw()),
      open: (how) => openDocument(ROOM, { ...how, token: () => this.#token() }),
    });
    subscribeDocumentEvents((event) => this.#feed.hear('documents', event));
    this.#trouble = new Trouble(find('faults'), {
      tab: TAB, other: this.#other.name,
      hasLock: () => this.#work.standing.document === 'mine',
      endLock: () => endLock(this.#other, ROOM, say('lose_reason')),
      fail: (why) => this.#complain(why),
    });
    const change = (make: (board: Storyboard) => Storyboard) => this.#work.edit(make(this.#work.board));
    this.#editor = new Editor(find('scenes'), {
      edit: (id, fields) => change((board) => edited(board, id, fields)),
      move: (id, by) => change((board) => moved(board, id, by)),
      remove: (id) => change((board) => withoutScene(board, id)),
    });
    find('add').addEventListener('click', () => this.#add());
    document.addEventListener('use-draft', (event) => this.#takeDraft(event as CustomEvent<{ text: string }>));
    find('draft-show').addEventListener('click', () => { find('draft-text').hidden = !find('draft-text').hidden; });
    find('draft-discard').addEventListener('click', () => void this.#discard());
    find<HTMLSelectElement>('dialect').addEventListener('change', ({ target }) => this.#feed.choose((target as HTMLSelectElement).value as Stream));
    find<HTMLSelectElement>('language').addEventListener('change', ({ target }) => this.#translate((target as HTMLSelectElement).value));
    this.#place();
    this.#translate(currentLanguage());
    for (const id of ['steps', 'room']) find(id).hidden = false;
  }

  get #other(): User {
    return this.#users.find(({ id }) => id !== this.#user.id) ?? this.#user;
  }

  /** Tokens last a day; the server signs new ones. */
  async #token(): Promise<string> {
    const fresh = (await readUsers()).find(({ id }) => id === this.#user.id);
    return (fresh ?? this.#user).token;
  }

  /** Gives the elements what they show, and makes the choice of users. */
  #place(): void {
    const { autosave, document: lock } = this.#work;
    for (const element of document.querySelectorAll<HTMLElement>('autosave-indicator, autosave-history')) Object.assign(element, { autosave });
    find('document').append(Object.assign(document.createElement('document-lock'), { document: lock }));
    for (const user of this.#users) {
      const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'user', value: user.id, checked: user === this.#user });
      const label = document.createElement('label');
      label.append(input, Object.assign(document.createElement('span'), { textContent: user.name }));
      input.addEventListener('change', () => void this.#become(user));
      find('users').append(label);
    }
    find<HTMLAnchorElement>('second').href = addressFor(this.#other);
  }

  async #become(user: User): Promise<void> {
    keepUser(user.id);
    await this.#work.leave();
    location.reload();
  }

  #add(title = say('new_title'), text = ''): void {
    const id = crypto.randomUUID();
    this.#work.edit(withScene(this.#work.board, { id, title, text }));
    this.#draw();
    this.#editor.focus(id);
  }

  /** What the document lock has kept becomes a scene of its own: nothing is overwritten. */
  #takeDraft(event: CustomEvent<{ text: string }>): void {
    if (!this.#work.mayEdit) return;
    event.preventDefault();
    this.#add(say('draft_title'), event.detail.text);
  }

  async #discard(): Promise<void> {
    await Promise.all(this.#drafts.map(({ id }) => discardProjectDraft({ id })));
    this.#drafts = [];
    find('drafts').hidden = true;
  }

  #translate(language: string): void {
    if (language !== currentLanguage()) chooseLanguage(language);
    find<HTMLSelectElement>('language').value = currentLanguage();
    writeWords();
    find('second').textContent = say('second', { name: this.#other.name });
    this.#feed.refresh();
    this.#draw();
  }

  #complain(why: string): void {
    find('problem').textContent = why;
    find('problem').hidden = false;
  }

  #draw(): void {
    const { board, mayEdit, autosave } = this.#work;
    this.#editor.draw(board, mayEdit);
    find<HTMLButtonElement>('add').disabled = !mayEdit;
    this.#trouble.draw();
    const [word, text] = this.#words();
    find('standing').dataset['edits'] = mayEdit ? 'yes' : 'no';
    find('standing-word').textContent = word;
    find('standing-text').textContent = text;
    if (autosave.snapshot().hasDraft && this.#drafts.length === 0) void this.#offerDrafts();
  }

  /** Where the tab stands, in a word and a sentence. */
  #words(): [word: string, text: string] {
    const { standing, mayEdit, autosave, document: lock } = this.#work;
    if (mayEdit) return [say('editing'), say('editing_text')];
    const { state } = autosave.snapshot();
    const { status, holder, sameUser, pending } = lock.getState();
    if (state.kind === 'unavailable') return [say('reading'), say('no_files')];
    if (status === 'offline' || status === 'unavailable') return [say('reading'), say('document_away')];
    if (standing.document === 'others' && holder && !sameUser) return [say('reading'), say('other_person', { name: holder.name })];
    if (state.kind === 'readonly' && state.isFree) return [say('reading'), say('project_free')];
    if (state.kind === 'readonly' && state.reason !== 'conflict') return [say('reading'), say('not_renewed')];
    if (state.kind === 'readonly' || standing.document === 'others') return [say('reading'), say('other_tab')];
    if (standing.document === 'free' && pending === null) return [say('reading'), say('document_free')];
    return [say('starting'), say('starting_text')];
  }

  async #offerDrafts(): Promise<void> {
    this.#drafts = await listProjectDrafts().catch(() => []);
    const texts = this.#drafts.map(({ data }) => {
      try {
        const board = storyboardOf(JSON.parse(String(data)));
        return board ? asText(board) : String(data);
      } catch {
        return String(data);
      }
    });
    find('draft-text').textContent = texts.join('\n\n—\n\n');
    find('drafts').hidden = texts.length === 0;
  }
}

async function begin(): Promise<void> {
  beginLanguage();
  writeWords();
  allowOwnWorkers();
  breakFiles();
  const own = new URL('/demo/leasehold/', location.href);
  init({ workerUrl: `/demo/project.worker.js?tab=${TAB}`, wasmUrl: new URL('leasehold.wasm', own) });
  initAutoSaveRules({ wasmUrl: new URL('leasehold-autosave.wasm', own) });
  initDocuments({ workerUrl: `/demo/documents.worker.js?tab=${TAB}`, wasmUrl: new URL('leasehold-documents.wasm', own) });
  const users = await readUsers();
  const user = chosenUser(users);
  if (user) new Page(users, user);
  else problem(say('not_dev'));
}

function problem(text: string): void {
  find('problem').textContent = text;
  find('problem').hidden = false;
}

await begin().catch(() => problem(say('unreachable')));
