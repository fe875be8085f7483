//! `[traces]`: where traces go, and how many. Without an endpoint there are none.

use schemars::JsonSchema;
use serde::Deserialize;

use telemetry::{SampleRatio, TraceConfig};

use super::problems::SectionProblems;
use super::secret_text::SecretText;
use super::section::ConfigSection;

/// Where traces go, and how many.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct TracesKeys {
    /// The OTLP/HTTP address of a collector, for example `http://127.0.0.1:4318`; without a path, `/v1/traces` is meant.
    #[schemars(extend("x-unset" = "no traces are sent"))]
    pub(super) endpoint: Option<String>,
    /// Of the traces that begin here, this share is recorded, from `0` to `1`. A call that comes with a `traceparent` is
    /// recorded if its caller records it.
    pub(super) sample_ratio: String,
    /// The `authorization` header for the collector.
    #[schemars(extend("x-unset" = "none is sent"))]
    pub(super) authorization: Option<SecretText>,
    /// What this server calls itself in its traces (`service.name`).
    pub(super) service_name: String,
}

impl Default for TracesKeys {
    fn default() -> Self {
        Self { endpoint: None, sample_ratio: "1".to_owned(), authorization: None, service_name: "gantry".to_owned() }
    }
}

impl ConfigSection for TracesKeys {
    const NAME: &'static str = "traces";
    type Checked = Option<TraceConfig>;

    fn checked(self, problems: &mut SectionProblems<'_>) -> Option<TraceConfig> {
        let usual = Self::default();
        let or = |text: String, usual: String| if text.is_empty() { usual } else { text };
        let ratio = or(self.sample_ratio, usual.sample_ratio).parse::<SampleRatio>();
        let ratio = ratio.map_err(|error| problems.at("sample_ratio", error.to_string())).ok()?;
        if self.endpoint.is_none() {
            problems.idle(&["authorization", "sample_ratio", "service_name"], "`endpoint`");
        }
        Some(TraceConfig {
            endpoint: self.endpoint?,
            ratio,
            authorization: self.authorization.map(|secret| secret.expose().to_owned()),
            service: or(self.service_name, usual.service_name),
        })
    }
}
