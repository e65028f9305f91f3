// Takes the private files away from a Worker, before the package looks for them.

delete (globalThis as unknown as { StorageManager: { prototype: { getDirectory?: unknown } } })
  .StorageManager.prototype.getDirectory;
export {};
