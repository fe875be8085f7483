//! The log: to stderr, human on a terminal and JSON elsewhere, level by module.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::EnvFilter;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    #[default]
    Auto,
    Human,
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("the log level is not understood: use `info`, `debug`, or per module such as `info,gantry_store=debug`")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging was set up twice")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging for the whole process. `filter` is a level or a list of `module=level`.
pub fn init_logging(format: LogFormat, filter: &str, colour: bool) -> Result<(), LoggingError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    // The library of MCP tells of every message, with what is in it; whoever wants that says so by its name.
    let quiet = if filter.contains("rmcp") { "" } else { ",rmcp=error" };
    let filter = EnvFilter::builder().parse(format!("{filter}{quiet}"))?;
    let human = match format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if human {
        builder.with_ansi(colour && std::io::stderr().is_terminal()).with_target(false).finish().try_init()?;
    } else {
        builder.json().flatten_event(true).finish().try_init()?;
    }
    Ok(())
}
