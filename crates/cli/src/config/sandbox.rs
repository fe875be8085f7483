//! `[sandbox]`: what tools nobody trusts may be given of this machine, at most. (EXEC-004…006, EXEC-019, BC-1)
//!
//! Everything here takes away: a tool gets what its manifest declares, as far as this section allows it. There is no value
//! for "without limit", and an empty list is an empty list.
//!
//! Not here: how many calls run at once (`[limits]`), hosts and networks (`[egress]`), how isolated a call must be
//! (`[isolation]`), and making paths absolute (`reach`), because that needs to know where the server runs.

use std::path::{Component, Path, PathBuf};

use base::SaturatingFrom as _;
use kernel::ResourceEnvelope;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "sandbox";

const SANDBOXES: ConfigKey = ConfigKey {
    section: SECTION,
    name: "sandboxes",
    kind: KeyKind::Integer(1..=10_000),
    default: Some("256"),
    unset: "",
    doc: "Sandboxes of processes that may live at once, warm ones included. Tenants share them: one alone holds at most three \
          quarters. The next call waits until its deadline.",
    since: "0.1",
};

const PIDS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "pids",
    kind: KeyKind::Integer(1..=32_768),
    default: Some("128"),
    unset: "",
    doc: "Processes and threads of one call. Starting one more fails inside the sandbox.",
    since: "0.1",
};

const OPEN_FILES: ConfigKey = ConfigKey {
    section: SECTION,
    name: "open_files",
    kind: KeyKind::Integer(16..=65_536),
    default: Some("1024"),
    unset: "",
    doc: "Open files and sockets of one process, of a tool or of an MCP server. Opening one more fails inside (`EMFILE`, \"Too many \
          open files\").",
    since: "0.1",
};

const CPU_MILLICORES: ConfigKey = ConfigKey {
    section: SECTION,
    name: "cpu_millicores",
    kind: KeyKind::Integer(10..=1_024_000),
    default: Some("4000"),
    unset: "",
    doc: "The most CPU one call may have, in thousandths of a core. A manifest or a request that asks for more is refused: \
          E3407.",
    since: "0.1",
};

const MEMORY_MB: ConfigKey = ConfigKey {
    section: SECTION,
    name: "memory_mb",
    kind: KeyKind::Integer(16..=4_194_304),
    default: Some("8192"),
    unset: "",
    doc: "The most memory one call may have, in MiB, its scratch space included. A manifest or a request that asks for more \
          is refused: E3407.",
    since: "0.1",
};

const NETWORK_MBPS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "network_mbps",
    kind: KeyKind::Integer(1..=1_000_000),
    default: Some("100"),
    unset: "",
    doc: "The most network one call may use, in megabits a second, both directions together. A request that asks for more \
          is refused: E3407.",
    since: "0.1",
};

const SCRATCH_MB: ConfigKey = ConfigKey {
    section: SECTION,
    name: "scratch_mb",
    kind: KeyKind::Integer(1..=4_194_304),
    default: Some("10240"),
    unset: "",
    doc: "The most scratch space (`/tmp`) one call may have, in MiB. It is memory and counted as such, so it is also never \
          more than half of the call's memory. A manifest that asks for more than this is refused: E3407.",
    since: "0.1",
};

const IO_BYTES_PER_SECOND: ConfigKey = ConfigKey {
    section: SECTION,
    name: "io_bytes_per_second",
    kind: KeyKind::Integer(65_536..=1_099_511_627_776),
    default: None,
    unset: "not limited",
    doc: "Bytes a second that one call may read from, and write to, the disks behind its writable paths. Kept by control \
          groups; needs those (`gantry doctor`).",
    since: "0.1",
};

const ALLOWED_PATHS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "allowed_paths",
    kind: KeyKind::List,
    default: None,
    unset: "everywhere that is not blocked, except in homes",
    doc: "Where the paths that tools declare (`filesystem:read:…`, `filesystem:write:…`) may lie. A tool that declares another \
          one is refused: E3405. An empty list allows none. Unset, nothing of any home is given: not `/root`, `/home`, nor the \
          home of the user the server runs as. Paths of MCP servers that the operator has added are named by the operator \
          and may lie in a home. In the environment separated by commas.",
    since: "0.1",
};

const BLOCKED_PATHS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "blocked_paths",
    kind: KeyKind::List,
    default: Some("/etc,/var"),
    unset: "",
    doc: "Where they may not, with everything above and below; wins over `allowed_paths`. Always blocked are the data directory \
          and every file and folder that this configuration names as the server's own: the configuration file, the audit log, \
          the store, secrets, keys, certificates, policies, folders of tools (also of tenants); and `/proc`, `/sys`, `/dev`, \
          `/run` and `/boot`. Homes (`/root`, `/home`) are closed to tools without being listed here, and open to MCP servers whose \
          paths the operator has named.",
    since: "0.1",
};

const SYSTEM_PATHS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "system_paths",
    kind: KeyKind::List,
    default: None,
    unset: "what interpreters and libraries usually need: `/usr`, `/bin`, `/lib`…, certificates, the dynamic linker's files",
    doc: "System directories and files that every process tool sees read-only under the same name. Those that are not there \
          are left out; links stay links.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &SANDBOXES,
    &PIDS,
    &OPEN_FILES,
    &CPU_MILLICORES,
    &MEMORY_MB,
    &NETWORK_MBPS,
    &SCRATCH_MB,
    &IO_BYTES_PER_SECOND,
    &ALLOWED_PATHS,
    &BLOCKED_PATHS,
    &SYSTEM_PATHS,
];

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

impl SandboxSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        // INVARIANT: the ranges of the keys fit the types; saturating is what a range beyond them would deserve.
        let small = |key: &ConfigKey| u32::saturating_from(settings.integer(key));
        let system = paths(settings, &SYSTEM_PATHS, problems);
        if let Some(relative) = system.iter().flatten().find(|path| path.is_relative()) {
            let message =
                format!("`{}` must begin with `/`: it is seen inside under the same name", relative.display());
            problems.push(ConfigProblem::new(SYSTEM_PATHS.title(), message));
        }
        Self {
            sandboxes: usize::saturating_from(settings.integer(&SANDBOXES)),
            pids: small(&PIDS),
            open_files: small(&OPEN_FILES),
            envelope: ResourceEnvelope {
                cpu_millicores: settings.integer(&CPU_MILLICORES),
                memory_mb: settings.integer(&MEMORY_MB),
                network_mbps: Some(settings.integer(&NETWORK_MBPS)),
                scratch_mb: settings.integer(&SCRATCH_MB),
                ..ResourceEnvelope::default()
            },
            io_bytes_per_second: settings.integer_if_set(&IO_BYTES_PER_SECOND),
            allowed_paths: paths(settings, &ALLOWED_PATHS, problems),
            blocked_paths: paths(settings, &BLOCKED_PATHS, problems).unwrap_or_default(),
            system_paths: system.unwrap_or_else(|| sandbox::SYSTEM.iter().map(PathBuf::from).collect()),
        }
    }
}

/// `None` if the key is unset. A path that climbs is refused: what it means depends on links, and this is a fence.
fn paths(settings: &EffectiveSettings, key: &ConfigKey, problems: &mut Vec<ConfigProblem>) -> Option<Vec<PathBuf>> {
    settings.get(key)?;
    let climbs = |text: &str| Path::new(text).components().any(|part| part == Component::ParentDir);
    for text in settings.list(key) {
        if text.is_empty() {
            problems.push(ConfigProblem::new(key.title(), "has a path without a name"));
        } else if climbs(text) {
            problems.push(ConfigProblem::new(key.title(), format!("`{text}` must not contain `..`")));
        }
    }
    Some(settings.list(key).iter().map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::super::settings::ConfigFile;
    use super::*;
    use std::collections::BTreeMap;

    fn read(text: &str) -> (SandboxSection, Vec<String>) {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: format!("[sandbox]\n{text}") };
        let settings = EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = SandboxSection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_defaults_are_those_of_the_kernel_and_the_sandbox() {
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
