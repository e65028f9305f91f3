// The version of a file's content, which the rules compare.

/** What is written. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Hashes that are under way: the platform computes them on another thread, and a test that moves time waits for them. */
export const hashing = new Set<Promise<unknown>>();

/** The version of a content: its SHA-256, as `sha256sum` prints it. */
export async function versionOf(bytes: Bytes): Promise<string> {
  const hash = crypto.subtle.digest('SHA-256', bytes);
  hashing.add(hash);
  const whole = new Uint8Array(await hash.finally(() => hashing.delete(hash)));
  return Array.from(whole, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
