// Registers both elements under their names.

import './elements/autosave-history-define.js';
import './elements/autosave-indicator-define.js';

export * from './elements.js';
