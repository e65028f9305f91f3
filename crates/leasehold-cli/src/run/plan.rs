//! When the command has to end: a pure plan over what the [keeper](leasehold_core::Keeper) of the lease says is left.

use std::time::Duration;

use leasehold_client::Lost;
use leasehold_core::HolderTime;
use leasehold_core::holder::longest_wind_down;

/// The longest time between two looks: a renewal has moved the deadline meanwhile, and the guardian is to know.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The plan for one command.
#[derive(Debug)]
pub(super) struct Plan {
    grace: Duration,
    /// The most that was ever left: what a renewal brings.
    longest: Duration,
    /// The command was asked to end, and has until then.
    kill_at: Option<HolderTime>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until then.
    Wait(HolderTime),
    /// Ask the command to end: the lease runs out.
    Terminate,
    /// End it.
    Kill,
}

impl Plan {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, longest: Duration::ZERO, kill_at: None }
    }

    /// What to do at `now`, when so much is left of the lease until its holder has to stop.
    pub(super) fn next(&mut self, now: HolderTime, left: Result<Duration, Lost>) -> Step {
        // Once it is lost, another may have it: there is no time left for a clean end.
        let Some(left) = left.ok().filter(|left| !left.is_zero()) else { return Step::Kill };
        self.longest = self.longest.max(left);
        if let Some(kill_at) = self.kill_at {
            return if now >= kill_at { Step::Kill } else { Step::Wait(kill_at.min(now + left)) };
        }
        let grace = self.usable_grace();
        if left <= grace {
            self.kill_at = Some(now + left);
            return Step::Terminate;
        }
        Step::Wait(now + (left - grace).min(left / 4).min(LONGEST_LOOK).max(Duration::from_millis(1)))
    }

    /// The command itself has ended; what it left behind was asked to end at `now`.
    pub(super) fn command_ended(&mut self, now: HolderTime) {
        let kill_at = now + self.grace;
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// The grace, as far as it leaves time for two renewals before it begins.
    fn usable_grace(&self) -> Duration {
        self.grace.min(longest_wind_down(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::lease::LossReason;

    fn at(millis: u64) -> HolderTime {
        HolderTime::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Follows a plan while no renewal succeeds. Answers when the command is asked to end, and when it is killed.
    fn without_renewals(plan: &mut Plan, left: u64) -> (u64, u64) {
        let (mut now, mut asked) = (at(0), None);
        loop {
            match plan.next(now, Ok(at(left).since(now))) {
                Step::Wait(until) => {
                    assert!(until > now && until.since(now) <= LONGEST_LOOK.max(plan.grace));
                    now = until;
                }
                Step::Terminate => assert_eq!(asked.replace(now.as_millis()), None),
                Step::Kill => return (asked.unwrap(), now.as_millis()),
            }
        }
    }

    #[test]
    fn it_is_asked_a_grace_before_the_deadline_and_killed_at_the_deadline() {
        for (grace, left, expected) in [
            (5_000, 27_000, (22_000, 27_000)),
            // No longer than leaves time to renew.
            (5_000, 1_500, (1_000, 1_500)),
            (60_000, 27_000, (18_000, 27_000)),
        ] {
            assert_eq!(without_renewals(&mut Plan::new(millis(grace)), left), expected, "{grace} of {left}");
        }
    }

    #[test]
    fn without_grace_it_is_killed_at_the_deadline() {
        let mut plan = Plan::new(Duration::ZERO);
        assert_eq!(plan.next(at(26_999), Ok(millis(1))), Step::Wait(at(27_000)));
        assert_eq!(plan.next(at(27_000), Ok(Duration::ZERO)), Step::Kill);
    }

    #[test]
    fn a_renewal_in_time_changes_everything_and_a_late_one_nothing() {
        let mut plan = Plan::new(millis(5_000));
        assert_eq!(plan.next(at(0), Ok(millis(27_000))), Step::Wait(at(1_000)));
        assert_eq!(plan.next(at(21_000), Ok(millis(6_000))), Step::Wait(at(22_000)));
        assert_eq!(plan.next(at(22_000), Ok(millis(26_900))), Step::Wait(at(23_000)), "renewed");
        assert_eq!(plan.next(at(44_000), Ok(millis(4_900))), Step::Terminate);
        assert_eq!(plan.next(at(45_000), Ok(millis(27_000))), Step::Wait(at(48_900)), "too late");
        assert_eq!(plan.next(at(48_900), Ok(millis(23_100))), Step::Kill);
    }

    #[test]
    fn a_lease_that_is_gone_leaves_no_grace() {
        for lost in [Lost::Deadline, Lost::Told(LossReason::TakenOver)] {
            let mut plan = Plan::new(millis(5_000));
            assert_eq!(plan.next(at(0), Ok(millis(27_000))), Step::Wait(at(1_000)));
            assert_eq!(plan.next(at(1_000), Err(lost)), Step::Kill);
        }
    }

    #[test]
    fn what_the_command_leaves_behind_has_the_grace_too_but_never_beyond_the_deadline() {
        let mut plan = Plan::new(millis(5_000));
        plan.command_ended(at(100));
        assert_eq!(plan.next(at(100), Ok(millis(27_000))), Step::Wait(at(5_100)));
        assert_eq!(plan.next(at(200), Ok(millis(900))), Step::Wait(at(1_100)));
        assert_eq!(plan.next(at(1_100), Ok(Duration::ZERO)), Step::Kill);
    }
}
