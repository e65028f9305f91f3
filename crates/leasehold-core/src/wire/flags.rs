//! The flags as a page gets them.

use serde::{Deserialize, Serialize};

/// Which phase counts, and what it turns on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlagsView {
    /// The phase of the roll-out; `default` on a server that has no flags.
    pub phase: String,
    /// Whether pages autosave. If not, they write nothing and take no lock.
    pub autosave: bool,
}
