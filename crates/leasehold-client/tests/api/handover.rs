//! Handing over, in process on virtual time and against a server.

use std::time::Duration;

use leasehold_client::{AcquireOptions, Error, Guard, Handover, HandoverOptions, Leasehold, Lost, OnSilence};
use leasehold_core::Command;
use leasehold_core::lease::LossReason;
use leasehold_store::faulty::Fault;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::server::TestServer;

const KEY: &str = "doc/minutes";
const SOON: Duration = Duration::from_secs(10);

/// Who takes part: on a store they say who they are, at a server their token does.
struct Parties {
    holder: Leasehold,
    asker: Leasehold,
    options: fn(&str) -> AcquireOptions,
    _server: Option<TestServer>,
}

impl Parties {
    fn in_process() -> Self {
        let leasehold = crate::leasehold();
        Self {
            holder: leasehold.clone(),
            asker: leasehold,
            options: |name| AcquireOptions::owner(name),
            _server: None,
        }
    }

    async fn at_a_server_with_ttl(seconds: u64) -> Self {
        let server = TestServer::with_ttl(seconds).await;
        let (holder, asker) = (server.leasehold("anna"), server.leasehold("ben"));
        Self { holder, asker, options: |_| AcquireOptions::new(), _server: Some(server) }
    }

    async fn hold(&self) -> Guard {
        self.holder.acquire(KEY, (self.options)("anna")).await.unwrap()
    }

    fn ask(&self, options: HandoverOptions) -> JoinHandle<Result<Handover, Error>> {
        let (asker, options) = (self.asker.clone(), options.acquire((self.options)("ben")));
        tokio::spawn(async move { asker.request_handover(KEY, options).await })
    }
}

async fn the_holder_hands_over(parties: Parties) {
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let asking = parties.ask(HandoverOptions::new());
    let request = timeout(SOON, requests.next()).await.expect("it was not heard of").unwrap();
    assert_eq!((request.by().as_str(), request.on_silence()), ("ben", OnSilence::Refuse));
    assert!(lease.is_held(), "being asked is not losing it");
    assert_eq!(request.hand_over().await.unwrap().unwrap().as_str(), "ben");
    assert!(!lease.is_held());
    let granted = timeout(SOON, asking).await.expect("the answer was not heard").unwrap().unwrap();
    let granted = granted.granted().unwrap();
    assert!(granted.fence() > lease.fence() && granted.is_held());
    drop(lease);
    assert!(requests.next().await.is_none());
    granted.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_hands_over_in_process() {
    the_holder_hands_over(Parties::in_process()).await;
}

#[tokio::test]
async fn a_holder_hands_over_at_a_server() {
    the_holder_hands_over(Parties::at_a_server_with_ttl(30).await).await;
}

async fn the_holder_refuses(parties: Parties) {
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let asking = parties.ask(HandoverOptions::new().on_silence(OnSilence::Grant));
    let request = timeout(SOON, requests.next()).await.expect("it was not heard of").unwrap();
    request.refuse().await.unwrap();
    let answer = timeout(SOON, asking).await.expect("the answer was not heard").unwrap().unwrap();
    assert!(matches!(&answer, Handover::Refused(held) if held.fence == lease.fence()), "{answer:?}");
    assert!(lease.is_held());
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_refuses_in_process() {
    the_holder_refuses(Parties::in_process()).await;
}

#[tokio::test]
async fn a_holder_refuses_at_a_server() {
    the_holder_refuses(Parties::at_a_server_with_ttl(30).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_leaves_the_deadline_as_it_was() {
    let parties = Parties::in_process();
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let asking =
        parties.ask(HandoverOptions::new().on_silence(OnSilence::Grant).countdown(Duration::from_secs(7)));
    requests.next().await.unwrap().refuse().await.unwrap();
    asking.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(lease.is_held());
}

/// The one that was silent stops before the other one starts: there are never two who believe.
async fn silence_grants(parties: Parties, countdown: Duration) {
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let asking = parties.ask(HandoverOptions::new().on_silence(OnSilence::Grant).countdown(countdown));
    let request = timeout(SOON, requests.next()).await.expect("it was not heard of").unwrap();
    assert_eq!(request.countdown(), countdown);
    let (lost, start) = (lease.lost(), Instant::now());
    let lost = tokio::spawn(async move { (lost.await, Instant::now()) });
    let granted = timeout(SOON, asking).await.expect("silence was no answer").unwrap().unwrap();
    let granted_at = Instant::now();
    let (why, lost_at) = timeout(SOON, lost).await.expect("there are two who believe").unwrap();
    assert!(lost_at < granted_at, "lost after {:?}, granted after {:?}", lost_at - start, granted_at - start);
    assert_eq!(why, Lost::Deadline);
    granted.granted().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_grants_in_process() {
    silence_grants(Parties::in_process(), Duration::from_secs(8)).await;
}

#[tokio::test]
async fn silence_grants_at_a_server() {
    silence_grants(Parties::at_a_server_with_ttl(2).await, Duration::from_secs(2)).await;
}

/// The store knows that the holder was told, and the holder never hears that it does: it has to count on the worst.
#[tokio::test(start_paused = true)]
async fn law_08_a_holder_whose_word_got_through_unanswered_stops_in_time() {
    let (others, mine) = crate::with_faults(|command| match command {
        Command::HandoverTold { .. } => Fault::LoseAnswer,
        _ => Fault::None,
    });
    let lease = mine.acquire(KEY, AcquireOptions::owner("anna")).await.unwrap();
    let mut requests = lease.handover_requests();
    let lost = lease.lost();
    let lost = tokio::spawn(async move { (lost.await, Instant::now()) });
    let options = HandoverOptions::new().on_silence(OnSilence::Grant).countdown(Duration::from_secs(8));
    let options = options.acquire(AcquireOptions::owner("ben"));
    let asking = tokio::spawn(async move { (others.request_handover(KEY, options).await, Instant::now()) });
    assert!(requests.next().await.is_none(), "it ends with the lease");
    let (granted, granted_at) = asking.await.unwrap();
    let (why, lost_at) = lost.await.unwrap();
    assert!(granted.unwrap().granted().is_some() && why == Lost::Deadline && lost_at < granted_at);
}

/// At a TTL of 30 s a holder stops 3 s early: with a countdown of 2 s, whoever asks would have had the lease at once,
/// and the holder no chance to say no.
#[tokio::test(start_paused = true)]
async fn a_countdown_that_leaves_no_time_to_answer_gives_nothing_away() {
    let parties = Parties::in_process();
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let options = HandoverOptions::new().on_silence(OnSilence::Grant).countdown(Duration::from_secs(2));
    let asking = parties.ask(options);
    let request = requests.next().await.unwrap();
    assert_eq!(request.on_silence(), OnSilence::Refuse);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(lease.is_held() && !asking.is_finished());
    request.refuse().await.unwrap();
    assert!(matches!(asking.await.unwrap().unwrap(), Handover::Refused(_)));
}

/// A program that does not ask for requests was not told of any, and its silence says nothing.
#[tokio::test]
async fn a_holder_that_does_not_listen_keeps_its_lease() {
    let parties = Parties::at_a_server_with_ttl(2).await;
    let lease = parties.hold().await;
    let options = HandoverOptions::new().on_silence(OnSilence::Grant).countdown(Duration::from_secs(1));
    let options = options.acquire(AcquireOptions::new().wait(Duration::from_secs(4)));
    let error = parties.asker.request_handover(KEY, options).await.unwrap_err();
    assert!(matches!(&error, Error::TimedOut { held, .. } if held.by.as_str() == "anna"), "{error:?}");
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_asker_that_leaves_withdraws_its_request() {
    let parties = Parties::in_process();
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let asking = parties.ask(HandoverOptions::new().on_silence(OnSilence::Grant));
    let request = requests.next().await.unwrap();
    asking.abort();
    let _ = asking.await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(lease.is_held(), "the request was not withdrawn");
    assert!(request.hand_over().await.unwrap().is_none());
    assert!(!lease.is_held());
    let ben = parties.asker.try_acquire(KEY, AcquireOptions::owner("ben")).await.unwrap();
    assert!(ben.acquired().is_some(), "a lease that nobody wants any more is released");
}

#[tokio::test(start_paused = true)]
async fn a_second_asker_is_told_so_and_a_free_key_is_acquired() {
    let parties = Parties::in_process();
    let lease = parties.hold().await;
    let mut requests = lease.handover_requests();
    let first = parties.ask(HandoverOptions::new());
    let request = requests.next().await.unwrap();
    let options = HandoverOptions::new().acquire(AcquireOptions::owner("cora"));
    let second = parties.asker.request_handover(KEY, options.clone()).await.unwrap();
    assert!(matches!(second, Handover::RequestedByAnother(_)), "{second:?}");
    request.refuse().await.unwrap();
    first.await.unwrap().unwrap();
    lease.release().await.unwrap();
    let free = parties.asker.request_handover(KEY, options).await.unwrap();
    assert!(free.granted().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_somebody_asks_goes_to_them() {
    let parties = Parties::in_process();
    let lease = parties.hold().await;
    let asking = parties.ask(HandoverOptions::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (fence, start) = (lease.fence(), Instant::now());
    lease.release().await.unwrap();
    let granted = asking.await.unwrap().unwrap().granted().unwrap();
    assert!(granted.fence() > fence && start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn being_taken_over_is_heard_at_once_by_who_listens_for_requests() {
    let parties = Parties::in_process();
    let lease = parties.hold().await;
    let _requests = lease.handover_requests();
    tokio::task::yield_now().await;
    let start = Instant::now();
    let taken = parties.asker.take_over(KEY, lease.fence(), "deadline", AcquireOptions::owner("boss")).await;
    assert_eq!(lease.lost().await, Lost::Told(LossReason::TakenOver));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    drop(taken);
}
