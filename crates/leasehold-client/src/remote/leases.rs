//! Leases of programs behind a server.

use leasehold_core::holder::{Reply, Terms};
use leasehold_core::lease::{Bid, LossReason};
use leasehold_core::wire::leases::{LeaseGrant, LeaseHold};
use leasehold_core::{Invalid, Key, LeaseName, WorkerName};

use super::{Remote, fence, lease_id, owner, refused_bid, reply, ttl};
use crate::Error;
use crate::backend::{BidReply, Claim, Granted, Way};
use crate::http;

impl Remote {
    pub(super) async fn bid_for_lease(
        &self,
        name: &LeaseName,
        bid: &Bid,
        way: &Way,
    ) -> Result<BidReply, Error> {
        if !matches!(way, Way::Acquire) {
            let rule = "behind a server, the lease of a program is neither taken over nor handed over";
            return Err(Invalid::new("key", name.key().as_str(), rule, "wait until it is free").into());
        }
        let program = WorkerName::parse(bid.owner.as_str()).ok();
        let program = program.as_ref().map(WorkerName::as_str);
        match self.0.acquire_lease(name, &bid.lease_id, Some(bid.ttl), program).await {
            Ok(grant) => Ok(BidReply::Granted(granted(&grant)?)),
            // Nothing has to be held to be acquired: it is the token that has no grant.
            Err(http::Error::LeaseNotFound) => {
                let what = format!("it has no grant for {}", name.key());
                let detail =
                    Some(format!("{what}; issue it with \"{name}\": \"lock\" in its claim `leases`"));
                Err(http::Error::NotAllowed { detail }.into())
            }
            Err(error) => refused_bid(error),
        }
    }

    pub(super) async fn renew_lease(&self, name: &LeaseName, claim: Claim) -> Result<Reply, Error> {
        reply(self.0.renew_lease(name, &claim.lease_id, None).await, 0, |hold| {
            // The server compares lease ids; one never stands for two fences.
            if hold.fence != claim.fence.get() {
                return Ok(Reply::Lost(LossReason::Unknown));
            }
            terms(&hold).map(Reply::Kept)
        })
    }
}

/// The name that a key of the leases door stands for; `None` for keys of other doors.
pub(super) fn name_of(key: &Key) -> Result<Option<LeaseName>, Invalid> {
    key.as_str().strip_prefix(LeaseName::DOOR).map(LeaseName::parse).transpose()
}

fn granted(grant: &LeaseGrant) -> Result<Granted, http::Error> {
    Ok(Granted {
        owner: owner(&grant.hold.holder)?,
        claim: Claim { lease_id: lease_id(&grant.lease_id)?, fence: fence(grant.hold.fence)? },
        terms: terms(&grant.hold)?,
    })
}

fn terms(hold: &LeaseHold) -> Result<Terms, http::Error> {
    Ok(Terms::of(ttl(hold.expires_in_ms)?))
}
