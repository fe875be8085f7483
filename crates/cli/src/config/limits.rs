//! `[limits]`: how many calls may run at once and how large a result may be, beside how much a call may use (`[sandbox]`).
//! (EXEC-005, VALID-013)
//!
//! Not here: what the server as a whole takes in (`[server]`), how many sandboxes live at once (`[sandbox]`).

use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// How many calls may run at once and how large a result may be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.3"))]
pub(crate) struct LimitsSection {
    /// Calls of tools that run here (`process`, `wasm`, `oci`) that one agent of one tenant may have running at once on
    /// this server; names it made by token exchange count as the agent. One more waits for its turn within its own time,
    /// then it is refused: E3003. Built-in tools and those of MCP servers do not count.
    #[schemars(range(min = 1, max = 10_000), extend("x-since" = "0.1"))]
    pub(crate) concurrent_calls_per_agent: u32,
    /// Bytes of a result, as JSON, of a tool whose manifest has no `result_bytes_max`. A larger one is refused: E3414, 413.
    /// Tools of MCP servers have `result_bytes_ceiling`.
    #[schemars(range(min = 1_024, max = 33_554_432))]
    pub(crate) result_bytes_max: u64,
    /// The most bytes that `result_bytes_max` of a manifest may ask for, and what tools of MCP servers have that say
    /// nothing (`gantry server edit NAME --result-bytes BYTES`). A manifest that asks for more is refused: E3407. Whatever
    /// is said elsewhere, no result is larger.
    #[schemars(range(min = 1_024, max = 33_554_432))]
    pub(crate) result_bytes_ceiling: u64,
}

impl Default for LimitsSection {
    fn default() -> Self {
        let usual = kernel::ResourceEnvelope::default();
        Self {
            concurrent_calls_per_agent: usual.concurrent_calls_per_agent,
            result_bytes_max: usual.result_bytes,
            result_bytes_ceiling: usual.result_bytes_ceiling,
        }
    }
}

impl ConfigSection for LimitsSection {
    const NAME: &'static str = "limits";
    type Checked = Self;

    fn checked(self, _: &mut SectionProblems<'_>) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn what_is_unset_is_as_the_kernel_has_it_and_the_environment_raises_it() {
        let read = |variables: &[(&str, &str)]| {
            let (read, _) = of_variables::<LimitsSection>(variables);
            (read.concurrent_calls_per_agent, read.result_bytes_max, read.result_bytes_ceiling)
        };
        let usual = kernel::ResourceEnvelope::default();
        assert_eq!(read(&[]), (usual.concurrent_calls_per_agent, usual.result_bytes, usual.result_bytes_ceiling));
        let raised =
            [("CONCURRENT_CALLS_PER_AGENT", "64"), ("RESULT_BYTES_MAX", "2048"), ("RESULT_BYTES_CEILING", "4096")];
        assert_eq!(read(&raised), (64, 2_048, 4_096));
    }
}
