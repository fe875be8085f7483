//! `[process]`: tools that are programs.

use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// Tools that are programs.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct ProcessSection {
    /// Run process tools without the sandbox, as plain children of the server with its rights. The sandbox is the default;
    /// this is for machines that cannot make namespaces (`gantry doctor` says so) and for tools you wrote or have read.
    /// What only the sandbox can keep is refused then: sessions (`gantry/1`), limits asked for by a caller, declared hosts,
    /// credentials. Flag: `--unsandboxed-processes`.
    pub(crate) unsandboxed: bool,
}

impl ConfigSection for ProcessSection {
    const NAME: &'static str = "process";
    type Checked = Self;

    fn checked(self, _: &mut SectionProblems<'_>) -> Self {
        self
    }
}
