// `leasehold/documents` in Chromium.

import { describe } from 'vitest';
import { documentTests } from './document-tests.js';

describe('chromium', () => documentTests('chromium'));
