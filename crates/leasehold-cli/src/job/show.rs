//! `leasehold job show`: the status of a job.

use anyhow::Result;
use leasehold_client::{Error, JobId, JobLook, Jobs};
use leasehold_core::Json;
use leasehold_core::job::Status;
use leasehold_core::time::whole_millis;
use serde_json::{Value, json};

use super::acquire::holder;
use super::{JobFields, bare};
use crate::Ending;
use crate::out::{Out, duration, one_line};

pub(super) async fn run(id: &JobId, jobs: &Jobs, out: &Out) -> Result<Ending> {
    let look = jobs.look(id.as_str()).await.map_err(bare)?;
    let look = look.ok_or_else(|| Error::NoSuchJob { id: id.to_string() })?;
    if out.is_json() {
        out.value(&object(id, &look));
    } else {
        show(id, &look, out);
    }
    Ok(Ending::Done)
}

fn object(id: &JobId, look: &JobLook) -> JobFields {
    let mut rest = json!({ "job": id.as_str(), "status": word(look),
        "attempts": look.attempts, "max_attempts": look.max_attempts });
    let mut add = |name: &str, value: Value| {
        rest.as_object_mut().and_then(|rest| rest.insert(name.into(), value));
    };
    let mut kept = None;
    match &look.status {
        Status::Queued => {}
        Status::Ready { result, by } => {
            kept = Some(Json::of_text(result.as_str()));
            add("finished_by", json!(by.get()));
        }
        Status::Failed { error, by } => {
            add("error", json!(error.as_str()));
            add("finished_by", json!(by.map(leasehold_client::Fence::get)));
        }
    }
    if let Some(held) = &look.held {
        add("held", holder(held));
    }
    JobFields { payload: Some(Json::of_text(&look.payload)), result: kept, rest }
}

fn word(look: &JobLook) -> &'static str {
    match &look.status {
        Status::Ready { .. } => "READY",
        Status::Failed { .. } => "FAILED",
        Status::Queued if look.held.is_some() => "RUNNING",
        Status::Queued => "QUEUED",
    }
}

fn show(id: &JobId, look: &JobLook, out: &Out) {
    match &look.status {
        Status::Queued if look.held.is_some() => out.notice(&format!("{id} is RUNNING")),
        Status::Queued => out.notice(&format!("{id} is QUEUED")),
        Status::Ready { .. } => out.good(&format!("{id} is READY")),
        Status::Failed { .. } => out.bad(&format!("{id} is FAILED")),
    }
    out.fact("payload", &one_line(Json::of_text(&look.payload).as_str()));
    let most = look.max_attempts.map(|most| format!(" of at most {most}")).unwrap_or_default();
    out.fact("attempts", &format!("{}{most}", look.attempts));
    match &look.status {
        Status::Queued => {}
        Status::Ready { result, .. } => {
            out.fact("result", &one_line(Json::of_text(result.as_str()).as_str()));
        }
        Status::Failed { error, .. } => out.fact("error", &one_line(error.as_str())),
    }
    if let Some(held) = &look.held {
        let left = duration(whole_millis(held.left));
        out.fact(
            "worker",
            &format!("{} (fence {}), for another {left} unless it is refreshed", held.name, held.fence),
        );
    }
}
