// The Worker of a browser without private files.

import '/bundle/no-files.js';
import '/dist/worker.js';
