// Times and sizes as people read them. Input comes from file names and attributes, so anything may be in it: what cannot be
// parsed is shown as it is.

const CLOCK: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
const UNITS = ['byte', 'kilobyte', 'megabyte', 'gigabyte'] as const;

/** A time of day, as HH:MM:SS. */
export function timeOfDay(at: number, locale: string): string {
  return dated(at, locale, CLOCK);
}

/** A date with a time of day. */
export function dateAndTime(at: number, locale: string): string {
  return dated(at, locale, { ...CLOCK, year: 'numeric', month: 'short', day: 'numeric' });
}

/** The same for a list, without its year. */
export function dayAndTime(at: number, locale: string): string {
  return dated(at, locale, { ...CLOCK, month: 'short', day: 'numeric' });
}

/** For the attribute `datetime`; empty if there is no such moment. */
export function machineTime(at: number): string {
  return isMoment(at) ? new Date(at).toISOString() : '';
}

/** The moment that the name of a version stands for. File names have no colons, so the time may be written with dashes. */
export function momentOf(ts: string): number {
  return Date.parse(ts.replace(/T(\d\d)-(\d\d)-(\d\d)/, 'T$1:$2:$3'));
}

/** A size, in units of 1000 bytes. */
export function size(bytes: number, locale: string): string {
  return amount(bytes, locale, 'auto');
}

/** How much larger or smaller, with its sign: the mathematical one, because screen readers pass over a hyphen. */
export function difference(bytes: number, locale: string): string {
  return amount(bytes, locale, 'exceptZero').replace('-', '\u2212');
}

function amount(bytes: number, locale: string, signDisplay: 'auto' | 'exceptZero'): string {
  let [value, unit] = [bytes, 0];
  // 999.95 kB would be rounded to 1,000.0 kB.
  while (Math.abs(value) >= (unit ? 999.95 : 1_000) && unit < UNITS.length - 1) [value, unit] = [value / 1_000, unit + 1];
  return new Intl.NumberFormat(locale, {
    style: 'unit', unit: UNITS[unit], signDisplay, unitDisplay: unit ? 'short' : 'long', maximumFractionDigits: unit ? 1 : 0,
  }).format(value);
}

function dated(at: number, locale: string, options: Intl.DateTimeFormatOptions): string {
  return isMoment(at) ? new Intl.DateTimeFormat(locale, options).format(at) : '';
}

function isMoment(at: number): boolean {
  return Math.abs(at) <= 8.64e15;
}
