//! The tables of `docs/lock-events.md`, made by running the machine: which call publishes which events in which order, where it
//! ends, and how often what is tried again (*Project lock states* 1.2). `UPDATE_SNAPSHOTS=1` writes them anew.

use std::cmp::Reverse;
use std::time::Duration;

use leasehold_project_rules::options::{RELEASE_RETRY, RENEW_RETRY, RetryPolicy};
use leasehold_project_rules::{Options, Profile};

use super::world::{START, Trouble, Web, World, foreign};

const BEGIN: &str = "<!-- Made by crates/leasehold-project-rules/tests/rules/events_page.rs. -->\n";
const END: &str = "<!-- Until here. -->\n";

fn autosave() -> Options {
    Options::of(Profile::Autosave)
}

/// A world in which the project is held.
fn held(web: Web) -> World {
    let mut world = World::new(&[web]);
    world.acquire(0, &autosave());
    world
}

/// What was published from the `from`-th event on, and where the machine stands.
fn row(call: &str, case: &str, world: &World, from: usize) -> String {
    let events: Vec<String> = world.types(0, "lock").split_off(from);
    let state = world.tabs[0].machine.state_word();
    format!("| `{call}` | {case} | {} | `{state}` |\n", shown(&events))
}

/// Events in their order; what repeats is shown once, with how often.
fn shown(events: &[String]) -> String {
    let mut parts = Vec::new();
    let mut rest = events;
    while !rest.is_empty() {
        let times = |block: usize| rest.chunks(block).take_while(|chunk| *chunk == &rest[..block]).count();
        let covered = |block: usize| if times(block) > 1 { block * times(block) } else { 0 };
        // The shortest of those that cover as much.
        let longest = (1..=rest.len() / 2).max_by_key(|block| (covered(*block), Reverse(*block)));
        let block = longest.filter(|block| times(*block) > 1).unwrap_or(1);
        let text: Vec<String> = rest[..block].iter().map(|kind| format!("`{kind}`")).collect();
        let text = text.join(" → ");
        parts.push(match (times(block), block) {
            (1, _) => text,
            (many, 1) => format!("{text} ×{many}"),
            (many, _) => format!("({text}) ×{many}"),
        });
        rest = &rest[block * times(block)..];
    }
    parts.join(" → ")
}

fn events_table() -> String {
    let mut table = "| call | case | events, in this order | then |\n|---|---|---|---|\n".to_owned();
    let acquire = "acquireProjectLock";
    table += &row(acquire, "with the Web Lock", &held(Web::Works), 0);
    table += &row(acquire, "without Web Locks (`viaFallback`)", &held(Web::Unsupported), 0);
    let mut world = World::new(&[Web::Unsupported]);
    world.folder.lock = Some((foreign(START), START));
    world.acquire(0, &autosave());
    world.advance(1_500);
    table += &row(acquire, "`.lock` is held by another: attempts exhausted", &world, 0);
    let mut world = World::new(&[Web::Works]);
    world.folder.trouble = Some(Trouble::Open);
    world.acquire(0, &autosave());
    table += &row(acquire, "`.lock` cannot be created", &world, 0);

    let renew = "renewProjectLock";
    let (mut world, from) = (held(Web::Works), world_events(&held(Web::Works)));
    world.advance(20_000);
    table += &row(renew, "the heartbeat", &world, from);
    let (mut world, from) = (held(Web::Unsupported), world_events(&held(Web::Unsupported)));
    world.folder.trouble = Some(Trouble::Write);
    world.advance(25_500);
    table += &row(renew, "`.lock` cannot be written: two heartbeats in a row", &world, from);
    let (mut world, from) = (held(Web::Works), world_events(&held(Web::Works)));
    world.folder.lock = Some((foreign(START), START));
    world.advance(20_000);
    table += &row(renew, "another `leaseId` in `.lock`", &world, from);

    let release = "releaseProjectLock";
    let (mut world, from) = (held(Web::Works), world_events(&held(Web::Works)));
    world.release(0);
    table += &row(release, "released", &world, from);
    let (mut world, from) = (held(Web::Works), world_events(&held(Web::Works)));
    world.folder.trouble = Some(Trouble::Remove);
    world.release(0);
    world.advance(3_500);
    table += &row(release, "`.lock` cannot be removed", &world, from);

    let mut world = held(Web::Works);
    world.advance(20_000);
    world.release(0);
    table += &row("withProjectLock", "acquire, one heartbeat, release", &world, 0);
    table
}

fn world_events(world: &World) -> usize {
    world.types(0, "lock").len()
}

/// `500 ms, 1000 ms`, and what comes of it.
fn waits(policy: &RetryPolicy) -> String {
    let attempts = policy.max_attempts.expect("a number of attempts");
    let waits: Vec<String> =
        (1..attempts).map(|failure| format!("{} ms", policy.backoff.exact(failure).as_millis())).collect();
    format!("{attempts} | {}", waits.join(", "))
}

fn retries_table() -> String {
    let ms = |span: Duration| span.as_millis();
    let profile = Profile::Autosave;
    let lease =
        format!("{} ms with the Web Lock, {} ms without", ms(profile.web_ttl()), ms(profile.file_ttl()));
    let heartbeat = |web| {
        let world = held(web);
        let lease = world.lease(0);
        lease.next_heartbeat_at.as_millis() - lease.acquired_at.as_millis()
    };
    let heartbeats =
        format!("{} ms with the Web Lock, {} ms without", heartbeat(Web::Works), heartbeat(Web::Unsupported));
    let mut table = "| | attempts | waits between them |\n|---|---|---|\n".to_owned();
    for (what, policy) in [
        ("`acquireProjectLock`", profile.retry()),
        ("a heartbeat of `renewProjectLock`; two failed in a row are read-only", RENEW_RETRY),
        ("`releaseProjectLock`", RELEASE_RETRY),
    ] {
        table += &format!("| {what} | {} |\n", waits(&policy));
    }
    format!("{table}\nLease: {lease}. First heartbeat after {heartbeats}.\n")
}

#[test]
fn the_page_of_events_is_what_the_machine_does() {
    let path = format!("{}/../../docs/lock-events.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the mark before the tables");
    let (known, after) = rest.split_once(END).expect("the mark after the tables");
    let made = format!("\n{}\n{}\n", events_table(), retries_table());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
    }
    assert!(known == made, "docs/lock-events.md is not what the machine does; it is now:\n{made}");
}

#[test]
fn what_repeats_is_shown_once() {
    let events = |text: &str| shown(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(events("a"), "`a`");
    assert_eq!(events("a b c"), "`a` → `b` → `c`");
    assert_eq!(events("a b a b a b c"), "(`a` → `b`) ×3 → `c`");
    assert_eq!(events("x a a"), "`x` → `a` ×2");
}
