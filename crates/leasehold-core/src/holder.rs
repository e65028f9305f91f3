//! The holder's side of a lease: when to renew, and when to stop believing in it.
//!
//! The holder's deadline is always earlier than the store's: it counts from when the last successful request was
//! *sent*, less a margin. Whatever happens to answers, to the network or to the machine, a holder that asks its
//! [`Holder`] before it acts never acts on a lease that somebody else may have.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::event::Seq;
use crate::lease::LossReason;
use crate::time::{HolderTime, Ttl};

/// How much earlier than the store the holder gives up.
pub fn margin(ttl: Ttl) -> Duration {
    (ttl.as_duration() / 10).max(Duration::from_millis(500))
}

/// The shortest time to answer a request that silence grants: less would be over for the holder, which stops a margin early,
/// before its people can have read it.
pub fn shortest_countdown(ttl: Ttl) -> Duration {
    2 * margin(ttl)
}

/// How often a lease is renewed, unless the holder wants it otherwise: two renewals may fail before it is lost.
pub fn heartbeat(ttl: Ttl) -> Duration {
    ttl.as_duration() / 3
}

/// How long after *sending* a request a holder may still act, when the answer said that so much is left of its lease. A
/// door tells this to holders that have no [`Holder`] of their own.
pub fn stop_after(left: Duration, ttl: Ttl) -> Duration {
    left.saturating_sub(margin(ttl))
}

/// How long after sending a request such a holder sends the next one.
pub fn renew_after(ttl: Ttl) -> Duration {
    usable_heartbeat(heartbeat(ttl), ttl)
}

/// Plans the renewals of one lease. It does no IO and reads no clock; a thin shell does what it says.
///
/// There are three kinds of method:
/// - **getters** ([`deadline`](Self::deadline), [`is_held`](Self::is_held), [`lost`](Self::lost)) change nothing;
/// - **`handle_*`** tell it what came in: the answer to a renewal, or news about the lease;
/// - **[`poll`](Self::poll)** says what to do now. Call it after every `handle_*` and whenever the time it named has
///   come. The deadline holds even while a renewal is under way: keep polling while you wait for an answer.
#[derive(Clone, Debug)]
pub struct Holder {
    ttl: Ttl,
    heartbeat: Duration,
    /// When the last successful request was sent.
    confirmed: HolderTime,
    /// The request that takes the lease away if the holder stays silent, and when the holder stops because of it.
    handover: Option<(Seq, HolderTime)>,
    next_renewal: HolderTime,
    failures: u32,
    lost: Option<Lost>,
}

/// Why the holder has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The store said so.
    #[error("the lease was lost: {}", .0.as_str())]
    Told(LossReason),
    /// Nothing was heard from the store until the holder's own deadline.
    #[error("the lease was lost: it could not be renewed in time")]
    Deadline,
    /// The holder gave it back itself.
    #[error("the lease was released")]
    Released,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until then.
    Wait(HolderTime),
    /// Send a renewal. If there is no answer by `give_up_at`, it counts as failed.
    Renew {
        /// When to stop waiting for the answer.
        give_up_at: HolderTime,
    },
    /// Stop: the lease is gone.
    Stop(Lost),
}

impl Holder {
    /// The plan for a lease of `ttl` whose successful request was sent at `sent`.
    pub fn new(sent: HolderTime, ttl: Ttl) -> Self {
        Self::with_heartbeat(sent, ttl, heartbeat(ttl))
    }

    /// The same with a heartbeat of the holder's choice. One that would come too late is moved before the deadline.
    pub fn with_heartbeat(sent: HolderTime, ttl: Ttl, heartbeat: Duration) -> Self {
        Self {
            ttl,
            heartbeat,
            confirmed: sent,
            handover: None,
            next_renewal: sent + usable_heartbeat(heartbeat, ttl),
            failures: 0,
            lost: None,
        }
    }

    /// When the holder has to stop, unless a renewal succeeds before.
    pub fn deadline(&self) -> HolderTime {
        let own = (self.confirmed + self.ttl.as_duration()).minus(margin(self.ttl));
        self.handover.map_or(own, |(_, stop_at)| stop_at.min(own))
    }

    /// Whether the holder may act at `now`. A holder that was paused finds out here, before its next act.
    pub fn is_held(&self, now: HolderTime) -> bool {
        self.lost.is_none() && now < self.deadline()
    }

    /// Why the lease is gone, if it is known to be.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// What to do at `now`.
    pub fn poll(&mut self, now: HolderTime) -> Action {
        if self.lost.is_none() && now >= self.deadline() {
            self.lost = Some(Lost::Deadline);
        }
        match self.lost {
            Some(lost) => Action::Stop(lost),
            None if now >= self.next_renewal => {
                let give_up_at = self.give_up_at(now);
                // The next one is due when this one has failed, not at the next poll.
                self.next_renewal = give_up_at;
                Action::Renew { give_up_at }
            }
            None => Action::Wait(self.next_renewal.min(self.deadline())),
        }
    }

    /// The renewal that was sent at `sent` succeeded, for a lease of `ttl`. An answer that comes after the deadline
    /// changes nothing: who was told to stop is not told to go on.
    pub fn handle_renewed(&mut self, sent: HolderTime, ttl: Ttl) {
        if self.lost.is_none() && sent >= self.confirmed {
            self.confirmed = sent;
            self.ttl = ttl;
            self.failures = 0;
            self.next_renewal = sent + usable_heartbeat(self.heartbeat, ttl);
        }
    }

    /// A renewal failed, or its outcome is unknown. `random` is spread evenly over all `u32`.
    pub fn handle_failed(&mut self, now: HolderTime, random: u32) {
        self.failures = self.failures.saturating_add(1);
        self.next_renewal = now + self.retry().jittered(self.failures, random);
    }

    /// The store said that the lease is gone.
    pub fn handle_lost(&mut self, because: LossReason) {
        self.lost.get_or_insert(Lost::Told(because));
    }

    /// The holder gives the lease back, softly or not.
    pub fn handle_released(&mut self) {
        self.lost.get_or_insert(Lost::Released);
    }

    /// The holder confirms, in a message sent at `sent`, that it knows of `request`, which takes the lease away after
    /// `countdown` unless it answers. Call it when the message is sent: it may arrive even if its answer does not.
    pub fn handle_handover_told(&mut self, request: Seq, sent: HolderTime, countdown: Ttl) {
        self.handle_handover_runs(request, sent, countdown.as_duration());
    }

    /// The answer to a message that was sent at `sent` says that `request` takes the lease away in `left`. A holder
    /// that came back to its lease learns so that it was told before.
    pub fn handle_handover_runs(&mut self, request: Seq, sent: HolderTime, left: Duration) {
        // There is one request at a time: a late word about an older one must not hide the one that runs.
        if self.handover.is_some_and(|(known, _)| known > request) {
            return;
        }
        // A clock errs more over a long countdown than over a short TTL.
        let stop_at = (sent + left).minus(margin(self.ttl).max(left / 10));
        // An earlier confirmation may be the one that arrived.
        let known = self.handover.filter(|(known, _)| *known == request);
        self.handover = Some((request, known.map_or(stop_at, |(_, earlier)| earlier.min(stop_at))));
    }

    /// `request` is off the table: refused, or withdrawn.
    pub fn handle_handover_over(&mut self, request: Seq) {
        self.handover = self.handover.filter(|(known, _)| *known != request);
    }

    fn give_up_at(&self, now: HolderTime) -> HolderTime {
        (now + usable_heartbeat(self.heartbeat, self.ttl)).min(self.deadline())
    }

    fn retry(&self) -> Backoff {
        let heartbeat = usable_heartbeat(self.heartbeat, self.ttl);
        Backoff {
            initial: (heartbeat / 10).max(Duration::from_millis(20)),
            multiplier: 2.0,
            max: heartbeat.min(Duration::from_secs(10)),
        }
    }
}

/// The heartbeat that is wanted, moved forward so that two fit before the deadline.
fn usable_heartbeat(wanted: Duration, ttl: Ttl) -> Duration {
    let usable = ttl.as_duration() - margin(ttl);
    wanted.clamp(Duration::from_millis(1), usable / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> HolderTime {
        HolderTime::from_millis(millis)
    }

    fn thirty_seconds() -> Ttl {
        Ttl::from_secs(30).unwrap()
    }

    #[test]
    fn law_08_the_margin_is_a_tenth_and_at_least_half_a_second() {
        for (ttl, expected) in [(1, 500), (5, 500), (30, 3_000), (300, 30_000)] {
            assert_eq!(margin(Ttl::from_secs(ttl).unwrap()).as_millis(), expected, "{ttl} s");
        }
    }

    #[test]
    fn law_08_the_deadline_counts_from_when_the_request_was_sent() {
        let mut holder = Holder::new(at(1_000), thirty_seconds());
        assert_eq!(holder.deadline(), at(28_000));
        // Sent at 11 s, answered at 20 s: the deadline follows from 11 s.
        assert_eq!(holder.poll(at(11_000)), Action::Renew { give_up_at: at(21_000) });
        holder.handle_renewed(at(11_000), thirty_seconds());
        assert_eq!(holder.deadline(), at(38_000));
        assert_eq!(holder.poll(at(20_000)), Action::Wait(at(21_000)));
    }

    #[test]
    fn law_08_a_paused_holder_finds_out_before_its_next_act() {
        let holder = Holder::new(at(0), thirty_seconds());
        assert!(holder.is_held(at(26_999)));
        assert!(!holder.is_held(at(27_000)));
        assert!(!holder.is_held(at(3_600_000)));
    }

    #[test]
    fn a_late_answer_does_not_bring_a_lost_lease_back() {
        let mut holder = Holder::new(at(0), thirty_seconds());
        assert_eq!(holder.poll(at(27_000)), Action::Stop(Lost::Deadline));
        holder.handle_renewed(at(26_000), thirty_seconds());
        assert_eq!(holder.poll(at(27_001)), Action::Stop(Lost::Deadline));
        assert!(!holder.is_held(at(27_001)));
    }

    #[test]
    fn failed_renewals_are_retried_with_growing_waits_until_the_deadline() {
        let mut holder = Holder::new(at(0), thirty_seconds());
        let mut now = at(0);
        let mut attempts = Vec::new();
        loop {
            match holder.poll(now) {
                Action::Wait(until) => now = until,
                Action::Renew { give_up_at } => {
                    assert!(give_up_at <= holder.deadline());
                    attempts.push(now.as_millis());
                    holder.handle_failed(now, 0);
                }
                Action::Stop(lost) => {
                    assert_eq!((lost, now), (Lost::Deadline, at(27_000)));
                    break;
                }
            }
        }
        assert_eq!(attempts, [10_000, 11_000, 13_000, 17_000, 25_000]);
    }

    #[test]
    fn what_the_store_says_is_final() {
        let mut holder = Holder::new(at(0), thirty_seconds());
        holder.handle_lost(LossReason::TakenOver);
        holder.handle_released();
        holder.handle_renewed(at(5), thirty_seconds());
        assert_eq!(holder.poll(at(6)), Action::Stop(Lost::Told(LossReason::TakenOver)));
    }

    #[test]
    fn a_running_handover_brings_the_deadline_forward() {
        let mut holder = Holder::new(at(0), thirty_seconds());
        holder.handle_handover_told(7, at(1_000), Ttl::from_secs(10).unwrap());
        assert_eq!(holder.deadline(), at(8_000));
        holder.handle_handover_over(6);
        assert_eq!(holder.deadline(), at(8_000), "the end of another request");
        holder.handle_handover_over(7);
        assert_eq!(holder.deadline(), at(27_000));
    }

    /// A holder whose clock was 4 % slow, with a TTL of 3 s, was given 30 s to answer: the lease was handed over while it
    /// still believed in it, because the margin covered only the TTL. The simulator found it.
    #[test]
    fn law_08_the_margin_of_a_handover_covers_its_countdown() {
        let short = Ttl::from_secs(3).unwrap();
        let mut holder = Holder::new(at(0), short);
        holder.handle_handover_told(7, at(0), thirty_seconds());
        (1..=40).for_each(|renewed| holder.handle_renewed(at(renewed * 1_000), short));
        assert_eq!(holder.deadline(), at(27_000));
    }

    /// A page was told of a request, was reloaded and came back to its lease. It was told again and counted the whole
    /// time to answer anew, while the store's had been running all along. The simulator found it.
    #[test]
    fn law_08_a_holder_that_comes_back_learns_how_much_of_the_countdown_is_left() {
        let mut holder = Holder::new(at(5_000), thirty_seconds());
        holder.handle_handover_runs(7, at(5_000), Duration::from_secs(6));
        holder.handle_handover_told(7, at(5_100), Ttl::from_secs(10).unwrap());
        assert_eq!(holder.deadline(), at(8_000));
    }

    /// A late copy of an answer spoke of a request that was over. The holder took it for the one that ran, forgot when
    /// that would take the lease away, and believed in it for too long. The simulator found it.
    #[test]
    fn law_08_a_late_word_about_an_older_handover_does_not_hide_the_one_that_runs() {
        let mut holder = Holder::new(at(0), thirty_seconds());
        holder.handle_handover_told(7, at(1_000), Ttl::from_secs(10).unwrap());
        holder.handle_handover_told(5, at(2_000), Ttl::from_secs(20).unwrap());
        assert_eq!(holder.deadline(), at(8_000));
    }

    #[test]
    fn law_08_what_a_door_tells_is_what_a_holder_would_do() {
        for seconds in [1, 2, 5, 30, 300, 86_400] {
            let ttl = Ttl::from_secs(seconds).unwrap();
            let mut holder = Holder::new(at(1_000), ttl);
            assert_eq!(at(1_000) + stop_after(ttl.as_duration(), ttl), holder.deadline(), "{ttl}");
            assert_eq!(holder.poll(at(1_000)), Action::Wait(at(1_000) + renew_after(ttl)), "{ttl}");
        }
    }

    #[test]
    fn any_heartbeat_leaves_room_for_a_second_try() {
        for ttl in [1, 2, 5, 30, 86_400] {
            for heartbeat in [Duration::ZERO, Duration::from_secs(10), Duration::MAX] {
                let ttl = Ttl::from_secs(ttl).unwrap();
                let mut holder = Holder::with_heartbeat(at(0), ttl, heartbeat);
                let Action::Wait(first) = holder.poll(at(0)) else { panic!("nothing is due yet") };
                assert!(first < holder.deadline(), "{ttl} {heartbeat:?}");
            }
        }
    }
}
