//! Lease ids from numbers, for programs whose runs are to be repeatable.

use leasehold_core::LeaseId;

/// A lease id that no other pair of numbers gives; of `who`, the lower 48 bits count, of `number` the lower 56.
pub fn lease_id(who: u64, number: u64) -> LeaseId {
    let mut bytes = [0; 16];
    // The bytes in the middle hold the UUID's version and variant.
    let (front, back) = bytes.split_at_mut(9);
    for (to, from) in front.iter_mut().zip(who.to_le_bytes()).take(6) {
        *to = from;
    }
    for (to, from) in back.iter_mut().zip(number.to_le_bytes()) {
        *to = from;
    }
    LeaseId::from_random(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_numbers_give_different_ids() {
        let numbers = [0, 1, 63, 64, 255, 256, 65_535, 1 << 40];
        let pairs = numbers.iter().flat_map(|who| numbers.iter().map(move |number| lease_id(*who, *number)));
        let ids: std::collections::BTreeSet<LeaseId> = pairs.collect();
        assert_eq!(ids.len(), numbers.len() * numbers.len());
    }
}
