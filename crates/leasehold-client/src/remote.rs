//! Leases behind a server: each call of `backend.rs` becomes a call over HTTP, and its answer comes back in the words of
//! that file. Jobs are in `remote/jobs.rs`, leases of programs in `remote/leases.rs`.
//!
//! Nothing is decided here, and nothing is made up: what the server does not say (its clock, another's lease id) is not
//! needed.

mod jobs;
mod leases;

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::holder::{PendingRequest, Reply, Terms};
use leasehold_core::lease::{Bid, LossReason};
use leasehold_core::wire::Secret;
use leasehold_core::wire::documents::{self as wire, HandoverRequest, Heartbeat};
use leasehold_core::{Fence, Invalid, JobId, Key, LeaseId, OnSilence, Owner, RoomId, Seq, Ttl};
use leasehold_store::Retry;

use crate::Error;
use crate::backend::{
    AnswerReply, Answered, Backend, BidReply, Claim, Granted, Held, JobCall, JobReply, Way,
};
use crate::http::{self, Handover, HandoverTerms, HttpClient};

pub(crate) struct Remote(pub(crate) HttpClient);

#[async_trait]
impl Backend for Remote {
    async fn bid(&self, key: &Key, bid: &Bid, way: &Way) -> Result<Answered<BidReply>, Error> {
        if let Some(name) = leases::name_of(key)? {
            return Ok((self.bid_for_lease(&name, bid, way).await?, None));
        }
        let (room, lease_id) = (room_of(key)?, Some(&bid.lease_id));
        let answered = match way {
            Way::Acquire => self.0.lock(&room, lease_id).await.map(Handover::Granted),
            Way::TakeOver { seen, reason } => {
                self.0.take_over(&room, *seen, reason, lease_id).await.map(Handover::Granted)
            }
            Way::RequestHandover { seen, on_silence, countdown, patience } => {
                let terms = HandoverTerms {
                    on_silence: Some(*on_silence),
                    countdown: Some(*countdown),
                    patience: Some(*patience),
                };
                self.0.request_handover(&room, *seen, terms, lease_id).await
            }
        };
        let reply = match answered {
            Ok(Handover::Granted(grant)) => BidReply::Granted(granted(&grant)?),
            Ok(Handover::Asked(_)) => BidReply::Requested,
            Err(refused) => refused_bid(refused)?,
        };
        Ok((reply, None))
    }

    async fn renew(&self, key: &Key, claim: Claim) -> Result<Reply, Error> {
        if key.as_str().starts_with(JobId::DOOR) {
            return self.refresh(key, claim).await;
        }
        if let Some(name) = leases::name_of(key)? {
            return self.renew_lease(&name, claim).await;
        }
        let renewed = self.0.renew(&room_of(key)?, Some(&claim.lease_id)).await;
        reply(renewed, 0, |lock| {
            // The server compares lease ids; one never stands for two fences.
            if lock.fence != claim.fence.get() {
                return Ok(Reply::Lost(LossReason::Unknown));
            }
            terms(&lock).map(Reply::Kept)
        })
    }

    async fn release(&self, key: &Key, claim: Claim) -> Result<(), Error> {
        if key.as_str().starts_with(JobId::DOOR) {
            return self.job(key, JobCall::Release(claim)).await.map(drop);
        }
        if let Some(name) = leases::name_of(key)? {
            return gone_is_fine(self.0.release_lease(&name, &claim.lease_id).await);
        }
        gone_is_fine(self.0.unlock(&room_of(key)?, Some(&claim.lease_id)).await)
    }

    async fn withdraw(&self, key: &Key, bid: &Bid) -> Result<(), Error> {
        if let Some(name) = leases::name_of(key)? {
            return gone_is_fine(self.0.cancel_lease(&name, &bid.lease_id).await);
        }
        gone_is_fine(self.0.withdraw_request(&room_of(key)?, &bid.lease_id).await)
    }

    async fn confirm(&self, key: &Key, claim: Claim, request: Seq) -> Result<Reply, Error> {
        let told = self.0.confirm_request(&room_of(key)?, Some(&claim.lease_id), request).await;
        reply(told, request, |told| {
            Ok(Reply::Counting { request, left: Duration::from_millis(told.ends_in_ms) })
        })
    }

    async fn answer(
        &self,
        key: &Key,
        claim: Claim,
        request: Seq,
        hand_over: bool,
    ) -> Result<AnswerReply, Error> {
        let room = room_of(key)?;
        match self.0.answer_request(&room, Some(&claim.lease_id), request, hand_over).await {
            Ok(taken) if taken.handed_over => Ok(AnswerReply::HandedOver { to: owner(&taken.holder)? }),
            Ok(_) => Ok(AnswerReply::Refused),
            Err(http::Error::NoRequest) => Ok(AnswerReply::NoRequest),
            Err(error) => Ok(AnswerReply::Lost(loss(error)?)),
        }
    }

    async fn job(&self, key: &Key, call: JobCall) -> Result<Answered<JobReply>, Error> {
        Ok((self.call_job(&jobs::job_of(key)?, call).await?, None))
    }

    fn is_server(&self) -> bool {
        true
    }
}

/// What an answer to the holder says; a refusal that the rules know is one, too.
fn reply<T>(
    answered: Result<T, http::Error>,
    request: Seq,
    said: impl FnOnce(T) -> Result<Reply, http::Error>,
) -> Result<Reply, Error> {
    match answered {
        Ok(answer) => Ok(said(answer)?),
        Err(http::Error::NoRequest) => Ok(Reply::RequestOver { request }),
        Err(error) => Ok(Reply::Lost(loss(error)?)),
    }
}

/// How the lease was lost, if that is what the server says.
fn loss(error: http::Error) -> Result<LossReason, Error> {
    match error {
        http::Error::LockNotFound { because } | http::Error::NotHolder { because } => {
            Ok(because.unwrap_or(LossReason::Unknown))
        }
        http::Error::LeaseOver { because, .. } => Ok(because),
        http::Error::LeaseNotFound => Ok(LossReason::Unknown),
        error => Err(error.into()),
    }
}

fn gone_is_fine(answered: Result<(), http::Error>) -> Result<(), Error> {
    match answered {
        Ok(()) | Err(http::Error::NoRequest) => Ok(()),
        Err(error) => loss(error).map(drop),
    }
}

fn refused_bid(error: http::Error) -> Result<BidReply, Error> {
    Ok(match error {
        http::Error::Held(held) => BidReply::Held(in_the_way(&held)?),
        http::Error::RequestedByAnother { held } => {
            BidReply::RequestedByAnother(held.map(|held| in_the_way(&held)).transpose()?)
        }
        http::Error::TooManyLeases { .. } => BidReply::OwnerIsFull,
        error => BidReply::Lost(loss(error)?),
    })
}

fn granted(grant: &wire::Grant) -> Result<Granted, http::Error> {
    Ok(Granted {
        owner: owner(&grant.lock.holder)?,
        claim: Claim { lease_id: lease_id(&grant.lease_id)?, fence: fence(grant.lock.fence)? },
        terms: terms(&grant.lock)?,
    })
}

fn terms(lock: &Heartbeat) -> Result<Terms, http::Error> {
    Ok(Terms {
        ttl: ttl(lock.expires_in_ms)?,
        heartbeat: Some(Duration::from_secs(lock.heartbeat_seconds)).filter(|every| !every.is_zero()),
        request: lock.request.as_ref().map(pending).transpose()?,
    })
}

fn pending(request: &HandoverRequest) -> Result<PendingRequest, http::Error> {
    Ok(PendingRequest {
        seq: request.id,
        by: owner(&request.by)?,
        name: Some(request.by.name.clone()),
        on_silence: OnSilence::from(request.on_silence),
        countdown: ttl(request.countdown_ms)?,
        left: request.ends_in_ms.map(Duration::from_millis),
    })
}

fn in_the_way(held: &wire::Held) -> Result<Held, http::Error> {
    Ok(Held {
        by: owner(&held.holder)?,
        name: held.holder.name.clone(),
        fence: fence(held.fence)?,
        left: Duration::from_millis(held.expires_in_ms),
    })
}

/// The document that a key stands for.
fn room_of(key: &Key) -> Result<RoomId, Error> {
    if key.as_str().starts_with(JobId::DOOR) {
        let rule = "behind a server, a job is acquired as a job";
        return Err(Invalid::new("key", key.as_str(), rule, "use Leasehold::jobs").into());
    }
    RoomId::of(key).ok_or_else(|| {
        let rule = "a server keeps leases of programs (`run/`), documents (`doc/` and 1 to 128 of A-Z a-z 0-9 _ - = @ , . ;) and jobs";
        let fix = "write `run/nightly` or `doc/minutes`, or open a store for keys of other doors";
        Invalid::new("key", key.as_str(), rule, fix).into()
    })
}

fn lease_id(secret: &Secret) -> Result<LeaseId, http::Error> {
    LeaseId::parse(&secret.0).map_err(|error| invalid_answer(&error))
}

fn owner(holder: &wire::Holder) -> Result<Owner, http::Error> {
    Owner::parse(&holder.id).map_err(|error| invalid_answer(&error))
}

fn fence(number: u64) -> Result<Fence, http::Error> {
    Fence::new(number).map_err(|error| invalid_answer(&error))
}

fn ttl(millis: u64) -> Result<Ttl, http::Error> {
    let duration = Duration::from_millis(millis).min(Ttl::MAX.as_duration());
    Ttl::new(duration).map_err(|error| invalid_answer(&error))
}

/// A server that keeps the rules does not answer like this, so what it did is unknown.
fn invalid_answer(error: &Invalid) -> http::Error {
    http::Error::unavailable(format!("its answer breaks a rule ({error})"), Retry::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::wire::OnSilenceView;

    fn holder(id: &str) -> wire::Holder {
        wire::Holder { id: id.into(), name: id.to_uppercase() }
    }

    fn lock(request: Option<HandoverRequest>) -> Heartbeat {
        Heartbeat {
            fence: 7,
            expires_at: String::new(),
            expires_in_ms: 30_000,
            ttl_seconds: 30,
            heartbeat_seconds: 10,
            holder: holder("anna"),
            request,
        }
    }

    #[test]
    fn what_is_left_of_a_lease_and_of_a_countdown_survives_the_translation() {
        let wanted = HandoverRequest {
            id: 3,
            by: holder("ben"),
            on_silence: OnSilenceView::Grant,
            countdown_ms: 20_000,
            ends_in_ms: Some(4_000),
            lapses_in_ms: 9_000,
        };
        let terms = terms(&lock(Some(wanted))).unwrap();
        assert_eq!((terms.ttl.as_millis(), terms.heartbeat), (30_000, Some(Duration::from_secs(10))));
        let request = terms.request.unwrap();
        assert_eq!((request.seq, request.by.as_str(), request.name.as_deref()), (3, "ben", Some("BEN")));
        assert_eq!((request.countdown.as_millis(), request.left), (20_000, Some(Duration::from_secs(4))));
    }

    #[test]
    fn an_answer_that_breaks_the_rules_is_not_believed() {
        for bad in [
            Heartbeat { fence: 0, ..lock(None) },
            Heartbeat { expires_in_ms: 3, ..lock(None) },
            Heartbeat { holder: holder(""), ..lock(None) },
        ] {
            let grant = wire::Grant { lease_id: Secret(uuid()), lock: bad };
            assert_eq!(granted(&grant).unwrap_err().retry(), Retry::Unknown);
        }
        granted(&wire::Grant { lease_id: Secret(uuid()), lock: lock(None) }).unwrap();
    }

    fn uuid() -> String {
        LeaseId::from_random([7; 16]).reveal()
    }

    #[test]
    fn a_lock_that_is_gone_is_lost_and_trouble_is_not() {
        let gone = http::Error::LockNotFound { because: Some(LossReason::TakenOver) };
        assert_eq!(loss(gone).unwrap(), LossReason::TakenOver);
        assert_eq!(loss(http::Error::NotHolder { because: None }).unwrap(), LossReason::Unknown);
        loss(http::Error::unavailable("trouble", Retry::Unknown)).unwrap_err();
        loss(http::Error::NotFound).unwrap_err();
    }

    #[test]
    fn keys_of_other_doors_are_refused_with_the_way_out() {
        for key in ["deploy/eu", "doc/with space"] {
            let error = room_of(&Key::parse(key).unwrap()).unwrap_err().to_string();
            assert!(error.contains("doc/minutes") && error.contains("open a store"), "{error}");
        }
        let error = room_of(&Key::parse("job/a/b").unwrap()).unwrap_err().to_string();
        assert!(error.contains("Leasehold::jobs"), "{error}");
    }
}
