//! Chance for tests: everything that looks like luck comes from a seed.

use leasehold_core::LeaseId;

/// SplitMix64: small, quick, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high.saturating_sub(low) + 1)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.draw() % 1_000 < per_mille
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T], otherwise: T) -> T {
        let at = self.draw() % (choices.len().max(1) as u64);
        choices.get(usize::try_from(at).unwrap_or(0)).copied().unwrap_or(otherwise)
    }

    /// A place in a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.draw() % (length.max(1) as u64)).unwrap_or(0)
    }

    /// Any 32 bits.
    pub fn bits(&mut self) -> u32 {
        (self.draw() >> 32) as u32
    }

    /// A lease id that nobody has drawn before.
    pub fn lease_id(&mut self) -> LeaseId {
        LeaseId::from_random(((u128::from(self.draw()) << 64) | u128::from(self.draw())).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_luck() {
        let draw = |seed| (0..5).scan(Random::new(seed), |random, _| Some(random.draw())).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
