// The buttons that break things. Each breaks the browser or the server around the package, never the package.

import { channelOf, faults, type FaultMessage, type Faults } from './faults.js';
import { say } from './words.js';

/** How long the tab sleeps: longer than both leases. */
export const SLEEP_SECONDS = 40;

/** What a button breaks. */
type Name = 'lose' | 'full' | 'heart' | 'socket' | 'freeze';

const NAMES: readonly Name[] = ['lose', 'full', 'heart', 'socket', 'freeze'];

/** What the buttons need of the page. */
export interface Surroundings {
  /** The name of this tab, which its Workers know. */
  readonly tab: string;
  /** The name of the other user. */
  readonly other: string;
  /** Whether this tab has a lock at the server. */
  hasLock(): boolean;
  /** Ends this tab's lock at the server, as the other user. */
  endLock(): Promise<void>;
  /** Tells the user what did not work. */
  fail(why: string): void;
}

export class Trouble {
  readonly #around: Surroundings;
  readonly #channel: BroadcastChannel;
  readonly #buttons = new Map<Name, { button: HTMLButtonElement; text: HTMLElement }>();

  constructor(list: HTMLElement, around: Surroundings) {
    this.#around = around;
    this.#channel = channelOf(around.tab);
    for (const name of NAMES) {
      const button = Object.assign(document.createElement('button'), { type: 'button', id: `break-${name}` });
      const text = Object.assign(document.createElement('p'), { id: `break-${name}-text` });
      button.setAttribute('aria-describedby', text.id);
      button.addEventListener('click', () => void this.#press(name));
      const item = document.createElement('li');
      item.append(button, text);
      list.append(item);
      this.#buttons.set(name, { button, text });
    }
    this.draw();
  }

  draw(): void {
    for (const [name, { button, text }] of this.#buttons) {
      const isOn = name in faults && faults[name as keyof Faults];
      button.disabled = name === 'lose' && !this.#around.hasLock();
      if (name in faults) button.ariaPressed = String(isOn);
      button.textContent = isOn ? `${say(name)} (${say('on')})` : say(name);
      text.textContent = say(`${name}_text`, { name: this.#around.other, seconds: SLEEP_SECONDS });
    }
  }

  async #press(name: Name): Promise<void> {
    if (name === 'lose') {
      await this.#around.endLock().catch((error) => this.#around.fail(say('failed', { why: String((error as Error).message) })));
    } else if (name === 'freeze') {
      await this.#sleep();
    } else {
      faults[name] = !faults[name];
      this.#tell({ faults });
    }
    this.draw();
  }

  /** The Workers stand still, and the page lets nobody in. */
  async #sleep(): Promise<void> {
    const [shade, main] = [document.querySelector('#asleep')!, document.querySelector<HTMLElement>('#main')!];
    this.#tell({ sleepMs: SLEEP_SECONDS * 1_000 });
    main.inert = true;
    for (let seconds = SLEEP_SECONDS; seconds > 0; seconds -= 1) {
      shade.textContent = say('asleep', { seconds });
      await new Promise((resolve) => { setTimeout(resolve, 1_000); });
    }
    shade.textContent = '';
    main.inert = false;
  }

  #tell(message: FaultMessage): void {
    this.#channel.postMessage(message);
  }
}
