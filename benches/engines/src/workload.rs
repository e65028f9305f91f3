//! What the embedded store writes, without the store: callers that acquire, renew and release, and what one turn of
//! them comes to. No two values are the same, because SQLite skips an update that changes nothing.

use anyhow::{Context, Result, ensure};

/// How many events are kept; older ones are deleted along the way.
const EVENTS_KEPT: u64 = 10_000;

/// How many events are written between two deletions.
const TRIM: u64 = 1_000;

pub type Key = [u8; 32];
pub type Text = [u8; 20];

/// What stands in a slot, as long as a lease with a little meta.
pub struct Slot {
    pub numbers: [u64; 8],
    pub lease_id: [u8; 16],
    pub owner: Text,
    pub meta: Text,
}

impl Slot {
    fn random(rng: &mut fastrand::Rng) -> Self {
        let mut numbers = [0; 8];
        numbers.fill_with(|| rng.u64(..1 << 53));
        let mut lease_id = [0; 16];
        rng.fill(&mut lease_id);
        let (mut owner, mut meta) = (Text::default(), Text::default());
        owner.fill_with(|| rng.alphanumeric() as u8);
        meta.fill_with(|| rng.alphanumeric() as u8);
        Self { numbers, lease_id, owner, meta }
    }

    pub fn sum(&self) -> u32 {
        crc32fast::hash(&self.body())
    }

    fn body(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        self.numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&self.lease_id);
        bytes.extend_from_slice(&self.owner);
        bytes.extend_from_slice(&self.meta);
        bytes
    }

    /// The slot as one value of 124 bytes, its checksum included.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.body();
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>().context("a value is too short")?;
        ensure!(crc32fast::hash(body) == u32::from_le_bytes(*sum), "a value does not match its checksum");
        let (numbers, rest) = body.split_at_checked(64).context("a value is too short")?;
        let (lease_id, rest) = rest.split_first_chunk().context("a value is too short")?;
        let (owner, meta) = rest.split_first_chunk().context("a value is too short")?;
        let meta = meta.try_into().context("a value is too long")?;
        let mut slot = Self { numbers: [0; 8], lease_id: *lease_id, owner: *owner, meta };
        for (number, bytes) in slot.numbers.iter_mut().zip(numbers.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*bytes);
        }
        Ok(slot)
    }
}

/// What is told of an acquire or a release.
pub struct Event {
    pub position: u64,
    pub numbers: [u64; 4],
    pub owner: Text,
}

impl Event {
    pub fn encode(&self) -> Vec<u8> {
        let numbers = self.numbers.iter().flat_map(|number| number.to_le_bytes());
        numbers.chain(self.owner).collect()
    }

    pub fn sum(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }
}

/// One operation of one caller.
pub struct Op {
    pub key: Key,
    pub slot: Slot,
    pub event: Option<Event>,
}

/// What becomes durable together.
pub struct Batch {
    pub ops: Vec<Op>,
    /// The store's own row: counters, clock, sums.
    pub header: [u64; 7],
    /// The events up to this position are deleted.
    pub forget: Option<u64>,
}

impl Batch {
    pub fn header_bytes(&self) -> Vec<u8> {
        self.header.iter().flat_map(|number| number.to_le_bytes()).collect()
    }
}

/// The name of the slot with this number.
fn key(number: u64) -> Key {
    let mut key = *b"doc/0000000000000000000000000000";
    let digits = number.to_string();
    if let Some(end) = key.last_chunk_mut::<28>().and_then(|tail| tail.get_mut(28 - digits.len()..)) {
        end.copy_from_slice(digits.as_bytes());
    }
    key
}

/// The text in a key, an owner or a meta.
pub fn text(bytes: &[u8]) -> Result<&str> {
    Ok(str::from_utf8(bytes)?)
}

/// Where a caller is in its cycle: 0 acquires, 1 renews, 2 releases.
struct Caller {
    key: Key,
    step: u8,
}

/// Callers that go on for ever, each with a key of its own choice for each cycle.
pub struct Workload {
    rng: fastrand::Rng,
    slots: u64,
    position: u64,
    trimmed: u64,
    callers: Vec<Caller>,
}

impl Workload {
    /// The same seed gives every candidate the same work.
    pub fn new(slots: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(7), slots, position: 0, trimmed: 0, callers: Vec::new() }
    }

    /// What `callers` callers ask for at the same time, one operation each.
    pub fn turn(&mut self, callers: usize) -> Batch {
        while self.callers.len() < callers {
            let step = (self.callers.len() % 3) as u8;
            let key = key(self.rng.u64(..self.slots));
            self.callers.push(Caller { key, step });
        }
        self.callers.truncate(callers);
        let mut batch = Batch { ops: Vec::with_capacity(callers), header: [0; 7], forget: self.forget() };
        for caller in &mut self.callers {
            if caller.step == 0 {
                caller.key = key(self.rng.u64(..self.slots));
            }
            let slot = Slot::random(&mut self.rng);
            let event = (caller.step != 1).then(|| {
                self.position += 1;
                let [a, b, c, d, ..] = slot.numbers;
                Event { position: self.position, numbers: [a, b, c, d], owner: slot.owner }
            });
            batch.ops.push(Op { key: caller.key, slot, event });
            caller.step = (caller.step + 1) % 3;
        }
        batch.header.fill_with(|| self.rng.u64(..1 << 53));
        batch
    }

    fn forget(&mut self) -> Option<u64> {
        let oldest = self.position.saturating_sub(EVENTS_KEPT);
        let due = oldest >= self.trimmed + TRIM;
        due.then(|| self.trimmed = oldest).map(|()| oldest)
    }

    /// All slots once, in the order of their keys, in large batches.
    pub fn fill(&mut self) -> impl Iterator<Item = Batch> {
        const AT_ONCE: u64 = 10_000;
        let slots = self.slots;
        (0..slots).step_by(AT_ONCE as usize).map(move |first| {
            let numbers = first..slots.min(first + AT_ONCE);
            let op = |number| Op { key: key(number), slot: Slot::random(&mut self.rng), event: None };
            Batch { ops: numbers.map(op).collect(), header: [first; 7], forget: None }
        })
    }
}
