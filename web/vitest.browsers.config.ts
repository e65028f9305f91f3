import { defineConfig } from 'vitest/config';

const minutes = process.env['SOAK'] ? 180 : 5;

// One file after the other: two browsers at a time would measure each other.
export default defineConfig({
  test: {
    include: ['tests/browsers/**/*.spec.ts'], fileParallelism: false, testTimeout: minutes * 60_000, hookTimeout: 60_000,
  },
});
