//! The log, on standard error: text for people on a terminal, one object a line elsewhere. What is logged never holds a
//! secret; that is for those who log to see to.

use std::io::IsTerminal;

use serde::Deserialize;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts to log what passes `filter`; says what is wrong with it otherwise.
pub(crate) fn start(filter: &str, format: Option<LogFormat>) -> Result<(), String> {
    let passed = filter.parse::<Targets>().map_err(|error| {
        format!("cannot log {filter:?}: {error}; write a level such as info, or leasehold_server=debug")
    })?;
    let on_terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if on_terminal { LogFormat::Text } else { LogFormat::Json });
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(on_terminal);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    // A logger that is already installed is fine.
    let _ = tracing_subscriber::registry().with(log.with_filter(passed)).try_init();
    Ok(())
}
