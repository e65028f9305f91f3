// Makes every access handle one that others may have too. Chromium alone has such handles.

interface Opens { createSyncAccessHandle(options?: object): Promise<unknown> }

const real = (globalThis as unknown as { FileSystemFileHandle: { prototype: Opens } }).FileSystemFileHandle.prototype;
const open = real.createSyncAccessHandle;
real.createSyncAccessHandle = function (this: Opens) {
  return open.call(this, { mode: 'readwrite-unsafe' });
};
export {};
