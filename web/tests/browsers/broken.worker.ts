// A Worker whose guard keeps nobody out: the check of the contention rounds must notice.

import '/bundle/no-locks.js';
import '/bundle/no-guard.js';
import '/dist/worker.js';
