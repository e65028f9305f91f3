//! What comes in from outside and is refused must be safe to print.

use std::time::Duration;

use leasehold_core::name::{Key, LeaseId, LeaseName, Meta, Owner, Reason, RoomId};
use leasehold_core::time::Ttl;
use proptest::prelude::*;

/// Everything that reads text, by what it says about the text that it refuses.
fn refusals(text: &str) -> Vec<String> {
    let meta = Meta::new([(text.to_owned(), text.to_owned())]);
    [
        Key::parse(text).err(),
        Key::parse(&format!("run/{text}")).err(),
        Key::parse(&format!("{text}/x")).err(),
        LeaseName::parse(text).err(),
        Owner::parse(text).err(),
        Reason::parse(text).err(),
        LeaseId::parse(text).err(),
        Ttl::parse(text).err(),
        meta.err(),
    ]
    .into_iter()
    .flatten()
    .map(|invalid| invalid.to_string())
    .collect()
}

/// A message goes to terminals and logs: the input must not be able to forge lines or colours in it, nor to fill it.
fn assert_safe(text: &str) {
    for message in refusals(text) {
        assert!(!message.chars().any(char::is_control), "{message:?}");
        assert!(!message.contains('\u{202E}'), "{message:?}");
        assert!(message.chars().count() < 1_000, "{} characters: {message}", message.chars().count());
    }
}

#[test]
fn a_refusal_never_repeats_control_characters() {
    for text in ["\u{1b}[2Jgone", "two\nlines", "tab\tbed", "\0", "back\u{202E}wards", "\u{7f}"] {
        assert_safe(text);
    }
}

#[test]
fn a_refusal_is_short_whatever_was_refused() {
    for length in [1, 100, Key::MAX_BYTES, Key::MAX_BYTES + 1, 100_000] {
        assert_safe(&"x".repeat(length));
        assert_safe(&"会".repeat(length / 3));
        assert_safe(&"\n".repeat(length));
    }
    let message = Key::parse(&"x".repeat(Key::MAX_BYTES)).unwrap_err().to_string();
    assert!(message.chars().count() < 400, "{} characters: {message}", message.chars().count());
}

#[test]
fn every_limit_is_inclusive() {
    let key = |bytes: usize| format!("run/{}", "x".repeat(bytes - 4));
    assert!(Key::parse(&key(Key::MAX_BYTES)).is_ok() && Key::parse(&key(Key::MAX_BYTES + 1)).is_err());
    let door = |bytes: usize| format!("{}/x", "d".repeat(bytes));
    assert!(Key::parse(&door(Key::MAX_DOOR_BYTES)).is_ok());
    assert!(Key::parse(&door(Key::MAX_DOOR_BYTES + 1)).is_err());
    let text = |bytes: usize| "x".repeat(bytes);
    assert!(
        Owner::parse(&text(Owner::MAX_BYTES)).is_ok() && Owner::parse(&text(Owner::MAX_BYTES + 1)).is_err()
    );
    assert!(Reason::parse(&text(Reason::MAX_CHARS)).is_ok() && Reason::parse("").is_ok());
    assert!(Reason::parse(&text(Reason::MAX_CHARS + 1)).is_err());
    for ttl in [Ttl::MIN, Ttl::MAX] {
        assert_eq!(Ttl::new(ttl.as_duration()), Ok(ttl));
    }
    assert!(Ttl::new(Ttl::MIN.as_duration() - Duration::from_millis(1)).is_err());
    assert!(Ttl::new(Ttl::MAX.as_duration() + Duration::from_millis(1)).is_err());
    assert!(Ttl::new(Duration::MAX).is_err());
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn no_text_at_all_makes_a_refusal_unsafe(text in any::<String>()) {
        assert_safe(&text);
    }

    #[test]
    fn what_is_accepted_comes_back_unchanged(text in "[a-z]{1,3}/[ -~]{1,9}") {
        if let Ok(key) = Key::parse(&text) {
            prop_assert_eq!(key.as_str(), &text);
            prop_assert_eq!(format!("{}/{}", key.door(), key.name()), text);
        }
    }
}

/// What can be drawn from a pattern: the anchors are for those who look for it in a text.
fn unanchored(pattern: &'static str) -> &'static str {
    pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')).unwrap()
}

// The description of the API once let `.` through as the name of a document, which the server refuses: whoever made up
// names from the description was told that a valid request was invalid.
proptest! {
    #[test]
    fn whatever_looks_like_a_document_is_one(name in unanchored(RoomId::PATTERN)) {
        prop_assert!(RoomId::parse(&name).is_ok(), "{name:?}");
    }

    #[test]
    fn whatever_looks_like_a_lease_id_is_one(lease_id in unanchored(LeaseId::PATTERN)) {
        prop_assert!(LeaseId::parse(&lease_id).is_ok(), "{lease_id:?}");
    }

    #[test]
    fn whatever_looks_like_the_name_of_a_lease_is_one(name in unanchored(LeaseName::PATTERN)) {
        prop_assert!(LeaseName::parse(&name).is_ok() || name.len() > LeaseName::MAX_BYTES, "{name:?}");
    }

    #[test]
    fn a_short_name_is_read_as_its_pattern_says(name in "[.a]{1,4}") {
        let looks_right = !matches!(name.as_str(), "." | "..");
        prop_assert_eq!(RoomId::parse(&name).is_ok(), looks_right);
    }
}
