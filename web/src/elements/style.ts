// How the elements of an autosave look; `style-common.ts` has what they share with others. (Nothing shortens CSS in strings, so it is
// written short.)

import { COMMON, LINE } from './style-common.js';

/** The style of the indicator. */
export const INDICATOR = `${COMMON}${LINE}
.base{display:flex;flex-wrap:wrap;align-items:center;gap:var(--autosave-gap,.4em);position:relative}
.toast{position:fixed;inset-block-end:1em;inset-inline-end:1em;z-index:var(--autosave-toast-layer,1000);max-width:min(28em,calc(100vw - 2em));
display:flex;gap:.75em;align-items:center;padding:.6em .75em .6em 1em;color:var(--autosave-text,CanvasText);background:var(--autosave-surface,Canvas);
border:1px solid var(--autosave-line,var(--line));border-radius:var(--autosave-radius,.35em);box-shadow:0 .2em 1em rgb(0 0 0/.3)}
.toast button{border-color:transparent;padding:0 .4em;margin-inline-start:auto}
`;

/** The style of the history. */
export const HISTORY = `${COMMON}
:host{display:inline-block;font:var(--autosave-font,inherit)}
:host([inline]){display:block}
dialog[open]{display:flex}
.panel{display:flex;flex-direction:column;flex:1;min-width:0}
:host([inline]) .panel{padding:1.25em;color:var(--autosave-text,CanvasText);background:var(--autosave-surface,Canvas);
border:1px solid var(--autosave-line,var(--line));border-radius:calc(2*var(--autosave-radius,.35em))}
.head{display:flex;justify-content:space-between;align-items:start;gap:1em}
.head button{border-color:transparent}
.scroll{overflow:auto;min-height:0;margin:-3px;padding:3px}
:host([inline]) .scroll{max-height:var(--autosave-height,30em)}
.row span{flex:1 0 100%}
.scroll+.row:not(:empty){margin-block-start:1em}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.4em .5em;text-align:start;border-bottom:1px solid var(--autosave-line,color-mix(in srgb,currentColor 25%,transparent));font-weight:inherit}
thead th{font-weight:600;position:sticky;top:0;background:var(--autosave-surface,Canvas)}
.number{text-align:end;white-space:nowrap}
th:has(>.number){text-align:end}
.narrow{display:none}
.scroll{container-type:inline-size}
@container (max-width:22em){.wide{display:none}.narrow{display:inline}th,td{padding-inline:.25em}}
.current{font-weight:600}
pre{margin:0;padding:.75em;white-space:pre-wrap;overflow-wrap:anywhere;font:.9em/1.45 ui-monospace,monospace;
border:1px solid var(--autosave-line,var(--line));border-radius:var(--autosave-radius,.35em)}
.note{display:flex;flex-wrap:wrap;gap:.75em;align-items:center;margin:0 0 1em}
.note:empty,.alert:empty{display:none}
.alert{margin:0 0 1em;padding-inline-start:.75em;border-inline-start:.25em solid var(--autosave-bad,var(--bad))}
`;
