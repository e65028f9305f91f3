// An event in one line, and all of it without lease ids. Pure.

/** One event, as it is shown. */
export interface Entry {
  readonly at: number;
  readonly name: string;
  readonly summary: string;
  readonly isBad: boolean;
  readonly json: string;
}

/** What an event is called, what matters of it in a line, and all of it without lease ids. */
export function entryOf(event: object, at: number): Entry {
  const fields = event as Record<string, unknown>;
  const name = String(fields['type'] ?? fields['event'] ?? '');
  const shown = ['state', 'operation', 'strategy', 'reason', 'warning', 'attempt', 'retry', 'delayMs', 'nextHeartbeatInMs', 'seq', 'fence'];
  const parts = shown.filter((key) => ['string', 'number'].includes(typeof fields[key])).map((key) => `${key} ${fields[key]}`);
  const error = fields['error'] ?? fields['lastError'];
  const code = typeof error === 'string' ? error : (error as { code?: string } | undefined)?.code;
  const holder = fields['holder'] as { name?: string; label?: string } | null | undefined;
  const who = holder?.name ?? holder?.label;
  const summary = [...(code ? [code] : []), ...(who ? [who] : []), ...parts].join(', ');
  const isBad = /error|readonly|failed|expired$/.test(name);
  return { at, name, summary, isBad, json: JSON.stringify(fields, hide, 2) };
}

function hide(key: string, value: unknown): unknown {
  if (key === 'leaseId' || key === 'lease_id' || key === 'stack') return undefined;
  // An error's own words are not enumerable.
  if (value instanceof Error) return { ...value, message: value.message, code: (value as { code?: string }).code };
  return value;
}
