//! The log, on standard error: text for people on a terminal, one object a line elsewhere. What is logged never holds a
//! secret; that is for those who log to see to.

use std::io::IsTerminal;

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

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
    let passed = EnvFilter::try_new(filter).map_err(|error| {
        format!("cannot log {filter:?}: {error}; write a level such as info, or leasehold_server=debug")
    })?;
    let on_terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if on_terminal { LogFormat::Text } else { LogFormat::Json });
    let log =
        tracing_subscriber::fmt().with_env_filter(passed).with_writer(std::io::stderr).with_ansi(on_terminal);
    // A logger that is already installed is fine.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    Ok(())
}
