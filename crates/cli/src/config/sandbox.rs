//! `[sandbox]`: what tools nobody trusts may be given of this machine, at most. (EXEC-004…006, EXEC-019, BC-1)
//!
//! Everything here takes away: a tool gets what its manifest declares, as far as this section allows it. There is no value
//! for "without limit", and an empty list is an empty list.
//!
//! Not here: how many calls run at once (`[limits]`), hosts and networks (`[egress]`), how isolated a call must be
//! (`[isolation]`), and making paths absolute (`reach`), because that needs to know where the server runs.

use std::path::{Component, Path, PathBuf};

use executors::OperatorReach;
use kernel::ResourceEnvelope;
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::{AbsoluteBoundPath, BoundPath, PathText};
use super::problems::SectionProblems;
use super::section::ConfigSection;

/// What tools nobody trusts may be given of this machine, at most.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct SandboxKeys {
    /// Sandboxes of processes that may live at once, warm ones included. Tenants share them: one alone holds at most three
    /// quarters. The next call waits until its deadline.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) sandboxes: usize,
    /// Processes and threads of one call. Starting one more fails inside the sandbox.
    #[schemars(range(min = 1, max = 32_768))]
    pub(super) pids: u32,
    /// Open files and sockets of one process, of a tool or of an MCP server. Opening one more fails inside (`EMFILE`, "Too
    /// many open files").
    #[schemars(range(min = 16, max = 65_536))]
    pub(super) open_files: u32,
    /// The most CPU one call may have, in thousandths of a core. A manifest or a request that asks for more is refused:
    /// E3407.
    #[schemars(range(min = 10, max = 1_024_000))]
    pub(super) cpu_millicores: u64,
    /// The most memory one call may have, in MiB, its scratch space included. A manifest or a request that asks for more is
    /// refused: E3407.
    #[schemars(range(min = 16, max = 4_194_304))]
    pub(super) memory_mb: u64,
    /// The most network one call may use, in megabits a second, both directions together. A request that asks for more is
    /// refused: E3407.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) network_mbps: u64,
    /// The most scratch space (`/tmp`) one call may have, in MiB. It is memory and counted as such, so it is also never
    /// more than half of the call's memory. A manifest that asks for more than this is refused: E3407.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub(super) scratch_mb: u64,
    /// Bytes a second that one call may read from, and write to, the disks behind its writable paths. Kept by control
    /// groups; needs those (`gantry doctor`).
    #[schemars(range(min = 65_536, max = 1_099_511_627_776_u64), extend("x-unset" = "not limited"))]
    pub(super) io_bytes_per_second: Option<u64>,
    /// Where the paths that tools declare (`filesystem:read:…`, `filesystem:write:…`) may lie. A tool that declares another
    /// one is refused: E3405. An empty list allows none. Unset, nothing of any home is given: not `/root`, `/home`, nor the
    /// home of the user the server runs as. Paths of MCP servers that the operator has added are named by the operator and
    /// may lie in a home. In the environment separated by commas.
    #[schemars(extend("x-unset" = "everywhere that is not blocked, except in homes"))]
    pub(super) allowed_paths: Option<Vec<BoundPath>>,
    /// Where they may not, with everything above and below; wins over `allowed_paths`. Always blocked are the data
    /// directory and every file and folder that this configuration names as the server's own: the configuration file, the
    /// audit log, the store, secrets, keys, certificates, policies, folders of tools (also of tenants); and `/proc`,
    /// `/sys`, `/dev`, `/run` and `/boot`. Homes (`/root`, `/home`) are closed to tools without being listed here, and open
    /// to MCP servers whose paths the operator has named.
    pub(super) blocked_paths: Vec<BoundPath>,
    /// System directories and files that every process tool sees read-only under the same name. Those that are not there
    /// are left out; links stay links.
    #[schemars(extend("x-unset" = "what interpreters and libraries usually need: `/usr`, `/bin`, `/lib`…, certificates, the dynamic linker's files"))]
    pub(super) system_paths: Option<Vec<AbsoluteBoundPath>>,
}

impl Default for SandboxKeys {
    fn default() -> Self {
        let (reach, envelope) = (OperatorReach::default(), ResourceEnvelope::default());
        Self {
            sandboxes: sandbox::SANDBOXES_MAX,
            pids: reach.pids,
            open_files: reach.open_files,
            cpu_millicores: envelope.cpu_millicores,
            memory_mb: envelope.memory_mb,
            network_mbps: envelope.network_mbps.unwrap_or(100),
            scratch_mb: envelope.scratch_mb,
            io_bytes_per_second: reach.io_bytes_per_second,
            allowed_paths: None,
            blocked_paths: ["/etc", "/var"].map(PathText::new).into(),
            system_paths: None,
        }
    }
}

/// The section's values; paths as they were written.
#[derive(Debug)]
pub(crate) struct SandboxSection {
    pub(crate) sandboxes: usize,
    pub(crate) pids: u32,
    pub(crate) open_files: u32,
    pub(crate) envelope: ResourceEnvelope,
    pub(crate) io_bytes_per_second: Option<u64>,
    /// `None`: everywhere that is not blocked.
    pub(crate) allowed_paths: Option<Vec<PathBuf>>,
    pub(crate) blocked_paths: Vec<PathBuf>,
    pub(crate) system_paths: Vec<PathBuf>,
}

impl ConfigSection for SandboxKeys {
    const NAME: &'static str = "sandbox";
    type Checked = SandboxSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> SandboxSection {
        let system = self.system_paths.map(|texts| paths("system_paths", texts, problems));
        if let Some(relative) = system.iter().flatten().find(|path| path.is_relative()) {
            let message =
                format!("`{}` must begin with `/`: it is seen inside under the same name", relative.display());
            problems.at("system_paths", message);
        }
        SandboxSection {
            sandboxes: self.sandboxes,
            pids: self.pids,
            open_files: self.open_files,
            envelope: ResourceEnvelope {
                cpu_millicores: self.cpu_millicores,
                memory_mb: self.memory_mb,
                network_mbps: Some(self.network_mbps),
                scratch_mb: self.scratch_mb,
                ..ResourceEnvelope::default()
            },
            io_bytes_per_second: self.io_bytes_per_second,
            allowed_paths: self.allowed_paths.map(|texts| paths("allowed_paths", texts, problems)),
            blocked_paths: paths("blocked_paths", self.blocked_paths, problems),
            system_paths: system.unwrap_or_else(|| OperatorReach::default().system),
        }
    }
}

/// A path that climbs is refused: what it means depends on links, and this is a fence.
fn paths<M>(name: &str, texts: Vec<PathText<M>>, problems: &mut SectionProblems<'_>) -> Vec<PathBuf> {
    let climbs = |text: &str| Path::new(text).components().any(|part| part == Component::ParentDir);
    for text in texts.iter().map(PathText::as_str) {
        if text.is_empty() {
            problems.at(name, "has a path without a name");
        } else if climbs(text) {
            problems.at(name, format!("`{text}` must not contain `..`"));
        }
    }
    texts.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_file;
    use super::*;

    fn read(text: &str) -> (SandboxSection, Vec<String>) {
        of_file::<SandboxKeys>(&format!("[sandbox]\n{text}"))
    }

    #[test]
    fn what_is_unset_is_as_the_kernel_and_the_sandbox_have_it() {
        let (section, problems) = read("");
        assert!(problems.is_empty());
        assert_eq!(section.envelope, ResourceEnvelope::default());
        let usual = executors::OperatorReach::default();
        assert_eq!(
            (section.pids, section.open_files, section.system_paths),
            (usual.pids, usual.open_files, usual.system)
        );
        assert_eq!(section.sandboxes, sandbox::SANDBOXES_MAX);
        assert_eq!((section.allowed_paths, section.io_bytes_per_second), (None, None));
        assert_eq!(section.blocked_paths, ["/etc", "/var"].map(PathBuf::from));
    }

    #[test]
    fn an_empty_list_allows_nothing_and_blocks_nothing() {
        let (section, _) = read("allowed_paths = []\nblocked_paths = []\nio_bytes_per_second = 65536");
        assert_eq!((section.allowed_paths, section.io_bytes_per_second), (Some(Vec::new()), Some(65_536)));
        assert!(section.blocked_paths.is_empty());
    }

    #[test]
    fn paths_that_mean_nothing_certain_are_refused() {
        for (text, word) in [
            ("allowed_paths = ['/data/../etc']", "[sandbox] allowed_paths: `/data/../etc` must not contain `..`"),
            ("blocked_paths = ['']", "[sandbox] blocked_paths: has a path without a name"),
            ("system_paths = ['usr']", "[sandbox] system_paths: `usr` must begin with `/`"),
        ] {
            let (_, problems) = read(text);
            assert!(problems.len() == 1 && problems[0].starts_with(word), "{text}: {problems:?}");
        }
    }
}
