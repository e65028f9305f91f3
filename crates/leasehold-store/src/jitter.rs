//! A random number of the system, for the jitter of retries.

use std::hash::{BuildHasher, RandomState};

/// A random number for [`Retries`](leasehold_core::Retries), made of the keys that the standard library draws for its
/// hash maps: good enough to keep callers apart, and it cannot fail.
pub fn jitter() -> u32 {
    RandomState::new().hash_one(0) as u32
}
