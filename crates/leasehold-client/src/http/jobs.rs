//! The jobs door of a server, one method per call. As with documents, nothing is decided or repeated here.

use leasehold_core::wire::jobs::{
    AcquireJob, CompleteJob, CreateJob, FailJob, JobAcquired, JobFailed, JobHold, JobState, RefreshJob,
    ReleaseJob,
};
use leasehold_core::{JobId, Json, LeaseId, Ttl};
use reqwest::{Method, Url};

use super::{Error, HttpClient, in_seconds, secret};
use crate::backend::Claim;

impl HttpClient {
    /// Makes a job, unless it is there with the same payload. Answers whether it is new.
    pub async fn create_job(
        &self,
        job: &JobId,
        payload: Json,
        max_attempts: Option<u32>,
    ) -> Result<(bool, JobState), Error> {
        let body = CreateJob { payload, max_attempts: max_attempts.map(u64::from) };
        let answer = self.send(self.call(Method::PUT, &self.job_url(job, None)?, None).json(&body)).await?;
        Ok((answer.is_new(), answer.json()?))
    }

    /// What is known about a job.
    pub async fn job(&self, job: &JobId) -> Result<JobState, Error> {
        self.json(self.call(Method::GET, &self.job_url(job, None)?, None)).await
    }

    /// Begins with a job, if it is neither finished nor held by another worker. Draw the lease id before the first attempt:
    /// then a repeated call cannot begin a second one.
    pub async fn acquire_job(
        &self,
        job: &JobId,
        lease_id: &LeaseId,
        worker: Option<&str>,
        ttl: Option<Ttl>,
    ) -> Result<JobAcquired, Error> {
        let body = AcquireJob {
            lease_id: Some(secret(lease_id)),
            worker: worker.map(str::to_owned),
            ttl_seconds: ttl.map(in_seconds),
        };
        self.json(self.post(&self.job_url(job, Some("acquire"))?, &body)).await
    }

    /// Goes on with a job for another while.
    pub async fn refresh_job(&self, job: &JobId, claim: &Claim, ttl: Option<Ttl>) -> Result<JobHold, Error> {
        let ttl_seconds = ttl.map(in_seconds);
        let body = RefreshJob { lease_id: secret(&claim.lease_id), fence: claim.fence.get(), ttl_seconds };
        self.json(self.post(&self.job_url(job, Some("refresh"))?, &body)).await
    }

    /// Gives a job back unfinished.
    pub async fn release_job(&self, job: &JobId, claim: &Claim) -> Result<(), Error> {
        let body = ReleaseJob { lease_id: secret(&claim.lease_id), fence: Some(claim.fence.get()) };
        self.nothing(self.post(&self.job_url(job, Some("release"))?, &body)).await
    }

    /// Cancels an acquire whose answer is not known, and the attempt that it may have begun.
    pub async fn withdraw_job(&self, job: &JobId, lease_id: &LeaseId) -> Result<(), Error> {
        let body = ReleaseJob { lease_id: secret(lease_id), fence: None };
        self.nothing(self.post(&self.job_url(job, Some("release"))?, &body)).await
    }

    /// A job is done.
    pub async fn complete_job(&self, job: &JobId, claim: &Claim, result: Json) -> Result<(), Error> {
        let body = CompleteJob { lease_id: secret(&claim.lease_id), fence: claim.fence.get(), result };
        self.nothing(self.post(&self.job_url(job, Some("complete"))?, &body)).await
    }

    /// An attempt failed. Answers whether the job will be tried again.
    pub async fn fail_job(
        &self,
        job: &JobId,
        claim: &Claim,
        error: &str,
        retryable: bool,
    ) -> Result<bool, Error> {
        let body = FailJob {
            lease_id: secret(&claim.lease_id),
            fence: claim.fence.get(),
            error: error.to_owned(),
            retryable: Some(retryable),
        };
        let failed: JobFailed = self.json(self.post(&self.job_url(job, Some("fail"))?, &body)).await?;
        Ok(failed.again)
    }

    /// Has a job done all over again. Needs the permission to.
    pub async fn reset_job(&self, job: &JobId) -> Result<JobState, Error> {
        self.json(self.call(Method::POST, &self.job_url(job, Some("reset"))?, None)).await
    }

    fn job_url(&self, job: &JobId, call: Option<&str>) -> Result<Url, Error> {
        let mut path = vec!["api", "jobs", job.collection(), job.id()];
        path.extend(call);
        self.at_path(&path)
    }
}
