//! `[traces]`: where traces go, and how many. Without an endpoint there are none.

use telemetry::{Ratio, TraceConfig};

use super::key::{Key, Kind};
use super::settings::{Problem, Settings};

const SECTION: &str = "traces";

/// The collector.
pub(crate) const ENDPOINT: Key = Key {
    section: SECTION,
    name: "endpoint",
    kind: Kind::Text,
    default: None,
    unset: "no traces are sent",
    doc: "The OTLP/HTTP address of a collector, for example `http://127.0.0.1:4318`; without a path, `/v1/traces` is meant.",
    since: "0.2",
};

const SAMPLE_RATIO: Key = Key {
    section: SECTION,
    name: "sample_ratio",
    kind: Kind::Text,
    default: Some("1"),
    unset: "",
    doc: "Of the traces that begin here, this share is recorded, from `0` to `1`. A call that comes with a `traceparent` is \
          recorded if its caller records it.",
    since: "0.2",
};

const AUTHORIZATION: Key = Key {
    section: SECTION,
    name: "authorization",
    kind: Kind::Secret,
    default: None,
    unset: "none is sent",
    doc: "The `authorization` header for the collector.",
    since: "0.2",
};

const SERVICE_NAME: Key = Key {
    section: SECTION,
    name: "service_name",
    kind: Kind::Text,
    default: Some("gantry"),
    unset: "",
    doc: "What this server calls itself in its traces (`service.name`).",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&ENDPOINT, &SAMPLE_RATIO, &AUTHORIZATION, &SERVICE_NAME];

/// The section, if there is a collector.
pub(super) fn read(settings: &Settings, problems: &mut Vec<Problem>) -> Option<TraceConfig> {
    let ratio = settings.text(&SAMPLE_RATIO).unwrap_or("1").parse::<Ratio>();
    let ratio = ratio.map_err(|error| problems.push(Problem::new("[traces] sample_ratio", error.to_string()))).ok()?;
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
