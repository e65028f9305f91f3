// JSON whose numbers are not rounded. A number in JavaScript is a double: what is sent may hold a BigInt or a JsonText, and of
// what comes, the text is kept beside the value, which is refused if it would be another one.

import { randomUUID } from 'node:crypto';

import { Inexact, Invalid } from './errors.js';

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}[\],:]|true|false|null/g;

/** JSON that is sent as it is: for numbers that a double does not carry. */
export class JsonText {
  constructor(text) {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Invalid(`this text is no JSON: ${error.message}`);
    }
    this.text = String(text);
  }

  toString() {
    return this.text;
  }
}

/** The JSON text of a value. A BigInt is written as an integer, a `JsonText` as it is. */
export function stringify(value) {
  const [exact, mark] = [[], randomUUID()];
  const text = JSON.stringify(value, (_, item) => {
    const isExact = typeof item === 'bigint' || item instanceof JsonText;
    return isExact ? `${mark}:${exact.push(String(item)) - 1}` : item;
  });
  return exact.length ? text.replace(new RegExp(`"${mark}:(\\d+)"`, 'g'), (_, at) => exact[at]) : text;
}

/** The texts of the members of a JSON object, by name. */
export function members(text) {
  const found = Object.create(null);
  let [depth, key, start] = [0];
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    if (depth === 1 && start !== undefined && (token === ',' || token === '}')) {
      found[key] = text.slice(start, index).trim();
      start = undefined;
    }
    if (token === '{' || token === '[') depth += 1;
    else if (token === '}' || token === ']') depth -= 1;
    else if (depth === 1 && token === ':') start = index + 1;
    else if (depth === 1 && start === undefined && token.startsWith('"')) key = JSON.parse(token);
  }
  return found;
}

/** Adds a member with the value of a JSON text, which throws where that would be rounded, and one with the text, `NAMEText`. */
export function withText(object, name, text) {
  if (text === undefined) return object;
  const number = text.match(TOKEN).find(isRounded);
  const words = `the ${name} holds ${number?.slice(0, 40)}, which a number in JavaScript would round; read ${name}Text`;
  const refuse = () => {
    throw new Inexact(words);
  };
  // A value that throws is not listed, so that the object as a whole can still be printed.
  const value = number === undefined ? { value: JSON.parse(text), enumerable: true } : { get: refuse };
  return Object.defineProperties(object, { [name]: value, [`${name}Text`]: { value: text, enumerable: true } });
}

/** Whether a token is a number that reads differently once it was a double. */
function isRounded(token) {
  return /^[-\d]/.test(token) && decimal(token) !== decimal(String(Number(token)));
}

/** A number as its digits and an exponent, in one form for all ways to write it. */
function decimal(text) {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text) ?? [];
  if (whole === undefined) return text; // Infinity
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (!significant) return '0';
  return `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}
