//! `[log]`: the server's own log, on stderr.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use telemetry::LogFormat;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// The server's own log, on stderr.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct LogKeys {
    /// `human` lines, one `json` object per line, or `auto`: human on a terminal, JSON elsewhere.
    pub(super) format: FormatChoice,
    /// `error`, `warn`, `info`, `debug` or `trace`, or per module: `info,gantry_store=debug`.
    pub(super) level: String,
}

impl Default for LogKeys {
    fn default() -> Self {
        Self { format: FormatChoice::Auto, level: "info".to_owned() }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FormatChoice {
    Auto,
    Human,
    Json,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct LogSection {
    pub(crate) format: LogFormat,
    pub(crate) level: String,
}

impl ConfigSection for LogKeys {
    const NAME: &'static str = "log";
    type Checked = LogSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> LogSection {
        let format = match self.format {
            FormatChoice::Auto => LogFormat::Auto,
            FormatChoice::Human => LogFormat::Human,
            FormatChoice::Json => LogFormat::Json,
        };
        let level = Some(self.level).filter(|level| !level.is_empty()).unwrap_or_else(|| Self::default().level);
        if let Err(error) = telemetry::check_log_level(&level) {
            problems.at("level", error.to_string());
        }
        LogSection { format, level }
    }
}
