//! Tokens, from the header to the caller.

use jsonwebtoken::{EncodingKey, Header};
use leasehold_core::{JobId, LeaseName, RoomId};
use serde_json::{Value, json};

use super::*;
use crate::caller::Level;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const HOUR: u64 = 3_600;

fn now() -> u64 {
    jsonwebtoken::get_current_timestamp()
}

fn signed(claims: &Value) -> String {
    crypto::choose();
    jsonwebtoken::encode(&Header::default(), claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

fn open(change: impl FnOnce(&mut JwtOptions)) -> Auth {
    let mut options = JwtOptions::new(KeySource::Secret(SECRET.to_vec()));
    change(&mut options);
    Auth::Jwt(Arc::new(Jwt::open(options).unwrap()))
}

fn ask(auth: &Auth, claims: &Value) -> Result<Arc<Caller>, String> {
    let token = signed(claims);
    auth.authenticate(Some(&format!("Bearer {token}"))).map_err(|denied| denied.detail)
}

#[test]
fn claims_become_a_caller() {
    let exp = now() + HOUR;
    let claims = json!({"sub": "anna", "name": "Anna", "exp": exp,
        "documents": {"minutes": "lock", "a.*": "read"}, "jobs": {"analyses/*": "lock", "reports/7": "force"},
        "leases": {"nightly": "lock", "deploy/*": "read"}});
    let caller = ask(&open(|_| ()), &claims).unwrap();
    assert_eq!((caller.subject.as_str(), caller.name.as_str()), ("anna", "Anna"));
    assert_eq!(caller.expires_at, Some(exp));
    let level = |room: &str| caller.grants.level(&RoomId::parse(room).unwrap());
    assert_eq!([level("minutes"), level("a.b"), level("b")], [Some(Level::Lock), Some(Level::Read), None]);
    let level = |job: &str| caller.grants.job_level(&JobId::parse(job).unwrap());
    assert_eq!(
        [level("analyses/1"), level("reports/7"), level("reports/8")],
        [Some(Level::Lock), Some(Level::Force), None]
    );
    let level = |name: &str| caller.grants.lease_level(&LeaseName::parse(name).unwrap());
    assert_eq!(
        [level("nightly"), level("deploy/eu"), level("nightly2")],
        [Some(Level::Lock), Some(Level::Read), None]
    );
}

#[test]
fn a_name_that_could_fool_people_is_not_shown() {
    for name in [json!("Anna\u{202E}"), json!(" Anna"), json!(""), json!(7), json!("x".repeat(300))] {
        let claims = json!({"sub": "anna", "name": name, "exp": now() + HOUR});
        assert_eq!(ask(&open(|_| ()), &claims).unwrap().name.as_str(), "anna", "{name}");
    }
}

#[test]
fn what_is_wrong_with_claims_is_said_without_repeating_them() {
    let good = json!({"sub": "anna", "exp": now() + HOUR});
    let cases = [
        ("exp", json!(now() - 60), "expired"),
        ("exp", Value::Null, "`exp`"),
        ("exp", json!("zebra"), "`exp`"),
        ("exp", json!(-1), "`exp`"),
        ("exp", json!(1e300), "`exp`"),
        ("nbf", json!(now() + 60), "not valid yet"),
        ("nbf", json!("zebra"), "`nbf`"),
        ("sub", Value::Null, "`sub`"),
        ("sub", json!(""), "`sub`"),
        ("sub", json!(7), "the claim `sub` is a number"),
        ("sub", json!("zebra\u{7}"), "control and invisible"),
        ("sub", json!("zebra".repeat(60)), "256 bytes"),
        ("aud", json!("zebra"), "`aud`"),
        ("documents", json!("zebra"), "not an object"),
        ("documents", json!({"a": "zebra"}), "unknown level"),
        ("documents", json!({"a": 3}), "unknown level"),
        ("documents", json!({"zebra/x": "read"}), "cannot be a document"),
        ("documents", json!({"zebra**": "read"}), "cannot be a document"),
        ("documents", json!({"": "read"}), "cannot be a document"),
        ("jobs", json!(["zebra"]), "not an object"),
        ("jobs", json!({"zebra": "read"}), "cannot be a job"),
        ("jobs", json!({"zebra//*": "read"}), "cannot be a job"),
        ("jobs", json!({"zebra/*": "write"}), "unknown level"),
        ("leases", json!({"zebra//*": "lock"}), "cannot be a lease"),
        ("leases", json!({"../zebra": "lock"}), "cannot be a lease"),
        ("leases", json!({"zebra": "write"}), "unknown level"),
    ];
    for (claim, value, said) in cases {
        let mut claims = good.clone();
        claims[claim] = value.clone();
        let detail = ask(&open(|_| ()), &claims).expect_err(&format!("{claim} {value}"));
        assert!(detail.contains(said), "{claim} {value}: {detail}");
        assert!(!detail.contains("zebra"), "{claim} {value}: {detail}");
    }
    ask(&open(|_| ()), &good).unwrap();
    ask(&open(|_| ()), &json!({"sub": "anna", "exp": now() - 1, "nbf": now() + 1}))
        .expect("within the leeway");
}

#[test]
fn audience_and_issuer_are_required_when_they_are_set() {
    let auth = open(|options| {
        options.audience = vec!["leasehold".into(), "locks".into()];
        options.issuer = vec!["app".into()];
    });
    let cases = [
        (json!("leasehold"), json!("app"), Ok(())),
        (json!(["other", "locks"]), json!("app"), Ok(())),
        (json!("other"), json!("app"), Err("`aud`")),
        (json!([]), json!("app"), Err("`aud`")),
        (Value::Null, json!("app"), Err("`aud`")),
        (json!("locks"), json!("other"), Err("`iss`")),
        (json!("locks"), json!(["app", "other"]), Ok(())),
        (json!("locks"), Value::Null, Err("`iss`")),
    ];
    for (aud, iss, expected) in cases {
        let claims = json!({"sub": "anna", "exp": now() + HOUR, "aud": aud, "iss": iss});
        match (ask(&auth, &claims), expected) {
            (Ok(_), Ok(())) => {}
            (Err(detail), Err(said)) if detail.contains(said) => {}
            (answer, _) => panic!("{claims}: {answer:?}"),
        }
    }
}

#[test]
fn the_header_is_a_bearer_token() {
    let auth = open(|_| ());
    let token = signed(&json!({"sub": "anna", "exp": now() + HOUR}));
    for good in [format!("Bearer {token}"), format!("bearer  {token}")] {
        auth.authenticate(Some(&good)).unwrap();
    }
    let long = "x".repeat(LONGEST_TOKEN + 1);
    for bad in ["", "Bearer", "Bearer ", &token, &format!("Basic {token}"), &format!("Bearer {long}")] {
        let detail = auth.authenticate(Some(bad)).unwrap_err().detail;
        assert!(!detail.contains(&token), "{detail}");
    }
    assert!(auth.authenticate(None).unwrap_err().detail.contains("Authorization: Bearer"));
}

#[test]
fn a_token_does_not_choose_how_it_is_checked() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let auth = open(|_| ());
    let token = signed(&json!({"sub": "anna", "exp": now() + HOUR}));
    let (_, rest) = token.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"HS512"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"EdDSA"}"#,
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        "{}",
    ] {
        let header = URL_SAFE_NO_PAD.encode(header);
        for signature in ["", signature] {
            let forged = format!("Bearer {header}.{claims}.{signature}");
            auth.authenticate(Some(&forged)).expect_err(&forged);
        }
    }
}

#[test]
fn keys_that_will_not_do_are_refused_at_the_start() {
    let error = Jwt::open(JwtOptions::new(KeySource::Secret(b"short and sweet".to_vec()))).unwrap_err();
    assert!(error.to_string().contains("at least 32 bytes, this one has 15"), "{error}");
    let mut options = JwtOptions::new(KeySource::Secret(SECRET.to_vec()));
    options.algorithms = vec![Algorithm::EdDSA];
    assert!(Jwt::open(options).unwrap_err().to_string().contains("HS256"));
}

#[test]
fn nothing_shows_a_secret() {
    let shown = format!("{:?} {:?}", JwtOptions::new(KeySource::Secret(SECRET.to_vec())), open(|_| ()));
    assert!(shown.contains("hidden") && !shown.contains("48, 49"), "{shown}");
}

#[test]
fn without_tokens_everybody_is_anonymous_and_may_do_everything() {
    let caller = Auth::Open.authenticate(None).unwrap();
    assert_eq!((caller.subject.as_str(), caller.expires_at), ("anonymous", None));
    assert_eq!(caller.grants.level(&RoomId::parse("x").unwrap()), Some(Level::Force));
}
