//! The autosave of programs, on a real disk. When it saves is the rules' affair, and tested there on virtual time; here
//! everything is flushed.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use leasehold_project::Project;
use leasehold_project::autosave::{self, AutoSave, Document, Notice, Options, Retention, Stamp, State};

/// A program that edits a text.
struct Program {
    text: Arc<Mutex<String>>,
    autosave: AutoSave,
}

impl Program {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, Options::default())
    }

    fn start_with(folder: &Path, options: Options) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let (taken, applied) = (text.clone(), text.clone());
        let document = Document::new(move || Ok(taken.lock().unwrap().clone().into_bytes())).applied_by(
            move |content| *applied.lock().unwrap() = String::from_utf8(content.to_vec()).unwrap(),
        );
        Self { text, autosave: AutoSave::start(Project::open(folder).unwrap(), options, document).unwrap() }
    }

    fn save(&self, text: &str) -> bool {
        *self.text.lock().unwrap() = text.into();
        self.autosave.changed();
        self.autosave.flush()
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}

fn current(folder: &Path) -> String {
    fs::read_to_string(folder.join("autosave/current.json")).unwrap_or_default()
}

/// The versions, the newest first.
fn versions(folder: &Path) -> Vec<String> {
    let project = Project::open(folder).unwrap();
    let content =
        |stamp: Stamp| String::from_utf8(autosave::read(&project, stamp).unwrap().unwrap()).unwrap();
    autosave::history(&project).unwrap().iter().map(|generation| content(generation.stamp)).collect()
}

#[test]
fn s7_what_was_saved_is_there_after_a_restart_and_every_version_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let program = Program::start(place.path());
    assert!(program.save("one") && program.save("two"));
    assert!(program.autosave.stop());
    let program = Program::start(place.path());
    assert!(program.autosave.restore_current());
    assert_eq!(program.text(), "two");
    assert!(program.save("three"));
    let oldest = program.autosave.history().unwrap().pop().unwrap();
    assert!(program.autosave.restore(oldest.stamp));
    assert!(program.autosave.flush());
    assert_eq!((program.text(), current(place.path())), ("one".into(), "one".into()));
    assert!(program.autosave.stop());
    assert_eq!(versions(place.path()), ["one", "three", "two", "one"]);
}

#[test]
fn s7_21_saves_drop_the_first() {
    let place = tempfile::tempdir().unwrap();
    let program = Program::start(place.path());
    for number in 1..=21 {
        assert!(program.save(&format!("version {number}")));
    }
    assert!(program.autosave.stop());
    let versions = versions(place.path());
    assert_eq!(
        (versions.len(), versions[0].as_str(), versions[19].as_str()),
        (20, "version 21", "version 2")
    );
    let index = fs::read_to_string(place.path().join("autosave/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    assert_eq!(index["generations"].as_array().unwrap().len(), 20);
    for generation in index["generations"].as_array().unwrap() {
        assert!(place.path().join("autosave").join(generation["file"].as_str().unwrap()).exists());
    }
}

#[test]
fn s8_conflict_a_second_program_waits_and_goes_on_from_what_the_first_saved() {
    let place = tempfile::tempdir().unwrap();
    let first = Program::start(place.path());
    assert!(first.save("theirs"));
    let second = Program::start(place.path());
    assert!(!second.save("mine"), "it is the first one's");
    assert_eq!(second.autosave.shown().state, State::ReadOnly);
    assert_eq!(current(place.path()), "theirs");
    let notices = second.autosave.subscribe();
    assert!(first.autosave.stop());
    // As soon as it has the project.
    assert_eq!(notices.recv(), Ok(Notice::DraftKept));
    assert_eq!(second.text(), "theirs");
    assert!(second.save("mine again"));
    assert!(second.autosave.stop());
    let drafts = Project::open(place.path()).unwrap().drafts().unwrap();
    assert_eq!(drafts.iter().map(|draft| draft.content.as_slice()).collect::<Vec<_>>(), [b"mine"]);
    assert_eq!(versions(place.path()), ["mine again", "theirs"]);
}

#[test]
fn what_another_program_put_in_place_is_a_version_too() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("autosave/history")).unwrap();
    fs::write(place.path().join("autosave/current.json"), "by hand").unwrap();
    fs::write(place.path().join("autosave/history/notes.txt"), "not ours").unwrap();
    fs::write(place.path().join("autosave/index.json"), "{ damaged").unwrap();
    let program = Program::start(place.path());
    assert!(program.save("next"));
    assert!(program.autosave.stop());
    assert_eq!(versions(place.path()), ["next", "by hand"]);
    assert!(place.path().join("autosave/history/notes.txt").exists());
}

#[test]
fn the_byte_budget_counts_the_current_version_too() {
    let place = tempfile::tempdir().unwrap();
    let retention = Retention { max_bytes: 35, ..Retention::default() };
    let program = Program::start_with(place.path(), Options { retention, ..Options::default() });
    for text in ["first.....", "second....", "third....."] {
        assert!(program.save(text));
    }
    assert!(program.autosave.stop());
    assert_eq!(versions(place.path()), ["third.....", "second...."]);
}
