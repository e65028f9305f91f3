// Asks the real APIs, in a Worker: access handles exist nowhere else.

import { askAll } from '../faithful.js';

onmessage = async () => postMessage(await askAll({ locks: navigator.locks, root: await navigator.storage.getDirectory() }));
