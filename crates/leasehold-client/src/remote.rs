//! Commands to a server: each becomes a call of the documents door (or in `jobs.rs` of the jobs door), and its answer the outcome that the rules know.
//!
//! Nothing is decided here. The server's clock is unknown, so times are counted from when an answer came in: what an
//! answer says is left of a lease is all that is ever made of them. Deadlines count from when a request was sent, and
//! that is for the guard to remember.

mod jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::lease::{Bid, Claim, Lease, LossReason, Request};
use leasehold_core::wire::Secret;
use leasehold_core::wire::documents::{self as wire, Grant, HandoverRequest, Heartbeat};
use leasehold_core::{
    Command, Fence, Held, Invalid, JobId, Key, LeaseId, Meta, OnSilence, Outcome, Owner, Position, Reason,
    RoomId, StoreTime, Ttl,
};
use leasehold_store::clock::Clock;
use leasehold_store::{Applied, Retry};

use crate::http::{Documents, Error, Handover, HandoverTerms};

/// Keeps times before now from falling off the origin of the clock: longer than any TTL.
const ORIGIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) struct Remote {
    documents: Documents,
    clock: Arc<dyn Clock>,
    /// What the server last said about how often to renew, in milliseconds; 0 before that.
    heartbeat: AtomicU64,
}

impl Remote {
    pub(crate) fn new(documents: Documents, clock: Arc<dyn Clock>) -> Self {
        Self { documents, clock, heartbeat: AtomicU64::new(0) }
    }

    pub(crate) fn now(&self) -> StoreTime {
        StoreTime::from_millis(self.clock.millis()) + ORIGIN
    }

    pub(crate) fn heartbeat(&self) -> Option<Duration> {
        let millis = self.heartbeat.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    pub(crate) async fn apply(&self, key: &Key, command: Command) -> Result<Applied, Error> {
        if key.as_str().starts_with(JobId::DOOR) {
            return self.apply_to_job(key, command).await;
        }
        let room = room_of(key)?;
        let answered = self.call(&room, command).await;
        let now = self.now();
        let outcome = match answered {
            Ok(answer) => self.outcome(answer, now)?,
            Err(refused) => refusal(refused, now)?,
        };
        Ok(Applied { outcome, now, position: Position::default() })
    }

    async fn call(&self, room: &RoomId, command: Command) -> Result<Answer, Error> {
        let server = &self.documents;
        match command {
            Command::Acquire(bid) => server.lock(room, Some(&bid.lease_id)).await.map(Answer::Granted),
            Command::Renew { claim, .. } => {
                let renewed = server.heartbeat(room, Some(&claim.lease_id)).await;
                renewed.map(|lock| Answer::Renewed(claim, lock))
            }
            Command::Release(claim) => {
                server.unlock(room, Some(&claim.lease_id)).await.map(|()| Answer::Plain(Outcome::Released))
            }
            Command::TakeOver { seen, bid, reason } => {
                server.take_over(room, seen, &reason, Some(&bid.lease_id)).await.map(Answer::Granted)
            }
            Command::RequestHandover { seen, bid, on_silence, countdown, patience } => {
                let terms = HandoverTerms {
                    on_silence: Some(on_silence),
                    countdown: Some(countdown),
                    patience: Some(patience),
                };
                let asked = server.request_handover(room, seen, terms, Some(&bid.lease_id)).await?;
                Ok(match asked {
                    Handover::Granted(grant) => Answer::Granted(grant),
                    Handover::Asked(asked) => Answer::Asked(bid.lease_id, Box::new(asked)),
                })
            }
            Command::HandoverTold { claim, request } => {
                let told = server.handover_told(room, Some(&claim.lease_id), request).await?;
                Ok(Answer::Told(Duration::from_millis(told.ends_in_ms)))
            }
            Command::AnswerHandover { claim, request, hand_over } => {
                let taken = server.answer_handover(room, Some(&claim.lease_id), request, hand_over).await?;
                let outcome = match taken.handed_over {
                    true => Outcome::HandedOver { to: owner(&taken.holder)? },
                    false => Outcome::Refused,
                };
                Ok(Answer::Plain(outcome))
            }
            Command::Withdraw { lease_id } => {
                server.withdraw_request(room, &lease_id).await.map(|()| Answer::Plain(Outcome::Withdrawn))
            }
            // A page leaves softly and comes back, a program does not; the rest is asked of `Documents` itself.
            Command::SoftRelease { .. }
            | Command::Resume { .. }
            | Command::ForceRelease { .. }
            | Command::Check { .. }
            | Command::Settle => Err(Error::unavailable("a guard does not ask this of a server", Retry::No)),
        }
    }

    fn outcome(&self, answer: Answer, now: StoreTime) -> Result<Outcome, Error> {
        Ok(match answer {
            Answer::Plain(outcome) => outcome,
            Answer::Granted(grant) => {
                let lease_id = lease_id_of(&grant.lease_id)?;
                Outcome::Granted { lease: self.lease(lease_id, &grant.lock, now)?, extended: false }
            }
            Answer::Renewed(claim, lock) => {
                let lease = self.lease(claim.lease_id, &lock, now)?;
                // The server compares lease ids; that one never stands for two fences.
                if lease.fence == claim.fence { Outcome::Renewed(lease) } else { lost(LossReason::Unknown) }
            }
            Answer::Asked(lease_id, asked) => Outcome::Requested {
                held: Held {
                    by: owner(&asked.holder)?,
                    until: now + Duration::from_millis(asked.expires_in_ms),
                    fence: fence(asked.fence)?,
                    meta: meta(&asked.holder),
                },
                request: request(&asked.request, lease_id, now)?,
            },
            Answer::Told(left) => Outcome::Told { ends_at: now + left },
        })
    }

    fn lease(&self, lease_id: LeaseId, lock: &Heartbeat, now: StoreTime) -> Result<Lease, Error> {
        self.heartbeat.store(lock.heartbeat_seconds.saturating_mul(1_000), Ordering::Relaxed);
        let left = Duration::from_millis(lock.expires_in_ms);
        Ok(Lease {
            owner: owner(&lock.holder)?,
            lease_id,
            fence: fence(lock.fence)?,
            acquired_at: now,
            renewed_at: now,
            expires_at: now + left,
            ttl: Ttl::new(left.min(Ttl::MAX.as_duration())).map_err(|error| against_the_rules(&error))?,
            leaving: false,
            meta: meta(&lock.holder),
            request: match &lock.request {
                Some(wanted) => Some(Box::new(request(wanted, UNKNOWN, now)?)),
                None => None,
            },
        })
    }
}

/// What a server answered when it did as it was asked.
enum Answer {
    Plain(Outcome),
    Granted(Grant),
    Renewed(Claim, Heartbeat),
    Asked(LeaseId, Box<wire::Asked>),
    Told(Duration),
}

/// Stands where the lease id of somebody else would: it is their secret, and no server tells it.
const UNKNOWN: LeaseId = LeaseId::from_random([0; 16]);

/// The document that a key stands for.
pub(crate) fn room_of(key: &Key) -> Result<RoomId, Invalid> {
    RoomId::of(key).ok_or_else(|| {
        let rule = "a server keeps documents (`doc/` and 1 to 128 of A-Z a-z 0-9 _ - = @ , . ;) and jobs";
        Invalid::new(
            "key",
            key.as_str(),
            rule,
            "write `doc/minutes`, or open a store for keys of other doors",
        )
    })
}

/// A refusal that the rules know is an outcome.
fn refusal(error: Error, now: StoreTime) -> Result<Outcome, Error> {
    match error {
        Error::Held(held) => Ok(Outcome::Held(held_by(&held, now)?)),
        Error::LockNotFound { because } | Error::NotHolder { because } => {
            Ok(lost(because.unwrap_or(LossReason::Unknown)))
        }
        Error::LeaseOver { because, .. } => Ok(lost(because)),
        Error::NoRequest => Ok(Outcome::NoRequest),
        Error::TooManyLeases { .. } => Ok(Outcome::OwnerIsFull),
        error => Err(error),
    }
}

fn lost(because: LossReason) -> Outcome {
    Outcome::Lost { because, held: None }
}

pub(crate) fn held_by(held: &wire::Held, now: StoreTime) -> Result<Held, Error> {
    Ok(Held {
        by: owner(&held.holder)?,
        until: now + Duration::from_millis(held.expires_in_ms),
        fence: fence(held.fence)?,
        meta: meta(&held.holder),
    })
}

fn request(wanted: &HandoverRequest, lease_id: LeaseId, now: StoreTime) -> Result<Request, Error> {
    let countdown = millis(wanted.countdown_ms)?;
    let ends_at = wanted.ends_in_ms.map(|left| now + Duration::from_millis(left));
    let bid = Bid { lease_id, owner: owner(&wanted.by)?, ttl: Ttl::MIN, meta: meta(&wanted.by) };
    Ok(Request {
        seq: wanted.id,
        bid,
        on_silence: OnSilence::from(wanted.on_silence),
        countdown,
        told_at: ends_at.map(|ends_at| ends_at.minus(countdown.as_duration())),
        lapses_at: now + Duration::from_millis(wanted.lapses_in_ms),
    })
}

fn lease_id_of(secret: &Secret) -> Result<LeaseId, Error> {
    LeaseId::parse(&secret.0).map_err(|error| against_the_rules(&error))
}

fn owner(holder: &wire::Holder) -> Result<Owner, Error> {
    Owner::parse(&holder.id).map_err(|error| against_the_rules(&error))
}

fn fence(number: u64) -> Result<Fence, Error> {
    Fence::new(number).map_err(|error| against_the_rules(&error))
}

fn millis(millis: u64) -> Result<Ttl, Error> {
    Ttl::new(Duration::from_millis(millis)).map_err(|error| against_the_rules(&error))
}

/// The name to show, if there is one that can be shown.
fn meta(holder: &wire::Holder) -> Meta {
    Meta::new([("name".to_owned(), holder.name.clone())]).unwrap_or_default()
}

/// A server that keeps the rules does not answer like this; what it did is anybody's guess.
fn against_the_rules(error: &Invalid) -> Error {
    Error::unavailable(format!("its answer breaks a rule ({error})"), Retry::Unknown)
}

/// A reason for a take-over: over HTTP it is required.
pub(crate) fn given(reason: &Reason) -> Result<(), Invalid> {
    if reason.as_str().trim().is_empty() {
        return Err(Invalid::new(
            "reason",
            "",
            "a take-over has a reason",
            "say why, the holder will see it",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::wire::OnSilenceView;
    use leasehold_store::clock::ManualClock;

    fn remote() -> Remote {
        let documents = Documents::at("http://127.0.0.1:1").build().unwrap();
        Remote::new(documents, Arc::new(ManualClock::default()))
    }

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
        let remote = remote();
        let wanted = HandoverRequest {
            id: 3,
            by: holder("ben"),
            on_silence: OnSilenceView::Grant,
            countdown_ms: 20_000,
            ends_in_ms: Some(4_000),
            lapses_in_ms: 9_000,
        };
        let now = remote.now();
        let lease = remote.lease(UNKNOWN, &lock(Some(wanted)), now).unwrap();
        assert_eq!((lease.ttl.as_millis(), lease.expires_at.since(now).as_millis()), (30_000, 30_000));
        let request = lease.request.unwrap();
        assert_eq!((request.seq, request.bid.owner.as_str()), (3, "ben"));
        assert_eq!(request.silence_ends_at().unwrap().since(now).as_millis(), 4_000);
        assert_eq!(remote.heartbeat(), Some(Duration::from_secs(10)));
    }

    #[test]
    fn an_answer_that_breaks_the_rules_is_not_believed() {
        let remote = remote();
        for bad in [
            Heartbeat { fence: 0, ..lock(None) },
            Heartbeat { expires_in_ms: 3, ..lock(None) },
            Heartbeat { holder: holder(""), ..lock(None) },
        ] {
            let error = remote.lease(UNKNOWN, &bad, remote.now()).unwrap_err();
            assert_eq!(error.retry(), Retry::Unknown, "{error}");
        }
    }

    #[test]
    fn keys_of_other_doors_are_refused_with_the_way_out() {
        for key in ["run/nightly", "doc/with space", "job/a/b"] {
            let error = room_of(&Key::parse(key).unwrap()).unwrap_err().to_string();
            assert!(error.contains("doc/minutes") && error.contains("open a store"), "{error}");
        }
    }
}
