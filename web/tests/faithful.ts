// What a project lock relies on, asked of `navigator.locks` and OPFS. The same questions go to the doubles in node and to
// the real thing in a browser's Worker: a double that answers differently would let a test pass that a browser fails.

/** What is asked. */
export interface Subject {
  locks: LockManager;
  root: FileSystemDirectoryHandle;
}

interface Access {
  read(into: Uint8Array, options?: { at: number }): number;
  write(data: Uint8Array, options?: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  getSize(): number;
  close(): void;
}
type Question = (subject: Subject) => Promise<unknown>;
type Handle = FileSystemFileHandle & { createSyncAccessHandle(): Promise<Access>; move(folder: FileSystemDirectoryHandle, name: string): Promise<void> };

/** Each question with its one right answer. */
export const QUESTIONS: Record<string, { ask: Question; answer: unknown }> = {
  'a file that is not there': { ask: ({ root }) => errorOf(root.getFileHandle('none')), answer: 'NotFoundError' },
  'a folder that is not there': { ask: ({ root }) => errorOf(root.getDirectoryHandle('none')), answer: 'NotFoundError' },
  'a name that is none': { ask: ({ root }) => errorOf(root.getFileHandle('a/b', { create: true })), answer: 'TypeError' },
  'a file in the place of a folder': {
    ask: async ({ root }) => {
      await root.getFileHandle('file', { create: true });
      return errorOf(root.getDirectoryHandle('file', { create: true }));
    },
    answer: 'TypeMismatchError',
  },
  'a file that is made is empty': {
    ask: async ({ root }) => (await (await root.getFileHandle('empty', { create: true })).getFile()).size,
    answer: 0,
  },
  'a handle is exclusive': {
    ask: async ({ root }) => {
      const file = await handle(root, 'exclusive');
      const open = await file.createSyncAccessHandle();
      const second = await errorOf(file.createSyncAccessHandle());
      open.close();
      return [second, await errorOf(file.createSyncAccessHandle().then((again) => again.close()))];
    },
    answer: ['NoModificationAllowedError', 'none'],
  },
  'an open file cannot be removed, a closed one can': {
    ask: async ({ root }) => {
      const open = await (await handle(root, 'open')).createSyncAccessHandle();
      const first = await errorOf(root.removeEntry('open'));
      open.close();
      return [first, await errorOf(root.removeEntry('open')), await errorOf(root.removeEntry('open'))];
    },
    answer: ['NoModificationAllowedError', 'none', 'NotFoundError'],
  },
  'what was written is read': {
    ask: async ({ root }) => {
      const file = await handle(root, 'text');
      const open = await file.createSyncAccessHandle();
      const wrote = open.write(bytes('lease hold'), { at: 0 });
      open.truncate(5);
      open.flush();
      const into = new Uint8Array(9);
      const read = open.read(into, { at: 1 });
      const size = open.getSize();
      open.close();
      return [wrote, read, size, await (await file.getFile()).text()];
    },
    answer: [10, 4, 5, 'lease'],
  },
  'a closed handle is of no use': {
    ask: async ({ root }) => {
      const open = await (await handle(root, 'closed')).createSyncAccessHandle();
      open.close();
      open.close();
      return errorOf((async () => open.getSize())());
    },
    answer: 'InvalidStateError',
  },
  'a move replaces': {
    ask: async ({ root }) => {
      await put(root, 'old', 'old');
      const fresh = await put(root, 'fresh', 'fresh');
      await fresh.move(root, 'old');
      const text = await (await (await root.getFileHandle('old')).getFile()).text();
      return [text, await errorOf(root.getFileHandle('fresh')), fresh.name];
    },
    answer: ['fresh', 'NotFoundError', 'old'],
  },
  'a move into another folder replaces, too': {
    ask: async ({ root }) => {
      const folder = await root.getDirectoryHandle('folder', { create: true });
      await put(folder, 'there', 'old');
      const fresh = await put(root, 'here', 'fresh');
      await fresh.move(folder, 'there');
      const text = await (await (await folder.getFileHandle('there')).getFile()).text();
      return [text, await errorOf(root.getFileHandle('here')), await names(folder)];
    },
    answer: ['fresh', 'NotFoundError', ['there']],
  },
  'a file is as old as its last write, wherever it moves': {
    ask: async ({ root }) => {
      const start = Date.now();
      const file = await put(root, 'aged', 'text');
      const written = (await file.getFile()).lastModified;
      for (const end = Date.now() + 20; Date.now() < end;) await turn();
      await file.move(root, 'moved');
      const moved = (await (await root.getFileHandle('moved')).getFile()).lastModified;
      return [Math.abs(written - start) < 5_000, moved - written];
    },
    answer: [true, 0],
  },
  'what is in a folder': {
    ask: async ({ root }) => {
      const folder = await root.getDirectoryHandle('listed', { create: true });
      const moved = await put(folder, 'c', '');
      await Promise.all([put(folder, 'a', ''), put(folder, 'gone', ''), folder.getDirectoryHandle('b', { create: true })]);
      await folder.removeEntry('gone');
      await moved.move(folder, 'd');
      return names(folder);
    },
    answer: ['a', 'b', 'd'],
  },
  'nothing moves while it is open, nor onto something open': {
    ask: async ({ root }) => {
      const [from, to] = [await put(root, 'from', 'a'), await put(root, 'to', 'b')];
      const source = await from.createSyncAccessHandle();
      const first = await errorOf(from.move(root, 'to'));
      source.close();
      const target = await to.createSyncAccessHandle();
      const second = await errorOf(from.move(root, 'to'));
      target.close();
      return [first, second];
    },
    answer: ['NoModificationAllowedError', 'NoModificationAllowedError'],
  },
  'a handle to a file that is gone': {
    ask: async ({ root }) => {
      const file = await handle(root, 'gone');
      await root.removeEntry('gone');
      return [await errorOf(file.getFile()), await errorOf(file.createSyncAccessHandle())];
    },
    answer: ['NotFoundError', 'NotFoundError'],
  },
  'a writable is seen when it is closed, and keeps others out': {
    ask: async ({ root }) => {
      const file = await put(root, 'stream', 'before');
      const stream = await file.createWritable();
      await stream.write(bytes('after'));
      const meanwhile = await (await file.getFile()).text();
      const other = await errorOf(file.createSyncAccessHandle());
      await stream.close();
      return [meanwhile, other, await (await file.getFile()).text()];
    },
    answer: ['before', 'NoModificationAllowedError', 'after'],
  },
  'a name is granted to one at a time, in order': {
    ask: async ({ locks }) => {
      const seen: string[] = [];
      const hold = (who: string) => locks.request('order', async () => {
        seen.push(`${who} in`);
        await turn();
        seen.push(`${who} out`);
      });
      await Promise.all([hold('a'), hold('b'), hold('c')]);
      return seen.join();
    },
    answer: 'a in,a out,b in,b out,c in,c out',
  },
  'a request that waits can be aborted': {
    ask: async ({ locks }) => {
      const held = await hold(locks, 'abort');
      const abort = new AbortController();
      const waiting = errorOf(locks.request('abort', { signal: abort.signal }, () => {}));
      await turn();
      abort.abort();
      const error = await waiting;
      held.release();
      return [error, await locks.request('abort', () => 'free')];
    },
    answer: ['AbortError', 'free'],
  },
  'a request that was aborted before it was made': {
    ask: ({ locks }) => errorOf(locks.request('late', { signal: AbortSignal.abort() }, () => {})),
    answer: 'AbortError',
  },
  'an abort after the grant changes nothing': {
    ask: async ({ locks }) => {
      const abort = new AbortController();
      return locks.request('granted', { signal: abort.signal }, async () => {
        abort.abort();
        await turn();
        return 'went on';
      });
    },
    answer: 'went on',
  },
  'a lock can be stolen, and its holder is told': {
    ask: async ({ locks }) => {
      const held = await hold(locks, 'steal');
      const thief = await locks.request('steal', { steal: true }, () => 'stolen');
      return [thief, await errorOf(held.ended)];
    },
    answer: ['stolen', 'AbortError'],
  },
  'a signal goes neither with stealing nor with taking what is available': {
    ask: async ({ locks }) => {
      const { signal } = new AbortController();
      const both = [{ signal, steal: true }, { signal, ifAvailable: true }];
      return Promise.all(both.map((options) => errorOf(locks.request('signal', options, () => {}))));
    },
    answer: ['NotSupportedError', 'NotSupportedError'],
  },
  'if it is available': {
    ask: async ({ locks }) => {
      const held = await hold(locks, 'available');
      const no = await locks.request('available', { ifAvailable: true }, (lock) => lock === null);
      held.release();
      await held.ended;
      return [no, await locks.request('available', { ifAvailable: true }, (lock) => lock?.name)];
    },
    answer: [true, 'available'],
  },
  'work that fails gives the lock back': {
    ask: async ({ locks }) => {
      const error = await errorOf(locks.request('fails', () => Promise.reject(new RangeError('no'))));
      return [error, await locks.request('fails', () => 'free')];
    },
    answer: ['RangeError', 'free'],
  },
  'who holds and who waits': {
    ask: async ({ locks }) => {
      const held = await hold(locks, 'query');
      const abort = new AbortController();
      const waiting = errorOf(locks.request('query', { signal: abort.signal }, () => {}));
      await turn();
      const seen = await locks.query();
      const count = (list: LockInfo[] | undefined) => list?.filter(({ name }) => name === 'query').length;
      abort.abort();
      held.release();
      await waiting;
      return [count(seen.held), count(seen.pending)];
    },
    answer: [1, 1],
  },
};

/** Asks everything; answers what was answered, by question. */
export async function askAll(subject: Subject): Promise<Record<string, unknown>> {
  const answers: Record<string, unknown> = {};
  for (const [name, { ask }] of Object.entries(QUESTIONS)) {
    answers[name] = await ask(subject).catch((error: unknown) => `threw ${String(error)}`);
  }
  return answers;
}

/** The right answers, by question. */
export function rightAnswers(): Record<string, unknown> {
  return Object.fromEntries(Object.entries(QUESTIONS).map(([name, { answer }]) => [name, answer]));
}

async function errorOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(() => 'none', (error: Error) => error.name);
}

async function handle(root: FileSystemDirectoryHandle, name: string): Promise<Handle> {
  return root.getFileHandle(name, { create: true }) as Promise<Handle>;
}

async function put(root: FileSystemDirectoryHandle, name: string, text: string): Promise<Handle> {
  const file = await handle(root, name);
  const open = await file.createSyncAccessHandle();
  open.write(bytes(text), { at: 0 });
  open.close();
  return file;
}

async function names(folder: FileSystemDirectoryHandle): Promise<string[]> {
  const found: string[] = [];
  for await (const name of folder.keys()) found.push(name);
  return found.sort();
}

/** Holds a lock until it is told to release it. */
async function hold(locks: LockManager, name: string): Promise<{ release(): void; ended: Promise<unknown> }> {
  let release = () => {};
  let ended: Promise<unknown> = Promise.resolve();
  await new Promise<void>((granted) => {
    ended = locks.request(name, () => new Promise<void>((resolve) => {
      release = resolve;
      granted();
    }));
  });
  return { release: () => release(), ended };
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

function turn(): Promise<void> {
  return new Promise((resolve) => { setTimeout(resolve, 0); });
}
