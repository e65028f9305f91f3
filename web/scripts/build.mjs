// Builds dist/: the modules, their types, and the licences. `cargo xtask web`
// compiles the rules and puts leasehold.wasm beside them.

import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { minify } from 'terser';

const web = fileURLToPath(new URL('..', import.meta.url));
const dist = `${web}/dist`;

mkdirSync(dist, { recursive: true });
for (const name of readdirSync(dist)) {
  // The demo is replaced at the end: a server may be showing it.
  if (!name.endsWith('.wasm') && name !== 'demo') rmSync(`${dist}/${name}`, { recursive: true });
}

const options = {
  absWorkingDir: web,
  outdir: dist,
  bundle: true,
  splitting: true,
  chunkNames: 'shared-[hash]',
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
};
/** Style sheets without the line breaks between their rules, which no minifier looks for in a string. */
const styles = {
  name: 'styles',
  setup: ({ onLoad }) => onLoad({ filter: /style(-common)?\.ts$/ }, ({ path }) => (
    { loader: 'ts', contents: readFileSync(path, 'utf8').replace(/([;{},])\n/g, '$1') }
  )),
};

// What a page loads shares as few files as possible: each is compressed by itself. The lock on the calling thread, which few
// pages load, has a copy of what the Worker has.
await build({ ...options, entryPoints: ['src/index.ts', 'src/worker.ts'], external: ['./local.js'] });
await build({ ...options, entryPoints: ['src/local.ts', 'src/testing.ts'] });
// A page that autosaves has the functions of the lock already.
await build({ ...options, entryPoints: ['src/autosave.ts'], external: ['./index.js'] });
// One whose flags turn autosave off does not load it.
await build({ ...options, entryPoints: ['src/flags.ts'], external: ['./autosave.js'] });
// A page that locks documents loads nothing of the project lock.
await build({ ...options, entryPoints: ['src/documents.ts'] });
await build({ ...options, entryPoints: ['src/documents-worker.ts'] });
// Each in one file: pages load the second one, and the first is for those that register it under another name.
for (const name of ['document-lock', 'document-lock-define']) await build({ ...options, entryPoints: { [name]: `src/elements/${name}.ts` } });
await build({ ...options, entryPoints: ['src/react.ts'], external: ['react', './documents.js'] });
await build({ ...options, entryPoints: ['src/telemetry.ts'], external: ['./index.js'] });
await build({ ...options, entryPoints: ['src/elements.ts', 'src/elements-define.ts'], plugins: [styles] });

// Once more: terser finds 3 % that esbuild leaves, and a page loads it. No function here is used as a constructor, which is all that
// `unsafe_arrows` and `unsafe_methods` could break; no getter has an effect, which `pure_getters` takes for granted. Which of the
// two ways compresses better differs from file to file.
const safe = { passes: 3, hoist_props: true, pure_getters: true, unsafe_arrows: true, unsafe_methods: true };
const ways = [{ ...safe, hoist_funs: true }, { ...safe, inline: 1, sequences: false }];
for (const name of readdirSync(dist).filter((name) => name.endsWith('.js'))) {
  const path = `${dist}/${name}`;
  const written = readFileSync(path, 'utf8');
  const codes = await Promise.all(ways.map(async (compress) => {
    const { code } = await minify(written, { module: true, ecma: 2022, compress });
    // The style sheets, which are strings, need no ends of lines.
    return code.replace(/"\\n:host[^"]*"/g, (css) => css.replaceAll('\\n', ''));
  }));
  const sizes = codes.map((code) => gzipSync(code, { level: 9 }).length);
  writeFileSync(path, codes[sizes.indexOf(Math.min(...sizes))]);
}

// The demo: its own scripts, and beside them the package as it is shipped. The page comes last, so that it finds the rest.
const demo = `${dist}/demo`;
rmSync(demo, { recursive: true, force: true });
const entryPoints = ['demo', 'project.worker', 'documents.worker'].map((name) => `demo/${name}.ts`);
await build({ ...options, outdir: demo, splitting: false, entryPoints, external: ['/demo/leasehold/*'] });
mkdirSync(`${demo}/leasehold`);
for (const name of readdirSync(dist).filter((name) => /\.(js|wasm)$/.test(name))) copyFileSync(`${dist}/${name}`, `${demo}/leasehold/${name}`);
for (const name of ['demo.css', 'index.html']) copyFileSync(`${web}/demo/${name}`, `${demo}/${name}`);

for (const name of ['LICENSE-APACHE', 'LICENSE-MIT']) copyFileSync(`${web}/../${name}`, `${dist}/${name}`);

const types = spawnSync('node_modules/.bin/tsc', ['-p', 'tsconfig.build.json'], { cwd: web, stdio: 'inherit' });
process.exitCode = types.status ?? 1;
