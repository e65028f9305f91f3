#!/usr/bin/env node
// `leasehold-flags show | advance | rollback`: the same as `leasehold flags …`, for the scripts of an application.

import { call } from './call.mjs';

call(['flags', ...process.argv.slice(2)]);
