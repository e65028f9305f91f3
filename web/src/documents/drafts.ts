// Drafts: what was unsaved when a lock was lost. They stay in the browser's local storage until the user has used or discarded
// them, the newest first; where that is blocked or full, in memory.

/** A draft. */
export interface Draft {
  readonly text: string;
  readonly at: number;
}

/** More of one document are not kept. */
const MOST = 5;

const inMemory = new Map<string, Draft[]>();

/** The drafts of a document. */
export function draftsOf(document: string): Draft[] {
  try {
    const kept = JSON.parse(localStorage.getItem(nameOf(document)) ?? '[]') as Draft[];
    return [...inMemory.get(document) ?? [], ...kept.filter(({ text }) => typeof text === 'string')];
  } catch {
    return inMemory.get(document) ?? [];
  }
}

/** Keeps a draft, unless it is there already. */
export function keepDraft(document: string, text: string): void {
  const drafts = draftsOf(document).filter((draft) => draft.text !== text);
  store(document, [{ text, at: Date.now() }, ...drafts].slice(0, MOST));
}

/** Discards the newest draft. */
export function discardDraft(document: string): void {
  store(document, draftsOf(document).slice(1));
}

function store(document: string, drafts: Draft[]): void {
  try {
    if (drafts.length === 0) localStorage.removeItem(nameOf(document));
    else localStorage.setItem(nameOf(document), JSON.stringify(drafts));
    inMemory.delete(document);
  } catch {
    inMemory.set(document, drafts);
  }
}

function nameOf(document: string): string {
  return `leasehold.draft ${document}`;
}
