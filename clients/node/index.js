// Jobs that run once: the Node client of the Leasehold server. It needs nothing but Node.

export { AnalysisLocks } from './lib/analysis.js';
export { Attempt } from './lib/attempt.js';
export {
  Inexact,
  Invalid,
  JobDiffers,
  JobRunning,
  LeaseholdError,
  LeaseLost,
  NoSuchJob,
  NotAllowed,
  NotRetryable,
  TooMany,
  Unauthenticated,
  Unavailable,
} from './lib/errors.js';
export { Jobs } from './lib/jobs.js';
export { JsonText } from './lib/json.js';
