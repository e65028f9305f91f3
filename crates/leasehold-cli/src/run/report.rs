//! What `run` says, on standard error: troubles always, the rest when it is asked for. With JSON, everything, one object
//! a line.

use std::io::Write;

use leasehold_client::{Guard, Held, Lost};
use leasehold_core::time::whole_millis;
use serde_json::{Value, json};

use crate::out::duration;

pub(super) struct Report {
    key: String,
    json: bool,
    verbose: bool,
}

impl Report {
    pub(super) fn new(key: &str, json: bool, verbose: bool) -> Self {
        Self { key: key.to_owned(), json, verbose }
    }

    pub(super) fn held(&self, held: &Held) {
        let (by, fence, left) = (held.by.as_str(), held.fence.get(), whole_millis(held.left));
        let words = format!(
            "{} is held by {by} (fence {fence}), for another {} unless it is renewed; the command was not run",
            self.key,
            duration(left)
        );
        let hint = "--wait 1m waits for it";
        self.trouble(
            &format!("{words}; {hint}"),
            json!({ "event": "held", "owner": by, "fence": fence, "expires_in_ms": left }),
        );
    }

    pub(super) fn acquired(&self, guard: &Guard) {
        let (owner, fence) = (guard.owner().as_str(), guard.fence().get());
        self.step(
            &format!("{} is ours, as {owner} with fence {fence}", self.key),
            json!({ "event": "acquired", "owner": owner, "fence": fence }),
        );
    }

    pub(super) fn started(&self, pid: u32) {
        self.step(&format!("the command runs as process {pid}"), json!({ "event": "started", "pid": pid }));
    }

    /// The command is being ended because of this.
    pub(super) fn lost(&self, lost: Lost) {
        let because = match lost {
            Lost::Told(because) => because.as_str(),
            Lost::Deadline => "not_renewed_in_time",
            Lost::Released => "released",
        };
        self.trouble(
            &format!("{}: {lost}; the command is being ended", self.key),
            json!({ "event": "lost", "because": because }),
        );
    }

    pub(super) fn wants_terminal(&self) {
        self.warning(
            "the command wants to use the terminal, where it is in the background, and was stopped; \
             give it its input from a file or a pipe",
        );
    }

    pub(super) fn leftovers(&self) {
        self.step(
            "the command has ended, and what it left behind is being ended",
            json!({ "event": "leftovers" }),
        );
    }

    pub(super) fn ended(&self, code: u8) {
        self.step(&format!("the command ended with {code}"), json!({ "event": "ended", "code": code }));
    }

    pub(super) fn warning(&self, text: &str) {
        self.trouble(&format!("{}: {text}", self.key), json!({ "event": "warning", "text": text }));
    }

    fn trouble(&self, words: &str, mut object: Value) {
        let line = if self.json {
            if let Some(object) = object.as_object_mut() {
                object.insert("key".into(), self.key.as_str().into());
            }
            object.to_string()
        } else {
            format!("leasehold: {words}")
        };
        let _ = writeln!(anstream::stderr(), "{line}");
    }

    fn step(&self, words: &str, object: Value) {
        if self.json || self.verbose {
            self.trouble(words, object);
        }
    }
}
