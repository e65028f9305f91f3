// A Worker that fails when it is told to.

import '/dist/worker.js';

new BroadcastChannel('fail').onmessage = () => { throw new Error('told to fail'); };
