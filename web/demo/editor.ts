// The scenes on the page: draws a storyboard and tells what the user changes. A scene that stays keeps its nodes, and with them focus
// and cursor, unless its content comes from elsewhere.

import type { Scene, Storyboard } from './storyboard.js';
import { say } from './words.js';

/** What the user does. */
export interface Edits {
  edit(id: string, change: Partial<Pick<Scene, 'title' | 'text'>>): void;
  move(id: string, by: number): void;
  remove(id: string): void;
}

interface Nodes {
  readonly item: HTMLLIElement;
  readonly number: HTMLElement;
  readonly title: HTMLInputElement;
  readonly text: HTMLTextAreaElement;
  readonly up: HTMLButtonElement;
  readonly down: HTMLButtonElement;
  readonly remove: HTMLButtonElement;
}

export class Editor {
  readonly #list: HTMLElement;
  readonly #edits: Edits;
  readonly #nodes = new Map<string, Nodes>();

  constructor(list: HTMLElement, edits: Edits) {
    this.#list = list;
    this.#edits = edits;
  }

  draw(board: Storyboard, canEdit: boolean): void {
    const wanted = new Set(board.scenes.map(({ id }) => id));
    for (const [id, { item }] of this.#nodes) {
      if (wanted.has(id)) continue;
      // The focus must not fall out of the list with its scene.
      if (item.contains(document.activeElement)) this.#list.focus();
      item.remove();
      this.#nodes.delete(id);
    }
    board.scenes.forEach((scene, at) => {
      const nodes = this.#nodes.get(scene.id) ?? this.#make(scene.id);
      if (this.#list.children[at] !== nodes.item) this.#place(nodes.item, at);
      fill(nodes, scene, at + 1, board.scenes.length, canEdit);
    });
  }

  /** Puts the cursor into the title of a scene. */
  focus(id: string): void {
    const title = this.#nodes.get(id)?.title;
    title?.focus();
    title?.select();
  }

  /** A node that is moved loses the focus. */
  #place(item: HTMLElement, at: number): void {
    const focused = document.activeElement;
    this.#list.insertBefore(item, this.#list.children[at] ?? null);
    if (focused instanceof HTMLElement && document.activeElement !== focused && focused.isConnected) focused.focus();
  }

  #make(id: string): Nodes {
    const button = (sign: string, work: () => void) => {
      const made = Object.assign(document.createElement('button'), { type: 'button', textContent: sign });
      made.addEventListener('click', work);
      return made;
    };
    const nodes: Nodes = {
      item: Object.assign(document.createElement('li'), { className: 'scene' }),
      number: Object.assign(document.createElement('span'), { className: 'number' }),
      title: Object.assign(document.createElement('input'), { type: 'text', maxLength: 200 }),
      text: Object.assign(document.createElement('textarea'), { maxLength: 20_000 }),
      up: button('↑', () => this.#edits.move(id, -1)),
      down: button('↓', () => this.#edits.move(id, 1)),
      remove: button('×', () => this.#edits.remove(id)),
    };
    nodes.title.addEventListener('input', () => this.#edits.edit(id, { title: nodes.title.value }));
    nodes.text.addEventListener('input', () => this.#edits.edit(id, { text: nodes.text.value }));
    const top = Object.assign(document.createElement('div'), { className: 'top' });
    top.append(nodes.number, nodes.up, nodes.down, nodes.remove);
    nodes.item.append(top, nodes.title, nodes.text);
    this.#nodes.set(id, nodes);
    return nodes;
  }
}

function fill(nodes: Nodes, scene: Scene, number: number, count: number, canEdit: boolean): void {
  nodes.number.textContent = say('scene', { number });
  for (const [field, value, label] of [[nodes.title, scene.title, 'scene_title'], [nodes.text, scene.text, 'scene_text']] as const) {
    if (field.value !== value) field.value = value;
    field.readOnly = !canEdit;
    field.ariaLabel = say(label, { number });
  }
  const buttons = [[nodes.up, 'up', number > 1], [nodes.down, 'down', number < count], [nodes.remove, 'remove', true]] as const;
  for (const [button, label, isPossible] of buttons) {
    button.ariaLabel = button.title = say(label, { number });
    button.disabled = !canEdit || !isPossible;
  }
}
