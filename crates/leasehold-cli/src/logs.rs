//! The log, on standard error: text for people on a terminal, one object a line elsewhere. What is logged never holds a
//! secret; that is for those who log to see to.

use std::io::IsTerminal;

use serde::Deserialize;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
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
    let passed = parse(filter).ok_or_else(|| {
        format!("cannot log {filter:?}; write a level (error, warn, info, debug, trace), or levels by module, such as \
                 info,leasehold_server=debug")
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

/// Levels, each for everything or for a module. A word that is neither is refused: it would be taken for a module, and
/// nothing else would be logged.
fn parse(filter: &str) -> Option<Targets> {
    filter.split(',').map(str::trim).try_fold(Targets::new(), |targets, part| match part.split_once('=') {
        None if part.is_empty() => None,
        None => Some(targets.with_default(part.parse::<LevelFilter>().ok()?)),
        Some((module, level)) if !module.is_empty() && !level.is_empty() => {
            Some(targets.with_target(module, level.parse::<LevelFilter>().ok()?))
        }
        Some(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_are_for_everything_or_for_a_module() {
        let both = parse("warn, leasehold_server=debug").unwrap();
        assert!(both.would_enable("leasehold_server::observe", &Level::DEBUG));
        assert!(both.would_enable("hyper", &Level::WARN) && !both.would_enable("hyper", &Level::INFO));
        for wrong in ["", "!!!", "warm", "info,,", "=info", "hyper=loud", "hyper="] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
