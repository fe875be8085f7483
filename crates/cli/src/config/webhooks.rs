//! `[webhooks]`: where this server may call back to, and how patient it is. (ASYNC-007)
//!
//! The grammar of `allow` is that of `executors::guarded_calls`; here is only which text was wrong.

use std::time::Duration;

use base::SaturatingFrom as _;
use executors::{CallTimes, OpenedNetworks};
use jobs::webhooks::WebhookSettings;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

const DAY: Duration = Duration::from_hours(24);

/// Where this server may call back to, and how patient it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct WebhooksKeys {
    /// What may be called beyond public hosts by https on port 443: `hooks.example.com:8443` (another port),
    /// `10.0.0.7:8443` (this very address, though it is not public), `http://10.0.0.7:8080` (the same without TLS),
    /// `10.1.0.0/16` (names may lead into this network). Everything else that is loopback, private, link-local or a cloud's
    /// metadata is refused, after the name was resolved. Where `[egress] allowed_hosts` is set, a public host must be there
    /// or here. Holds for webhooks, callbacks and the services of `[inbound_jobs]`; these are named by the operator and
    /// need not be in `[egress]`.
    pub(super) allow: Vec<String>,
    /// How often a delivery is tried before it is given up (E3704). Eight attempts take about a day; each one more takes 14
    /// hours more.
    #[schemars(range(min = 1, max = 32))]
    pub(super) attempts: u32,
    /// Milliseconds for resolving a receiver's name and connecting to it.
    #[schemars(range(min = 100, max = 60_000))]
    pub(super) connect_timeout_ms: u64,
    /// Milliseconds for one attempt as a whole.
    #[schemars(range(min = 100, max = 300_000))]
    pub(super) timeout_ms: u64,
    /// Days for which deliveries are kept after their end. What was given up can be sent again as long.
    #[schemars(range(min = 1, max = 365))]
    pub(super) retention_days: u32,
}

impl Default for WebhooksKeys {
    fn default() -> Self {
        let (usual, times) = (WebhookSettings::default(), CallTimes::default());
        let millis = |time: Duration| u64::saturating_from(time.as_millis());
        Self {
            allow: Vec::new(),
            attempts: usual.attempts_max,
            connect_timeout_ms: millis(times.connect),
            timeout_ms: millis(times.total),
            retention_days: u32::saturating_from(usual.retention.as_secs() / DAY.as_secs()),
        }
    }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct WebhooksSection {
    pub(crate) opened: OpenedNetworks,
    pub(crate) times: CallTimes,
    pub(crate) settings: WebhookSettings,
}

impl ConfigSection for WebhooksKeys {
    const NAME: &'static str = "webhooks";
    type Checked = WebhooksSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> WebhooksSection {
        let opened = OpenedNetworks::read(self.allow.iter().map(String::as_str)).unwrap_or_else(|(text, error)| {
            problems.at("allow", format!("`{text}`: {error}"));
            OpenedNetworks::default()
        });
        let millis = Duration::from_millis;
        WebhooksSection {
            opened,
            times: CallTimes { connect: millis(self.connect_timeout_ms), total: millis(self.timeout_ms) },
            settings: WebhookSettings { attempts_max: self.attempts, retention: DAY * self.retention_days },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_file;
    use super::*;

    fn read(text: &str) -> (WebhooksSection, Vec<String>) {
        of_file::<WebhooksKeys>(&format!("[webhooks]\n{text}"))
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
