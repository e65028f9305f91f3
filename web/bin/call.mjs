// Calls the program `leasehold`, which does the work of this package's commands. Nothing is decided here.

import { spawn } from 'node:child_process';
import { constants } from 'node:os';

/** How a shell reports a command that it cannot find. */
const NOT_FOUND = 127;

/** Runs `leasehold` with these arguments, and ends as it ends. LEASEHOLD_PROGRAM names it where it is not on the PATH. */
export function call(args) {
  const program = process.env.LEASEHOLD_PROGRAM || 'leasehold';
  const child = spawn(program, args, { stdio: 'inherit' });
  child.on('error', (error) => {
    const why = error.code === 'ENOENT' ? 'it is not installed here, or not on the PATH' : error.message;
    console.error(`error: the program ${JSON.stringify(program)} cannot be run: ${why}`);
    console.error('  Install it: https://github.com/leasehold/leasehold');
    console.error('  Or say where it is: LEASEHOLD_PROGRAM=/path/to/leasehold');
    process.exitCode = NOT_FOUND;
  });
  child.on('exit', (code, signal) => {
    process.exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
  });
  // A terminal sends Ctrl-C to the program, too, and the program decides what it means.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
}
