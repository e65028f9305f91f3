// `leasehold/documents` in Firefox.

import { describe } from 'vitest';
import { documentTests } from './document-tests.js';

describe('firefox', () => documentTests('firefox'));
