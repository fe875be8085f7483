//! `[tools]`: folders with tools. How tools are shown to models is read with the rest of the MCP door (`mcp`).

use std::path::PathBuf;

use super::key::{Key, Kind};
use super::settings::Settings;

/// Where tools are.
pub(crate) const DIRS: Key = Key {
    section: "tools",
    name: "dirs",
    kind: Kind::List,
    default: Some(""),
    unset: "",
    doc: "Folders to load tools from and to watch: each is a tool folder itself or contains tool folders. In the \
          environment separated by commas. Flag: `--tools` (repeatable; replaces this list).",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&DIRS, &super::mcp::EXPOSURE];

/// The section's values.
#[derive(Debug)]
pub(crate) struct ToolsSection {
    pub(crate) dirs: Vec<PathBuf>,
}

impl ToolsSection {
    pub(super) fn read(settings: &Settings) -> Self {
        Self { dirs: settings.list(&DIRS).iter().map(PathBuf::from).collect() }
    }
}
