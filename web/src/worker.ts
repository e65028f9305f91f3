// The Worker that does the IO: access handles exist in Workers alone, and a hidden tab's own timers come once a minute.

import { host } from './host.js';
import type { ToHost } from './remote.js';

const hear = host((message) => postMessage(message));

onmessage = ({ data }: MessageEvent<ToHost>) => hear(data);
