// `leasehold/react`: the lock of a document for a component. React is the application's own.

import { useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { openDocument, type DocumentLock, type DocumentOptions, type DocumentState } from './documents.js';

/** Before the document is opened, and after. */
const CLOSED: DocumentState = {
  status: 'connecting', holder: null, sameUser: false, since: null, leaving: false, may: 'read', mayTakeOver: false, request: null, asking: null,
  presence: { editing: [], asking: [], looking: [] }, lost: null, draft: null, connection: 'connecting', pending: null, problem: null,
};
const nothing = () => () => {};
const closed = () => CLOSED;

/** Opens a document as long as the component is mounted. The functions in `options` may be others at every render; another room or
 * server opens another document. */
export function useDocumentLock(roomId: string, options: DocumentOptions = {}): { readonly state: DocumentState; readonly lock: DocumentLock | null } {
  const latest = useRef(options);
  latest.current = options;
  const [lock, setLock] = useState<DocumentLock | null>(null);
  const server = String(options.server ?? '');
  useEffect(() => {
    const opened = openDocument(roomId, {
      ...latest.current,
      ...(latest.current.token !== undefined && { token: async () => {
        const { token } = latest.current;
        return typeof token === 'function' ? token() : token ?? '';
      } }),
      reload: () => latest.current.reload?.(),
      save: (fence) => latest.current.save?.(fence),
      unsaved: () => latest.current.unsaved?.() ?? null,
    });
    setLock(opened);
    return () => {
      setLock(null);
      void opened.close();
    };
  }, [roomId, server]);
  const state = useSyncExternalStore(lock?.subscribe ?? nothing, lock?.getState ?? closed, closed);
  return { state, lock };
}
