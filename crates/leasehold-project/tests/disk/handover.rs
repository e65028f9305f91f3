//! A program asks the holder to save and hand the project over.

use std::fs;
use std::time::Duration;

use leasehold_project::testing::{FakeProject, MockFolder};
use leasehold_project::{
    Ask, CallId, Cancel, Event, HandoverRequest, OnSilence, Options, Profile, Project, ProjectLease,
    ProjectLockError, Reason,
};

const COUNTDOWN: Duration = Duration::from_secs(5);

fn autosave() -> Options {
    Options::of(Profile::Autosave)
}

fn request(on_silence: OnSilence) -> HandoverRequest {
    HandoverRequest { reason: Reason::parse("a typo").unwrap(), countdown: COUNTDOWN, on_silence }
}

/// Two programs, one of which has the project; time is virtual.
struct Two {
    folder: MockFolder,
    holder: FakeProject,
    lease: ProjectLease,
    asker: FakeProject,
    call: CallId,
}

impl Two {
    /// The second one asks.
    fn new(on_silence: OnSilence) -> Self {
        let folder = MockFolder::new();
        let (mut holder, mut asker) =
            (FakeProject::open(&folder, "holder"), FakeProject::open(&folder, "asker"));
        let lease = holder.acquire(autosave()).unwrap();
        let call = asker.request_handover(autosave(), &request(on_silence));
        Self { folder, holder, lease, asker, call }
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            self.holder.pass(Duration::from_millis(50));
            self.asker.turn();
        }
    }

    /// What the holder was asked, within a second.
    fn asked(&mut self) -> Option<Ask> {
        self.pass(1_000);
        self.holder.take_events().into_iter().find_map(|event| match event {
            Event::HandoverRequested(ask) => Some((*ask).clone()),
            _ => None,
        })
    }

    fn answer(&mut self) -> Option<Result<ProjectLease, ProjectLockError>> {
        self.asker.handed_over(self.call)
    }

    fn check_refused(&mut self, said: &str) {
        let error = self.answer().expect("an answer").unwrap_err();
        assert_eq!((error.code(), error.retryable), ("fallback-conflict", false));
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.holder.unwrap().fence, self.lease.fence);
        assert_eq!(self.folder.file(".lock.request"), None, "nothing is left of it");
        self.holder.save("plan.json", b"still mine").unwrap();
    }
}

#[test]
fn asked_saved_and_handed_over() {
    let mut two = Two::new(OnSilence::Refuse);
    let asked = two.asked().expect("a request");
    assert_eq!((asked.asker.as_str(), asked.why.as_str()), ("asker", "a typo"));
    two.holder.handover_told();
    two.pass(1_000);
    let told = two.asker.take_events().iter().any(|event| matches!(event, Event::HandoverTold { .. }));
    assert!(told && two.answer().is_none());
    two.holder.save("plan.json", b"saved in time").unwrap();
    let lease = two.lease.clone();
    two.holder.release(&lease).unwrap();
    two.pass(1_000);
    let got = two.answer().expect("an answer").unwrap();
    assert!(got.fence > lease.fence);
    assert_eq!(two.asker.read("plan.json").unwrap().unwrap(), b"saved in time");
    assert_eq!(two.folder.file(".lock.request"), None);
}

#[test]
fn refused_with_a_reason() {
    let mut two = Two::new(OnSilence::Grant);
    assert!(two.asked().is_some());
    two.holder.handover_told();
    two.pass(1_000);
    let lease = two.lease.clone();
    two.holder.refuse_handover(&lease, Reason::parse("one moment").unwrap());
    two.pass(1_000);
    two.check_refused("one moment");
}

#[test]
fn silence_is_what_the_asker_said_it_is() {
    let mut two = Two::new(OnSilence::Refuse);
    assert!(two.asked().is_some());
    two.holder.handover_told();
    two.pass(6_000);
    two.check_refused("silent");
    let mut two = Two::new(OnSilence::Grant);
    assert!(two.asked().is_some());
    two.holder.handover_told();
    two.pass(4_900);
    assert!(two.answer().is_none(), "it has its time");
    two.pass(1_200);
    assert!(two.answer().expect("an answer").is_ok());
    // It hears so at once, and not at its next heartbeat.
    let lost = two.holder.take_events().into_iter().find_map(|event| match event {
        Event::ReadonlyEntered { last_error, .. } => Some(last_error),
        _ => None,
    });
    assert!(lost.expect("a loss").to_string().contains("a typo"));
    assert_eq!(two.folder.file(".lock.request"), None);
    assert!(two.holder.save("plan.json", b"too late").is_err());
}

#[test]
fn the_silence_of_a_program_that_was_not_told_grants_nothing() {
    let mut two = Two::new(OnSilence::Grant);
    two.pass(10_000);
    two.check_refused("did not answer");
}

/// A request file that another program put there, or that a crash left, is advice at most.
#[test]
fn a_note_that_makes_no_sense_does_nothing() {
    let folder = MockFolder::new();
    let mut holder = FakeProject::open(&folder, "holder");
    let lease = holder.acquire(autosave()).unwrap();
    let old = format!(r#"{{"say":"asked","fence":{},"at":1,"owner":"x"}}"#, lease.fence.get() - 1);
    for note in [&b"nonsense"[..], b"", old.as_bytes()] {
        folder.put(".lock.request", note);
        holder.pass(Duration::from_secs(2));
    }
    let asked = holder.take_events().iter().any(|event| matches!(event, Event::HandoverRequested(_)));
    assert!(!asked);
    holder.save("plan.json", b"mine").unwrap();
}

#[test]
fn two_programs_on_a_real_disk() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    other.set_label("Ben").unwrap();
    let events = one.subscribe();
    let guard = one.acquire(autosave()).unwrap();
    let holder = std::thread::spawn(move || {
        let asked = events.into_iter().find_map(|event| match event {
            Event::HandoverRequested(ask) => Some(ask),
            _ => None,
        });
        guard.save("plan.json", b"saved in time").unwrap();
        guard.release().unwrap();
        asked.unwrap().why.as_str().to_owned()
    });
    let request = HandoverRequest { countdown: Duration::from_secs(60), ..request(OnSilence::Refuse) };
    let handed = other.request_handover(autosave(), request, &Cancel::new()).unwrap();
    assert_eq!(holder.join().unwrap(), "a typo");
    assert_eq!(other.read("plan.json").unwrap().unwrap().content, b"saved in time");
    handed.save("plan.json", b"and on").unwrap();
    let left = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| name != ".lock.request"));
}

#[test]
fn a_request_that_is_cancelled_is_withdrawn() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    let (events, told) = (one.subscribe(), other.subscribe());
    let guard = one.acquire(autosave()).unwrap();
    let cancel = Cancel::new();
    let asking = {
        let cancel = cancel.clone();
        std::thread::spawn(move || other.request_handover(autosave(), request(OnSilence::Grant), &cancel))
    };
    assert!(told.into_iter().any(|event| matches!(event, Event::HandoverTold { .. })));
    cancel.cancel();
    assert_eq!(asking.join().unwrap().unwrap_err().code(), "web-lock-aborted");
    assert!(events.into_iter().any(|event| matches!(event, Event::HandoverWithdrawn(_))));
    guard.save("plan.json", b"mine").unwrap();
}
