// A component that edits a document, in React's strict mode: everything is mounted twice.

import { createElement, StrictMode, useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import { init } from '../../src/documents.js';
import { useDocumentLock } from '../../src/react.js';

const { server, room, token } = JSON.parse(decodeURIComponent(location.hash.slice(1))) as Record<'server' | 'room' | 'token', string>;
init({ workerUrl: '/dist/documents-worker.js' });

const seen = { mounts: 0, loads: 0, unmount: () => root.unmount() };

function Editor() {
  const { state, lock } = useDocumentLock(room, { server, token, reload: () => { seen.loads += 1; } });
  useEffect(() => {
    seen.mounts += 1;
    void lock?.acquire();
  }, [lock]);
  return createElement('p', { id: 'status' }, state.status);
}

const root = createRoot(document.querySelector('#here')!);
root.render(createElement(StrictMode, null, createElement(Editor)));

declare global {
  var react: typeof seen;
}
globalThis.react = seen;
