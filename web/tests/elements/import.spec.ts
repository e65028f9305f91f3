// The classes where there is no document: a server that renders pages imports them as well.

import { expect, test } from 'vitest';

const built = (name: string) => new URL(`../../dist/${name}`, import.meta.url).href;

test('importing the classes needs no document, and registers nothing', async () => {
  expect(globalThis.HTMLElement).toBe(undefined);
  const classes = await import(/* @vite-ignore */ built('elements.js')) as Record<string, unknown>;
  expect(Object.keys(classes).sort()).toEqual(['AutoSaveHistoryElement', 'AutoSaveIndicatorElement']);
});
