//! `[limits]`: how many calls may run at once, beside how much one of them may use (`[sandbox]`). (EXEC-005)
//!
//! Not here: what the server as a whole takes in (`[server]`), how many sandboxes live at once (`[sandbox]`).

use super::key::{Key, Kind};
use super::settings::Settings;

const CONCURRENT_CALLS_PER_AGENT: Key = Key {
    section: "limits",
    name: "concurrent_calls_per_agent",
    kind: Kind::Integer(1..=10_000),
    default: Some("4"),
    unset: "",
    doc: "Calls of tools that run here (`process`, `wasm`, `oci`) that one agent of one tenant may have running at once on \
          this server; names it made by token exchange count as the agent. One more waits for its turn within its own time, \
          then it is refused: E3003. Built-in tools and those of MCP servers do not count.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&CONCURRENT_CALLS_PER_AGENT];

/// The section's values.
#[derive(Debug)]
pub(crate) struct LimitsSection {
    pub(crate) concurrent_calls_per_agent: u32,
}

impl LimitsSection {
    pub(super) fn read(settings: &Settings) -> Self {
        // INVARIANT: the range of the key fits the type.
        let calls = u32::try_from(settings.integer(&CONCURRENT_CALLS_PER_AGENT)).unwrap_or(u32::MAX);
        Self { concurrent_calls_per_agent: calls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_default_is_that_of_the_kernel_and_the_environment_raises_it() {
        let read = |environment: &BTreeMap<String, String>| {
            LimitsSection::read(&Settings::gather(None, environment, Vec::new()).unwrap()).concurrent_calls_per_agent
        };
        assert_eq!(read(&BTreeMap::new()), kernel::ResourceEnvelope::default().concurrent_calls_per_agent);
        let raised = BTreeMap::from([("GANTRY_LIMITS__CONCURRENT_CALLS_PER_AGENT".to_owned(), "64".to_owned())]);
        assert_eq!(read(&raised), 64);
    }
}
