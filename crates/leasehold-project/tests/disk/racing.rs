//! Many processes that want the same stale lock at the same moment: exactly one gets it, every time.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold_core::lease::Bid;
use leasehold_core::{LeaseId, Meta, Owner, Ttl};
use leasehold_project::ProjectFolder;
use leasehold_project_rules::guarded::{Action, After, Outcome};

use crate::child::{self, Child};
use crate::times;

const RACERS: usize = 16;

pub fn bid(lease_id: u128) -> Bid {
    Bid {
        tab: None,
        lease_id: LeaseId::from_random(lease_id.to_be_bytes()),
        owner: Owner::parse(&format!("process {}", std::process::id())).unwrap(),
        ttl: Ttl::from_secs(30).unwrap(),
        meta: Meta::default(),
    }
}

/// A lock that somebody left behind two minutes ago.
pub fn leave_a_stale_lock(folder: &Path) {
    let ago = SystemTime::now() - Duration::from_secs(120);
    let millis = ago.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let record = format!(
        r#"{{"version":1,"leaseId":"11111111-1111-4111-8111-111111111111","owner":"gone","ttlSeconds":30,"expiresAt":{},"fence":7,"seq":3,"held":false}}"#,
        millis + 30_000
    );
    fs::write(folder.join(".lock"), record).unwrap();
    let file = File::options().write(true).open(folder.join(".lock")).unwrap();
    file.set_times(FileTimes::new().set_modified(ago)).unwrap();
}

#[test]
fn racing_for_a_stale_lock_exactly_one_of_sixteen_processes_wins() {
    let mut racers: Vec<Child> = (0..RACERS).map(|_| Child::start("racing::child_that_races")).collect();
    let place = tempfile::tempdir().unwrap();
    let mut fences = Vec::new();
    for round in 0..times(300, 10_000) {
        let folder = place.path().join(format!("round-{round}"));
        fs::create_dir(&folder).unwrap();
        leave_a_stale_lock(&folder);
        racers.iter_mut().for_each(|racer| racer.order(folder.to_str().unwrap()));
        let told: Vec<String> = racers.iter_mut().map(Child::told).collect();
        let won: Vec<&String> = told.iter().filter(|word| word.starts_with("granted")).collect();
        let held = told.iter().filter(|word| *word == "held").count();
        assert_eq!((won.len(), held), (1, RACERS - 1), "round {round}: {told:?}");
        fences.push(won[0].clone());
        let record = fs::read_to_string(folder.join(".lock")).unwrap();
        assert!(record.contains("\"owner\":\"process"), "{record}");
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("{} rounds, one winner each, such as {}", fences.len(), fences[0]);
}

/// Tries once for each folder that it is told.
#[test]
fn child_that_races() {
    if !child::is_child() {
        return;
    }
    // The winner of a round holds on until the next: if it let go, it would be dead, and another would win as well.
    let mut _held;
    for (number, path) in child::orders().enumerate() {
        let mut folder = ProjectFolder::open(path).unwrap();
        let lease_id = u128::from(std::process::id()) << 64 | number as u128;
        match folder.guarded(Action::Acquire(bid(lease_id))).unwrap().outcome {
            Outcome::Granted(grant) => {
                assert_eq!(grant.after, Some(After::Expired));
                child::tell(&format!("granted {}", grant.fence));
            }
            Outcome::Held(_) => child::tell("held"),
            other => panic!("{other:?}"),
        }
        _held = folder;
    }
}
