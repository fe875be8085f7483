//! `[log]`: the server's own log, on stderr.

use telemetry::LogFormat;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

/// How lines look.
pub(crate) const FORMAT: ConfigKey = ConfigKey {
    section: "log",
    name: "format",
    kind: KeyKind::Choice(&["auto", "human", "json"]),
    default: Some("auto"),
    unset: "",
    doc: "`human` lines, one `json` object per line, or `auto`: human on a terminal, JSON elsewhere.",
    since: "0.1",
};

/// How much is said.
pub(crate) const LEVEL: ConfigKey = ConfigKey {
    section: "log",
    name: "level",
    kind: KeyKind::Text,
    default: Some("info"),
    unset: "",
    doc: "`error`, `warn`, `info`, `debug` or `trace`, or per module: `info,gantry_store=debug`.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&FORMAT, &LEVEL];

/// The section's values.
#[derive(Debug)]
pub(crate) struct LogSection {
    pub(crate) format: LogFormat,
    pub(crate) level: String,
}

impl LogSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        let format = match settings.text(&FORMAT) {
            Some("human") => LogFormat::Human,
            Some("json") => LogFormat::Json,
            _ => LogFormat::Auto,
        };
        let level = settings.text(&LEVEL).unwrap_or("info").to_owned();
        if let Err(error) = telemetry::check_log_level(&level) {
            problems.push(ConfigProblem::new(LEVEL.title(), error.to_string()));
        }
        Self { format, level }
    }
}
