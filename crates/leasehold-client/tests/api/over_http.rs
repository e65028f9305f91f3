//! The guard against a server: what holds on a store holds here, through a network that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_client::{AcquireOptions, Attempt, Error, Guard, Leasehold, Lost, http};
use leasehold_core::lease::LossReason;
use leasehold_store::faulty::{Fault, Faulty};
use leasehold_store::random::Random;
use leasehold_store::{Embedded, Memory};
use tokio::time::{Instant, timeout};

use crate::proxy::Proxy;
use crate::server::{TestServer, client, room};

const KEY: &str = "doc/minutes";

/// Far more than anything here takes, and far less than the TTL of 30 s.
const SOON: Duration = Duration::from_secs(10);

async fn acquire(leasehold: &Leasehold) -> Guard {
    leasehold.acquire(KEY, AcquireOptions::new()).await.unwrap()
}

async fn held_by(leasehold: &Leasehold) -> Option<String> {
    match leasehold.try_acquire(KEY, AcquireOptions::new()).await.unwrap() {
        Attempt::Held(held) => Some(held.by.to_string()),
        Attempt::Acquired(guard) => {
            guard.release().await.unwrap();
            None
        }
    }
}

#[tokio::test]
async fn a_lease_is_renewed_in_the_background_and_released() {
    let server = TestServer::with_ttl(2).await;
    let (anna, ben) = (server.leasehold("anna"), server.leasehold("ben"));
    let lease = acquire(&anna).await;
    let start = Instant::now();
    // Real time is the subject: several TTLs.
    while start.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(lease.check(), Ok(lease.fence()));
        assert_eq!(held_by(&ben).await.as_deref(), Some("anna"));
    }
    assert_eq!(lease.owner().as_str(), "anna");
    lease.release().await.unwrap();
    assert_eq!(held_by(&ben).await, None);
    server.stop().await;
}

#[tokio::test]
async fn two_guards_of_one_program_exclude_each_other() {
    let server = TestServer::start().await;
    let anna = server.leasehold("anna");
    let lease = acquire(&anna).await;
    assert_eq!(held_by(&anna).await.as_deref(), Some("anna"));
    drop(lease);
    timeout(SOON, acquire(&anna)).await.expect("a dropped guard lets go").release().await.unwrap();
}

#[tokio::test]
async fn being_taken_over_is_heard_at_once_with_its_reason() {
    let server = TestServer::start().await;
    let (anna, boss) = (server.leasehold("anna"), server.leasehold("boss"));
    let lease = acquire(&anna).await;
    let taken = boss.take_over(KEY, lease.fence(), "deadline", AcquireOptions::new()).await.unwrap();
    let taken = taken.acquired().unwrap();
    // The next heartbeat would come after 10 s.
    let lost = timeout(SOON, lease.lost()).await.expect("it was not heard");
    assert!(matches!(lost, Lost::Told(LossReason::TakenOver | LossReason::Unknown)), "{lost:?}");
    assert!(taken.fence() > lease.fence() && !lease.is_held());
    lease.release().await.unwrap();
    assert!(taken.is_held(), "a late release changes nothing");
}

/// It was heard as a take-over, although nobody had the lease afterwards.
#[tokio::test]
async fn a_forced_release_is_heard_at_once_as_one() {
    let server = TestServer::start().await;
    let lease = acquire(&server.leasehold("anna")).await;
    let reason = "lunch".parse().unwrap();
    server.client("boss").force_release(&room("minutes"), lease.fence(), &reason).await.unwrap();
    let lost = timeout(SOON, lease.lost()).await.expect("it was not heard");
    assert!(matches!(lost, Lost::Told(LossReason::ForceReleased | LossReason::Unknown)), "{lost:?}");
}

#[tokio::test]
async fn taking_over_without_permission_or_with_an_old_fence_is_refused() {
    let server = TestServer::start().await;
    let (anna, ben, boss) = (server.leasehold("anna"), server.leasehold("ben"), server.leasehold("boss"));
    let lease = acquire(&anna).await;
    let error = ben.take_over(KEY, lease.fence(), "mine", AcquireOptions::new()).await.unwrap_err();
    assert!(matches!(error, Error::Http(http::Error::NotAllowed { .. })), "{error:?}");
    let old = lease.fence();
    lease.release().await.unwrap();
    let lease = acquire(&anna).await;
    let attempt = boss.take_over(KEY, old, "late", AcquireOptions::new()).await.unwrap();
    assert!(matches!(&attempt, Attempt::Held(held) if held.fence == lease.fence()), "{attempt:?}");
    let error = boss.take_over(KEY, old, "", AcquireOptions::new()).await.unwrap_err();
    assert!(error.to_string().contains("say why"), "{error}");
}

#[tokio::test]
async fn whoever_waits_is_woken_by_the_release() {
    let server = TestServer::start().await;
    let (anna, ben) = (server.leasehold("anna"), server.leasehold("ben"));
    let lease = acquire(&anna).await;
    let waiting = tokio::spawn(async move { acquire(&ben).await.fence() });
    let fence = lease.fence();
    // It waits once it watches the document.
    until_watched(&server).await;
    lease.release().await.unwrap();
    let woken = timeout(SOON, waiting).await.expect("it was not woken").unwrap();
    assert!(woken > fence);
}

/// Until two streams of events are open: the holder's and the waiter's.
async fn until_watched(server: &TestServer) {
    let url = format!("http://{}/metrics", server.address);
    loop {
        let metrics = reqwest::get(&url).await.unwrap().text().await.unwrap();
        let open =
            metrics.lines().find(|line| line.starts_with("leasehold_streams_open ") && line.ends_with(" 2"));
        if open.is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_wait_ends_with_its_timeout_and_names_the_holder() {
    let server = TestServer::start().await;
    let (anna, ben) = (server.leasehold("anna"), server.leasehold("ben"));
    let _lease = acquire(&anna).await;
    let options = AcquireOptions::new().wait(Duration::from_millis(300));
    let error = ben.acquire(KEY, options).await.unwrap_err();
    let Error::TimedOut { held, .. } = &error else { panic!("{error:?}") };
    assert_eq!(held.by.as_str(), "anna");
    let left = held.left;
    assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30), "{left:?}");
}

#[tokio::test]
async fn many_waiters_all_get_their_turn() {
    let server = TestServer::start().await;
    let inside = Arc::new(AtomicU32::new(0));
    let leasehold = server.leasehold("anna");
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (leasehold, inside) = (leasehold.clone(), inside.clone());
        waiters.spawn(async move {
            let lease = acquire(&leasehold).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            lease.release().await.unwrap();
        });
    }
    timeout(Duration::from_secs(20), waiters.join_all()).await.expect("somebody was not woken");
}

#[tokio::test]
async fn law_08_a_holder_that_is_cut_off_stops_before_the_server_lets_others_in() {
    cut_off_it_stops_first(KEY, AcquireOptions::new()).await;
}

/// A holder of 2 s is cut off, and stops before the next one gets the key.
pub(crate) async fn cut_off_it_stops_first(key: &str, options: AcquireOptions) {
    let server = TestServer::with_ttl(2).await;
    let proxy = Proxy::to(server.address).await;
    let anna = Leasehold::connect(client(proxy.address, "anna"));
    let ben = server.leasehold("ben");
    let lease = anna.acquire(key, options.clone()).await.unwrap();
    let lost = lease.lost();
    let lost = tokio::spawn(async move { (lost.await, Instant::now()) });
    proxy.cut();
    let next = timeout(SOON, ben.acquire(key, options)).await.expect("it never ran out").unwrap();
    let next_at = Instant::now();
    let (why, lost_at) = timeout(SOON, lost).await.expect("it believes for ever").unwrap();
    assert_eq!(why, Lost::Deadline);
    assert!(lost_at < next_at && next.fence() > lease.fence(), "another was faster than the deadline");
}

#[tokio::test]
async fn law_08_the_deadline_counts_from_when_a_renewal_was_sent() {
    let server = TestServer::with_ttl(2).await;
    let proxy = Proxy::to(server.address).await;
    let anna = Leasehold::connect(client(proxy.address, "anna"));
    let lease = acquire(&anna).await;
    // The server renews it again and again; its answers come later than they are worth anything.
    proxy.delay_answers(Duration::from_secs(3));
    let start = Instant::now();
    assert_eq!(timeout(SOON, lease.lost()).await.expect("a late answer was believed"), Lost::Deadline);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_network_that_fails_for_a_moment_costs_no_lease() {
    let server = TestServer::with_ttl(4).await;
    let proxy = Proxy::to(server.address).await;
    let anna = Leasehold::connect(client(proxy.address, "anna"));
    let lease = acquire(&anna).await;
    let start = Instant::now();
    // Real time is the subject: cut and healed for longer than the TTL.
    while start.elapsed() < Duration::from_secs(7) {
        proxy.cut();
        tokio::time::sleep(Duration::from_millis(400)).await;
        proxy.heal();
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(lease.is_held(), "after {:?}", start.elapsed());
    }
    lease.release().await.unwrap();
}

#[tokio::test]
async fn seeded_faults_never_leave_two_holders() {
    under_faults_no_two_hold(7, KEY, AcquireOptions::new()).await;
}

/// A server whose store fails: it answers with 503, or not at all, to what it has done or not.
pub(crate) async fn under_faults_no_two_hold(seed: u64, key: &'static str, options: AcquireOptions) {
    let mut random = Random::new(seed);
    let store = Faulty::new(Arc::new(Memory::new()), move |_| match random.between(0, 20) {
        0 => Fault::Refuse,
        1 => Fault::LoseAnswer,
        2..4 => Fault::Delay(Duration::from_millis(random.between(0, 400))),
        _ => Fault::None,
    });
    let server = TestServer::on(Arc::new(store), 3).await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut rivals = tokio::task::JoinSet::new();
    for rival in ["anna", "ben", "cora"] {
        let (leasehold, inside, options) = (server.leasehold(rival), inside.clone(), options.clone());
        rivals.spawn(async move {
            let mut held = 0;
            for _ in 0..2 {
                let Ok(lease) = leasehold.acquire(key, options.clone()).await else { continue };
                held += 1;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                // It works in small steps, and looks before each.
                for _ in 0..10 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if !lease.is_held() {
                        break;
                    }
                }
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = lease.release().await;
            }
            held
        });
    }
    let held = timeout(Duration::from_secs(60), rivals.join_all()).await.expect("a rival is stuck");
    assert!(held.iter().sum::<i32>() >= 3, "{held:?}");
}

#[tokio::test]
async fn a_server_that_restarts_keeps_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(Embedded::options().open(folder.path().join("leases.db")).unwrap());
    let server = TestServer::on(open(), 10).await;
    let proxy = Proxy::to(server.address).await;
    let anna = Leasehold::connect(client(proxy.address, "anna"));
    let lease = acquire(&anna).await;
    server.stop().await;
    proxy.interrupt();
    let server = TestServer::on(open(), 10).await;
    proxy.move_to(server.address);
    let state = server.client("ben").state(&room("minutes"), None).await.unwrap();
    assert_eq!(state.lock.unwrap().fence, lease.fence().get());
    // More than a heartbeat: a renewal has reached the new server, or the lease would show less time than that.
    let left = || async {
        let state = server.client("ben").state(&room("minutes"), None).await.unwrap();
        state.lock.map_or(0, |lock| lock.expires_in_ms)
    };
    let first = left().await;
    let start = Instant::now();
    while left().await <= first.saturating_sub(200) || start.elapsed() < Duration::from_millis(500) {
        assert!(start.elapsed() < SOON, "it was not renewed after the restart");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(lease.is_held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn what_the_server_decides_cannot_be_asked_for() {
    let server = TestServer::start().await;
    let anna = server.leasehold("anna");
    let cases = [
        (KEY, AcquireOptions::owner("ben"), "the token says who the owner is"),
        (KEY, AcquireOptions::new().ttl(Duration::from_secs(5)), "the server sets the TTL"),
        (KEY, AcquireOptions::new().meta("note", "x"), "comes from its token"),
        ("deploy/eu", AcquireOptions::new(), "write `run/nightly`"),
        ("run/with space", AcquireOptions::new(), "A-Z a-z 0-9"),
        ("run/nightly", AcquireOptions::new().meta("note", "x"), "nothing else to show"),
        ("doc/with space", AcquireOptions::new(), "A-Z a-z 0-9"),
    ];
    for (key, options, expected) in cases {
        let error = anna.acquire(key, options).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(anna.store().is_none());
}

#[tokio::test]
async fn a_server_in_trouble_is_reported_not_waited_for() {
    let server = TestServer::start().await;
    let proxy = Proxy::to(server.address).await;
    proxy.cut();
    let anna = Leasehold::connect(client(proxy.address, "anna"));
    let error = timeout(SOON, anna.acquire(KEY, AcquireOptions::new())).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Http(http::Error::Unavailable { .. })), "{error:?}");
}

#[tokio::test]
async fn debug_shows_no_secret() {
    let server = TestServer::start().await;
    let lease = acquire(&server.leasehold("anna")).await;
    let shown = format!("{lease:?} {:?}", server.client("anna"));
    assert!(shown.contains("minutes") && !shown.contains("lease_id") && !shown.contains("eyJ"), "{shown}");
}
