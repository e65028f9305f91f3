//! The API: in this file on a store and virtual time, where nothing waits for a real clock; beside it against a server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod calls;
mod events;
mod fence;
mod files;
mod handover;
mod jobs;
mod jobs_over_http;
mod leases_over_http;
mod over_http;
mod proxy;
mod readme;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold_client::{AcquireOptions, Attempt, CancellationToken, Error, Guard, Leasehold, Lost};
use leasehold_core::lease::{Bid, LossReason};
use leasehold_core::{Command, LeaseId, Meta, Outcome, Owner, Reason, Ttl};
use leasehold_store::clock::Clock;
use leasehold_store::faulty::{Fault, Faulty};
use leasehold_store::{Limits, Memory, Range, Store};
use tokio::time::{Instant, advance, timeout};

/// The runtime's paused clock, for the store and for the holders alike.
struct VirtualClock(Instant);

impl VirtualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for VirtualClock {
    fn millis(&self) -> u64 {
        // Away from zero, so that a mix-up with the store's clock would show.
        1_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn boot(&self) -> String {
        "virtual".to_owned()
    }
}

fn memory(clock: &Arc<VirtualClock>) -> Arc<dyn Store> {
    Arc::new(Memory::with(clock.clone(), Limits { leases_per_owner: 3 }, 0))
}

fn leasehold() -> Leasehold {
    let clock = VirtualClock::new();
    Leasehold::with_clock(memory(&clock), clock)
}

/// Two views of one store, the second one with faults in front of it.
fn with_faults(plan: impl FnMut(&Command) -> Fault + Send + 'static) -> (Leasehold, Leasehold) {
    let clock = VirtualClock::new();
    let store = memory(&clock);
    let faulty = Arc::new(Faulty::new(store.clone(), plan));
    (Leasehold::with_clock(store, clock.clone()), Leasehold::with_clock(faulty, clock))
}

async fn acquire(leasehold: &Leasehold, key: &str, owner: &str) -> Guard {
    leasehold.acquire(key, AcquireOptions::owner(owner)).await.unwrap()
}

async fn held_by(leasehold: &Leasehold, key: &str) -> Option<String> {
    match leasehold.try_acquire(key, AcquireOptions::owner("an onlooker")).await.unwrap() {
        Attempt::Held(held) => Some(held.by.to_string()),
        Attempt::Acquired(guard) => {
            guard.release().await.unwrap();
            None
        }
    }
}

async fn take_over(leasehold: &Leasehold, guard: &Guard) {
    let bid = Bid {
        tab: None,
        lease_id: LeaseId::from_random([9; 16]),
        owner: Owner::parse("boss").unwrap(),
        ttl: Ttl::from_secs(30).unwrap(),
        meta: Meta::default(),
    };
    let command = Command::TakeOver {
        right: leasehold_core::Right::Force,
        seen: guard.fence(),
        bid,
        reason: Reason::default(),
    };
    let applied = leasehold.store().unwrap().apply(guard.key(), command).await.unwrap();
    assert!(matches!(applied.outcome, Outcome::Granted { .. }), "{:?}", applied.outcome);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_in_the_background() {
    let leasehold = leasehold();
    let lease = acquire(&leasehold, "run/a", "anna").await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(lease.check(), Ok(lease.fence()));
        assert_eq!(held_by(&leasehold, "run/a").await.as_deref(), Some("anna"));
    }
    lease.release().await.unwrap();
    assert_eq!(held_by(&leasehold, "run/a").await, None);
}

#[tokio::test(start_paused = true)]
async fn law_08_the_holder_hears_of_the_loss_before_anybody_else_gets_the_lease() {
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = cut.clone();
    let (others, mine) =
        with_faults(move |_| if is_cut.load(Ordering::SeqCst) { Fault::Refuse } else { Fault::None });
    let lease = acquire(&mine, "run/a", "anna").await;
    cut.store(true, Ordering::SeqCst);
    let lost = lease.lost().await;
    assert_eq!(lost, Lost::Deadline);
    assert!(!lease.is_held() && lease.token().is_cancelled());
    let Attempt::Held(held) = others.try_acquire("run/a", AcquireOptions::owner("ben")).await.unwrap() else {
        panic!("somebody else was faster than the news")
    };
    assert_eq!(held.by.as_str(), "anna");
    tokio::time::sleep(Duration::from_secs(3)).await;
    acquire(&others, "run/a", "ben").await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn law_08_the_deadline_holds_while_a_renewal_hangs() {
    let renewals = Arc::new(AtomicU32::new(0));
    let (_, mine) = with_faults(move |command| match command {
        // The first renewal is carried out but never answered; the holder cannot count on it.
        Command::Renew { .. } if renewals.fetch_add(1, Ordering::SeqCst) == 0 => Fault::Hang,
        Command::Renew { .. } => Fault::Refuse,
        _ => Fault::None,
    });
    let start = Instant::now();
    let lease = acquire(&mine, "run/a", "anna").await;
    assert_eq!(lease.lost().await, Lost::Deadline);
    assert_eq!(start.elapsed().as_secs(), 27);
}

#[tokio::test(start_paused = true)]
async fn a_paused_program_finds_out_before_its_next_act() {
    let leasehold = leasehold();
    let lease = acquire(&leasehold, "run/a", "anna").await;
    // Time passes and no task runs, as when the whole program is stopped.
    advance(Duration::from_secs(28)).await;
    assert_eq!(lease.check(), Err(Lost::Deadline));
}

#[tokio::test(start_paused = true)]
async fn trouble_that_passes_costs_no_lease() {
    let mut count = 0;
    let (_, mine) = with_faults(move |command| {
        count += 1;
        match command {
            Command::Renew { .. } if count % 3 != 0 => Fault::LoseAnswer,
            _ => Fault::None,
        }
    });
    let lease = acquire(&mine, "run/a", "anna").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn seeded_faults_never_leave_two_holders() {
    for seed in 0..30 {
        let clock = VirtualClock::new();
        let store: Arc<dyn Store> = Arc::new(Faulty::seeded(memory(&clock), seed, 300));
        let leasehold = Leasehold::with_clock(store, clock);
        let inside = Arc::new(AtomicU32::new(0));
        let mut rivals = tokio::task::JoinSet::new();
        for rival in 0..4 {
            let (leasehold, inside) = (leasehold.clone(), inside.clone());
            rivals.spawn(async move {
                for _ in 0..5 {
                    let options = AcquireOptions::owner(format!("rival-{rival}")).ttl(Duration::from_secs(5));
                    let Ok(lease) = leasehold.acquire("run/a", options).await else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "seed {seed}: two at once");
                    // It works in small steps, and looks before each.
                    for _ in 0..20 {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        if !lease.is_held() {
                            break;
                        }
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _ = lease.release().await;
                }
            });
        }
        rivals.join_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn being_taken_over_is_heard_at_the_next_renewal() {
    let leasehold = leasehold();
    let lease = acquire(&leasehold, "run/a", "anna").await;
    take_over(&leasehold, &lease).await;
    assert_eq!(lease.lost().await, Lost::Told(LossReason::TakenOver));
    lease.release().await.unwrap();
    assert_eq!(held_by(&leasehold, "run/a").await.as_deref(), Some("boss"), "a late release changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_is_woken_by_the_release() {
    let leasehold = leasehold();
    let lease = acquire(&leasehold, "run/a", "anna").await;
    let waiting = tokio::spawn({
        let leasehold = leasehold.clone();
        async move { acquire(&leasehold, "run/a", "ben").await.fence() }
    });
    tokio::time::sleep(Duration::from_secs(12)).await;
    let (fence, start) = (lease.fence(), Instant::now());
    lease.release().await.unwrap();
    assert!(waiting.await.unwrap() > fence);
    assert!(start.elapsed() < Duration::from_millis(100), "it slept until the TTL: {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_is_woken_by_the_expiry() {
    let (others, mine) = with_faults(|command| match command {
        Command::Renew { .. } | Command::Release(_) => Fault::Refuse,
        _ => Fault::None,
    });
    let start = Instant::now();
    let lease = acquire(&mine, "run/a", "anna").await;
    acquire(&others, "run/a", "ben").await.release().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 30);
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn many_waiters_all_get_their_turn() {
    let leasehold = leasehold();
    let (inside, start) = (Arc::new(AtomicU32::new(0)), Instant::now());
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..50 {
        let (leasehold, inside) = (leasehold.clone(), inside.clone());
        waiters.spawn(async move {
            let lease = acquire(&leasehold, "run/a", &format!("waiter-{number}")).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::time::sleep(Duration::from_millis(10)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            lease.release().await.unwrap();
        });
    }
    waiters.join_all().await;
    assert!(start.elapsed() < Duration::from_secs(2), "somebody was not woken: {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_timeout_and_names_the_holder() {
    let leasehold = leasehold();
    let _lease = acquire(&leasehold, "run/a", "anna").await;
    for wait in [Duration::ZERO, Duration::from_secs(7)] {
        let start = Instant::now();
        let error = leasehold.acquire("run/a", AcquireOptions::owner("ben").wait(wait)).await.unwrap_err();
        assert!(matches!(&error, Error::TimedOut { held, .. } if held.by.as_str() == "anna"), "{error}");
        assert_eq!(start.elapsed().as_secs(), wait.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_it_is_cancelled() {
    let leasehold = leasehold();
    let _lease = acquire(&leasehold, "run/a", "anna").await;
    let token = CancellationToken::new();
    let options = AcquireOptions::owner("ben").cancel(token.clone());
    let waiting =
        tokio::spawn(async move { leasehold.acquire("run/a", options).await.map(|guard| guard.fence()) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    token.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Cancelled { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_given_up_leaves_no_lease_behind() {
    let (others, mine) = with_faults(|command| match command {
        Command::Acquire(_) => Fault::Delay(Duration::from_secs(2)),
        _ => Fault::None,
    });
    // The caller goes away while its acquire is under way; the store will still carry it out.
    let slow =
        tokio::spawn(async move { mine.acquire("run/a", AcquireOptions::owner("anna")).await.map(|_| ()) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    slow.abort();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(held_by(&others, "run/a").await, None);
}

#[tokio::test(start_paused = true)]
async fn law_07_an_answer_that_got_lost_is_found_again() {
    let mut lost = false;
    let (_, mine) = with_faults(move |command| match command {
        Command::Acquire(_) if !std::mem::replace(&mut lost, true) => Fault::LoseAnswer,
        _ => Fault::None,
    });
    let lease =
        timeout(Duration::from_secs(2), acquire(&mine, "run/a", "anna")).await.expect("it waited for itself");
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_is_reported_not_waited_for() {
    let (_, mine) = with_faults(|_| Fault::Refuse);
    let start = Instant::now();
    let error = mine.acquire("run/a", AcquireOptions::owner("anna")).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_lease_releases_it() {
    let leasehold = leasehold();
    drop(acquire(&leasehold, "run/a", "anna").await);
    let start = Instant::now();
    acquire(&leasehold, "run/a", "ben").await.release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn run_exclusive_runs_and_releases() {
    let leasehold = leasehold();
    let seen = leasehold
        .run_exclusive("run/a", |lease| {
            let leasehold = leasehold.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(100)).await;
                assert!(lease.is_held());
                held_by(&leasehold, "run/a").await
            }
        })
        .await
        .unwrap();
    assert!(seen.is_some(), "it was not held during the work");
    assert_eq!(held_by(&leasehold, "run/a").await, None);
}

#[tokio::test(start_paused = true)]
async fn run_exclusive_cancels_the_work_when_the_lease_is_lost() {
    let (_, mine) = with_faults(|command| match command {
        Command::Renew { .. } => Fault::Refuse,
        _ => Fault::None,
    });
    let finished = Arc::new(AtomicBool::new(false));
    let finish = finished.clone();
    let start = Instant::now();
    let error = mine
        .run_exclusive("run/a", |_| async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            finish.store(true, Ordering::SeqCst);
        })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost(Lost::Deadline)), "{error}");
    assert_eq!((start.elapsed().as_secs(), finished.load(Ordering::SeqCst)), (27, false));
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_lets_go_of_its_lease() {
    let leasehold = leasehold();
    let work = tokio::spawn({
        let leasehold = leasehold.clone();
        async move { leasehold.run_exclusive("run/a", |_| async { panic!("on purpose") }).await }
    });
    assert!(work.await.unwrap_err().is_panic());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(held_by(&leasehold, "run/a").await, None);
}

#[tokio::test(start_paused = true)]
async fn an_owner_with_too_many_leases_is_told_so() {
    let leasehold = leasehold();
    let mut leases = Vec::new();
    for number in 0..3 {
        leases.push(acquire(&leasehold, &format!("run/{number}"), "hog").await);
    }
    let error = leasehold.acquire("run/one-more", AcquireOptions::owner("hog")).await.unwrap_err();
    assert!(error.to_string().contains("hog already holds as many"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn bad_input_names_the_thing_the_rule_and_the_way_out() {
    let leasehold = leasehold();
    let options = AcquireOptions::default;
    let big = "x".repeat(5_000);
    let cases = [
        ("nightly", options(), "write `run/nightly`"),
        ("run/a", options().ttl(Duration::from_millis(10)), "between 1s and 24h"),
        ("run/a", AcquireOptions::owner("a\nb"), "printable"),
        ("run/a", options().meta("note", big), "4096 bytes"),
    ];
    for (key, options, expected) in cases {
        let error = leasehold.acquire(key, options).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains(expected), "{error}");
    }
    assert_eq!(leasehold.store().unwrap().list(&Range::all()).await.unwrap().slots.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn debug_never_shows_the_lease_id() {
    let leasehold = leasehold();
    let lease = acquire(&leasehold, "run/a", "anna").await;
    let shown = format!("{lease:?}");
    assert!(shown.contains("run/a") && !shown.contains("lease_id"), "{shown}");
}
