//! `[process]`: tools that are programs.

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

/// Run programs without a sandbox.
pub(crate) const UNSANDBOXED: ConfigKey = ConfigKey {
    section: "process",
    name: "unsandboxed",
    kind: KeyKind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Run process tools without the sandbox, as plain children of the server with its rights. The sandbox is the default; \
          this is for machines that cannot make namespaces (`gantry doctor` says so) and for tools you wrote or have read. \
          What only the sandbox can keep is refused then: sessions (`gantry/1`), limits asked for by a caller, declared \
          hosts, credentials. Flag: `--unsandboxed-processes`.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&UNSANDBOXED];

/// The section's values.
#[derive(Debug)]
pub(crate) struct ProcessSection {
    pub(crate) unsandboxed: bool,
}

impl ProcessSection {
    pub(super) fn read(settings: &EffectiveSettings) -> Self {
        Self { unsandboxed: settings.flag(&UNSANDBOXED) }
    }
}
