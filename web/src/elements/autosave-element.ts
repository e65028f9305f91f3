// What both elements of an autosave share: the autosave to show, and its words.

import type { AutoSaveSnapshot, AutoSaveStore } from '../autosave/state.js';
import { StoreElement } from './base.js';
import type { Language } from './language.js';
import { wordsFor, type Words } from './words.js';

/** An element that shows an autosave. */
export abstract class AutoSaveElement extends StoreElement<AutoSaveStore> {
  static override readonly property = 'autosave';
  protected words: Words = wordsFor('');

  /** The autosave to show: what `initAutoSave` returned, or any object with the same calls. */
  get autosave(): AutoSaveStore | null {
    return this.store;
  }

  set autosave(store: AutoSaveStore | null) {
    this.store = store;
  }

  protected get snapshot(): AutoSaveSnapshot | null {
    return this.store?.getSnapshot() ?? null;
  }

  protected drawIn(language: Language): void {
    this.words = wordsFor(language);
    this.draw(this.snapshot);
  }

  protected abstract draw(snapshot: AutoSaveSnapshot | null): void;
}
