//! A document has the SHA-256 of a lease id in its place: a program that reads the document cannot act as the holder.
//!
//! Before anything is decided, the lease ids in a command are replaced by ids made of their hashes; in the answer, the
//! caller gets its own back. The rules compare ids and nothing else, so they do not notice.

use leasehold_core::job::{JobCommand, JobOutcome};
use leasehold_core::lease::{Bid, Claim, Lease, Proof, Request};
use leasehold_core::{Command, LeaseId, Outcome, Slot};
use sha2::{Digest, Sha256};

/// How many hexadecimal digits of a hash make an id.
const ID_DIGITS: usize = 32;

/// The SHA-256 of a lease id, written as its holder writes it, in hexadecimal.
pub(super) fn attempt_of(lease_id: &LeaseId) -> String {
    hex(&Sha256::digest(lease_id.reveal()))
}

/// The id of the attempt in the rules; `None` when it cannot be an attempt.
pub(super) fn id_of(attempt: &str) -> Option<LeaseId> {
    let known = attempt.get(..ID_DIGITS).filter(|known| known.chars().all(|c| c.is_ascii_hexdigit()))?;
    let mut bytes = [0; ID_DIGITS / 2];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(known.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(LeaseId::from_random(bytes))
}

/// An id in hexadecimal: what is known of an attempt whose whole hash is not.
pub(super) fn digits(id: &LeaseId) -> String {
    hex(id.as_bytes())
}

/// The id of a lock that another program wrote: there is no lease id with this hash.
pub(super) fn foreign() -> LeaseId {
    let mut bytes = [0; ID_DIGITS / 2];
    bytes.iter_mut().zip(Sha256::digest("a lock of another program")).for_each(|(to, from)| *to = from);
    LeaseId::from_random(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The caller's lease ids beside the ids made of their hashes.
#[derive(Default)]
pub(super) struct Veil {
    known: Vec<Known>,
}

struct Known {
    own: LeaseId,
    veiled: LeaseId,
    attempt: String,
}

impl Veil {
    /// The command as the rules see it.
    pub(super) fn command(&mut self, command: Command) -> Command {
        match command {
            Command::Acquire(bid) => Command::Acquire(self.bid(bid)),
            Command::AcquireInTab(bid) => Command::AcquireInTab(self.bid(bid)),
            Command::Renew { claim, ttl } => Command::Renew { claim: self.claim(claim), ttl },
            Command::Release(claim) => Command::Release(self.claim(claim)),
            Command::SoftRelease { lease_id, grace } => {
                Command::SoftRelease { lease_id: self.id(lease_id), grace }
            }
            Command::Resume { claim, next } => {
                Command::Resume { claim: self.claim(claim), next: self.id(next) }
            }
            Command::TakeOver { seen, bid, reason, right } => {
                Command::TakeOver { seen, bid: self.bid(bid), reason, right }
            }
            Command::TakeOverInTab { seen, bid, reason, right } => {
                Command::TakeOverInTab { seen, bid: self.bid(bid), reason, right }
            }
            Command::RequestHandover { seen, bid, on_silence, countdown, patience } => {
                Command::RequestHandover { seen, bid: self.bid(bid), on_silence, countdown, patience }
            }
            Command::HandoverTold { claim, request } => {
                Command::HandoverTold { claim: self.claim(claim), request }
            }
            Command::AnswerHandover { claim, request, hand_over } => {
                Command::AnswerHandover { claim: self.claim(claim), request, hand_over }
            }
            Command::Withdraw { lease_id, owner } => Command::Withdraw { lease_id: self.id(lease_id), owner },
            Command::ForceRelease { .. } | Command::Check { .. } | Command::Settle => command,
        }
    }

    /// The same for a command about a job.
    pub(super) fn job_command(&mut self, command: JobCommand) -> JobCommand {
        match command {
            JobCommand::Acquire(bid) => JobCommand::Acquire(self.bid(bid)),
            JobCommand::Refresh { claim, ttl } => JobCommand::Refresh { claim: self.claim(claim), ttl },
            JobCommand::Release(claim) => JobCommand::Release(self.claim(claim)),
            JobCommand::Withdraw { lease_id, owner } => {
                JobCommand::Withdraw { lease_id: self.id(lease_id), owner }
            }
            JobCommand::Complete { claim, result } => {
                JobCommand::Complete { claim: self.claim(claim), result }
            }
            JobCommand::Fail { claim, error, retryable } => {
                JobCommand::Fail { claim: self.claim(claim), error, retryable }
            }
            JobCommand::Create { .. } | JobCommand::Reset | JobCommand::Settle => command,
        }
    }

    fn bid(&mut self, bid: Bid) -> Bid {
        Bid { lease_id: self.id(bid.lease_id), ..bid }
    }

    fn claim(&mut self, claim: Claim) -> Claim {
        match claim {
            Claim::Proof(Proof { lease_id, fence }) => {
                Claim::Proof(Proof { lease_id: self.id(lease_id), fence })
            }
            Claim::Holder { lease_id, owner, fence } => {
                Claim::Holder { lease_id: self.id(lease_id), owner, fence }
            }
            Claim::Tab { .. } => claim,
        }
    }

    fn id(&mut self, own: LeaseId) -> LeaseId {
        let attempt = attempt_of(&own);
        let veiled = id_of(&attempt).unwrap_or(own);
        self.known.push(Known { own, veiled, attempt });
        veiled
    }

    /// The whole attempt behind an id that the caller brought.
    pub(super) fn attempt(&self, veiled: &LeaseId) -> Option<&str> {
        self.known.iter().find(|known| known.veiled == *veiled).map(|known| known.attempt.as_str())
    }

    /// The answer as the caller may see it.
    pub(super) fn outcome(&self, mut outcome: Outcome) -> Outcome {
        match &mut outcome {
            Outcome::Granted { lease, .. } | Outcome::Renewed(lease) | Outcome::Shortened(lease) => {
                self.lease(lease);
            }
            Outcome::Requested { request, .. } => self.request(request),
            _ => {}
        }
        outcome
    }

    /// The same for an answer about a job.
    pub(super) fn job_outcome(&self, mut outcome: JobOutcome) -> JobOutcome {
        if let JobOutcome::Acquired { lease, .. } | JobOutcome::Refreshed(lease) = &mut outcome {
            self.lease(lease);
        }
        outcome
    }

    /// The same for the slot after the decision.
    pub(super) fn slot(&self, mut slot: Slot) -> Slot {
        if let Some(lease) = &mut slot.lease {
            self.lease(lease);
        }
        slot
    }

    fn lease(&self, lease: &mut Lease) {
        self.give_back(&mut lease.lease_id);
        if let Some(request) = &mut lease.request {
            self.request(request);
        }
    }

    fn request(&self, request: &mut Request) {
        self.give_back(&mut request.bid.lease_id);
    }

    fn give_back(&self, id: &mut LeaseId) {
        if let Some(known) = self.known.iter().find(|known| known.veiled == *id) {
            *id = known.own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_the_sha_256_of_the_lease_id_as_it_is_written() {
        let id = LeaseId::parse("0b5e7a52-8a5c-4a3e-9c3a-2f1d6c1e0f11").unwrap();
        // printf %s 0b5e7a52-8a5c-4a3e-9c3a-2f1d6c1e0f11 | sha256sum
        assert_eq!(attempt_of(&id), "54a3fdaae50c7bdfe427cccf9c88edae55e478d0412faf0713997349be68ae22");
        assert_ne!(id_of(&attempt_of(&id)), Some(id));
        let veiled = id_of(&attempt_of(&id)).unwrap();
        assert_eq!(id_of(&digits(&veiled)), Some(veiled), "what is kept of an id is the id");
    }

    #[test]
    fn what_is_no_attempt_is_none() {
        for text in ["", "12", "zz", "ä".repeat(40).as_str(), "+1".repeat(32).as_str(), "0b5e7a52-8a5c"] {
            assert_eq!(id_of(text), None, "{text}");
        }
    }

    #[test]
    fn the_caller_gets_its_own_id_back_and_nobody_elses() {
        let (own, other) = (LeaseId::from_random([1; 16]), LeaseId::from_random([2; 16]));
        let mut veil = Veil::default();
        let owner = leasehold_core::Owner::parse("anna").unwrap();
        let withdraw = Command::Withdraw { lease_id: own, owner };
        let Command::Withdraw { lease_id: mut veiled, .. } = veil.command(withdraw) else {
            panic!("another command")
        };
        assert_ne!(veiled, own);
        assert_eq!(veil.attempt(&veiled), Some(attempt_of(&own).as_str()));
        veil.give_back(&mut veiled);
        assert_eq!(veiled, own);
        let mut unknown = other;
        veil.give_back(&mut unknown);
        assert_eq!(unknown, other);
    }
}
