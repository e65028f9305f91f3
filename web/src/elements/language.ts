// Which of the two languages a page gets, and how its times and numbers are written.

/** A language that the elements have texts in. */
export type Language = 'en' | 'ja';

/** The language of the texts for a language tag; English where there is no other. */
export function languageFor(tag: string): Language {
  return /^ja\b/i.test(tag) ? 'ja' : 'en';
}

/** The tag for times and numbers: the same one, if it is a tag of that language, with its region. */
export function localeFor(tag: string): string {
  try {
    return /^(en|ja)\b/i.test(tag) ? Intl.getCanonicalLocales(tag)[0]! : 'en';
  } catch {
    return languageFor(tag);
  }
}
