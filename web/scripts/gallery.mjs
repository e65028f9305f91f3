// Serves the gallery of the elements, built anew at every load.

import { fileURLToPath } from 'node:url';
import { context } from 'esbuild';

const folder = fileURLToPath(new URL('../gallery', import.meta.url));
const built = await context({ entryPoints: [`${folder}/gallery.ts`], outdir: folder, bundle: true, format: 'esm', target: 'es2022', write: false });
const { hosts, port } = await built.serve({ servedir: folder, host: '127.0.0.1' });
console.log(`http://${hosts[0]}:${port}/`);
