//! All slots of a store in memory, and changes that are staged beside them until they are durable.
//!
//! [`Staged`] is an overlay: decisions read through it, so that the second command of a batch sees the first. Nobody
//! else does: readers see [`Resident`] alone, which changes only in [`Resident::commit`].
//!
//! The methods are `#[inline]` for the sake of the simulator: it lives through millions of turns in every test run, and so
//! has them compiled along with it, optimised, while this crate is not in development.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::ops::Bound;

use leasehold_core::job::{Job, JobCommand, JobOutcome, Record};
use leasehold_core::lease::{LossReason, REMEMBERED};
use leasehold_core::{
    Command, Fence, Key, LeaseId, Outcome, Owner, Position, Published, Seq, Slot, StoreTime,
};

use crate::changes::{Changes, Ending, Known};
use crate::{ENDINGS_KEPT, EVENTS_KEPT, Feed, Limits, MAX_EVENTS, Range, Standing, standing};

/// The numbers that a store gives out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The last fence.
    pub last_fence: u64,
    /// The position of the last event.
    pub position: Position,
    /// At least the last sequence number of every key that was forgotten.
    pub seq_floor: Seq,
}

/// How far fences, positions and sequence numbers jump when a part of history may be missing: more grants than any
/// store makes between a backup and its restore, and room for two million restores.
pub const JUMP: u64 = 1 << 32;

impl Counters {
    /// Where they go on when a file is opened at this time of the wall clock, in milliseconds. Fences are at least that, so
    /// that they grow although everything was put back to an earlier day. In a copy, a part of history may be missing: then
    /// all numbers jump.
    pub fn reopened(self, is_copy: bool, wall_clock: u64) -> Self {
        let jump = if is_copy { JUMP } else { 0 };
        Self {
            last_fence: self.last_fence.max(wall_clock).saturating_add(jump).min(Fence::MAX.get()),
            position: Position(self.position.0.saturating_add(jump)),
            seq_floor: self.seq_floor.saturating_add(jump),
        }
    }
}

/// What is committed.
#[derive(Debug, Default)]
pub struct Resident {
    pub counters: Counters,
    slots: BTreeMap<Key, Slot>,
    lists: Lists,
    jobs: BTreeMap<Key, Job>,
    /// The finished jobs, by since when they are.
    finished: BTreeSet<(StoreTime, Key)>,
    remembered: Remembered,
    events: VecDeque<Published>,
}

/// Why lease ids are over, for as long as they are remembered. There may be a million of them, and each is looked at only when
/// its lease id is used again, so of a key and a lease id only the fingerprint is kept: 128 bits, keyed at random, and no more
/// likely to be those of another pair than a lease id is to be another one.
#[derive(Debug, Default)]
struct Remembered {
    keys: [RandomState; 2],
    reasons: HashMap<Fingerprint, LossReason, BuildHasherDefault<AsItIs>>,
    /// In the order of their ends.
    ends: VecDeque<(StoreTime, Fingerprint)>,
}

/// The hash of a key and a lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint(u64, u64);

impl Hash for Fingerprint {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// Takes a word of a [`Fingerprint`] as it is: it is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a fingerprint writes a word");
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl Remembered {
    #[inline]
    fn fingerprint(&self, key: &Key, lease_id: &LeaseId) -> Fingerprint {
        let [first, second] = self.keys.each_ref().map(|keyed| keyed.hash_one((key, lease_id)));
        Fingerprint(first, second)
    }

    #[inline]
    fn find(&self, key: &Key, lease_id: &LeaseId) -> Option<LossReason> {
        self.reasons.get(&self.fingerprint(key, lease_id)).copied()
    }

    #[inline]
    fn add(&mut self, ending: &Ending) {
        let fingerprint = self.fingerprint(&ending.key, &ending.lease_id);
        self.reasons.insert(fingerprint, ending.because);
        self.ends.push_back((ending.at, fingerprint));
    }

    /// Forgets those that have been remembered for long enough, or are too many.
    #[inline]
    fn forget_old(&mut self, now: StoreTime) {
        while let Some((at, fingerprint)) = self.ends.front() {
            if self.ends.len() <= ENDINGS_KEPT && *at + REMEMBERED > now {
                break;
            }
            self.reasons.remove(fingerprint);
            self.ends.pop_front();
        }
    }
}

/// What is kept about all slots together, so that nobody has to look for it.
#[derive(Debug, Default)]
struct Lists {
    /// The keys on which something will be due by itself, by when.
    due: BTreeSet<(StoreTime, Key)>,
    /// The free keys, by since when they are.
    vacant: BTreeSet<(StoreTime, Key)>,
    /// How many leases each owner has.
    leases: HashMap<Owner, u32>,
}

impl Lists {
    #[inline]
    fn add(&mut self, key: &Key, slot: &Slot) {
        self.due.extend(slot.due_at().map(|due_at| (due_at, key.clone())));
        match &slot.lease {
            Some(lease) => self.count(&lease.owner),
            None => drop(self.vacant.insert((slot.vacant_since, key.clone()))),
        }
    }

    #[inline]
    fn remove(&mut self, key: &Key, slot: &Slot) {
        if let Some(due_at) = slot.due_at() {
            self.due.remove(&(due_at, key.clone()));
        }
        match &slot.lease {
            Some(lease) => self.discount(&lease.owner),
            None => drop(self.vacant.remove(&(slot.vacant_since, key.clone()))),
        }
    }

    #[inline]
    fn count(&mut self, owner: &Owner) {
        match self.leases.get_mut(owner) {
            Some(count) => *count += 1,
            None => drop(self.leases.insert(owner.clone(), 1)),
        }
    }

    #[inline]
    fn discount(&mut self, owner: &Owner) {
        if let Some(count) = self.leases.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.leases.remove(owner);
            }
        }
    }
}

/// Changes that are decided but not yet durable.
#[derive(Debug)]
pub struct Staged {
    pub now: StoreTime,
    pub counters: Counters,
    /// The new slots; `None` for a key that is forgotten.
    pub slots: HashMap<Key, Option<Slot>>,
    /// The new jobs; `None` for one that is forgotten.
    pub jobs: HashMap<Key, Option<Job>>,
    pub endings: Vec<Ending>,
    pub events: Vec<Published>,
    leases: HashMap<Owner, i64>,
    ended: HashMap<(Key, LeaseId), LossReason>,
}

impl Staged {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.jobs.is_empty() && self.endings.is_empty()
    }

    /// Nothing so far, on top of what is staged.
    #[inline]
    pub fn changes(&self) -> Changes {
        Changes::new(self.now, self.counters.last_fence)
    }

    /// Stages changes of a key whose slot was `before`.
    #[inline]
    pub fn take_in(&mut self, before: &Slot, changes: Changes) {
        self.counters.last_fence = changes.last_fence;
        for event in changes.events {
            self.counters.position.0 += 1;
            self.events.push(Published { position: self.counters.position, event });
        }
        for ending in changes.endings {
            self.ended.insert((ending.key.clone(), ending.lease_id), ending.because);
            self.endings.push(ending);
        }
        for (key, slot) in changes.slots {
            count_leases(&mut self.leases, before, -1);
            count_leases(&mut self.leases, &slot, 1);
            self.slots.insert(key, Some(slot));
        }
        self.jobs.extend(changes.jobs.into_iter().map(|(key, job)| (key, Some(job))));
    }
}

impl Resident {
    /// The committed state as it was loaded: slots in any order, endings and events in the order of their making.
    pub fn load(
        counters: Counters,
        slots: impl IntoIterator<Item = (Key, Slot)>,
        jobs: impl IntoIterator<Item = (Key, Job)>,
        endings: &[Ending],
        events: Vec<Published>,
    ) -> Self {
        let mut resident = Self { counters, events: events.into(), ..Self::default() };
        for (key, slot) in slots {
            resident.put(key, slot);
        }
        for (key, job) in jobs {
            resident.put_job(key, job);
        }
        endings.iter().for_each(|ending| resident.remembered.add(ending));
        resident
    }

    /// The same state with these counters.
    pub fn with_counters(self, counters: Counters) -> Self {
        Self { counters, ..self }
    }

    #[inline]
    pub fn slot(&self, key: &Key) -> Slot {
        self.slots.get(key).cloned().unwrap_or_else(|| Slot::unknown(self.counters.seq_floor))
    }

    #[inline]
    pub fn has_leases(&self) -> bool {
        !self.lists.due.is_empty()
    }

    /// When something is due next.
    #[inline]
    pub fn next_due(&self) -> Option<StoreTime> {
        self.lists.due.first().map(|(at, _)| *at)
    }

    /// The slots of `range` that hold a lease which has not expired at `now`, and whether there may be more.
    #[inline]
    pub fn page(&self, range: &Range, now: StoreTime) -> (Vec<(Key, Slot)>, bool) {
        let limit = range.limit.clamp(1, Range::MAX_LIMIT);
        let start =
            range.after.as_ref().map_or(range.prefix.as_str(), |after| after.as_str().max(&range.prefix));
        let mut slots: Vec<(Key, Slot)> = self
            .slots
            .range::<str, _>((Bound::Included(start), Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(&range.prefix))
            .filter(|(key, slot)| Some(*key) != range.after.as_ref() && slot.live(now).is_some())
            .take(limit + 1)
            .map(|(key, slot)| (key.clone(), slot.clone()))
            .collect();
        let more = slots.len() > limit;
        slots.truncate(limit);
        (slots, more)
    }

    /// The events after `after`; `None` when there are none yet.
    #[inline]
    pub fn events_after(&self, after: Position, limit: usize) -> Option<Feed> {
        let newest = self.counters.position;
        match standing(after, self.oldest_event(), newest) {
            Standing::UpToDate => return None,
            Standing::Gap => return Some(Feed::Gap { resume_from: newest }),
            Standing::Behind => {}
        }
        let skipped = self.oldest_event().map_or(0, |oldest| after.0 + 1 - oldest.0);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let batch = self.events.iter().skip(skipped).take(limit.clamp(1, MAX_EVENTS));
        Some(Feed::Events(batch.cloned().collect()))
    }

    #[inline]
    pub fn stage(&self, now: StoreTime) -> Staged {
        Staged {
            now,
            counters: self.counters,
            slots: HashMap::new(),
            jobs: HashMap::new(),
            endings: Vec::new(),
            events: Vec::new(),
            leases: HashMap::new(),
            ended: HashMap::new(),
        }
    }

    /// Decides a command on top of what is staged, and stages the result.
    #[inline]
    pub fn decide(&self, staged: &mut Staged, key: &Key, command: &Command, limits: &Limits) -> Outcome {
        let (key, slot) = self.staged_slot(staged, key);
        let mut known = self.known(staged, key, command.lease_id(), command.bidder(), limits);
        known.asker_is_full = slot.asker().is_some_and(|asker| self.is_full(staged, asker, limits));
        let mut changes = staged.changes();
        let outcome = changes.decide(key, &slot, command, known);
        staged.take_in(&slot, changes);
        outcome
    }

    /// The same for a command about a job; answers the record as it is then, too.
    #[inline]
    pub fn decide_job(
        &self,
        staged: &mut Staged,
        key: &Key,
        command: &JobCommand,
        limits: &Limits,
    ) -> (JobOutcome, Record) {
        let (key, slot) = self.staged_slot(staged, key);
        let before = Record { slot, job: self.staged_job(staged, key).cloned() };
        let known = self.known(staged, key, command.lease_id(), command.bidder(), limits);
        let mut changes = staged.changes();
        let answer = changes.decide_job(key, &before, command, known);
        staged.take_in(&before.slot, changes);
        answer
    }

    /// Settles what is due at the staged time, on at most `limit` keys; answers on how many.
    #[inline]
    pub fn settle_due(&self, staged: &mut Staged, limit: usize, limits: &Limits) -> usize {
        let now = staged.now;
        let due = self.lists.due.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| key);
        let due: Vec<Key> = due.filter(|key| !staged.slots.contains_key(*key)).take(limit).cloned().collect();
        for key in &due {
            self.decide(staged, key, &Command::Settle, limits);
        }
        due.len()
    }

    /// Stages the forgetting of keys that have been free for long, at most `limit`.
    #[inline]
    pub fn forget(&self, staged: &mut Staged, limit: usize) {
        let too_many = self.lists.vacant.len().saturating_sub(ENDINGS_KEPT);
        for (index, (_, key)) in self.lists.vacant.iter().take(limit).enumerate() {
            let Some(slot) = self.slots.get(key).filter(|_| !staged.slots.contains_key(key)) else {
                continue;
            };
            if index >= too_many && !slot.is_forgettable(staged.now) {
                break;
            }
            staged.counters.seq_floor = staged.counters.seq_floor.max(slot.seq);
            staged.slots.insert(key.clone(), None);
        }
        let forgettable = |key: &&Key| self.jobs.get(*key).is_some_and(|job| job.is_forgettable(staged.now));
        let finished = self.finished.iter().map(|(_, key)| key).take(limit).take_while(forgettable);
        let finished: Vec<Key> = finished.filter(|key| !staged.jobs.contains_key(*key)).cloned().collect();
        staged.jobs.extend(finished.into_iter().map(|key| (key, None)));
    }

    /// Makes what was staged, and is durable by now, visible.
    #[inline]
    pub fn commit(&mut self, staged: Staged) {
        let now = staged.now;
        self.counters = staged.counters;
        for (key, slot) in staged.slots {
            match slot {
                Some(slot) => self.put(key, slot),
                None => self.take_out(&key),
            }
        }
        for (key, job) in staged.jobs {
            self.take_out_job(&key);
            if let Some(job) = job {
                self.put_job(key, job);
            }
        }
        self.events.extend(staged.events);
        let excess = self.events.len().saturating_sub(EVENTS_KEPT);
        self.events.drain(..excess);
        staged.endings.iter().for_each(|ending| self.remembered.add(ending));
        self.remembered.forget_old(now);
    }

    /// The oldest event that is kept.
    #[inline]
    pub fn oldest_event(&self) -> Option<Position> {
        self.events.front().map(|published| published.position)
    }

    /// How many endings are remembered.
    #[inline]
    pub fn endings(&self) -> usize {
        self.remembered.ends.len()
    }

    /// The slot of a key, and the key as it is kept with it. What is made of a decision shares that one: a hundred thousand
    /// events that each kept the key of its own request would be scattered over all of memory after a while.
    #[inline]
    fn staged_slot<'a>(&'a self, staged: &Staged, key: &'a Key) -> (&'a Key, Slot) {
        let (key, committed) =
            self.slots.get_key_value(key).map_or((key, None), |(key, slot)| (key, Some(slot)));
        let slot = staged.slots.get(key).map_or(committed, Option::as_ref).cloned();
        (key, slot.unwrap_or_else(|| Slot::unknown(staged.counters.seq_floor)))
    }

    #[inline]
    fn staged_job<'a>(&'a self, staged: &'a Staged, key: &Key) -> Option<&'a Job> {
        staged.jobs.get(key).map_or_else(|| self.jobs.get(key), Option::as_ref)
    }

    #[inline]
    fn known(
        &self,
        staged: &Staged,
        key: &Key,
        lease_id: Option<&LeaseId>,
        bidder: Option<&Owner>,
        limits: &Limits,
    ) -> Known {
        let remembered = lease_id.and_then(|lease_id| {
            let staged = staged.ended.get(&(key.clone(), *lease_id)).copied();
            staged.or_else(|| self.remembered.find(key, lease_id))
        });
        let owner_is_full = bidder.is_some_and(|owner| self.is_full(staged, owner, limits));
        Known { remembered, owner_is_full, ..Known::default() }
    }

    #[inline]
    fn is_full(&self, staged: &Staged, owner: &Owner, limits: &Limits) -> bool {
        let committed = self.lists.leases.get(owner).copied().map_or(0, i64::from);
        let change = staged.leases.get(owner).copied().unwrap_or(0);
        committed + change >= i64::from(limits.leases_per_owner)
    }

    #[inline]
    fn put_job(&mut self, key: Key, job: Job) {
        if job.is_finished() {
            self.finished.insert((job.changed_at, key.clone()));
        }
        self.jobs.insert(key, job);
    }

    #[inline]
    fn take_out_job(&mut self, key: &Key) {
        if let Some(job) = self.jobs.remove(key) {
            self.finished.remove(&(job.changed_at, key.clone()));
        }
    }

    /// Puts a slot in the place of the key's last one.
    #[inline]
    fn put(&mut self, key: Key, slot: Slot) {
        match self.slots.get_mut(&key) {
            Some(place) => {
                self.lists.remove(&key, place);
                self.lists.add(&key, &slot);
                *place = slot;
            }
            None => {
                self.lists.add(&key, &slot);
                self.slots.insert(key, slot);
            }
        }
    }

    #[inline]
    fn take_out(&mut self, key: &Key) {
        if let Some(slot) = self.slots.remove(key) {
            self.lists.remove(key, &slot);
        }
    }
}

#[inline]
fn count_leases(leases: &mut HashMap<Owner, i64>, slot: &Slot, change: i64) {
    if let Some(lease) = &slot.lease {
        *leases.entry(lease.owner.clone()).or_default() += change;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails by panicking
mod tests {
    use leasehold_core::lease::Bid;
    use leasehold_core::{Meta, Ttl};

    use super::*;

    /// A document that is locked in the very turn in which it would be forgotten keeps its lease.
    #[test]
    fn keys_that_have_long_been_free_are_forgotten_but_not_what_this_turn_changes() {
        let key = |name: &str| Key::parse(name).unwrap();
        let (now, young) = (StoreTime::ZERO + REMEMBERED, StoreTime::from_millis(1));
        let free = |since| Slot { vacant_since: since, ..Slot::unknown(5) };
        let slots = [("doc/a", StoreTime::ZERO), ("doc/b", StoreTime::ZERO), ("doc/c", young)]
            .map(|(name, since)| (key(name), free(since)));
        let resident = Resident::load(Counters::default(), slots, [], &[], Vec::new());
        let mut staged = resident.stage(now);
        staged.slots.insert(key("doc/b"), Some(free(now)));
        resident.forget(&mut staged, 10);
        assert_eq!(staged.slots.get(&key("doc/a")), Some(&None));
        assert_eq!(staged.slots.get(&key("doc/b")), Some(&Some(free(now))));
        assert_eq!(staged.slots.get(&key("doc/c")), None);
        assert_eq!(staged.counters.seq_floor, 5);
    }

    /// A server had lost a tenth of its speed after some minutes of work: each of its 100,000 events kept the key of the request
    /// that had led to it, wherever there had been room for it.
    #[test]
    fn what_is_made_of_a_decision_shares_the_key_that_is_kept() {
        let parse = || Key::parse("doc/minutes").unwrap();
        let mut resident = Resident::default();
        let acquire = |resident: &mut Resident, millis| {
            let mut staged = resident.stage(StoreTime::from_millis(millis));
            let (owner, ttl) = (Owner::parse("anna").unwrap(), Ttl::from_secs(1).unwrap());
            let lease_id = LeaseId::from_random([u8::try_from(millis / 1_000).unwrap(); 16]);
            let bid = Bid { lease_id, owner, tab: None, ttl, meta: Meta::default() };
            resident.decide(&mut staged, &parse(), &Command::Acquire(bid), &Limits::default());
            resident.commit(staged);
        };
        (1..=3).for_each(|turn| acquire(&mut resident, turn * 2_000));
        let Some(Feed::Events(events)) = resident.events_after(Position(0), 10) else { unreachable!() };
        assert_eq!(events.len(), 5, "three grants, and two expiries before them");
        let (kept, _) = resident.slots.first_key_value().unwrap();
        assert!(events.iter().all(|event| std::ptr::eq(event.event.key.as_str(), kept.as_str())));
    }

    #[test]
    fn law_02_a_copy_goes_on_far_ahead_and_every_file_after_the_wall_clock_up_to_the_last_fence() {
        let last = Fence::MAX.get();
        let cases = [
            ((500, false, 1_000), 1_000),
            ((2_000, false, 1_000), 2_000),
            ((500, true, 1_000), 1_000 + JUMP),
            ((2_000, true, 1_000), 2_000 + JUMP),
            ((last - 1, true, 1_000), last),
            ((500, false, u64::MAX), last),
        ];
        for ((last_fence, is_copy, wall_clock), expected) in cases {
            let counters = Counters { last_fence, position: Position(7), seq_floor: 3 };
            let after = counters.reopened(is_copy, wall_clock);
            let jump = if is_copy { JUMP } else { 0 };
            assert_eq!((after.last_fence, after.position.0, after.seq_floor), (expected, 7 + jump, 3 + jump));
        }
    }
}
