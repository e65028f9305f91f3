// Registers `<document-lock>`.

import { DocumentLockElement } from './document-lock.js';

export * from './document-lock.js';

// A page may have loaded the package twice.
if (!customElements.get('document-lock')) customElements.define('document-lock', DocumentLockElement);

declare global {
  interface HTMLElementTagNameMap { 'document-lock': DocumentLockElement }
}
