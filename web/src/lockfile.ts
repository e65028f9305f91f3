// `.lock` between its text and its members: parses it with the browser's own `JSON.parse` and `Date`, and prints it. What the
// members mean, the rules decide. On disk, crates/leasehold-project/src/lock_file.rs does the same; both are tested with the
// cases in its tests/lock_files.json.

import { LONGEST_LOCK, MEMBERS, type RecordView, type Requests } from './border.js';
import { textOf } from './text.js';

/** The members of `.lock`. What is absent or null is undefined; an array, an object or a time that is none is an object. */
export type Members = Omit<Requests['lockRead'], 'modified'>;

/** The members of `.lock` that the rules know; null if it is no JSON object. `updatedAt` becomes milliseconds since 1970. */
export function readLock(bytes: Uint8Array): Members | null {
  const parsed = parse(bytes);
  if (!parsed) return null;
  const members: Record<string, unknown> = Object.create(null);
  for (const name of MEMBERS) {
    // `hasOwn`: whatever a page has added to Object.prototype is not in the file.
    const value = Object.hasOwn(parsed, name) ? parsed[name] : undefined;
    // What serde_json refuses on disk.
    if (value === Infinity || value === -Infinity || isBroken(value)) return null;
    members[name] = value ?? undefined;
  }
  const { updatedAt } = members;
  if (updatedAt !== undefined) members['updatedAt'] = typeof updatedAt === 'string' ? millisOf(updatedAt) ?? {} : {};
  return members;
}

/** The text of `.lock`. */
export function printLock({ updatedAt, ttlMillis, ...rest }: RecordView): string {
  const { version, leaseId, owner, label, acquiredAt, expiresAt, fence, seq, held } = rest;
  const times = { acquiredAt, updatedAt: new Date(updatedAt).toISOString(), ttlSeconds: ttlMillis / 1000, expiresAt };
  return JSON.stringify({ version, leaseId, owner, label, ...times, fence, seq, held });
}

function parse(bytes: Uint8Array): Record<string, unknown> | undefined {
  if (bytes.length > LONGEST_LOCK) return undefined;
  try {
    const parsed: unknown = JSON.parse(textOf(bytes));
    const isObject = typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed);
    return isObject && !Object.keys(parsed).some(isBroken) ? parsed as Record<string, unknown> : undefined;
  } catch {
    return undefined;
  }
}

/** Whether it is a text with half a character in it, which only JavaScript can have. */
function isBroken(value: unknown): boolean {
  return typeof value === 'string' && /\p{Surrogate}/u.test(value);
}

const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])([01]\d|2[0-3]):?([0-5]\d))$/;

/** Milliseconds since 1970 of a time with `Z` or an offset, as `toISOString` and its relatives write it. */
function millisOf(text: string): number | undefined {
  const [, seconds, fraction = '', sign = '+', hours = '0', minutes = '0'] = TIME.exec(text) ?? [];
  const utc = `${seconds}.${fraction.padEnd(3, '0').slice(0, 3)}Z`;
  const millis = Date.parse(utc);
  // Browsers differ in what they make of February 30, and of 24:00.
  if (Number.isNaN(millis) || new Date(millis).toISOString() !== utc) return undefined;
  return millis - Number(`${sign}1`) * (Number(hours) * 60 + Number(minutes)) * 60_000;
}
