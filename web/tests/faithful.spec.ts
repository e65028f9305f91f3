// The doubles answer as the browsers do. The browsers are asked in tests/browsers/faithful.spec.ts.

import { expect, test } from 'vitest';
import { MockNavigatorLocks } from '../src/testing/locks.js';
import { MockOPFS } from '../src/testing/opfs.js';
import { QUESTIONS } from './faithful.js';

test.each(Object.entries(QUESTIONS))('the doubles: %s', async (_name, { ask, answer }) => {
  const subject = { locks: new MockNavigatorLocks(), root: new MockOPFS().root };
  expect(await ask(subject as never)).toEqual(answer);
});
