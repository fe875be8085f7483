//! `[retention]`: for how long the archive of all instances keeps what. (AUD-007)
//!
//! Not here: the audit files of each instance, which nothing removes; how long use is kept (`usage`).

use std::time::Duration;

use ports::record_archive::Retention;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

const DAY: Duration = Duration::from_hours(24);
/// A century: longer is for ever.
const DAYS_MAX: u32 = 36_500;

/// For how long the archive of all instances keeps what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct RetentionKeys {
    /// PostgreSQL only: days for which the archive keeps audit records of all instances, as `400d`, or `forever`. Whole
    /// months are dropped, once their last day is older. The audit files of each instance stay.
    pub(super) audit: String,
    /// PostgreSQL only: days for which the table of calls that came to their end is kept, as `90d`, or `forever`.
    pub(super) invocations: String,
}

impl Default for RetentionKeys {
    fn default() -> Self {
        Self { audit: "400d".to_owned(), invocations: "90d".to_owned() }
    }
}

impl ConfigSection for RetentionKeys {
    const NAME: &'static str = "retention";
    type Checked = Retention;

    fn checked(self, problems: &mut SectionProblems<'_>) -> Retention {
        let mut kept = |name, text: &str| {
            parse(text).unwrap_or_else(|message| {
                problems.at(name, message);
                None
            })
        };
        Retention { audit: kept("audit", &self.audit), invocations: kept("invocations", &self.invocations) }
    }
}

fn parse(text: &str) -> Result<Option<Duration>, String> {
    if text == "forever" {
        return Ok(None);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    match days.filter(|days| (1..=DAYS_MAX).contains(days)) {
        Some(days) => Ok(Some(DAY * days)),
        None => Err(format!("must be a number of days from 1d to {DAYS_MAX}d, or forever")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_days_or_for_ever() {
        for (text, expected) in [
            ("1d", Some(Some(DAY))),
            ("400d", Some(Some(DAY * 400))),
            ("36500d", Some(Some(DAY * 36_500))),
            ("forever", Some(None)),
        ] {
            assert_eq!(parse(text).ok(), expected, "{text}");
        }
        for text in ["", "0d", "36501d", "400", "-1d", "1y", "never", "1.5d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
