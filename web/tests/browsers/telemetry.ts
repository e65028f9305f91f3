// A page that autosaves and counts, with the package as it is shipped. Its query says where the counts go.

import { initAutoSave } from '/dist/autosave.js';
import { startTelemetry } from '/dist/telemetry.js';

const { searchParams } = new URL(location.href);
let text = { text: '' };
const autosave = initAutoSave(() => text);
startTelemetry({
  url: searchParams.get('url')!, autosave, phase: 'default', token: () => searchParams.get('token') ?? undefined,
});

const telemetry = {
  async save(words: string): Promise<void> {
    text = { text: words };
    await autosave.flushNow();
  },
};

declare global {
  var telemetry: { save(words: string): Promise<void> };
}

globalThis.telemetry = telemetry;
