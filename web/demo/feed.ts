// The live event stream, in the dialect that the user chooses. Events are kept in every dialect, so that another choice shows the
// past, too.

import { subscribeLockEvents, type Dialect } from '/demo/leasehold/index.js';
import { entryOf, type Entry } from './entry.js';
import { timeOfDay } from '../src/elements/format.js';
import { currentLanguage, say } from './words.js';

/** The dialects of the project lock, and the server's events. */
export type Stream = Dialect | 'documents';

/** Older events are dropped. */
const MOST = 200;

export class Feed {
  readonly #list: HTMLElement;
  readonly #entries: Record<Stream, Entry[]> = { lock: [], service: [], autosave: [], documents: [] };
  #stream: Stream = 'lock';

  constructor(list: HTMLElement) {
    this.#list = list;
    for (const dialect of ['lock', 'service', 'autosave'] as const) {
      subscribeLockEvents((event) => this.hear(dialect, event), { dialect });
    }
  }

  hear(stream: Stream, event: object): void {
    const entry = entryOf(event, Date.now());
    const entries = this.#entries[stream];
    entries.unshift(entry);
    if (entries.length > MOST) entries.pop();
    if (stream !== this.#stream) return;
    this.#list.prepend(draw(entry));
    if (this.#list.children.length > MOST) this.#list.lastElementChild?.remove();
    this.#drawRest();
  }

  choose(stream: Stream): void {
    this.#stream = stream;
    this.#list.replaceChildren(...this.#entries[stream].map(draw));
    this.#drawRest();
  }

  /** Draws all of it anew, in another language. */
  refresh(): void {
    this.choose(this.#stream);
  }

  #drawRest(): void {
    document.querySelector('#dialect-text')!.textContent = say(`dialect_${this.#stream}`);
    document.querySelector<HTMLElement>('#feed-empty')!.hidden = this.#list.children.length > 0;
  }
}

function draw({ at, name, summary, isBad, json }: Entry): HTMLElement {
  const make = <Tag extends keyof HTMLElementTagNameMap>(tag: Tag, text = '') => Object.assign(document.createElement(tag), { textContent: text });
  const item = make('li');
  item.className = isBad ? 'bad' : '';
  // As the elements write it.
  const time = make('time', timeOfDay(at, currentLanguage()));
  time.dateTime = new Date(at).toISOString();
  const summaryNode = make('summary');
  summaryNode.append(time, make('b', name), make('span', summary));
  const details = make('details');
  details.append(summaryNode, make('pre', json));
  item.append(details);
  return item;
}
