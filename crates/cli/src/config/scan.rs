//! `[scan]`: what becomes of a tool of an MCP server in whose definition something was found that should not be there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// What becomes of a tool of an MCP server in whose definition something was found.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct ScanKeys {
    /// What a scan of a tool's definition does when it is sure: `report` shows the findings (`gantry server review`,
    /// `gantry tool scan`), `block` also keeps a tool that is seen for the first time from everybody until a person accepts
    /// it. A definition that changes later is quarantined either way.
    pub(super) action: ScanAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScanAction {
    #[default]
    Report,
    Block,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct ScanSection {
    /// Is a tool kept away at first sight?
    pub(crate) blocks: bool,
}

impl ConfigSection for ScanKeys {
    const NAME: &'static str = "scan";
    type Checked = ScanSection;

    fn checked(self, _: &mut SectionProblems<'_>) -> ScanSection {
        ScanSection { blocks: self.action == ScanAction::Block }
    }
}
