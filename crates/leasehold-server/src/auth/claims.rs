//! Reads the claims of a token: who the caller is, and what it may do at each door.

use leasehold_core::{JobId, LeaseName, Owner, RoomId};
use serde_json::{Map, Value};

use super::{Denied, denied};
use crate::caller::{Caller, Grants, Level, ShownName};

/// The caller that the claims of a checked token describe.
pub(super) fn caller_of(claims: &Map<String, Value>) -> Result<Caller, Denied> {
    if claims.get("nbf").is_some_and(|nbf| !nbf.is_number()) {
        return Err(denied("the claim `nbf` is not a number; issue it in seconds since 1970"));
    }
    let subject = subject_of(claims)?;
    let subject = Owner::parse(subject)
        .map_err(|error| denied(format!("the claim `sub` cannot be used: {}; {}", error.rule, error.fix)))?;
    let shown = claims.get("name").and_then(Value::as_str).and_then(|name| Owner::parse(name).ok());
    let name = ShownName::parse(shown.as_ref().unwrap_or(&subject).as_str())
        .map_err(|error| denied(format!("the claim `name` cannot be used: {}; {}", error.rule, error.fix)))?;
    let expires_at = claims.get("exp").and_then(whole_seconds);
    Ok(Caller { name, subject, grants: grants_of(claims)?, expires_at })
}

/// The user's id. Many databases have numbers for it, and a token that was made of one is the usual mistake.
fn subject_of(claims: &Map<String, Value>) -> Result<&str, Denied> {
    match claims.get("sub") {
        Some(Value::String(subject)) => Ok(subject),
        Some(Value::Number(_)) => Err(denied(
            "the claim `sub` is a number, and a JWT has a string there; put the user's id in quotes when you issue the \
             token: \"42\" instead of 42",
        )),
        Some(_) => {
            Err(denied("the claim `sub` is not a string; issue the token with the user's id as a string"))
        }
        None => Err(denied("the token has no claim `sub`; issue it with the user's id as a string")),
    }
}

/// Seconds since 1970, rounded down.
fn whole_seconds(number: &Value) -> Option<u64> {
    // The cast saturates: a float outside of the range becomes the nearest number.
    number.as_u64().or_else(|| number.as_f64().map(|seconds| seconds as u64))
}

/// The claim that grants access to one door.
struct DoorClaim {
    claim: &'static str,
    what: &'static str,
    is_pattern: fn(&str) -> bool,
    add: fn(&mut Grants, &str, Level),
}

const DOOR_CLAIMS: [DoorClaim; 3] = [
    DoorClaim { claim: "documents", what: "a document", is_pattern: is_document_pattern, add: Grants::add },
    DoorClaim { claim: "jobs", what: "a job", is_pattern: is_job_pattern, add: Grants::add_job },
    DoorClaim { claim: "leases", what: "a lease", is_pattern: is_lease_pattern, add: Grants::add_lease },
];

/// The grants of the claims `documents`, `jobs` and `leases`; none without them.
fn grants_of(claims: &Map<String, Value>) -> Result<Grants, Denied> {
    let mut grants = Grants::default();
    for door in &DOOR_CLAIMS {
        if let Some(claim) = claims.get(door.claim) {
            door.read(claim, &mut grants)?;
        }
    }
    Ok(grants)
}

impl DoorClaim {
    fn read(&self, claim: &Value, grants: &mut Grants) -> Result<(), Denied> {
        for (pattern, level) in claim.as_object().ok_or_else(|| self.wrong("is not an object"))? {
            let level = level.as_str().and_then(Level::parse);
            let level = level.ok_or_else(|| self.wrong("has an unknown level"))?;
            if !(self.is_pattern)(pattern) {
                return Err(self.wrong(&format!("has a name that cannot be {}", self.what)));
            }
            (self.add)(grants, pattern, level);
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> Denied {
        let Self { claim, what: thing, .. } = self;
        let rule = format!(
            "map {thing}'s name, or the beginning of names followed by `*`, to \"read\", \"lock\" or \"force\""
        );
        denied(format!("the claim `{claim}` {what}; {rule}"))
    }
}

/// Whether this is the name of a document, or the beginning of one followed by `*`.
fn is_document_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => RoomId::is_prefix(prefix),
        None => RoomId::parse(pattern).is_ok(),
    }
}

/// The same for a job, `collection/id`.
fn is_job_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => JobId::is_prefix(prefix),
        None => JobId::parse(pattern).is_ok(),
    }
}

/// The same for the name of a program's lease.
fn is_lease_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => LeaseName::is_prefix(prefix),
        None => LeaseName::parse(pattern).is_ok(),
    }
}
