// The calls about the files of a project, for a page and for a lock on the calling thread: both bring a way to make them.

import type { ProjectDraft, ProjectFile, ProjectFileCalls, ProjectFileOptions, SomeProject } from './types.js';

/** A call about the files of a project, as `postMessage` can send it. */
export interface FileCall {
  readonly name: 'read' | 'saw' | 'keep' | 'drafts' | 'discard' | 'stage' | 'commit' | 'put';
  readonly project: SomeProject;
  readonly args: readonly unknown[];
}

/** The calls, made by `make`. */
export function fileCalls(make: (call: FileCall) => Promise<never>): ProjectFileCalls {
  const call = <T>(name: FileCall['name'], { root, lockName }: SomeProject = {}, ...args: unknown[]): Promise<T> =>
    make({ name, project: { root, lockName }, args });
  return {
    async readProjectFile(path: string, options?: ProjectFileOptions) {
      const file = await call<ProjectFile<never>>('read', options, path, options?.as);
      // Not before: what the application had asked to be saved until now was made from something else.
      call('saw', options, path, file.version).catch(() => {});
      return file;
    },
    keepProjectDraft: (draft) => call('keep', draft, draft.path, draft.data),
    listProjectDrafts: (options) => call<ProjectDraft[]>('drafts', options),
    discardProjectDraft: (draft) => call('discard', draft, draft.id),
  };
}
