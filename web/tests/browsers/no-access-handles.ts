// Takes access handles away from a Worker, before the package looks for them.

delete (globalThis as unknown as { FileSystemFileHandle: { prototype: { createSyncAccessHandle?: unknown } } })
  .FileSystemFileHandle.prototype.createSyncAccessHandle;
export {};
