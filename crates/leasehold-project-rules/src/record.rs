//! `project/.lock` and `project/.lock.guard`: what they contain, and what it means. The record becomes a [`Slot`] and
//! goes through [`leasehold_core::lease::decide`] like every other; nothing here decides who holds the project.
//!
//! The text of `.lock` is parsed and printed by the platform: `JSON.parse` in a browser, serde_json on disk. What comes here
//! is its [`Members`]. They must never cause an error, whatever a file contains: what is no record is [`Content::Damaged`].

use std::time::Duration;

use leasehold_core::lease::{Lease, Slot};
use leasehold_core::name::{Fence, LeaseId, Meta, Owner};
use leasehold_core::time::{StoreTime, Ttl};

/// The version of `.lock` that is written here, and the newest that is understood.
pub const VERSION: u32 = 1;

/// How much clocks may differ: a record counts as over this much before its end.
pub const SKEW: Duration = Duration::from_secs(2);

/// How much before the end in `.lock` its holder stops: twice [`SKEW`], so that it has stopped when others may come.
pub const HOLDER_MARGIN: Duration = Duration::from_secs(4);

/// How long a record without a `ttlSeconds`, or without any sense, lasts.
pub const UNTOLD_TTL: Duration = Duration::from_secs(30);

/// The longest `.lock` that is looked at, in bytes.
pub const LONGEST: usize = 16 * 1024;

/// Who a record belongs to that does not say so.
const UNKNOWN: &str = "unknown";

/// What `.lock` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub lease_id: LeaseId,
    /// The same for people: a hash of origin and tab.
    pub owner: Owner,
    /// What the holder calls itself, if it does: [`Meta::label`] of a text.
    pub label: Meta,
    /// When it was granted. Other writers of `.lock` do not say so: then it is when it was written.
    pub acquired_at: StoreTime,
    /// When it was written.
    pub updated_at: StoreTime,
    /// How long it lasts from then on.
    pub ttl: Ttl,
    /// The fence of the grant; absent in the shapes of *Project lock service* 7 and *AutoSave* 3.3.
    pub fence: Option<Fence>,
    /// Grows with every writing of the file.
    pub seq: u64,
    /// Whether the holder keeps its held file open.
    pub held: bool,
}

/// What `.lock` turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A record, in one of the three shapes of the sources or in ours, which is all of them.
    Record(Record),
    /// Nothing that makes sense.
    Damaged,
    /// A record that only a newer version understands.
    Newer {
        /// Its version.
        version: u64,
    },
}

/// The members of `.lock`, as the platform's parser found them; all others are passed over. Of a name that is there twice, the
/// last counts.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // the same as in `Record`
pub struct Members {
    pub version: Member,
    pub lease_id: Member,
    pub owner: Member,
    pub label: Member,
    pub acquired_at: Member,
    /// In milliseconds since 1970: the platform reads times, too. A text that is no time is [`Member::Other`].
    pub updated_at: Member,
    pub ttl_seconds: Member,
    pub expires_at: Member,
    pub fence: Member,
    pub seq: Member,
    pub held: Member,
}

/// A value of JSON.
#[derive(Clone, Default, PartialEq)]
pub enum Member {
    /// There is none, or it is null.
    #[default]
    Absent,
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// An array or an object.
    Other,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The text may be a lease id.
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Text(_) => "Text",
            Self::Number(_) => "Number",
            Self::Flag(_) => "Flag",
            Self::Other => "Other",
        })
    }
}

impl Content {
    /// What the members mean.
    pub fn of(members: &Members) -> Self {
        // The version first: whatever else a newer one changed, this much it kept.
        match members.version.number() {
            Some(Some(version)) if version > f64::from(VERSION) => {
                Self::Newer { version: version.ceil() as u64 }
            }
            Some(_) => members.record().map_or(Self::Damaged, Self::Record),
            None => Self::Damaged,
        }
    }
}

impl Members {
    fn record(&self) -> Option<Record> {
        let ttl = match self.ttl_seconds.number()? {
            None => UNTOLD_TTL,
            // To the nearest millisecond: no float is exactly 6.025.
            Some(seconds) => Duration::from_millis((seconds * 1_000.0 + 0.5) as u64),
        };
        let ttl = Ttl::new(ttl).ok()?;
        let told = self.updated_at.whole()?.map(StoreTime::from_millis);
        let ends = self.expires_at.whole()?.map(StoreTime::from_millis);
        let from_end = ends.map(|ends| ends.minus(ttl.as_duration()));
        let fence = self.fence.whole()?.map(Fence::new).transpose().ok()?;
        let owner = self.owner.text()?.and_then(|name| Owner::parse(name).ok());
        // Whichever is later: a record that contradicts itself lasts longer, not shorter.
        let updated_at = told.max(from_end)?;
        // These two are only shown: whatever is wrong with them, the record stays one.
        let acquired_at = self.acquired_at.whole().flatten().map(StoreTime::from_millis);
        let named = self.label.text().flatten().and_then(|text| Meta::label(text).ok());
        Some(Record {
            lease_id: LeaseId::parse(self.lease_id.text()??).ok()?,
            owner: owner.unwrap_or_else(unknown_owner),
            label: named.unwrap_or_default(),
            acquired_at: acquired_at.unwrap_or(updated_at),
            updated_at,
            ttl,
            fence,
            seq: self.seq.whole()?.unwrap_or(0),
            held: self.held.flag()?,
        })
    }
}

/// Each answers `None` when there is a value of another kind.
impl Member {
    fn text(&self) -> Option<Option<&str>> {
        match self {
            Self::Absent => Some(None),
            Self::Text(text) => Some(Some(text)),
            _ => None,
        }
    }

    /// A number that is not negative.
    fn number(&self) -> Option<Option<f64>> {
        match self {
            Self::Absent => Some(None),
            Self::Number(number) if *number >= 0.0 => Some(Some(*number)),
            _ => None,
        }
    }

    /// A whole number that JavaScript can count to.
    fn whole(&self) -> Option<Option<u64>> {
        let Some(number) = self.number()? else { return Some(None) };
        let whole = number as u64;
        (whole as f64 == number && whole <= Fence::MAX.get()).then_some(Some(whole))
    }

    fn flag(&self) -> Option<bool> {
        match self {
            Self::Absent => Some(false),
            Self::Flag(flag) => Some(*flag),
            _ => None,
        }
    }
}

pub(super) fn unknown_owner() -> Owner {
    Owner::parse(UNKNOWN).unwrap_or_else(|_| unreachable!("a constant that parses"))
}

/// The text of a label.
pub fn label_text(label: &Meta) -> Option<&str> {
    label.get(Meta::NAME)
}

impl Record {
    /// The end that it names. It counts as over [`SKEW`] before.
    pub fn expires_at(&self) -> StoreTime {
        self.updated_at + self.ttl.as_duration()
    }

    /// The record of `lease`, written after this one if there was one.
    pub fn of(lease: &Lease, seq: u64, held: bool) -> Self {
        Self {
            lease_id: lease.lease_id,
            owner: lease.owner.clone(),
            label: lease.meta.clone(),
            acquired_at: lease.acquired_at,
            updated_at: lease.renewed_at,
            // A lease is never shortened: it lasts as long as it was promised.
            ttl: Ttl::new(lease.expires_at.since(lease.renewed_at)).unwrap_or(lease.ttl),
            fence: Some(lease.fence),
            seq,
            held,
        }
    }
}

/// When a record counts as over, if its holder is not known to be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// From then on it is over, by content and by modification time.
    pub at: StoreTime,
    /// Whether the two disagree by more than [`SKEW`], or lie that far in the future: some clock is wrong.
    pub skewed: bool,
}

impl End {
    /// The end of a record that was last modified then.
    pub fn of(record: &Record, modified: StoreTime, now: StoreTime) -> Self {
        let lasts = record.ttl.as_duration().saturating_sub(SKEW);
        let (content, file) = (record.updated_at + lasts, modified + lasts);
        let (early, late) = (content.min(file), content.max(file));
        let from_the_future = now + lasts + SKEW < late;
        Self { at: late, skewed: early + SKEW < late || from_the_future }
    }

    /// The end of something that is no record.
    pub fn untold(modified: StoreTime) -> Self {
        Self { at: modified + UNTOLD_TTL.saturating_sub(SKEW), skewed: false }
    }
}

/// The slot of a record that ends then. A record without a fence is given the last one.
pub fn slot(record: &Record, ends: StoreTime, last_fence: u64) -> Slot {
    let lease = Lease {
        owner: record.owner.clone(),
        tab: None,
        lease_id: record.lease_id,
        fence: record.fence.unwrap_or_else(|| fence_or_first(last_fence)),
        acquired_at: record.acquired_at,
        renewed_at: record.updated_at,
        expires_at: ends,
        ttl: record.ttl,
        leaving: false,
        meta: record.label.clone(),
        request: None,
    };
    Slot { seq: record.seq, lease: Some(lease), vacant_since: StoreTime::ZERO }
}

/// A record in place of something that is none: that of an unknown holder.
pub fn unknown(modified: StoreTime) -> Record {
    Record {
        lease_id: LeaseId::from_random([0; 16]),
        owner: unknown_owner(),
        label: Meta::default(),
        acquired_at: modified,
        updated_at: modified,
        ttl: Ttl::new(UNTOLD_TTL).unwrap_or(Ttl::MAX),
        fence: None,
        seq: 0,
        held: false,
    }
}

fn fence_or_first(number: u64) -> Fence {
    Fence::new(number.max(1)).unwrap_or(Fence::MAX)
}

/// The text of the guard: the last fence, twice and of a fixed width, because it is written in place and a crash may
/// leave half of it.
pub fn guard_text(last_fence: u64) -> String {
    format!("{last_fence:016} {last_fence:016}\n")
}

/// The last fence in the guard, if it is whole.
pub fn read_guard(text: &str) -> Option<u64> {
    let (one, other) = text.strip_suffix('\n')?.split_once(' ')?;
    let whole = one == other && one.len() == 16 && one.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| one.parse().ok()).flatten().filter(|number| *number <= Fence::MAX.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_shows_its_kind_and_not_its_text() {
        let members = [
            (Member::Absent, "Absent"),
            (Member::Text("a lease id".to_owned()), "Text"),
            (Member::Number(1.0), "Number"),
            (Member::Flag(true), "Flag"),
            (Member::Other, "Other"),
        ];
        for (member, shown) in members {
            assert_eq!(format!("{member:?}"), shown);
        }
    }
}
