//! `[webhooks]`: where this server may call back to, and how patient it is. (ASYNC-007)
//!
//! The grammar of `allow` is that of `executors::guarded_calls`; here is only which text was wrong.

use std::time::Duration;

use executors::{CallTimes, OpenedNetworks};
use jobs::webhooks::WebhookSettings;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "webhooks";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What is open beyond public https on port 443.
const ALLOW: ConfigKey = ConfigKey {
    section: SECTION,
    name: "allow",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "What may be called beyond public hosts by https on port 443: `hooks.example.com:8443` (another port), `10.0.0.7:8443` \
          (this very address, though it is not public), `http://10.0.0.7:8080` (the same without TLS), `10.1.0.0/16` (names may \
          lead into this network). Everything else that is loopback, private, link-local or a cloud's metadata is refused, after \
          the name was resolved. Where `[egress] allowed_hosts` is set, a public host must be there or here. Holds for webhooks, \
          callbacks and the services of `[inbound_jobs]`; these are named by the operator and need not be in `[egress]`.",
    since: "0.2",
};

const ATTEMPTS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "attempts",
    kind: KeyKind::Integer(1..=32),
    default: Some("8"),
    unset: "",
    doc: "How often a delivery is tried before it is given up (E3704). Eight attempts take about a day; each one more takes 14 \
          hours more.",
    since: "0.2",
};

const CONNECT_TIMEOUT_MS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "connect_timeout_ms",
    kind: KeyKind::Integer(100..=60_000),
    default: Some("5000"),
    unset: "",
    doc: "Milliseconds for resolving a receiver's name and connecting to it.",
    since: "0.2",
};

const TIMEOUT_MS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "timeout_ms",
    kind: KeyKind::Integer(100..=300_000),
    default: Some("15000"),
    unset: "",
    doc: "Milliseconds for one attempt as a whole.",
    since: "0.2",
};

const RETENTION_DAYS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "retention_days",
    kind: KeyKind::Integer(1..=365),
    default: Some("7"),
    unset: "",
    doc: "Days for which deliveries are kept after their end. What was given up can be sent again as long.",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&ALLOW, &ATTEMPTS, &CONNECT_TIMEOUT_MS, &TIMEOUT_MS, &RETENTION_DAYS];

/// The section's values.
#[derive(Debug)]
pub(crate) struct WebhooksSection {
    pub(crate) opened: OpenedNetworks,
    pub(crate) times: CallTimes,
    pub(crate) settings: WebhookSettings,
}

impl WebhooksSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        let opened =
            OpenedNetworks::read(settings.list(&ALLOW).iter().map(String::as_str)).unwrap_or_else(|(text, error)| {
                problems.push(ConfigProblem::new(ALLOW.title(), format!("`{text}`: {error}")));
                OpenedNetworks::default()
            });
        let millis = |key| Duration::from_millis(settings.integer(key));
        let days = u32::try_from(settings.integer(&RETENTION_DAYS)).unwrap_or(1);
        Self {
            opened,
            times: CallTimes { connect: millis(&CONNECT_TIMEOUT_MS), total: millis(&TIMEOUT_MS) },
            settings: WebhookSettings {
                attempts_max: u32::try_from(settings.integer(&ATTEMPTS)).unwrap_or(1),
                retention: DAY * days,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::settings::ConfigFile;
    use super::*;

    fn read(text: &str) -> (WebhooksSection, Vec<String>) {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: format!("[webhooks]\n{text}") };
        let settings = EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = WebhooksSection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn without_a_word_nothing_is_opened_and_patience_is_a_day() {
        let (section, problems) = read("");
        assert!(problems.is_empty() && section.opened == OpenedNetworks::default());
        assert_eq!(section.settings, WebhookSettings::default());
        assert_eq!(section.times, CallTimes::default());
    }

    #[test]
    fn what_opens_nothing_is_named() {
        let (section, problems) = read("allow = ['hooks.example.com:8443', 'http://10.0.0.7:8080', '10.1.0.0/16']");
        assert!(problems.is_empty() && section.opened != OpenedNetworks::default(), "{problems:?}");
        for text in ["10.0.0.1/8", "http:*", "host:0"] {
            let (_, problems) = read(&format!("allow = ['{text}']"));
            assert!(
                problems.len() == 1 && problems[0].starts_with(&format!("[webhooks] allow: `{text}`")),
                "{problems:?}"
            );
        }
    }
}
