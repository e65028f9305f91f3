#!/usr/bin/env node
// `collect-metrics --window=15m`: the same as `leasehold telemetry report --window=15m`, for the scripts of an application.

import { call } from './call.mjs';

call(['telemetry', 'report', ...process.argv.slice(2)]);
