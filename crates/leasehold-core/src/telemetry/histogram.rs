//! How long something took, as counts in fixed buckets: histograms of many tabs and days add up, and a quantile is read from
//! the sum.

/// The upper edges of the buckets in milliseconds, each included. What took longer is in the last bucket, which has no edge.
pub const EDGES: [u64; 28] = [
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000,
    7_000, 10_000, 15_000, 20_000, 30_000, 60_000,
];

const BUCKETS: usize = EDGES.len() + 1;

/// A quantile, as far as the buckets tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantile {
    /// At most so many milliseconds: the upper edge of its bucket.
    AtMost(u64),
    /// More than the last edge.
    MoreThan(u64),
}

/// Counts by bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Counts one measurement.
    pub fn add(&mut self, millis: u64) {
        self.add_to(EDGES.partition_point(|edge| *edge < millis), 1);
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().enumerate().for_each(|(at, n)| self.add_to(at, *n));
    }

    /// How many measurements there are.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The quantile, from 0 to 1; absent without measurements.
    pub fn quantile(&self, part: f64) -> Option<Quantile> {
        let total = self.count();
        // The smallest number of measurements that is at least this part of them.
        let rank = ((total as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0_u64;
        let at = self.0.iter().position(|n| {
            seen = seen.saturating_add(*n);
            seen >= rank && total > 0
        })?;
        let last = EDGES.last().copied().unwrap_or_default();
        Some(EDGES.get(at).map_or(Quantile::MoreThan(last), |edge| Quantile::AtMost(*edge)))
    }

    /// The buckets that are not empty, each with its edge; the last one has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.0.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, n)| (EDGES.get(at).copied(), *n))
    }

    /// Adds `n` to the bucket with this edge. False if there is no such bucket.
    pub fn add_bucket(&mut self, edge: Option<u64>, n: u64) -> bool {
        let at = match edge {
            Some(edge) => EDGES.iter().position(|known| *known == edge),
            None => Some(EDGES.len()),
        };
        at.inspect(|at| self.add_to(*at, n)).is_some()
    }

    fn add_to(&mut self, at: usize, n: u64) {
        if let Some(bucket) = self.0.get_mut(at) {
            *bucket = bucket.saturating_add(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        millis.iter().for_each(|millis| histogram.add(*millis));
        histogram
    }

    #[test]
    fn a_quantile_is_the_edge_of_its_bucket() {
        let at_most = |millis| Some(Quantile::AtMost(millis));
        let cases = [
            (vec![], 0.5, None),
            (vec![0], 0.5, at_most(1)),
            (vec![10], 0.95, at_most(10)),
            (vec![11], 0.95, at_most(15)),
            (vec![4, 4, 4, 900], 0.5, at_most(5)),
            (vec![4, 4, 4, 900], 0.75, at_most(5)),
            (vec![4, 4, 4, 900], 0.95, at_most(1_000)),
            (vec![60_000], 0.5, at_most(60_000)),
            (vec![60_001, u64::MAX], 0.5, Some(Quantile::MoreThan(60_000))),
        ];
        for (millis, part, expected) in cases {
            assert_eq!(of(&millis).quantile(part), expected, "{millis:?} {part}");
        }
    }

    #[test]
    fn buckets_come_back_as_they_were() {
        let histogram = of(&[1, 1, 300, 100_000]);
        let mut again = Histogram::default();
        for (edge, n) in histogram.buckets() {
            assert!(again.add_bucket(edge, n));
        }
        assert_eq!((again.count(), &again), (4, &histogram));
        assert!(!again.add_bucket(Some(4), 1), "no bucket ends at 4");
    }

    #[test]
    fn counts_stop_at_the_largest_number() {
        let mut histogram = of(&[1]);
        histogram.add_bucket(Some(1), u64::MAX);
        histogram.add_bucket(None, u64::MAX);
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (u64::MAX, Some(Quantile::AtMost(1))));
    }
}
