// Registers `<autosave-indicator>`.

import { AutoSaveIndicatorElement } from './autosave-indicator.js';

// A page may have loaded the package twice.
if (!customElements.get('autosave-indicator')) customElements.define('autosave-indicator', AutoSaveIndicatorElement);

declare global {
  interface HTMLElementTagNameMap { 'autosave-indicator': AutoSaveIndicatorElement }
}
