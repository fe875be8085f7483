//! `[process]`: tools that are programs.

use super::key::{Key, Kind};
use super::settings::Settings;

/// Run programs without a sandbox.
pub(crate) const UNSANDBOXED: Key = Key {
    section: "process",
    name: "unsandboxed",
    kind: Kind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Run process tools without isolation, with the rights of the server. This build has no sandbox yet, so without \
          it process tools are refused (E3405). Only for tools you wrote or have read. Flag: `--unsandboxed-processes`.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&UNSANDBOXED];

/// The section's values.
#[derive(Debug)]
pub(crate) struct ProcessSection {
    pub(crate) unsandboxed: bool,
}

impl ProcessSection {
    pub(super) fn read(settings: &Settings) -> Self {
        Self { unsandboxed: settings.flag(&UNSANDBOXED) }
    }
}
