//! Tickets: short-lived replacements for a token in the address of an event stream, because `EventSource` sends no headers.
//!
//! Addresses end up in logs and histories. So a ticket does not contain the token, only its grants, signed by the server. It
//! opens event streams and nothing else, is valid for a minute, and never outlives its token.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use leasehold_core::Owner;
use leasehold_core::time::whole_millis;
use leasehold_core::wire::Secret;
use leasehold_core::wire::documents::Ticket;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::caller::{Caller, Grants, Level, ShownName};

/// How long a stream can be opened with a ticket, if the token lasts as long.
const VALID: Duration = Duration::from_secs(60);

/// Issues and checks tickets.
pub(crate) struct Tickets {
    secret: Vec<u8>,
}

/// The content of a ticket.
#[derive(Serialize, Deserialize)]
struct Says {
    subject: String,
    name: String,
    documents: BTreeMap<String, String>,
    /// When the token ends, in seconds since 1970.
    expires_at: Option<u64>,
    /// Until when a stream can be opened, in milliseconds since 1970.
    until: u64,
}

impl Tickets {
    pub(crate) fn new(secret: Vec<u8>) -> Self {
        Self { secret }
    }

    /// A ticket for the caller, whose token has not expired.
    pub(crate) fn issue(&self, caller: &Caller, wall_millis: u64) -> Ticket {
        let valid = caller.left(wall_millis).map_or(VALID, |left| left.min(VALID));
        let says = Says {
            subject: caller.subject.to_string(),
            name: caller.name.as_str().to_owned(),
            documents: caller
                .grants
                .patterns()
                .map(|(name, level)| (name, level.as_str().to_owned()))
                .collect(),
            expires_at: caller.expires_at,
            until: wall_millis + whole_millis(valid),
        };
        let body = serde_json::to_vec(&says).unwrap_or_default();
        let signature = self.mac(&body).finalize().into_bytes();
        let ticket = format!("{}.{}", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(signature));
        Ticket { ticket: Secret(ticket), expires_in_ms: whole_millis(valid) }
    }

    /// The caller whose ticket this is; `None` when this server did not sign it, or it has expired.
    pub(crate) fn redeem(&self, ticket: &str, wall_millis: u64) -> Option<Caller> {
        let (body, signature) = ticket.split_once('.')?;
        let (body, signature) = (URL_SAFE_NO_PAD.decode(body).ok()?, URL_SAFE_NO_PAD.decode(signature).ok()?);
        // Compares in constant time.
        self.mac(&body).verify_slice(&signature).ok()?;
        let says: Says = serde_json::from_slice(&body).ok()?;
        let mut grants = Grants::default();
        for (pattern, level) in &says.documents {
            grants.add(pattern, Level::parse(level)?);
        }
        let subject = Owner::parse(&says.subject).ok()?;
        let name = ShownName::parse(&says.name).ok()?;
        let caller = Caller { subject, name, grants, expires_at: says.expires_at };
        (wall_millis < says.until).then_some(caller)
    }

    #[allow(clippy::expect_used)] // a MAC of this kind takes a key of any length
    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length is fine");
        mac.update(b"leasehold ticket ");
        mac.update(body);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::RoomId;

    fn anna() -> Caller {
        let mut grants = Grants::default();
        grants.add("team-a.*", Level::Read);
        grants.add("minutes", Level::Lock);
        let subject = Owner::parse("anna").unwrap();
        Caller { subject, name: ShownName::parse("Anna").unwrap(), grants, expires_at: Some(99) }
    }

    #[test]
    fn a_ticket_stands_for_its_caller_for_a_minute() {
        let tickets = Tickets::new(vec![7; 32]);
        let ticket = tickets.issue(&anna(), 1_000).ticket.0;
        let caller = tickets.redeem(&ticket, 60_999).unwrap();
        assert_eq!(
            (caller.subject.as_str(), caller.name.as_str(), caller.expires_at),
            ("anna", "Anna", Some(99))
        );
        let level = |room| caller.grants.level(&RoomId::parse(room).unwrap());
        assert_eq!(
            (level("team-a.x"), level("minutes"), level("other")),
            (Some(Level::Read), Some(Level::Lock), None)
        );
        assert!(tickets.redeem(&ticket, 61_000).is_none());
    }

    /// A ticket was good for a minute even if its token had three more seconds: whoever had been shut out could still open
    /// streams with it.
    #[test]
    fn a_ticket_does_not_outlive_its_token() {
        let tickets = Tickets::new(vec![7; 32]);
        let ticket = tickets.issue(&anna(), 96_000);
        assert_eq!(ticket.expires_in_ms, 3_000);
        assert!(tickets.redeem(&ticket.ticket.0, 98_999).is_some());
        assert!(tickets.redeem(&ticket.ticket.0, 99_000).is_none());
    }

    #[test]
    fn a_ticket_that_we_did_not_sign_is_nothing() {
        let (tickets, others) = (Tickets::new(vec![7; 32]), Tickets::new(vec![8; 32]));
        let ticket = tickets.issue(&anna(), 0).ticket.0;
        assert!(others.redeem(&ticket, 1).is_none());
        let changed = ticket.replacen('A', "B", 1);
        for bad in ["", ".", "a.b", &ticket[1..], &ticket[..ticket.len() - 2], &changed] {
            assert!(tickets.redeem(bad, 1).is_none(), "{bad}");
        }
    }
}
