//! What kind of world a seed makes: how many are in it, how quick they are, and what goes wrong. Every world leaves
//! some kinds of fault out, because faults hide each other.

use leasehold_core::Ttl;

use crate::client::{ClaimBy, Habits, OwnClock};
use leasehold_store::random::Random;

/// How much too fast or too slow a clock runs at most, in millionths. The holder's margin of a tenth must cover twice
/// this: its own clock and the store's may err in opposite directions.
const DRIFT: u64 = 40_000;

/// A kind of world.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How the store is run.
    pub topology: Topology,
    /// How many keys there are.
    pub keys: usize,
    /// The clients.
    pub clients: Vec<(OwnClock, Habits)>,
    /// Whether two clients at a time are one owner in two tabs. Otherwise each has an owner of its own, and they have the
    /// same tab.
    pub paired: bool,
    /// The clock of the store.
    pub store_clock: OwnClock,
    /// How long the world lasts, in milliseconds; the last part of it is calm.
    pub lasts: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether the store starts with a small fence or a large one.
    pub first_fence: u64,
}

/// How the store is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server has the file to itself, and all leases in memory.
    Exclusive,
    /// Several servers share one database; every command is a transaction.
    Shared(usize),
}

/// What goes wrong, and how often: of a thousand messages or writes, or at such intervals.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Messages that get lost.
    pub lost: u64,
    /// Messages that arrive a second time, much later perhaps.
    pub repeated: u64,
    /// Messages that take seconds.
    pub slow: u64,
    /// Writes that fail.
    pub failed_writes: u64,
    /// Writes of which nobody knows whether they failed.
    pub unknown_writes: u64,
    /// Attempts to read the disk anew that fail.
    pub unreadable: u64,
    /// Writes that take long.
    pub slow_writes: u64,
    /// The average time between two of the following, in milliseconds.
    pub every: u64,
    /// What happens then.
    pub kinds: Vec<Fault>,
}

/// A fault of one server or one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server is gone, once in a while in an orderly way, and comes back.
    ServerCrash,
    /// A server does nothing for a while.
    ServerPause,
    /// A second server is started on the file of the first, which goes on running.
    SecondServer,
    /// A copy is made of the file; the next time, it is put in the file's place, with the server down for as long as the
    /// longest TTL.
    CopyPutBack,
    /// A client is gone, and comes back.
    ClientCrash,
    /// A client does nothing for a while, longer than its TTL perhaps.
    ClientPause,
    /// A client hears nothing and is not heard.
    Cut,
}

impl Setting {
    /// The kind of world that a seed makes.
    pub fn draw(random: &mut Random) -> Self {
        let servers = random.pick(&[0, 0, 0, 2, 3], 0);
        let topology = if servers == 0 { Topology::Exclusive } else { Topology::Shared(servers) };
        let pace = random.pick(&[1, 3, 10], 1);
        let clients = random.between(2, 5);
        Self {
            topology,
            keys: random.pick(&[1, 1, 2, 3], 1),
            clients: (0..clients).map(|_| (own_clock(random), habits(random, pace))).collect(),
            paired: random.chance(300),
            store_clock: own_clock(random),
            lasts: random.between(20, 60) * 60_000,
            faults: Faults::draw(random, pace),
            first_fence: random.pick(&[0, 0, 1_700_000_000_000], 0),
        }
    }

    /// The longest TTL of a client, in milliseconds.
    pub fn longest_ttl(&self) -> u64 {
        self.clients.iter().map(|(_, habits)| habits.ttl.as_millis()).max().unwrap_or(0)
    }
}

impl Faults {
    fn draw(random: &mut Random, pace: u64) -> Self {
        let all = [
            Fault::ServerCrash,
            Fault::ServerPause,
            Fault::SecondServer,
            Fault::CopyPutBack,
            Fault::ClientCrash,
            Fault::ClientPause,
            Fault::Cut,
        ];
        let kinds: Vec<Fault> = all.into_iter().filter(|_| random.chance(600)).collect();
        Self {
            lost: random.pick(&[0, 5, 20, 100, 300], 0),
            repeated: random.pick(&[0, 10, 100, 300], 0),
            slow: random.pick(&[0, 5, 50, 200], 0),
            failed_writes: random.pick(&[0, 0, 10, 100], 0),
            unknown_writes: random.pick(&[0, 0, 10, 50], 0),
            unreadable: random.pick(&[0, 200, 700], 0),
            slow_writes: random.pick(&[0, 10, 100], 0),
            every: random.between(1_000, 20_000) * pace,
            kinds,
        }
    }
}

fn own_clock(random: &mut Random) -> OwnClock {
    let drift = random.pick(&[0, DRIFT / 10, DRIFT], 0);
    OwnClock {
        offset: random.between(0, 1_000_000_000),
        rate: 1_000_000 - drift + random.between(0, 2 * drift),
    }
}

/// Slow worlds have long TTLs, so that an hour in them is quickly told.
fn habits(random: &mut Random, pace: u64) -> Habits {
    let ttl = random.pick(&[1, 2, 3, 6], 3) * pace;
    Habits {
        claims: random.pick(&[ClaimBy::Proof, ClaimBy::Holder, ClaimBy::Tab], ClaimBy::Proof),
        ttl: Ttl::from_secs(ttl).unwrap_or(Ttl::MIN),
        think: random.pick(&[200, 2_000, 10_000], 2_000) * pace,
        hold: random.pick(&[300, 3_000, 20_000], 3_000) * pace,
        wait: random.pick(&[2_000, 20_000, 120_000], 20_000) * pace,
        hears: random.chance(700),
        takes_over: random.pick(&[0, 0, 10, 100], 0),
        asks: random.pick(&[0, 0, 100, 500], 0),
        leaves_softly: random.pick(&[0, 0, 300], 0),
    }
}
