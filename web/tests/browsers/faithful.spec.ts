// The real APIs give the answers that the doubles give (tests/faithful.spec.ts).

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rightAnswers } from '../faithful.js';
import { isInstalled, start, type Browser, type Kind } from './browsers.js';
import { TestServer } from './server.js';

describe.each(['chromium', 'firefox'] as Kind[])('%s', (kind) => {
  let server: TestServer;
  let browser: Browser;
  beforeAll(async () => {
    server = await TestServer.start();
    if (isInstalled(kind)) browser = await start(kind);
  });
  afterAll(async () => {
    await browser?.close();
    await server.stop();
  });

  test.skipIf(!isInstalled(kind))('the browser answers as the doubles do', async () => {
    const tab = await browser.open(server.page('faithful'));
    const answers = await tab.run(() => new Promise<unknown>((resolve) => {
      const worker = new Worker('/bundle/faithful.worker.js', { type: 'module' });
      worker.onmessage = (event) => resolve(event.data);
      worker.postMessage('go');
    }), null);
    expect(answers).toEqual(rightAnswers());
  });
});
