// A Worker of the application, which uses the package as a page does.

import { acquireProjectLock, commitProjectFile, releaseProjectLock } from '/dist/index.js';

onmessage = async () => {
  const { lease } = await acquireProjectLock();
  await commitProjectFile({ lease, path: 'current.json', data: 'from a Worker' });
  await releaseProjectLock({ lease });
  postMessage(lease.guarantee);
};
