//! Telemetry knows every word of the lock: one that is missing from its lists would be counted as `other`.

use leasehold_core::telemetry::{Code, Event, EventName, Reason};
use leasehold_project_rules::event::{self, Warning};
use leasehold_project_rules::fault::TABLE;
use leasehold_project_rules::options::Strategy;

#[test]
fn telemetry_has_every_code_of_both_profiles() {
    for row in TABLE {
        for word in [Some(row.autosave), row.service].into_iter().flatten() {
            assert_eq!(Code::of(word).as_str(), word);
        }
    }
}

#[test]
fn telemetry_has_every_reason_warning_and_strategy() {
    let reasons = event::Reason::WORDS.iter().map(|(_, word)| *word);
    let warnings = Warning::WORDS.iter().map(|(_, word)| *word);
    let strategies = Strategy::WORDS.iter().map(|(_, word)| *word);
    for word in reasons.chain(warnings).chain(strategies) {
        assert_eq!(Reason::of(word).as_str(), word);
    }
}

#[test]
fn telemetry_has_every_event() {
    let types = include_str!("../../../../web/src/types.ts");
    let words: Vec<&str> = types.split('\'').filter(|word| word.starts_with("lock:")).collect();
    assert!(words.len() >= 15, "{words:?}");
    for word in words {
        assert_ne!(EventName::of_lock(word), EventName::Other, "{word}");
    }
    assert_eq!(Event::lock(event::Event::Available.name(), None, None).name(), EventName::Available);
}
