// The Worker of a browser without Web Locks.

import '/bundle/no-locks.js';
import '/dist/worker.js';
