// A storyboard: scenes in their order. Every change makes another object, which is how the autosave notices it. Pure.

/** One scene. */
export interface Scene {
  readonly id: string;
  readonly title: string;
  readonly text: string;
}

/** The document that the demo edits. */
export interface Storyboard {
  readonly scenes: readonly Scene[];
}

/** More scenes are not made, nor read from a file. */
const MOST_SCENES = 100;

export function withScene(board: Storyboard, scene: Scene): Storyboard {
  return board.scenes.length < MOST_SCENES ? { scenes: [...board.scenes, scene] } : board;
}

export function withoutScene(board: Storyboard, id: string): Storyboard {
  return { scenes: board.scenes.filter((scene) => scene.id !== id) };
}

/** Moves a scene by so many places; one that cannot go further stays. */
export function moved(board: Storyboard, id: string, by: number): Storyboard {
  const from = board.scenes.findIndex((scene) => scene.id === id);
  const to = from + by;
  const scene = board.scenes[from];
  if (!scene || to < 0 || to >= board.scenes.length) return board;
  return { scenes: board.scenes.toSpliced(from, 1).toSpliced(to, 0, scene) };
}

export function edited(board: Storyboard, id: string, change: Partial<Pick<Scene, 'title' | 'text'>>): Storyboard {
  return { scenes: board.scenes.map((scene) => (scene.id === id ? { ...scene, ...change } : scene)) };
}

/** The storyboard in something that was saved; null if there is none in it. */
export function storyboardOf(saved: unknown): Storyboard | null {
  const scenes = (saved as Storyboard | null)?.scenes;
  if (!Array.isArray(scenes)) return null;
  const text = (value: unknown) => (typeof value === 'string' ? value : '');
  const known = new Set<string>();
  const read = scenes.slice(0, MOST_SCENES).map((scene: Partial<Scene> | null, at): Scene => {
    const id = text(scene?.id);
    const own = id && !known.has(id) ? id : `scene-${at}`;
    known.add(own);
    return { id: own, title: text(scene?.title), text: text(scene?.text) };
  });
  return { scenes: read };
}

/** The same as text, for people. */
export function asText(board: Storyboard): string {
  return board.scenes.map(({ title, text }, at) => `${at + 1}. ${title}\n${text}`).join('\n\n');
}
