// What a caller may have to decide about. Not getting a job is none of these: see `acquired`.

/** The server did not do it, or is not known to have done it. */
export class LeaseholdError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** What was to be sent breaks a rule; its words say which, and what to do. */
export class Invalid extends LeaseholdError {}
/** A payload or a result holds a number that JavaScript would round; its text is there beside it. */
export class Inexact extends LeaseholdError {}
/** The server does not accept the token. */
export class Unauthenticated extends LeaseholdError {}
/** The token does not permit it. */
export class NotAllowed extends LeaseholdError {}
/** There is no such job for this caller. */
export class NoSuchJob extends LeaseholdError {}
/** There is a job with this id and another payload: the same id always means the same work. */
export class JobDiffers extends LeaseholdError {}
/** The caller asks too often, or has as many jobs as one may. */
export class TooMany extends LeaseholdError {}
/** There was no answer, or none that says anything. It may or may not have been done. */
export class Unavailable extends LeaseholdError {}

/** Another worker is running the job. */
export class JobRunning extends LeaseholdError {
  constructor(message, held) {
    super(message);
    this.held = held;
  }
}

/** The attempt is over: whatever is said about it now is refused. Stop working. */
export class LeaseLost extends LeaseholdError {
  constructor(message, because, held) {
    super(message);
    this.because = because;
    this.held = held;
  }
}

/** For the work itself to throw: it failed, and trying again would not help. */
export class NotRetryable extends Error {}

/** Who is working on a job, if an answer says so and makes sense. */
export function heldOf(answer) {
  const { holder, fence, expires_in_ms: expiresInMs } = answer ?? {};
  if (typeof holder?.id !== 'string' || typeof fence !== 'number' || typeof expiresInMs !== 'number') return undefined;
  return { id: holder.id, name: holder.name, fence, expiresInMs };
}

const KINDS = {
  job_not_found: NoSuchJob,
  job_differs: JobDiffers,
  not_allowed: NotAllowed,
  unauthenticated: Unauthenticated,
};

/** The error that the server's problem (RFC 9457) stands for. */
export function fromProblem(status, problem) {
  const known = typeof problem?.code === 'string';
  const words = known
    ? [problem.title, problem.detail].filter(Boolean).join(': ')
    : `status ${status}, without a reason; is this a Leasehold server?`;
  const code = known ? problem.code : '';
  if (code === 'lease_over' || code === 'not_holder') {
    const because = String(problem.because ?? 'unknown');
    return new LeaseLost(`the attempt is over (${because})`, because, heldOf(problem));
  }
  if (code === 'job_running') return new JobRunning(words, heldOf(problem));
  if (KINDS[code]) return new KINDS[code](words);
  if (status === 401) return new Unauthenticated(words);
  if (status === 429) return new TooMany(words);
  if (status >= 500 || status < 400 || status === 408 || !known) return new Unavailable(words);
  return new Invalid(words);
}
