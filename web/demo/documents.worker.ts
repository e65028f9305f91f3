// The Worker of the document lock, as it is shipped, in a browser whose network can be made to fail.

import '/demo/leasehold/documents-worker.js';
import { breakNetwork, obey } from './faults.js';

obey(new URLSearchParams(location.search).get('tab') ?? '');
breakNetwork();
