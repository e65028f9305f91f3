// Texts as bytes, and bytes as texts.

import type { Bytes } from './hash.js';

/** What is written of this content. */
export function bytesOf(data: string | Uint8Array): Bytes {
  return typeof data === 'string' ? new TextEncoder().encode(data) : data as Bytes;
}

/** The text of a content. It is that text again when it is saved: what is no UTF-8 throws, unless it is not `fatal`. */
export function textOf(bytes: Uint8Array, fatal = true): string {
  return new TextDecoder('utf-8', { fatal, ignoreBOM: true }).decode(bytes);
}

/** These bytes in one piece. */
export function joined(parts: readonly Uint8Array[]): Bytes {
  const bytes = new Uint8Array(parts.reduce((at, part) => at + part.length, 0));
  parts.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
  return bytes;
}
