//! The keeper: the holder's side of a lease. It says when to renew, heeds requests to hand the lease over, and says when
//! to stop believing in it.
//!
//! The holder's deadline is always earlier than the store's: it counts from when the last successful request was
//! *sent*, less a margin. Whatever happens to answers, to the network or to the machine, a holder that asks its
//! [`Keeper`] before it acts never acts on a lease that another may have.

use std::time::Duration;

use crate::backoff::{Retries, RetryPolicy};
use crate::event::Seq;
use crate::lease::{self, LossReason, OnSilence, Outcome};
use crate::name::Owner;
use crate::time::{HolderTime, StoreTime, Ttl};

/// How much earlier than the other side a holder ends a period of this length: a tenth of it, because clocks run at
/// different rates, and at least half a second, because messages take time. The one margin rule.
pub fn margin(period: Duration) -> Duration {
    (period / 10).max(Duration::from_millis(500))
}

/// The shortest countdown after which silence may give a lease of `ttl` away. The holder stops a margin early, so a
/// shorter one would leave it less than half of the time to answer.
pub fn shortest_countdown(ttl: Ttl) -> Duration {
    2 * margin(ttl.as_duration())
}

/// How often a lease is renewed, unless its holder or its store wants otherwise: two renewals may fail before it is lost.
pub fn heartbeat(ttl: Ttl) -> Duration {
    ttl.as_duration() / 3
}

/// How long after *sending* a request a holder may still act, when the answer says that `left` is left of its lease. A
/// server tells this to holders that have no [`Keeper`] of their own.
pub fn stop_after(left: Duration, ttl: Ttl) -> Duration {
    left.saturating_sub(margin(ttl.as_duration()))
}

/// How long after sending a request such a holder sends the next one.
pub fn renew_after(ttl: Ttl) -> Duration {
    usable_heartbeat(heartbeat(ttl), ttl)
}

/// How long before its deadline a holder may begin to wind its work down, when `usable` is what a renewal brings. Two
/// renewals fit before: they come within the first half.
pub fn longest_wind_down(usable: Duration) -> Duration {
    usable / 3
}

/// Keeps one lease. It does no IO and reads no clock; a thin shell does what it says.
///
/// There are four kinds of method:
/// - **getters** ([`deadline`](Self::deadline), [`is_held`](Self::is_held), [`lost`](Self::lost),
///   [`next_poll`](Self::next_poll), [`request`](Self::request), [`on_silence`](Self::on_silence)) change nothing;
/// - **`handle_*`** take in what happened: the reply to a message, news about the lease, its end;
/// - **commands** ([`confirm`](Self::confirm), [`release`](Self::release)) say what the program has decided, and come
///   *before* the message that carries the decision is sent: it may arrive even if its answer does not;
/// - **[`poll`](Self::poll)** says what to do now. Call it after every other change and whenever the time it named has
///   come, also while a renewal is under way: the deadline holds meanwhile.
///
/// All replies come with the time at which their message was sent. They may come late, twice, in any order or never.
#[derive(Clone, Debug)]
pub struct Keeper {
    ttl: Ttl,
    /// The holder's own wish; otherwise the store's, or what follows from the TTL.
    wanted_heartbeat: Option<Duration>,
    heartbeat: Duration,
    /// When the last successful request was sent.
    confirmed: HolderTime,
    next_renewal: HolderTime,
    /// The renewal that is under way.
    renewal: Option<Renewal>,
    /// Something happened while a renewal was under way, which may have been decided before.
    look_again: bool,
    retries: Retries,
    request: Option<KnownRequest>,
    /// The last request that is known to be over: what is said about it, or an older one, is old.
    settled: Seq,
    lost: Option<Lost>,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    sent: HolderTime,
    give_up_at: HolderTime,
}

/// The newest request that the holder has heard of.
#[derive(Clone, Debug)]
struct KnownRequest {
    request: PendingRequest,
    /// When the holder first heard of it: what was sent from then on is decided with it in the store.
    learned: HolderTime,
    /// When the holder stops because its silence gives the lease away.
    stop_at: Option<HolderTime>,
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
    /// Send a renewal now. One that is still under way counts as failed; its answer is welcome all the same.
    Renew,
    /// Stop: the lease is gone.
    Stop(Lost),
}

/// What a store or a server says to a holder. Times are durations, which count from when the answered message was sent:
/// so it takes neither the store's clock nor the store's lease to say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a renewal: the lease is kept, on these terms.
    Kept(Terms),
    /// To a confirmation: the request takes the lease away in `left`, unless it is answered.
    Counting {
        /// Which request.
        request: Seq,
        /// What is left of its countdown.
        left: Duration,
    },
    /// To a confirmation or a refusal: the request is over, and the lease is kept.
    RequestOver {
        /// Which request.
        request: Seq,
    },
    /// To any message: the lease is gone.
    Lost(LossReason),
    /// The renewal failed, or its outcome is unknown.
    Failed,
}

/// On which terms a lease is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long it lasts from the decision on.
    pub ttl: Ttl,
    /// How often it is to be renewed, if the store has a wish.
    pub heartbeat: Option<Duration>,
    /// The request to hand it over, if there is one.
    pub request: Option<PendingRequest>,
}

/// A request to hand a lease over, as its holder knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// Its number. Later requests have larger ones.
    pub seq: Seq,
    /// Who asks.
    pub by: Owner,
    /// Their name to show, if they have one besides.
    pub name: Option<String>,
    /// What happens without an answer.
    pub on_silence: OnSilence,
    /// How long there is to answer, from when the holder has confirmed that it knows of the request.
    pub countdown: Ttl,
    /// What is left of the countdown, if it is running.
    pub left: Option<Duration>,
}

/// What to do about a request that the program has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirm {
    /// Tell the store that the holder knows of it: its silence counts from now on.
    Send,
    /// Send nothing: the countdown leaves no time to answer, so silence must not count. Otherwise any lease could be taken
    /// by giving its holder no time.
    Withhold,
    /// Nothing: the request is over.
    Over,
}

impl Terms {
    /// The terms of a lease for `ttl`, and nothing else.
    pub const fn of(ttl: Ttl) -> Self {
        Self { ttl, heartbeat: None, request: None }
    }

    /// The terms of a lease in a store, which decided about it at `now`. One that was released softly has what is left of it.
    pub fn in_store(lease: &lease::Lease, now: StoreTime) -> Self {
        let request = lease.request.as_deref().map(|request| PendingRequest::in_store(request, now));
        let left = || Ttl::new(lease.expires_at.since(now)).unwrap_or(Ttl::MIN);
        Self { ttl: if lease.leaving { left() } else { lease.ttl }, heartbeat: None, request }
    }
}

impl PendingRequest {
    fn in_store(request: &lease::Request, now: StoreTime) -> Self {
        Self {
            seq: request.seq,
            by: request.bid.owner.clone(),
            name: request.bid.meta.get("name").map(str::to_owned),
            on_silence: request.on_silence,
            countdown: request.countdown,
            left: request.silence_ends_at().map(|ends_at| ends_at.since(now)),
        }
    }
}

impl Reply {
    /// What the outcome of a command, decided by a store at `now`, says to the holder that sent it. `request` is the one
    /// that the command named, if it named one. `None` if the outcome does not belong to any of a holder's commands.
    pub fn in_store(outcome: &Outcome, now: StoreTime, request: Seq) -> Option<Self> {
        Some(match outcome {
            // With less than the shortest TTL left there is nothing to count on.
            Outcome::Renewed(lease)
                if lease.leaving && lease.expires_at.since(now) < Ttl::MIN.as_duration() =>
            {
                Self::Lost(LossReason::Disconnected)
            }
            Outcome::Renewed(lease) => Self::Kept(Terms::in_store(lease, now)),
            Outcome::Told { ends_at } => Self::Counting { request, left: ends_at.since(now) },
            Outcome::Refused | Outcome::NoRequest => Self::RequestOver { request },
            Outcome::Lost { because, .. } => Self::Lost(*because),
            _ => return None,
        })
    }
}

impl Keeper {
    /// Keeps a lease of `ttl` whose successful request was sent at `sent`.
    pub fn new(sent: HolderTime, ttl: Ttl) -> Self {
        Self::granted(sent, sent, Terms::of(ttl), None, 0)
    }

    /// Keeps a lease that was granted on these terms, in answer to a request that was sent at `sent`. A heartbeat of the
    /// holder's choice that would come too late is moved before the deadline. `random` is spread evenly over all `u32`; it
    /// makes the jitter of retries.
    pub fn granted(
        sent: HolderTime,
        now: HolderTime,
        terms: Terms,
        wanted_heartbeat: Option<Duration>,
        random: u32,
    ) -> Self {
        let mut keeper = Self {
            ttl: terms.ttl,
            wanted_heartbeat,
            heartbeat: Duration::ZERO,
            confirmed: sent,
            next_renewal: sent,
            renewal: None,
            look_again: false,
            retries: Retries::new(RetryPolicy::LOOP, random),
            request: None,
            settled: 0,
            lost: None,
        };
        keeper.kept(sent, now, terms);
        keeper
    }

    // --- getters ---

    /// When the holder has to stop, unless a renewal succeeds before.
    pub fn deadline(&self) -> HolderTime {
        let own = self.confirmed + stop_after(self.ttl.as_duration(), self.ttl);
        let handover = self.request.as_ref().and_then(|known| known.stop_at);
        handover.map_or(own, |stop_at| stop_at.min(own))
    }

    /// Whether the holder may act at `now`. A holder that was paused finds out here, before its next act.
    pub fn is_held(&self, now: HolderTime) -> bool {
        self.lost.is_none() && now < self.deadline()
    }

    /// Why the lease is gone, if it is known to be.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// When [`poll`](Self::poll) will have something new to say, unless something happens before.
    pub fn next_poll(&self) -> HolderTime {
        let renewal = self.renewal.map_or(self.next_renewal, |renewal| renewal.give_up_at);
        renewal.min(self.deadline())
    }

    /// The request to hand the lease over that the holder has to decide about.
    pub fn request(&self) -> Option<&PendingRequest> {
        self.request.as_ref().map(|known| &known.request)
    }

    /// What silence means to a request. A countdown that leaves no time for an answer gives nothing away, whatever was
    /// asked for.
    pub fn on_silence(&self, request: &PendingRequest) -> OnSilence {
        let leaves_time = request.countdown.as_duration() >= shortest_countdown(self.ttl);
        if leaves_time { request.on_silence } else { OnSilence::Refuse }
    }

    // --- what happened ---

    /// The reply to a message that was sent at `sent`. One that comes after the end changes nothing: a holder that was
    /// told to stop is not told to go on.
    pub fn handle_reply(&mut self, sent: HolderTime, now: HolderTime, reply: Reply) {
        match reply {
            Reply::Kept(terms) => self.handle_kept(sent, now, terms),
            Reply::Counting { request, left } => self.counts_down(request, sent, left),
            Reply::RequestOver { request } => self.settle(request),
            Reply::Lost(because) => self.handle_lost(because),
            Reply::Failed if self.renewal.is_some_and(|renewal| renewal.sent == sent) => self.failed(now),
            Reply::Failed => {}
        }
    }

    /// Something happened to the key, so it is worth a renewal now: it brings what there is to know.
    pub fn handle_news(&mut self, now: HolderTime) {
        if self.renewal.is_some() {
            self.look_again = true;
        } else {
            self.next_renewal = self.next_renewal.min(now);
        }
    }

    /// The lease is gone: the store said so, or its events did.
    pub fn handle_lost(&mut self, because: LossReason) {
        self.lost.get_or_insert(Lost::Told(because));
    }

    fn handle_kept(&mut self, sent: HolderTime, now: HolderTime, terms: Terms) {
        if self.renewal.is_some_and(|renewal| sent >= renewal.sent) {
            self.renewal = None;
        }
        if self.lost.is_some() {
            return;
        }
        let request = terms.request.clone();
        if sent >= self.confirmed {
            self.kept(sent, now, terms);
        } else {
            self.heed(sent, now, request);
        }
        if self.renewal.is_none() && std::mem::take(&mut self.look_again) {
            self.next_renewal = now;
        }
    }

    fn kept(&mut self, sent: HolderTime, now: HolderTime, terms: Terms) {
        let Terms { ttl, heartbeat: asked, request } = terms;
        let wanted = self.wanted_heartbeat.or(asked).unwrap_or_else(|| heartbeat(ttl));
        (self.confirmed, self.ttl, self.heartbeat) = (sent, ttl, usable_heartbeat(wanted, ttl));
        self.next_renewal = sent + self.heartbeat;
        self.retries = self.retries.restarted(RetryPolicy::within(self.heartbeat));
        self.heed(sent, now, request);
    }

    fn failed(&mut self, now: HolderTime) {
        (self.renewal, self.look_again) = (None, false);
        self.next_renewal = now + self.retries.pause();
    }

    // --- requests to hand over ---

    /// The program has taken `request`; the confirmation would be sent at `sent`. From then on the holder stops before
    /// its silence could give the lease away, whether or not the confirmation is answered.
    pub fn confirm(&mut self, request: Seq, sent: HolderTime) -> Confirm {
        let Some(pending) = self.request().filter(|pending| pending.seq == request) else {
            return Confirm::Over;
        };
        let countdown = pending.countdown.as_duration();
        match (pending.on_silence, self.on_silence(pending)) {
            (OnSilence::Grant, OnSilence::Refuse) => Confirm::Withhold,
            (OnSilence::Refuse, _) => Confirm::Send,
            (OnSilence::Grant, OnSilence::Grant) => {
                self.counts_down(request, sent, countdown);
                Confirm::Send
            }
        }
    }

    /// The holder gives the lease back, softly or not, or hands it over.
    pub fn release(&mut self) {
        self.lost.get_or_insert(Lost::Released);
    }

    /// Takes in what the answer to a message that was sent at `sent` says about requests. There is one at a time, and
    /// later ones have larger numbers.
    fn heed(&mut self, sent: HolderTime, now: HolderTime, request: Option<PendingRequest>) {
        let known = self.request.as_ref().map(|known| (known.request.seq, known.learned));
        match (request, known) {
            // A request that the answer does not name is over, if the message was sent when it was known: an older
            // message may have been decided before the request was made.
            (None, Some((seq, learned))) if sent >= learned => self.settle(seq),
            (None, _) => {}
            (Some(request), _) if request.seq <= self.settled => {}
            // A late word about an older request must not hide the one that runs.
            (Some(request), Some((seq, _))) if request.seq < seq => {}
            (Some(request), known) => {
                if known.is_none_or(|(seq, _)| seq < request.seq) {
                    self.settled = self.settled.max(request.seq.saturating_sub(1));
                    self.request =
                        Some(KnownRequest { request: request.clone(), learned: now, stop_at: None });
                }
                if let (OnSilence::Grant, Some(left)) = (request.on_silence, request.left) {
                    self.counts_down(request.seq, sent, left);
                }
            }
        }
    }

    /// A message that was sent at `sent` makes, or finds, the countdown of `request` run for `left`.
    fn counts_down(&mut self, request: Seq, sent: HolderTime, left: Duration) {
        let Some(known) = self.request.as_mut().filter(|known| known.request.seq == request) else { return };
        if known.request.on_silence == OnSilence::Refuse {
            return;
        }
        // A clock errs more over a long countdown than over a short TTL.
        let stop_at = (sent + left).minus(margin(left.max(self.ttl.as_duration())));
        // An earlier confirmation may be the one that arrived.
        known.stop_at = Some(known.stop_at.map_or(stop_at, |earlier| earlier.min(stop_at)));
    }

    /// `request` is over, and so is every earlier one.
    fn settle(&mut self, request: Seq) {
        self.settled = self.settled.max(request);
        self.request.take_if(|known| known.request.seq <= request);
    }

    // --- what to do ---

    /// What to do at `now`. A renewal that it asks for counts as sent at `now`.
    pub fn poll(&mut self, now: HolderTime) -> Action {
        if self.lost.is_none() && now >= self.deadline() {
            self.lost = Some(Lost::Deadline);
        }
        if let Some(lost) = self.lost {
            return Action::Stop(lost);
        }
        if self.renewal.is_some_and(|renewal| renewal.give_up_at <= now) {
            self.failed(now);
        }
        if self.renewal.is_none() && now >= self.next_renewal {
            self.renewal = Some(Renewal { sent: now, give_up_at: now + self.heartbeat });
            return Action::Renew;
        }
        Action::Wait(self.next_poll())
    }
}

/// The heartbeat that is wanted, moved forward so that two fit before the deadline.
fn usable_heartbeat(wanted: Duration, ttl: Ttl) -> Duration {
    wanted.clamp(Duration::from_millis(1), stop_after(ttl.as_duration(), ttl) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> HolderTime {
        HolderTime::from_millis(millis)
    }

    fn secs(seconds: u64) -> Ttl {
        Ttl::from_secs(seconds).unwrap()
    }

    /// The answer to a renewal of a lease of 30 s.
    fn kept(request: Option<PendingRequest>) -> Reply {
        Reply::Kept(Terms { request, ..Terms::of(secs(30)) })
    }

    /// Silence to it grants, after so many seconds.
    fn request(seq: Seq, countdown: u64) -> PendingRequest {
        PendingRequest {
            seq,
            by: Owner::parse("ben").unwrap(),
            name: None,
            on_silence: OnSilence::Grant,
            countdown: secs(countdown),
            left: None,
        }
    }

    /// The holder of a lease of 30 s, granted at 0, that heard at `learned` of a request.
    fn asked(request: PendingRequest, learned: u64) -> Keeper {
        let mut keeper = Keeper::new(at(0), secs(30));
        keeper.handle_reply(at(learned), at(learned), kept(Some(request)));
        keeper
    }

    #[test]
    fn law_08_the_margin_is_a_tenth_and_at_least_half_a_second() {
        for (seconds, expected) in [(1, 500), (5, 500), (30, 3_000), (300, 30_000)] {
            assert_eq!(margin(Duration::from_secs(seconds)).as_millis(), expected, "{seconds} s");
        }
    }

    #[test]
    fn law_08_the_deadline_counts_from_when_the_request_was_sent() {
        let mut keeper = Keeper::new(at(1_000), secs(30));
        assert_eq!(keeper.deadline(), at(28_000));
        // Sent at 11 s, answered at 20 s: the deadline follows from 11 s.
        assert_eq!(keeper.poll(at(11_000)), Action::Renew);
        assert_eq!(keeper.poll(at(11_000)), Action::Wait(at(21_000)), "given up by then");
        keeper.handle_reply(at(11_000), at(20_000), kept(None));
        assert_eq!(keeper.deadline(), at(38_000));
        assert_eq!(keeper.poll(at(20_000)), Action::Wait(at(21_000)), "the next one is due");
    }

    #[test]
    fn law_08_a_paused_holder_finds_out_before_its_next_act() {
        let keeper = Keeper::new(at(0), secs(30));
        assert!(keeper.is_held(at(26_999)));
        assert!(!keeper.is_held(at(27_000)));
        assert!(!keeper.is_held(at(3_600_000)));
    }

    #[test]
    fn a_late_answer_does_not_bring_a_lost_lease_back() {
        let mut keeper = Keeper::new(at(0), secs(30));
        assert_eq!(keeper.poll(at(27_000)), Action::Stop(Lost::Deadline));
        keeper.handle_reply(at(26_000), at(27_000), kept(None));
        assert_eq!(keeper.poll(at(27_001)), Action::Stop(Lost::Deadline));
        assert!(!keeper.is_held(at(27_001)));
    }

    /// Follows a keeper whose renewals all come to `reply`; answers when they were sent.
    fn renewals(mut keeper: Keeper, reply: Option<&Reply>) -> Vec<u64> {
        let (mut now, mut sent) = (at(0), Vec::new());
        loop {
            match keeper.poll(now) {
                Action::Wait(until) => now = until,
                Action::Renew => {
                    sent.push(now.as_millis());
                    if let Some(reply) = reply {
                        keeper.handle_reply(now, now, reply.clone());
                    }
                }
                Action::Stop(lost) => {
                    assert_eq!((lost, now), (Lost::Deadline, at(27_000)));
                    return sent;
                }
            }
        }
    }

    #[test]
    fn failed_renewals_are_retried_with_growing_waits_until_the_deadline() {
        let attempts = renewals(Keeper::new(at(0), secs(30)), Some(&Reply::Failed));
        assert_eq!(attempts, [10_000, 11_000, 13_000, 17_000, 25_000]);
        let jittered = Keeper::granted(at(0), at(0), Terms::of(secs(30)), None, u32::MAX);
        let attempts = renewals(jittered, Some(&Reply::Failed));
        assert_eq!(attempts.get(..2), Some([10_000, 10_500].as_slice()), "up to half as long");
        assert!(attempts.len() >= 5);
    }

    #[test]
    fn a_renewal_without_an_answer_is_given_up_after_a_heartbeat() {
        assert_eq!(renewals(Keeper::new(at(0), secs(30)), None), [10_000, 21_000]);
    }

    /// What was given up may still be answered: that counts from when it was sent.
    #[test]
    fn the_answer_to_a_renewal_that_was_given_up_is_welcome() {
        let mut keeper = Keeper::new(at(0), secs(30));
        assert_eq!(keeper.poll(at(10_000)), Action::Renew);
        assert_eq!(keeper.poll(at(20_000)), Action::Wait(at(21_000)));
        assert_eq!(keeper.poll(at(21_000)), Action::Renew);
        keeper.handle_reply(at(10_000), at(22_000), kept(None));
        assert_eq!(keeper.deadline(), at(37_000));
        assert_eq!(keeper.poll(at(22_000)), Action::Wait(at(31_000)), "the second one is still under way");
        keeper.handle_reply(at(10_000), at(22_000), Reply::Failed);
        assert_eq!(keeper.poll(at(22_000)), Action::Wait(at(31_000)), "not this one failed");
    }

    #[test]
    fn what_the_store_says_is_final() {
        let mut keeper = Keeper::new(at(0), secs(30));
        keeper.handle_reply(at(1), at(2), Reply::Lost(LossReason::TakenOver));
        keeper.release();
        keeper.handle_reply(at(5), at(5), kept(None));
        assert_eq!(keeper.poll(at(6)), Action::Stop(Lost::Told(LossReason::TakenOver)));
    }

    #[test]
    fn news_bring_a_renewal_and_another_if_one_was_under_way() {
        let mut keeper = Keeper::new(at(0), secs(30));
        keeper.handle_news(at(1_000));
        assert_eq!(keeper.poll(at(1_000)), Action::Renew);
        keeper.handle_news(at(1_100));
        assert_eq!(keeper.poll(at(1_100)), Action::Wait(at(11_000)), "one at a time");
        keeper.handle_reply(at(1_000), at(1_200), kept(None));
        assert_eq!(keeper.poll(at(1_200)), Action::Renew, "the first may have been decided before the news");
        keeper.handle_reply(at(1_200), at(1_300), kept(None));
        assert_eq!(keeper.poll(at(1_300)), Action::Wait(at(11_200)));
    }

    #[test]
    fn the_heartbeat_is_the_holders_choice_before_the_stores() {
        let store_wants =
            |seconds| Terms { heartbeat: Some(Duration::from_secs(seconds)), ..Terms::of(secs(30)) };
        let own = Some(Duration::from_secs(3));
        for (wanted, terms, expected) in [
            (None, Terms::of(secs(30)), 10_000),
            (None, store_wants(5), 5_000),
            (own, store_wants(5), 3_000),
            (None, store_wants(60), 13_500),
        ] {
            let mut keeper = Keeper::granted(at(0), at(0), terms, wanted, 0);
            assert_eq!(keeper.poll(at(0)), Action::Wait(at(expected)));
        }
    }

    // --- requests to hand over ---

    #[test]
    fn a_confirmed_request_brings_the_deadline_forward_until_it_is_over() {
        let mut keeper = asked(request(7, 10), 900);
        assert_eq!(keeper.deadline(), at(27_900), "silence does not count before the confirmation");
        assert_eq!(keeper.confirm(6, at(1_000)), Confirm::Over);
        assert_eq!(keeper.confirm(7, at(1_000)), Confirm::Send);
        assert_eq!(keeper.deadline(), at(8_000));
        keeper.handle_reply(at(1_000), at(1_100), Reply::RequestOver { request: 6 });
        assert_eq!(keeper.deadline(), at(8_000), "the end of another request");
        keeper.handle_reply(at(1_000), at(1_100), Reply::RequestOver { request: 7 });
        assert_eq!((keeper.deadline(), keeper.request()), (at(27_900), None));
    }

    #[test]
    fn a_request_whose_silence_refuses_is_confirmed_and_moves_nothing() {
        let mut keeper = asked(PendingRequest { on_silence: OnSilence::Refuse, ..request(7, 2) }, 0);
        assert_eq!(keeper.confirm(7, at(1_000)), Confirm::Send);
        keeper.handle_reply(
            at(1_000),
            at(1_000),
            Reply::Counting { request: 7, left: Duration::from_secs(2) },
        );
        assert_eq!(keeper.deadline(), at(27_000));
    }

    #[test]
    fn a_countdown_that_leaves_no_time_is_not_confirmed_and_grants_nothing() {
        for (countdown, expected) in [(5, OnSilence::Refuse), (6, OnSilence::Grant)] {
            let mut keeper = asked(request(7, countdown), 0);
            assert_eq!(keeper.on_silence(&request(7, countdown)), expected);
            let confirmed = keeper.confirm(7, at(0));
            assert_eq!(confirmed == Confirm::Withhold, expected == OnSilence::Refuse, "{countdown} s");
            assert_eq!(keeper.deadline() == at(27_000), expected == OnSilence::Refuse, "{countdown} s");
        }
    }

    #[test]
    fn a_request_that_a_later_answer_does_not_name_is_over() {
        let mut keeper = asked(request(7, 10), 900);
        assert_eq!(keeper.confirm(7, at(1_000)), Confirm::Send);
        keeper.handle_reply(at(1_200), at(1_300), kept(None));
        assert_eq!((keeper.deadline(), keeper.request()), (at(28_200), None));
        keeper.handle_reply(at(1_200), at(1_400), kept(Some(request(7, 10))));
        assert_eq!(keeper.request(), None, "a late word about it does not bring it back");
        assert_eq!(keeper.confirm(7, at(1_400)), Confirm::Over);
    }

    /// The renewal was decided before the request was made, and its answer came after the holder had confirmed the
    /// request: that the answer does not name it says nothing.
    #[test]
    fn law_08_an_older_answer_without_the_request_does_not_end_it() {
        let mut keeper = asked(request(7, 10), 900);
        assert_eq!(keeper.confirm(7, at(1_000)), Confirm::Send);
        keeper.handle_reply(at(899), at(1_100), kept(None));
        assert_eq!(keeper.request().map(|request| request.seq), Some(7));
        assert_eq!(keeper.deadline(), at(8_000));
    }

    #[test]
    fn a_refused_request_does_not_come_back_and_the_next_one_does() {
        let mut keeper = asked(request(7, 10), 900);
        keeper.handle_reply(at(1_000), at(1_100), Reply::RequestOver { request: 7 });
        let running = PendingRequest { left: Some(Duration::from_secs(5)), ..request(7, 10) };
        keeper.handle_reply(at(1_050), at(1_200), kept(Some(running)));
        assert_eq!((keeper.request(), keeper.deadline()), (None, at(28_050)));
        keeper.handle_reply(at(1_300), at(1_400), kept(Some(request(9, 10))));
        assert_eq!(keeper.request().map(|request| request.seq), Some(9));
    }

    /// A holder whose clock was 4 % slow, with a TTL of 3 s, was given 30 s to answer: the lease was handed over while it
    /// still believed in it, because the margin covered only the TTL. The simulator found it.
    #[test]
    fn law_08_the_margin_of_a_handover_covers_its_countdown() {
        let short = |request| Reply::Kept(Terms { request, ..Terms::of(secs(3)) });
        let mut keeper = Keeper::new(at(0), secs(3));
        keeper.handle_reply(at(0), at(0), short(Some(request(7, 30))));
        assert_eq!(keeper.confirm(7, at(0)), Confirm::Send);
        for renewed in 1..=40 {
            keeper.handle_reply(at(renewed * 1_000), at(renewed * 1_000), short(Some(request(7, 30))));
        }
        assert_eq!(keeper.deadline(), at(27_000));
    }

    /// A page was told of a request, was reloaded and came back to its lease. It was told again and counted the whole
    /// time to answer anew, while the store's had been running all along. The simulator found it.
    #[test]
    fn law_08_a_holder_that_comes_back_learns_how_much_of_the_countdown_is_left() {
        let running = PendingRequest { left: Some(Duration::from_secs(6)), ..request(7, 10) };
        let terms = Terms { request: Some(running), ..Terms::of(secs(30)) };
        let mut keeper = Keeper::granted(at(5_000), at(5_050), terms, None, 0);
        assert_eq!(keeper.confirm(7, at(5_100)), Confirm::Send);
        assert_eq!(keeper.deadline(), at(8_000));
    }

    /// A late copy of an answer spoke of a request that was over. The holder took it for the one that ran, forgot when
    /// that would take the lease away, and believed in it for too long. The simulator found it.
    #[test]
    fn law_08_a_late_word_about_an_older_handover_does_not_hide_the_one_that_runs() {
        let mut keeper = asked(request(7, 10), 900);
        assert_eq!(keeper.confirm(7, at(1_000)), Confirm::Send);
        let older = PendingRequest { left: Some(Duration::from_secs(20)), ..request(5, 20) };
        keeper.handle_reply(at(800), at(2_000), kept(Some(older.clone())));
        keeper.handle_reply(at(950), at(2_000), kept(Some(older)));
        keeper.handle_reply(
            at(800),
            at(2_000),
            Reply::Counting { request: 5, left: Duration::from_secs(20) },
        );
        assert_eq!(keeper.request().map(|request| request.seq), Some(7));
        assert_eq!(keeper.deadline(), at(8_000));
    }

    #[test]
    fn law_08_what_a_server_tells_is_what_a_keeper_would_do() {
        for seconds in [1, 2, 5, 30, 300, 86_400] {
            let ttl = secs(seconds);
            let mut keeper = Keeper::new(at(1_000), ttl);
            assert_eq!(at(1_000) + stop_after(ttl.as_duration(), ttl), keeper.deadline(), "{ttl}");
            assert_eq!(keeper.poll(at(1_000)), Action::Wait(at(1_000) + renew_after(ttl)), "{ttl}");
        }
    }

    #[test]
    fn any_heartbeat_leaves_room_for_a_second_try() {
        for ttl in [1, 2, 5, 30, 86_400] {
            for heartbeat in [Duration::ZERO, Duration::from_secs(10), Duration::MAX] {
                let ttl = secs(ttl);
                let mut keeper = Keeper::granted(at(0), at(0), Terms::of(ttl), Some(heartbeat), 0);
                let Action::Wait(first) = keeper.poll(at(0)) else { panic!("nothing is due yet") };
                assert!(first < keeper.deadline(), "{ttl} {heartbeat:?}");
            }
        }
    }
}
