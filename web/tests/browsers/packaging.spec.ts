// The package as it is published, taken in by each way that people build pages, and used in a real browser.

import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build as esbuild } from 'esbuild';
import { build as vite, createServer, type InlineConfig } from 'vite';
import webpack from 'webpack';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install } from '../archive.js';
import { isInstalled, start, type Browser } from './browsers.js';
import { TestServer } from './server.js';

const PAGE = '<!doctype html><meta charset="utf-8"><script type="module" src="./app.js"></script>';
const STRICT = {
  'content-security-policy':
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'",
};

/** An application. */
const app = (from: string, init = '') => `
  import { acquireProjectLock, commitProjectFile, init, releaseProjectLock } from '${from}';
  ${init}
  globalThis.result = (async () => {
    const { lease } = await acquireProjectLock();
    await commitProjectFile({ lease, path: 'current.json', data: '{}' });
    await releaseProjectLock({ lease });
    return lease.guarantee;
  })();
`;

describe.skipIf(!isInstalled('chromium'))('the package works', () => {
  let browser: Browser;
  let folder: string;
  beforeAll(async () => {
    browser = await start('chromium');
    folder = mkdtempSync(join(tmpdir(), 'leasehold-packaging-'));
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  /** A new folder with the installed package, the page and the application. */
  function project(name: string, source: string): string {
    const root = join(folder, name);
    install(root);
    writeFileSync(join(root, 'index.html'), PAGE);
    writeFileSync(join(root, 'app.js'), source);
    return root;
  }

  async function works(root: string, headers = {}): Promise<void> {
    const server = await TestServer.start({ root, headers });
    try {
      await shows(server.page('packaging', 'index.html'));
    } finally {
      await server.stop();
    }
  }

  async function shows(url: string): Promise<void> {
    const tab = await browser.open(url);
    const result = await tab.run(() => (globalThis as unknown as { result: Promise<string> }).result.catch(String), null);
    expect(result).toBe('exclusive');
    await tab.close();
  }

  test('by a plain script, as it is', async () => {
    const root = project('plain', app('./node_modules/leasehold/dist/index.js'));
    await works(root);
  });

  test('under a strict content security policy', async () => {
    const init = "init({ workerUrl: '/node_modules/leasehold/dist/worker.js', wasmUrl: '/node_modules/leasehold/dist/leasehold.wasm' });";
    const root = project('strict', app('./node_modules/leasehold/dist/index.js', init));
    await works(root, STRICT);
  });

  // They were a CompileError and a TypeError of the browser's.
  test.each([
    ['without WebAssembly', { 'content-security-policy': "script-src 'self'; worker-src 'self'" }],
    ['without Workers', { 'content-security-policy': "script-src 'self' 'wasm-unsafe-eval'; worker-src 'none'" }],
    ['with Trusted Types', { 'content-security-policy': "require-trusted-types-for 'script'" }],
  ])('as far as a policy lets it: %s it is refused with a ProjectLockError', async (name, headers) => {
    const root = project(name, app('./node_modules/leasehold/dist/index.js').replace('return lease.guarantee;\n  })()', `
      return lease.guarantee;
    })().catch((error) => error.name + ' ' + error.code + ' ' + error.retryable)`));
    const server = await TestServer.start({ root, headers });
    const tab = await browser.open(server.page('packaging', 'index.html'));
    const result = await tab.run(() => (globalThis as unknown as { result: Promise<string> }).result, null);
    expect(result).toBe('LockIrrecoverableError fallback-open-failed false');
    await server.stop();
  });

  test('by vite', async () => {
    const root = project('vite', app('leasehold'));
    await vite({ root, configFile: false, logLevel: 'error' });
    await works(join(root, 'dist'));
  });

  test('by the development server of vite', async () => {
    const root = project('vite-dev', app('leasehold'));
    const options: InlineConfig = {
      root, configFile: false, logLevel: 'error', optimizeDeps: { exclude: ['leasehold'] },
      server: { host: '127.0.0.1', port: 0 },
    };
    const server = await createServer(options);
    try {
      await server.listen();
      await shows(server.resolvedUrls?.local[0] ?? '');
    } finally {
      await server.close();
    }
  });

  test('by webpack', async () => {
    const root = project('webpack', app('leasehold'));
    await pack(root);
    copyFileSync(join(root, 'index.html'), join(root, 'out/index.html'));
    await works(join(root, 'out'));
  });

  test('by esbuild, which leaves the Worker to the application', async () => {
    const root = project('esbuild', app('leasehold', "init({ workerUrl: '/worker.js', wasmUrl: '/leasehold.wasm' });"));
    const dist = join(root, 'node_modules/leasehold/dist');
    const entryPoints = [join(root, 'app.js'), join(dist, 'worker.js')];
    await esbuild({ entryPoints, entryNames: '[name]', bundle: true, format: 'esm', outdir: join(root, 'out') });
    copyFileSync(join(dist, 'leasehold.wasm'), join(root, 'out/leasehold.wasm'));
    copyFileSync(join(root, 'index.html'), join(root, 'out/index.html'));
    await works(join(root, 'out'));
  });

  test('with its licences, and without a dead link', () => {
    const packed = join(project('licences', ''), 'node_modules/leasehold');
    for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) expect(existsSync(join(packed, 'dist', name))).toBe(true);
    expect(readFileSync(join(packed, 'README.md'), 'utf8')).not.toMatch(/\]\((?!https:)/);
  });
});

function pack(root: string): Promise<void> {
  const output = { path: join(root, 'out'), filename: 'app.js' };
  const compiler = webpack({ context: root, entry: './app.js', mode: 'production', output });
  return new Promise((resolve, reject) => {
    compiler?.run((error, stats) => {
      if (error || stats?.hasErrors()) reject(error ?? new Error(stats?.toString()));
      else resolve();
    });
  });
}
