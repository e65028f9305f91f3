// The Worker of a browser from before access handles.

import '/bundle/no-access-handles.js';
import '/dist/worker.js';
