// The Worker of the project lock, as it is shipped, in a browser whose files can be made to fail.

import '/demo/leasehold/worker.js';
import { breakFiles, obey } from './faults.js';

obey(new URLSearchParams(location.search).get('tab') ?? '');
breakFiles();
