//! The flags as pages get them.

use std::path::Path;

use leasehold_core::flags::PhaseName;
use leasehold_server::Server;
use leasehold_store::Memory;
use serde_json::json;

use crate::harness::{House, auth};

const FLAGS: &str = r#"{"version": 1, "phase": "beta", "phases": [
    {"name": "off", "autosave": false}, {"name": "beta", "autosave": true}]}"#;

fn house(file: Option<&Path>, phase: Option<&str>) -> House {
    House::with(|config| {
        config.flags_file = file.map(Path::to_owned);
        config.phase = phase.map(|name| PhaseName::parse(name).unwrap());
    })
}

#[tokio::test(start_paused = true)]
async fn a_page_needs_no_token_and_gets_the_phase_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flags.json");
    std::fs::write(&file, FLAGS).unwrap();
    let cases = [
        (None, None, json!({ "phase": "default", "autosave": true })),
        (Some(&*file), None, json!({ "phase": "beta", "autosave": true })),
        (Some(&*file), Some("off"), json!({ "phase": "off", "autosave": false })),
    ];
    for (file, phase, expected) in cases {
        let house = house(file, phase);
        let answer = house.stranger().get("/api/flags").await;
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.ok(), expected);
        house.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_with_jobs_only_has_flags_too() {
    let house = House::with_jobs_only();
    assert_eq!(house.stranger().get("/api/flags").await.ok()["phase"], "default");
    house.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_too_often_has_to_wait() {
    let house = House::with(|config| (config.limits.requests_per_second, config.limits.burst) = (1, 1));
    house.stranger().get("/api/flags").await.ok();
    house.stranger().get("/api/flags").await.refused(429, "too_many_requests");
    house.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_flag_file_that_cannot_be_used_keeps_the_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flags.json");
    let refused = |text: &str, phase: &str| {
        std::fs::write(&file, text).unwrap();
        let mut config = leasehold_server::Config::new(auth());
        (config.flags_file, config.phase) = (Some(file.clone()), PhaseName::parse(phase).ok());
        Server::start(std::sync::Arc::new(Memory::new()), config).err().unwrap().to_string()
    };
    assert!(refused("{", "").contains("correct it by hand"));
    let unknown = refused(FLAGS, "gamma");
    assert!(unknown.contains("gamma") && unknown.contains("choose one of off, beta"), "{unknown}");
}
