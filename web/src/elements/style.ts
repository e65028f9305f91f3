// How the elements look. Colours follow `color-scheme` of the page, sizes its font; custom properties and parts change them.
// A browser without `light-dark` (before 2024) draws icons and borders in the colour of the text. (Nothing shortens CSS in strings,
// so it is written short.)

const COMMON = `
:host{--good:light-dark(#14743f,#7ddba0);--warn:light-dark(#8a5300,#ffc46b);--bad:light-dark(#b3261e,#ffb4ab);--line:light-dark(#767676,#8f8f8f)}
:host([hidden]),[hidden]{display:none!important}
*{box-sizing:border-box}
.unseen{position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
button{font:inherit;color:inherit;min-height:1.75em;min-width:24px;padding:.1em .7em;cursor:pointer;white-space:nowrap;
background:var(--autosave-button,transparent);border:1px solid var(--autosave-line,var(--line));border-radius:var(--autosave-radius,.35em)}
button:hover{background:var(--autosave-button-hover,color-mix(in srgb,currentColor 12%,transparent))}
button[aria-disabled=true]{opacity:.6;cursor:default}
:focus-visible{outline:2px solid var(--autosave-focus,currentColor);outline-offset:2px}
.base:focus{outline:none}
dialog{font:inherit;color:var(--autosave-text,CanvasText);background:var(--autosave-surface,Canvas);text-align:start;
border:1px solid var(--autosave-line,var(--line));border-radius:calc(2*var(--autosave-radius,.35em));padding:1.25em;
width:min(40em,calc(100vw - 2em));max-height:calc(100vh - 2em)}
dialog::backdrop{background:rgb(0 0 0/.45)}
h2{font-size:1.15em;margin:0 0 .75em}
p{margin:0 0 1em}
.row{display:flex;flex-wrap:wrap;gap:.5em;justify-content:flex-end;align-items:center}
.row span{flex:1 0 100%}
.primary{background:var(--autosave-accent,CanvasText);border-color:var(--autosave-accent,CanvasText);color:var(--autosave-on-accent,Canvas)}
.primary:hover{background:var(--autosave-accent,CanvasText);opacity:.85}
`;

/** The style of the indicator. */
export const INDICATOR = `${COMMON}
:host{display:inline-block;font:var(--autosave-font,inherit)}
.base{display:flex;flex-wrap:wrap;align-items:center;gap:var(--autosave-gap,.4em);position:relative}
svg{width:1.1em;height:1.1em;flex:none;fill:none;stroke:currentColor;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round}
[data-tone=good] svg{color:var(--autosave-good,var(--good))}
[data-tone=warn] svg{color:var(--autosave-warn,var(--warn))}
[data-tone=bad] svg{color:var(--autosave-bad,var(--bad))}
[data-icon=busy] svg{animation:turn 1s linear infinite}
@keyframes turn{to{transform:rotate(1turn)}}
@media (prefers-reduced-motion:reduce){[data-icon=busy] svg{animation:none}}
.line{display:flex;gap:var(--autosave-gap,.4em);align-items:start}
.line svg{margin-block-start:.15em}
.time{font-variant-numeric:tabular-nums;white-space:nowrap}
.actions{display:flex;flex-wrap:wrap;gap:.4em}
.actions:empty{display:none}
.detail:not(:empty){display:block}
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
