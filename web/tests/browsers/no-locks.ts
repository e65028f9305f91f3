// Takes Web Locks away from a Worker, before the package looks for them.

Object.defineProperty(navigator, 'locks', { value: undefined });
export {};
