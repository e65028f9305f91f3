// The types of index.d.ts, as a program uses them. This is compiled, and never run.

import { AnalysisLocks, Inexact, JobRunning, Jobs, JsonText, LeaseLost, NotRetryable } from '../index.js';
import type { Attempt, Held, Job, NotAcquired, Run } from '../index.js';

export async function program(): Promise<void> {
  const jobs = new Jobs('http://127.0.0.1:7420', async () => 'token', { worker: 'w1', timeoutMs: 1_000, warn: () => {} });
  const isNew: boolean = await jobs.create('analyses/42', { page: 7 }, { maxAttempts: 5 });
  await jobs.create('analyses/43', { n: 2n ** 70n + 1n, exact: new JsonText('1.10') });
  const job: Job | null = await jobs.look('analyses/42');
  const status: 'QUEUED' | 'RUNNING' | 'READY' | 'FAILED' | undefined = job?.status;

  const answer: Attempt | NotAcquired = await jobs.acquire('analyses/42', { ttl: 30, onLost: (attempt) => attempt.id });
  if (answer.acquired) {
    const fence: number = answer.check();
    const text: string = answer.payloadText;
    jobs.warn(text);
    await fetch('https://example.com', { signal: answer.signal });
    await answer.refresh(600);
    const again: boolean = await answer.fail(new Error(`${fence}`), false);
    if (again) await answer.complete();
    // @ts-expect-error: only what was not acquired has a reason
    answer.reason;
  } else {
    const held: Held | undefined = answer.held;
    const reason: 'already_finished' | 'locked' = answer.reason;
    jobs.warn(`${reason} ${held?.name} ${held?.expiresInMs}`);
  }

  const run: Run<{ pages: number }> = await jobs.run('analyses/42', async (attempt) => ({ pages: attempt.payload.page + 1 }));
  const pages: number | undefined = run.result?.pages;
  // @ts-expect-error: a result has the type of what the work comes to
  const words: string | undefined = run.result;

  const locks = new AnalysisLocks(jobs, { collection: 'analyses' });
  const { acquired, reason } = await locks.acquireAnalysisLock('42', 'w1', 300);
  const fence: number | undefined = locks.attempt('42', 'w1')?.fence;
  await locks.releaseAnalysisLock('42', 'w1');

  try {
    await jobs.reset('analyses/42');
  } catch (error) {
    if (error instanceof Inexact) throw new Error(job?.resultText ?? error.message);
    if (error instanceof LeaseLost) throw new NotRetryable(error.because);
    if (error instanceof JobRunning) throw new Error(error.held?.id, { cause: error });
  }
  console.log(isNew, status, pages, words, acquired, reason, fence);
}
