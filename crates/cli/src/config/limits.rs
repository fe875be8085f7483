//! `[limits]`: how many calls may run at once and how large a result may be, beside how much a call may use (`[sandbox]`).
//! (EXEC-005, VALID-013)
//!
//! Not here: what the server as a whole takes in (`[server]`), how many sandboxes live at once (`[sandbox]`).

use base::SaturatingFrom as _;

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

const CONCURRENT_CALLS_PER_AGENT: ConfigKey = ConfigKey {
    section: "limits",
    name: "concurrent_calls_per_agent",
    kind: KeyKind::Integer(1..=10_000),
    default: Some("4"),
    unset: "",
    doc: "Calls of tools that run here (`process`, `wasm`, `oci`) that one agent of one tenant may have running at once on \
          this server; names it made by token exchange count as the agent. One more waits for its turn within its own time, \
          then it is refused: E3003. Built-in tools and those of MCP servers do not count.",
    since: "0.1",
};

const RESULT_BYTES_MAX: ConfigKey = ConfigKey {
    section: "limits",
    name: "result_bytes_max",
    kind: KeyKind::Integer(1_024..=33_554_432),
    default: Some("1048576"),
    unset: "",
    doc: "Bytes of a result, as JSON, of a tool whose manifest has no `result_bytes_max`. A larger one is refused: E3414, 413. \
          Tools of MCP servers have `result_bytes_ceiling`.",
    since: "0.3",
};

const RESULT_BYTES_CEILING: ConfigKey = ConfigKey {
    section: "limits",
    name: "result_bytes_ceiling",
    kind: KeyKind::Integer(1_024..=33_554_432),
    default: Some("16777216"),
    unset: "",
    doc: "The most bytes that `result_bytes_max` of a manifest may ask for, and what tools of MCP servers have that say nothing \
          (`gantry server edit NAME --result-bytes BYTES`). A manifest that asks for more is refused: E3407. Whatever is said \
          elsewhere, no result is larger.",
    since: "0.3",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&CONCURRENT_CALLS_PER_AGENT, &RESULT_BYTES_MAX, &RESULT_BYTES_CEILING];

/// The section's values.
#[derive(Debug)]
pub(crate) struct LimitsSection {
    pub(crate) concurrent_calls_per_agent: u32,
    pub(crate) result_bytes: u64,
    pub(crate) result_bytes_ceiling: u64,
}

impl LimitsSection {
    pub(super) fn read(settings: &EffectiveSettings) -> Self {
        // INVARIANT: the range of the key fits the type.
        let calls = u32::saturating_from(settings.integer(&CONCURRENT_CALLS_PER_AGENT));
        Self {
            concurrent_calls_per_agent: calls,
            result_bytes: settings.integer(&RESULT_BYTES_MAX),
            result_bytes_ceiling: settings.integer(&RESULT_BYTES_CEILING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_default_is_that_of_the_kernel_and_the_environment_raises_it() {
        let read = |environment: &BTreeMap<String, String>| {
            let read = LimitsSection::read(&EffectiveSettings::gather(None, environment, Vec::new()).unwrap());
            (read.concurrent_calls_per_agent, read.result_bytes, read.result_bytes_ceiling)
        };
        let usual = kernel::ResourceEnvelope::default();
        let usual = (usual.concurrent_calls_per_agent, usual.result_bytes, usual.result_bytes_ceiling);
        assert_eq!(read(&BTreeMap::new()), usual);
        let raised =
            [("CONCURRENT_CALLS_PER_AGENT", "64"), ("RESULT_BYTES_MAX", "2048"), ("RESULT_BYTES_CEILING", "4096")];
        let raised = raised.map(|(name, value)| (format!("GANTRY_LIMITS__{name}"), value.to_owned()));
        assert_eq!(read(&BTreeMap::from(raised)), (64, 2_048, 4_096));
    }
}
