//! `[scan]`: what becomes of a tool of an MCP server in whose definition something was found that should not be there.

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

const ACTION: ConfigKey = ConfigKey {
    section: "scan",
    name: "action",
    kind: KeyKind::Choice(&["report", "block"]),
    default: Some("report"),
    unset: "",
    doc: "What a scan of a tool's definition does when it is sure: `report` shows the findings (`gantry server review`, \
          `gantry tool scan`), `block` also keeps a tool that is seen for the first time from everybody until a person accepts \
          it. A definition that changes later is quarantined either way.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&ACTION];

/// The section's values.
#[derive(Debug)]
pub(crate) struct ScanSection {
    /// Is a tool kept away at first sight?
    pub(crate) blocks: bool,
}

impl ScanSection {
    pub(super) fn read(settings: &EffectiveSettings) -> Self {
        Self { blocks: settings.text(&ACTION) == Some("block") }
    }
}
