//! The guard of a program's lease on a server: the same keeper as on a store, with a TTL of the program's own.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{AcquireOptions, Attempt, Error, Guard, LeaseId, LeaseName, Leasehold, http};
use leasehold_store::Embedded;
use tokio::time::{Instant, timeout};

use crate::over_http::{cut_off_it_stops_first, under_faults_no_two_hold};
use crate::proxy::Proxy;
use crate::server::{TestServer, client};

const KEY: &str = "run/deploy/eu";

/// Far more than anything here takes, and far less than the TTL of 30 s.
const SOON: Duration = Duration::from_secs(10);

fn for_2_s() -> AcquireOptions {
    AcquireOptions::new().ttl(Duration::from_secs(2))
}

async fn acquire(leasehold: &Leasehold, options: AcquireOptions) -> Guard {
    leasehold.acquire(KEY, options).await.unwrap()
}

fn name() -> LeaseName {
    LeaseName::parse("deploy/eu").unwrap()
}

#[tokio::test]
async fn a_lease_has_the_ttl_and_the_name_that_the_program_chose() {
    let server = TestServer::start().await;
    let options = AcquireOptions::owner("machine-7").ttl(Duration::from_secs(600));
    let lease = acquire(&server.leasehold("anna"), options).await;
    assert_eq!(lease.owner().as_str(), "anna", "the token says who it is");
    let held = server.client("ben").lease(&name()).await.unwrap().held.unwrap();
    assert_eq!((held.holder.id.as_str(), held.holder.name.as_str()), ("anna", "machine-7"));
    assert!(held.expires_in_ms > 590_000 && held.fence == lease.fence().get(), "{held:?}");
    lease.release().await.unwrap();
    assert_eq!(server.client("ben").lease(&name()).await.unwrap().held, None);
    server.stop().await;
}

#[tokio::test]
async fn it_is_renewed_in_the_background_and_two_of_one_owner_exclude_each_other() {
    let server = TestServer::start().await;
    let anna = server.leasehold("anna");
    let lease = acquire(&anna, for_2_s()).await;
    let start = Instant::now();
    // Real time is the subject: several TTLs.
    while start.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(lease.check(), Ok(lease.fence()));
        let other = anna.try_acquire(KEY, for_2_s()).await.unwrap();
        assert!(matches!(&other, Attempt::Held(held) if held.fence == lease.fence()), "{other:?}");
    }
    drop(lease);
    // A server announces nothing about leases of programs yet: those who wait look every 2 s.
    timeout(SOON, acquire(&anna, for_2_s())).await.expect("a dropped guard lets go").release().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn law_08_a_program_that_is_cut_off_stops_before_the_server_lets_others_in() {
    cut_off_it_stops_first(KEY, for_2_s()).await;
}

#[tokio::test]
async fn seeded_faults_never_leave_two_programs() {
    under_faults_no_two_hold(11, KEY, AcquireOptions::new().ttl(Duration::from_secs(3))).await;
}

#[tokio::test]
async fn a_server_that_restarts_keeps_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(Embedded::options().open(folder.path().join("leases.db")).unwrap());
    let server = TestServer::on(open(), 10).await;
    let proxy = Proxy::to(server.address).await;
    let anna = Leasehold::connect(client(proxy.address, "anna"));
    let lease = acquire(&anna, AcquireOptions::new().ttl(Duration::from_secs(6))).await;
    server.stop().await;
    proxy.interrupt();
    let server = TestServer::on(open(), 10).await;
    proxy.move_to(server.address);
    let held = || async { server.client("ben").lease(&name()).await.unwrap().held.unwrap() };
    let first = held().await;
    assert_eq!(first.fence, lease.fence().get());
    let start = Instant::now();
    while held().await.expires_in_ms <= first.expires_in_ms {
        assert!(start.elapsed() < SOON, "it was not renewed after the restart");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(lease.is_held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_of_a_program_is_not_taken_from_it() {
    let server = TestServer::start().await;
    let lease = acquire(&server.leasehold("anna"), for_2_s()).await;
    let boss = server.leasehold("boss");
    let error = boss.take_over(KEY, lease.fence(), "now", AcquireOptions::new()).await.unwrap_err();
    assert!(error.to_string().contains("neither taken over nor handed over"), "{error}");
    let (ben, other) = (server.client("ben"), LeaseId::from_random([7; 16]));
    let late = ben.release_lease(&name(), &other).await;
    assert!(matches!(late, Err(http::Error::NotHolder { .. })), "{late:?}");
    assert_eq!(lease.check(), Ok(lease.fence()));
    let none = ben.renew_lease(&LeaseName::parse("nobodys").unwrap(), &other, None).await;
    assert!(matches!(none, Err(http::Error::LeaseNotFound)), "{none:?}");
    let error = Error::from(http::Error::LeaseNotFound).to_string();
    assert!(error.contains("the `leases` claim"), "{error}");
}
