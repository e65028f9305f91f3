import { defineConfig } from 'vitest/config';

const minutes = process.env['SOAK'] ? 180 : 5;
const common = { testTimeout: minutes * 60_000, hookTimeout: 60_000 };
/** They compare times with bars: another browser beside them would be measured too. */
const MEASURED = ['tests/browsers/death.spec.ts', 'tests/browsers/causes.spec.ts', 'tests/browsers/document-waits.spec.ts'];

// Most tests wait, for a lease to end or a tab to be hidden: two files at a time.
export default defineConfig({
  test: {
    projects: [
      { test: { ...common, name: 'two at a time', include: ['tests/browsers/**/*.spec.ts'], exclude: MEASURED, maxWorkers: 2, sequence: { groupOrder: 1 } } },
      { test: { ...common, name: 'alone', include: MEASURED, maxWorkers: 1, fileParallelism: false, sequence: { groupOrder: 2 } } },
    ],
  },
});
