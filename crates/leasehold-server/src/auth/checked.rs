//! Remembers tokens whose signature was checked, so that a caller's next request costs a hash instead of a signature and a
//! second reading of its claims.
//!
//! It must never let in what a full check would refuse: a token counts only until it expires, and only as long as the keys
//! are the very ones that it was checked with. Tokens are kept as hashes, and their number is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use super::keys::VerifyKey;
use crate::caller::Caller;

/// Requests of different callers seldom wait for each other.
const SHARDS: usize = 16;

/// How many tokens a shard remembers. When it is full it forgets them all: each is then checked once more.
const TOKENS: usize = 1_024;

type Hash = [u8; SHA256_OUTPUT_LEN];

/// The tokens that were checked.
#[derive(Default)]
pub(super) struct Checked([Mutex<Shard>; SHARDS]);

#[derive(Default)]
struct Shard {
    /// What the tokens were checked with.
    keys: Option<Arc<Vec<VerifyKey>>>,
    callers: HashMap<Hash, Arc<Caller>>,
}

/// The hash of a token.
pub(super) struct TokenHash(Hash);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(hash)
    }
}

impl Checked {
    /// The caller of a token that was checked with these keys, if `is_valid` still says so.
    pub(super) fn find(
        &self,
        token: &TokenHash,
        keys: &Arc<Vec<VerifyKey>>,
        is_valid: impl FnOnce(&Caller) -> bool,
    ) -> Option<Arc<Caller>> {
        self.with_shard(token, keys, |shard| {
            let caller = shard.callers.get(&token.0)?;
            if is_valid(caller) {
                return Some(caller.clone());
            }
            shard.callers.remove(&token.0);
            None
        })
    }

    /// Remembers the caller of a token that was checked with these keys.
    pub(super) fn keep(&self, token: &TokenHash, keys: &Arc<Vec<VerifyKey>>, caller: &Arc<Caller>) {
        self.with_shard(token, keys, |shard| {
            if shard.callers.len() >= TOKENS {
                shard.callers.clear();
            }
            shard.callers.insert(token.0, caller.clone());
        });
    }

    fn with_shard<T>(
        &self,
        token: &TokenHash,
        keys: &Arc<Vec<VerifyKey>>,
        work: impl FnOnce(&mut Shard) -> T,
    ) -> T {
        let [first, ..] = token.0;
        let shard = self.0.get(usize::from(first) % SHARDS).unwrap_or_else(|| unreachable!("a remainder"));
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if !shard.keys.as_ref().is_some_and(|known| Arc::ptr_eq(known, keys)) {
            *shard = Shard { keys: Some(keys.clone()), callers: HashMap::new() };
        }
        work(&mut shard)
    }

    /// How many tokens are remembered.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.iter().map(|shard| shard.lock().unwrap().callers.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Owner;

    use super::*;
    use crate::caller::{Grants, ShownName};

    fn caller(name: &str) -> Arc<Caller> {
        let (subject, name) = (Owner::parse(name).unwrap(), ShownName::parse(name).unwrap());
        Arc::new(Caller { subject, name, grants: Grants::default(), expires_at: Some(9) })
    }

    #[test]
    fn a_token_counts_for_its_keys_and_its_time() {
        let (checked, keys) = (Checked::default(), Arc::new(Vec::new()));
        let token = || TokenHash::of("token");
        checked.keep(&token(), &keys, &caller("anna"));
        let found = checked.find(&token(), &keys, |_| true).unwrap();
        assert_eq!(found.subject.as_str(), "anna");
        assert!(checked.find(&TokenHash::of("other"), &keys, |_| true).is_none());
        assert!(checked.find(&token(), &keys, |caller| caller.expires_at > Some(9)).is_none());
        assert!(checked.find(&token(), &keys, |_| true).is_none(), "forgotten once it has expired");
        checked.keep(&token(), &keys, &caller("anna"));
        // Keys that were read again are other keys, even if they are the same.
        assert!(checked.find(&token(), &Arc::new(Vec::new()), |_| true).is_none());
        assert_eq!(checked.len(), 0);
    }

    #[test]
    fn a_flood_of_tokens_takes_a_bounded_room() {
        let (checked, keys, anna) = (Checked::default(), Arc::new(Vec::new()), caller("anna"));
        for number in 0..3 * SHARDS * TOKENS {
            checked.keep(&TokenHash::of(&number.to_string()), &keys, &anna);
        }
        assert!(checked.len() <= SHARDS * TOKENS, "{}", checked.len());
    }
}
