//! The leases door as JSON: what programs send, and what they get. Server and clients share these types.
//!
//! Only [`LeaseGrant`] carries a lease id, and it is for the program that it belongs to. In requests other than an acquire,
//! the lease id is in the header `Lease-Id`.

use serde::{Deserialize, Serialize};

use super::Secret;
use super::documents::{Held, Holder, maybe_whole};

#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The body of an acquire. All of it is optional, and so is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireLease {
    /// A random UUID (version 4) of your own, so that you can repeat the call: the same one gives the same lease. The header
    /// `Lease-Id` counts more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
    /// How long the lease lasts without a renewal; 30 by default.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub ttl_seconds: Option<u64>,
    /// The program's name, shown to others; by default the name in the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64, format = "printable"))]
    pub program: Option<String>,
}

/// The body of a renewal. All of it is optional, and so is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewLease {
    /// How long the lease lasts from now without a renewal; by default as long as before. A lease never gets shorter.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub ttl_seconds: Option<u64>,
}

/// A lease as its holder sees it: the answer to a renewal. The times count from when you *sent* the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LeaseHold {
    /// The fence of the lease. Send it with everything that you change; what you change should refuse lower ones.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub fence: u64,
    /// When the lease expires unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same in milliseconds.
    pub expires_in_ms: u64,
    /// How long a renewal lasts.
    pub ttl_seconds: u64,
    /// When to renew it.
    pub renew_after_ms: u64,
    /// When to stop working unless a renewal has succeeded: another program may begin soon after.
    pub stop_after_ms: u64,
    /// The caller, as others see it.
    pub holder: Holder,
}

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LeaseGrant {
    /// The secret of the lease. Send it in the header `Lease-Id` with every later call about it, and nowhere else.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The lease.
    #[serde(flatten)]
    pub hold: LeaseHold,
}

/// A lease, as shown to every caller who may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LeaseState {
    /// Its name.
    pub name: String,
    /// The number of the last event of this lease that this state contains.
    pub seq: u64,
    /// Who holds it; absent when it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}
