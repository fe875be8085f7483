//! The log: to stderr, human on a terminal and JSON elsewhere, level by module, which can be changed while the server runs.
//!
//! What a line looks like is in `lines`: one line for each event, whatever is in it, with the ids of the call it belongs to.

mod lines;

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use lines::{Lines, Look};

use crate::traces::TraceRedaction;

/// Longest filter.
const FILTER_CHARS_MAX: usize = 1_024;
/// So much of what is no level is said again.
const SHOWN_CHARS_MAX: usize = 40;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    #[default]
    Auto,
    Human,
    Json,
}

/// Why logging could not be set up, or its level not changed.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("the log level is not understood: use `info`, `debug`, or per module such as `info,gantry_store=debug`")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The library takes a word it does not know for the name of a module, and says nothing of anything else.
    #[error(
        "`{0}` is no log level: use `error`, `warn`, `info`, `debug`, `trace` or `off`, or per module such as `info,gantry_store=debug`"
    )]
    NoLevel(String),
    #[error("the log level is longer than {FILTER_CHARS_MAX} characters")]
    TooLong,
    #[error("logging was set up twice")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
    #[error("the log is gone")]
    Gone(#[from] reload::Error),
}

/// Changes how much is said, for as long as the process runs.
#[derive(Debug, Clone)]
pub struct LogControl {
    handle: reload::Handle<EnvFilter, Registry>,
    /// As it was asked for.
    level: Arc<Mutex<String>>,
}

impl LogControl {
    /// What is in force.
    pub fn level(&self) -> String {
        self.level.lock_unpoisoned().clone()
    }

    /// Says as much as this from now on: a level, or a list of `module=level`. A level that is not understood changes
    /// nothing.
    pub fn set(&self, level: &str) -> Result<(), LoggingError> {
        let filter = parsed(level)?;
        let mut known = self.level.lock_unpoisoned();
        self.handle.reload(filter)?;
        level.clone_into(&mut known);
        Ok(())
    }
}

/// Starts logging for the whole process. `filter` is a level or a list of `module=level`; what is said within a call goes
/// through `redaction`.
pub fn init_logging(
    format: LogFormat,
    filter: &str,
    colour: bool,
    redaction: TraceRedaction,
) -> Result<LogControl, LoggingError> {
    let human = match format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let look = match human {
        true => Look::Human { colour: colour && std::io::stderr().is_terminal() },
        false => Look::Json,
    };
    let (filter_layer, handle) = reload::Layer::new(parsed(filter)?);
    tracing_subscriber::registry().with(filter_layer).with(Lines::to_stderr(look, redaction)).try_init()?;
    Ok(LogControl { handle, level: Arc::new(Mutex::new(filter.to_owned())) })
}

/// Whether a log can be kept at this level.
///
/// # Errors
/// What is wrong with it.
pub fn check_log_level(level: &str) -> Result<(), LoggingError> {
    parsed(level).map(drop)
}

fn parsed(filter: &str) -> Result<EnvFilter, LoggingError> {
    if filter.chars().count() > FILTER_CHARS_MAX {
        return Err(LoggingError::TooLong);
    }
    let parts = || filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    let no_level = parts().find(|part| {
        let level = part.rsplit_once('=').map_or(*part, |(_, level)| level);
        level.parse::<LevelFilter>().is_err() || level.parse::<u8>().is_ok()
    });
    if let Some(part) = no_level {
        let shown = part.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
        return Err(LoggingError::NoLevel(shown));
    }
    if parts().next().is_none() {
        return Err(LoggingError::NoLevel(String::new()));
    }
    // The library of MCP tells of every message, with what is in it; whoever wants that says so by its name.
    let quiet = if filter.contains("rmcp") { "" } else { ",rmcp=error" };
    Ok(EnvFilter::builder().parse(format!("{filter}{quiet}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_changed_while_it_runs_and_nonsense_changes_nothing() {
        let (layer, handle) = reload::Layer::new(parsed("info").unwrap());
        let _subscriber = tracing_subscriber::registry().with(layer);
        let control = LogControl { handle, level: Arc::new(Mutex::new("info".to_owned())) };
        control.set("warn,gantry_calls=debug").unwrap();
        assert_eq!(control.level(), "warn,gantry_calls=debug");
        let bad = [
            "a=b=c",
            "info,[",
            &"x".repeat(2_000),
            "inof",
            "gantry_store",
            "gantry_store=inof",
            "3",
            "",
            ",",
            "info,inof",
        ];
        for bad in bad {
            assert!(control.set(bad).is_err(), "{bad}");
        }
        assert_eq!(control.level(), "warn,gantry_calls=debug");
    }
}
