// The events of a document from the application's own socket. A page loads this only if it has one.

import type { DocumentEvent, EchoLike } from './types.js';

const NAMES = [
  'DocumentLocked', 'DocumentUnlocked', 'DocumentLeaving', 'DocumentResumed', 'HandoverRequested', 'HandoverTold', 'HandoverRefused',
  'HandoverWithdrawn',
];

/** Listens on the private channel of a document. `live` is called when it is subscribed, also after a break, and when it is refused. */
export function listen(echo: EchoLike, roomId: string, hear: (event: DocumentEvent) => void, live: (is: boolean) => void): void {
  const channel = echo.private(`document.${roomId}`);
  for (const name of NAMES) channel.listen(name, (event: DocumentEvent) => hear({ ...event, event: name }));
  channel.subscribed(() => live(true));
  channel.error(() => live(false));
}
