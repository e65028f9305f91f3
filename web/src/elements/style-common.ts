// What all elements look like. Colours follow `color-scheme` of the page, sizes its font; custom properties and parts change them.
// A browser without `light-dark` (before 2024) draws icons and borders in the colour of the text. (Nothing shortens CSS in strings,
// so it is written short.)

/** Of every element. */
export const COMMON = `
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
width:min(40em,calc(100vw - 2em))}
dialog::backdrop{background:rgb(0 0 0/.45)}
h2{font-size:1.15em;margin:0 0 .75em}
p{margin:0 0 1em}
.row{display:flex;flex-wrap:wrap;gap:.5em;justify-content:flex-end;align-items:center}
.primary{background:var(--autosave-accent,CanvasText);border-color:var(--autosave-accent,CanvasText);color:var(--autosave-on-accent,Canvas)}
.primary:hover{background:var(--autosave-accent,CanvasText);opacity:.85}
`;

/** Of a line with an icon, a text and buttons. */
export const LINE = `
:host{display:inline-block;font:var(--autosave-font,inherit)}
svg{width:1.1em;height:1.1em;flex:none;fill:none;stroke:currentColor;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round}
[data-tone=good] svg{color:var(--autosave-good,var(--good))}
[data-tone=warn] svg{color:var(--autosave-warn,var(--warn))}
[data-tone=bad] svg{color:var(--autosave-bad,var(--bad))}
@keyframes turn{to{transform:rotate(1turn)}}
@media (prefers-reduced-motion:no-preference){[data-icon=busy] svg{animation:turn 1s linear infinite}}
.line{display:flex;gap:var(--autosave-gap,.4em);align-items:start}
.line svg{margin-block-start:.15em}
.time{font-variant-numeric:tabular-nums;white-space:nowrap}
.actions{display:flex;flex-wrap:wrap;gap:.4em}
.actions:empty{display:none}
.detail:not(:empty){display:block}
`;
