//! `project/.lock` and `project/.lock.guard`: what stands in them, and what it means. The record becomes a [`Slot`] and
//! goes through [`leasehold_core::lease::decide`] like every other; nothing here decides who holds the project.
//!
//! Reading must never fail on anything that a file can contain: what is no record is [`Content::Damaged`].

use std::time::Duration;

use leasehold_core::lease::{Lease, Slot};
use leasehold_core::name::{Fence, LeaseId, Meta, Owner};
use leasehold_core::time::{StoreTime, Ttl};

use super::iso;
use super::json::{self, Value};

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
    /// When it was written.
    pub updated_at: StoreTime,
    /// How long it lasts from then on.
    pub ttl: Ttl,
    /// The fence of the grant; absent in the shapes of 000 and 002.
    pub fence: Option<Fence>,
    /// Grows with every writing of the file.
    pub seq: u64,
    /// Whether the holder keeps its held file open.
    pub held: bool,
}

/// What was made of the text of `.lock`.
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

/// Reads the text of `.lock`.
pub fn read(text: &str) -> Content {
    if text.len() > LONGEST {
        return Content::Damaged;
    }
    let Some(members) = json::members(text) else { return Content::Damaged };
    let fields = Fields(&members);
    // The version first: whatever else a newer one changed, this much it kept.
    match fields.version() {
        Some(version) if version > u64::from(VERSION) => Content::Newer { version },
        Some(_) => fields.record().map_or(Content::Damaged, Content::Record),
        None => Content::Damaged,
    }
}

/// The members of `.lock`, by name.
struct Fields<'a>(&'a [(String, Value)]);

impl Fields<'_> {
    /// What is there under this name; null is as good as nothing.
    fn get(&self, name: &str) -> Option<&Value> {
        let member = self.0.iter().rev().find(|(known, _)| known == name);
        member.map(|(_, value)| value).filter(|value| **value != Value::Null)
    }

    /// A text, if there is anything: `None` when it is something else.
    fn text(&self, name: &str) -> Option<Option<&str>> {
        match self.get(name) {
            None => Some(None),
            Some(Value::Text(text)) => Some(Some(text)),
            Some(_) => None,
        }
    }

    fn thousandths(&self, name: &str) -> Option<Option<u64>> {
        match self.get(name) {
            None => Some(None),
            Some(Value::Thousandths(number)) => Some(Some(*number)),
            Some(_) => None,
        }
    }

    /// A whole number that JavaScript can count to.
    fn whole(&self, name: &str) -> Option<Option<u64>> {
        let Some(thousandths) = self.thousandths(name)? else { return Some(None) };
        let whole = thousandths.is_multiple_of(1_000) && thousandths / 1_000 <= Fence::MAX.get();
        whole.then_some(Some(thousandths / 1_000))
    }

    fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name) {
            None => Some(false),
            Some(Value::Flag(flag)) => Some(*flag),
            Some(_) => None,
        }
    }

    fn version(&self) -> Option<u64> {
        Some(self.thousandths("version")?.map_or(0, |version| version.div_ceil(1_000)))
    }

    fn record(&self) -> Option<Record> {
        let ttl = self.thousandths("ttlSeconds")?.map_or(UNTOLD_TTL, Duration::from_millis);
        let ttl = Ttl::new(ttl).ok()?;
        let told = match self.text("updatedAt")? {
            None => None,
            Some(text) => Some(StoreTime::from_millis(iso::read(text)?)),
        };
        let ends = self.whole("expiresAt")?.map(StoreTime::from_millis);
        let from_end = ends.map(|ends| ends.minus(ttl.as_duration()));
        let fence = match self.whole("fence")? {
            None => None,
            Some(number) => Some(Fence::new(number).ok()?),
        };
        let owner = self.text("owner")?.and_then(|name| Owner::parse(name).ok());
        Some(Record {
            lease_id: LeaseId::parse(self.text("leaseId")??).ok()?,
            owner: owner.unwrap_or_else(unknown_owner),
            // Whichever is later: a record that contradicts itself lasts longer, not shorter.
            updated_at: told.max(from_end)?,
            ttl,
            fence,
            seq: self.whole("seq")?.unwrap_or(0),
            held: self.flag("held")?,
        })
    }
}

pub(super) fn unknown_owner() -> Owner {
    Owner::parse(UNKNOWN).unwrap_or_else(|_| unreachable!("a constant that parses"))
}

impl Record {
    /// The text of `.lock`.
    pub fn text(&self) -> String {
        let millis = self.ttl.as_millis();
        let ttl = match millis % 1_000 {
            0 => (millis / 1_000).to_string(),
            rest => format!("{}.{rest:03}", millis / 1_000).trim_end_matches('0').to_owned(),
        };
        let fence = self.fence.map_or_else(String::new, |fence| format!(r#""fence":{fence},"#));
        format!(
            r#"{{"version":{VERSION},"leaseId":"{}","owner":{},"updatedAt":"{}","ttlSeconds":{ttl},"expiresAt":{},{fence}"seq":{},"held":{}}}"#,
            self.lease_id.reveal(),
            json::quoted(self.owner.as_str()),
            iso::write(self.updated_at.as_millis()),
            self.expires_at().as_millis(),
            self.seq,
            self.held
        )
    }

    /// The end that it names. It counts as over [`SKEW`] before.
    pub fn expires_at(&self) -> StoreTime {
        self.updated_at + self.ttl.as_duration()
    }

    /// The record of `lease`, written after this one if there was one.
    pub fn of(lease: &Lease, seq: u64, held: bool) -> Self {
        Self {
            lease_id: lease.lease_id,
            owner: lease.owner.clone(),
            updated_at: lease.renewed_at,
            // A lease is never shortened: it lasts as long as it was promised.
            ttl: Ttl::new(lease.expires_at.since(lease.renewed_at)).unwrap_or(lease.ttl),
            fence: Some(lease.fence),
            seq,
            held,
        }
    }
}

/// When what was found counts as over, if nobody is known to be dead.
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
        lease_id: record.lease_id,
        fence: record.fence.unwrap_or_else(|| fence_or_first(last_fence)),
        acquired_at: record.updated_at,
        renewed_at: record.updated_at,
        expires_at: ends,
        ttl: record.ttl,
        leaving: false,
        meta: Meta::default(),
        request: None,
    };
    Slot { seq: record.seq, lease: Some(lease), vacant_since: StoreTime::ZERO }
}

/// The record of something that is none: somebody's, who is not known.
pub fn unknown(modified: StoreTime) -> Record {
    Record {
        lease_id: LeaseId::from_random([0; 16]),
        owner: unknown_owner(),
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
