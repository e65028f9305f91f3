//! `.lock` between bytes and members, by the cases that the npm package is tested with too.

use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::{Fence, LeaseId, Meta, Owner};
use leasehold_project::lock_file::{parse, print, read};
use leasehold_project_rules::record::{Content, Member, Members, Record};
use serde_json::{Map, Value};

fn cases() -> Vec<Map<String, Value>> {
    let cases: Vec<Map<String, Value>> = serde_json::from_str(include_str!("../lock_files.json")).unwrap();
    assert!(cases.len() >= 100);
    cases
}

fn bytes_of(case: &Map<String, Value>) -> Vec<u8> {
    if let Some(hex) = case.get("hex") {
        let digits = hex.as_str().unwrap().as_bytes();
        let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        return digits.chunks(2).map(byte).collect();
    }
    let mut bytes = case["text"].as_str().unwrap().as_bytes().to_vec();
    let length = case.get("padded").map_or(0, |length| usize::try_from(length.as_u64().unwrap()).unwrap());
    bytes.resize(length.max(bytes.len()), b' ');
    bytes
}

fn members_of(expected: &Value) -> Option<Members> {
    let expected = expected.as_object()?;
    let member = |name: &str| match expected.get(name) {
        None => Member::Absent,
        Some(Value::String(text)) => Member::Text(text.clone()),
        Some(Value::Number(number)) => Member::Number(number.as_f64().unwrap()),
        Some(Value::Bool(flag)) => Member::Flag(*flag),
        Some(_) => Member::Other,
    };
    Some(Members {
        version: member("version"),
        lease_id: member("leaseId"),
        owner: member("owner"),
        label: member("label"),
        acquired_at: member("acquiredAt"),
        updated_at: member("updatedAt"),
        ttl_seconds: member("ttlSeconds"),
        expires_at: member("expiresAt"),
        fence: member("fence"),
        seq: member("seq"),
        held: member("held"),
    })
}

#[test]
fn every_case_has_the_members_and_the_meaning_that_it_has_in_a_browser() {
    for case in cases() {
        let (bytes, about) = (bytes_of(&case), case["about"].as_str().unwrap());
        assert!(parse(&bytes) == members_of(&case["members"]), "{about}");
        let meaning = match read(&bytes) {
            Content::Record(_) => "record",
            Content::Damaged => "damaged",
            Content::Newer { .. } => "newer",
        };
        assert_eq!(meaning, case["means"].as_str().unwrap(), "{about}");
    }
}

#[test]
fn what_is_printed_is_what_a_browser_prints_and_comes_back() {
    let printed = cases()[0]["text"].as_str().unwrap().to_owned();
    let Content::Record(record) = read(printed.as_bytes()) else { panic!("{printed}") };
    assert_eq!(print(&record), printed);
    let odd = Record {
        lease_id: LeaseId::from_random([7; 16]),
        owner: Owner::parse(r#"a "quoted" \ né😀"#).unwrap(),
        label: Meta::label("Ann's \"tab\" \u{1F600}").unwrap(),
        acquired_at: StoreTime::from_millis(1_794_747_500_001),
        updated_at: StoreTime::from_millis(1_794_747_600_007),
        ttl: Ttl::parse("6025ms").unwrap(),
        fence: Some(Fence::MAX),
        seq: 3,
        held: false,
    };
    assert!(print(&odd).contains(r#""ttlSeconds":6.025,"#), "{}", print(&odd));
    assert_eq!(read(print(&odd).as_bytes()), Content::Record(odd));
}
