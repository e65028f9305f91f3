//! The same API on real files.

use leasehold_client::{AcquireOptions, Attempt, Leasehold};

fn file(folder: &tempfile::TempDir, query: &str) -> String {
    format!("embedded:{}{query}", folder.path().join("leases.db").display())
}

// After a release, the task that had renewed the lease was still there for a moment and had the file open: to open it again was
// refused, now and then.
#[tokio::test]
async fn an_embedded_file_keeps_leases_and_fences() {
    let folder = tempfile::tempdir().unwrap();
    let leasehold = Leasehold::open(&file(&folder, "")).unwrap();
    let first = leasehold.acquire("run/a", AcquireOptions::owner("anna")).await.unwrap();
    let fence = first.fence();
    first.release().await.unwrap();
    drop(leasehold);
    let leasehold = Leasehold::open(&file(&folder, "")).unwrap();
    let second = leasehold.acquire("run/a", AcquireOptions::owner("anna")).await.unwrap();
    assert!(second.fence() > fence);
    second.release().await.unwrap();
}

#[tokio::test]
async fn two_programs_share_a_file_and_wake_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (
        Leasehold::open(&file(&folder, "?mode=shared")).unwrap(),
        Leasehold::open(&file(&folder, "?mode=shared")).unwrap(),
    );
    let lease = one.acquire("run/a", AcquireOptions::owner("anna")).await.unwrap();
    let attempt = two.try_acquire("run/a", AcquireOptions::owner("ben")).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(held) if held.by.as_str() == "anna"));
    let waiting =
        tokio::spawn(
            async move { two.acquire("run/a", AcquireOptions::owner("ben")).await.unwrap().fence() },
        );
    tokio::task::yield_now().await;
    let fence = lease.fence();
    lease.release().await.unwrap();
    // Far below the TTL of 30 s: it was woken, it did not sleep it out.
    let woken =
        tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.expect("it was not woken");
    assert!(woken.unwrap() > fence);
}

#[tokio::test]
async fn a_file_of_another_mode_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let _exclusive = Leasehold::open(&file(&folder, "")).unwrap();
    let error = Leasehold::open(&file(&folder, "?mode=shared")).err().unwrap().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
}
