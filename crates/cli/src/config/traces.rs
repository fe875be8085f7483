//! `[traces]`: where traces go, and how many. Without an endpoint there are none.

use telemetry::{SampleRatio, TraceConfig};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "traces";

/// The collector.
pub(crate) const ENDPOINT: ConfigKey = ConfigKey {
    section: SECTION,
    name: "endpoint",
    kind: KeyKind::Text,
    default: None,
    unset: "no traces are sent",
    doc: "The OTLP/HTTP address of a collector, for example `http://127.0.0.1:4318`; without a path, `/v1/traces` is meant.",
    since: "0.2",
};

const SAMPLE_RATIO: ConfigKey = ConfigKey {
    section: SECTION,
    name: "sample_ratio",
    kind: KeyKind::Text,
    default: Some("1"),
    unset: "",
    doc: "Of the traces that begin here, this share is recorded, from `0` to `1`. A call that comes with a `traceparent` is \
          recorded if its caller records it.",
    since: "0.2",
};

const AUTHORIZATION: ConfigKey = ConfigKey {
    section: SECTION,
    name: "authorization",
    kind: KeyKind::Secret,
    default: None,
    unset: "none is sent",
    doc: "The `authorization` header for the collector.",
    since: "0.2",
};

const SERVICE_NAME: ConfigKey = ConfigKey {
    section: SECTION,
    name: "service_name",
    kind: KeyKind::Text,
    default: Some("gantry"),
    unset: "",
    doc: "What this server calls itself in its traces (`service.name`).",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&ENDPOINT, &SAMPLE_RATIO, &AUTHORIZATION, &SERVICE_NAME];

/// The section, if there is a collector.
pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Option<TraceConfig> {
    let ratio = settings.text(&SAMPLE_RATIO).unwrap_or("1").parse::<SampleRatio>();
    let ratio =
        ratio.map_err(|error| problems.push(ConfigProblem::new("[traces] sample_ratio", error.to_string()))).ok()?;
    if settings.text(&ENDPOINT).is_none() {
        problems.extend(settings.idle(&[&AUTHORIZATION, &SAMPLE_RATIO, &SERVICE_NAME], "`endpoint`"));
    }
    Some(TraceConfig {
        endpoint: settings.text(&ENDPOINT)?.to_owned(),
        ratio,
        authorization: settings.text(&AUTHORIZATION).map(str::to_owned),
        service: settings.text(&SERVICE_NAME).unwrap_or("gantry").to_owned(),
    })
}
