// The classes of the elements. Importing them registers nothing: `elements-define.ts` does.

export { AutoSaveHistoryElement } from './elements/autosave-history.js';
export { AutoSaveIndicatorElement } from './elements/autosave-indicator.js';
