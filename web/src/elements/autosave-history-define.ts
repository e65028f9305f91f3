// Registers `<autosave-history>`.

import { AutoSaveHistoryElement } from './autosave-history.js';

// A page may have loaded the package twice.
if (!customElements.get('autosave-history')) customElements.define('autosave-history', AutoSaveHistoryElement);

declare global {
  interface HTMLElementTagNameMap { 'autosave-history': AutoSaveHistoryElement }
}
