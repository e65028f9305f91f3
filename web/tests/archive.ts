// The package as its users install it: `npm pack`, and the archive installed into an empty folder.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));

let packed: string | undefined;

/** The archive that `npm publish` would send. */
function archive(): string {
  if (!packed) {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-archive-'));
    execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: web, stdio: 'pipe' });
    packed = join(folder, readdirSync(folder).find((name) => name.endsWith('.tgz')) ?? '');
  }
  return packed;
}

/** Makes a folder with nothing in it but the installed package. */
export function install(folder: string): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"private": true, "type": "module"}');
  const options = ['--offline', '--no-audit', '--no-fund', '--no-package-lock', '--silent'];
  execFileSync('npm', ['install', ...options, archive()], { cwd: folder, stdio: 'pipe' });
}
