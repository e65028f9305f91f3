// The two locks of the storyboard belong together: the project lock says which tab of this browser edits, the document lock which
// person. A tab edits while it has both. This decides, without IO, what a tab does when one of them changes, so that the other one
// follows: what a tab cannot use it gives away.

/** Where the tab stands with the project: it holds it, or does not, or cannot know yet. */
export type Project = 'held' | 'readonly' | 'unknown';

/** Where the tab stands with the document. */
export type Document = 'mine' | 'free' | 'others' | 'unknown';

export interface Standing {
  readonly project: Project;
  readonly document: Document;
  /** Whether the tab had the document and lost it. */
  readonly hasLost: boolean;
}

export type Action = 'acquire-document' | 'release-document' | 'release-project' | 'retry-project';

/** Whether the user may type. */
export function mayEdit({ project, document }: Standing): boolean {
  return project === 'held' && document === 'mine';
}

/** What to do after a change. */
export function actionAfter(before: Standing, now: Standing): Action | null {
  const gotProject = before.project !== 'held' && now.project === 'held';
  if (now.project === 'held' && now.document === 'free') {
    // A user who has released the document, or lost it, says when to go on.
    const isNews = (before.document === 'unknown' || before.document === 'others') && !now.hasLost;
    return gotProject || isNews ? 'acquire-document' : null;
  }
  const lostProject = before.project === 'held' && now.project === 'readonly';
  if (lostProject && now.document === 'mine') return 'release-document';
  const gotDocument = before.document !== 'mine' && now.document === 'mine';
  if (gotDocument && now.project === 'readonly') return 'retry-project';
  const lostDocument = before.document === 'mine' && now.document === 'others';
  if (lostDocument && now.project === 'held') return 'release-project';
  return null;
}
