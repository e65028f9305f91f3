//! What the leases protect: one value per key that everybody adds one to. It checks the fence, as a guarded resource
//! should, and nothing else: whether an update gets lost is up to the fences.

/// A value that is changed only under a fence that is not older than any it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// The value.
    pub value: u64,
    /// The newest fence, and the number of the newest write under it.
    pub newest: (u64, u64),
}

/// What a holder asks of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read the value, and from then on refuse older fences.
    Open,
    /// Make it one more than `base`. `number` tells a holder's writes apart: the network may repeat and reorder them.
    Write {
        /// The value that it was computed from.
        base: u64,
        /// Which write of this holder it is, from 1.
        number: u64,
    },
}

/// How a register answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was opened; this is the value, and the number of the last write under this fence.
    Opened(u64, u64),
    /// It was written, now or before.
    Written(u64),
    /// The fence is older than one it has seen, or the write than one it has done.
    Refused,
}

impl Register {
    /// Does what is asked under `fence`. Answers also the value that a new write went on top of.
    pub fn access(&mut self, fence: u64, access: Access) -> (Answer, Option<u64>) {
        match access {
            _ if fence < self.newest.0 => (Answer::Refused, None),
            Access::Open => {
                self.newest = self.newest.max((fence, 0));
                (Answer::Opened(self.value, self.newest.1), None)
            }
            Access::Write { number, .. } if (fence, number) == self.newest => {
                (Answer::Written(self.value), None)
            }
            Access::Write { number, .. } if (fence, number) < self.newest => (Answer::Refused, None),
            Access::Write { base, number } => {
                let before = std::mem::replace(&mut self.value, base + 1);
                self.newest = (fence, number);
                (Answer::Written(self.value), Some(before))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_fence_and_a_late_copy_are_refused() {
        let mut register = Register::default();
        assert_eq!(register.access(5, Access::Open), (Answer::Opened(0, 0), None));
        let first = Access::Write { base: 0, number: 1 };
        assert_eq!(register.access(5, first), (Answer::Written(1), Some(0)));
        assert_eq!(register.access(5, first), (Answer::Written(1), None), "a copy");
        assert_eq!(register.access(4, Access::Open).0, Answer::Refused);
        assert_eq!(register.access(5, Access::Write { base: 1, number: 2 }), (Answer::Written(2), Some(1)));
        assert_eq!(register.access(5, first).0, Answer::Refused, "a late copy");
    }
}
