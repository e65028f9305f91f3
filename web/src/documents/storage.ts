// What a page keeps in the browser's storage. Where that is blocked or full, it is kept in memory, for as long as the page lives.

/** For this tab, over a reload; or for all tabs of the origin. */
type Area = 'sessionStorage' | 'localStorage';

const inMemory = new Map<string, string>();

/** What is kept under a name; null if there is nothing, or nothing of ours. */
export function read(area: Area, name: string): any {
  try {
    return JSON.parse(inMemory.get(name) ?? globalThis[area].getItem(name) ?? 'null');
  } catch {
    return null;
  }
}

/** Keeps a value under a name. */
export function write(area: Area, name: string, value: unknown): void {
  const text = JSON.stringify(value);
  inMemory.delete(name);
  try {
    globalThis[area].setItem(name, text);
  } catch {
    inMemory.set(name, text);
  }
}
