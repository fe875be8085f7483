//! `config.json` of a bundle: the policy of a [`SandboxSpec`] in the words of the OCI runtime specification 1.0.
//!
//! A function of values: what is mounted where has been decided and prepared by then. Everything that a runtime would
//! give by default and a tool need not have is said to be absent.
//!
//! | policy | runc, crun | runsc |
//! |---|---|---|
//! | 65534, no capability, no new privileges | the kernel's | the sentry's; the sentry itself is nobody in a chroot |
//! | read-only root and mounts | mounts | mounts of the gofer, and the sentry's |
//! | system calls | our allowlist, as names | every call is the sentry's; its own filter is towards the machine |
//! | network | a namespace without anything, or ours with the proxy alone | `--network=none`, or `host` in ours |
//! | `/proc` | own processes only, read-only | the sentry's: of its own processes |
//!
//! Not here: limits of memory, CPU and processes. They are those of our own control group, around the runtime. Only where
//! there is no such group is memory bounded here, for each process, and calls are off the list that make memory of no
//! process. gVisor has those calls: what they make is memory of the sentry, which is counted as a process.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{RuntimeKind, filter};
use crate::inside::identity::NOBODY;
use crate::inside::seccomp::CountedMemory;
use crate::spec::{MountAccess, SandboxNetwork, SandboxSpec};

/// What has been prepared for the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeLayout {
    /// A tree that has a place for every mount.
    pub rootfs: PathBuf,
    /// In the order in which they have to be mounted.
    pub binds: Vec<BindMount>,
    pub scratch: ScratchPlace,
    /// No control group keeps the limits: they are kept per process, as in a process sandbox.
    pub limits_by_process: bool,
}

/// One thing to be seen inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub access: MountAccess,
}

/// Where `/tmp` and `/dev/shm` are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScratchPlace {
    /// One file system of the right size: one quota, and we can see whether it is full.
    Prepared(PathBuf),
    /// Two file systems of the runtime's own making with half the size each.
    Own,
}

/// The specification version that is spoken. All three runtimes know it.
const OCI_VERSION: &str = "1.0.2";
/// Parts of `/proc` that are hidden in case a runtime mounts all of it.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];
/// Parts of it that are not written to.
const READ_ONLY: [&str; 6] = ["/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The whole of `config.json`.
pub fn config(spec: &SandboxSpec, kind: RuntimeKind, layout: &RuntimeLayout) -> Value {
    let mut linux = json!({
        "namespaces": namespaces(spec.network),
        "maskedPaths": MASKED,
        "readonlyPaths": READ_ONLY,
        "rootfsPropagation": "private",
    });
    if let (RuntimeKind::Runc | RuntimeKind::Crun, Value::Object(linux)) = (kind, &mut linux) {
        let counted = if layout.limits_by_process { CountedMemory::OfProcesses } else { CountedMemory::OfGroup };
        linux.insert("seccomp".to_owned(), filter::seccomp(counted));
        // Only the five devices and the pipes a runtime makes itself; of the controllers it sees only this one.
        linux.insert("resources".to_owned(), json!({ "devices": [{ "allow": false, "access": "rwm" }] }));
        linux.insert("cgroupsPath".to_owned(), json!("/container"));
    }
    json!({
        "ociVersion": OCI_VERSION,
        "hostname": "sandbox",
        "process": process(spec, layout.limits_by_process.then_some(kind)),
        "root": { "path": layout.rootfs, "readonly": true },
        "mounts": mounts(spec, kind, layout),
        "linux": linux,
    })
}

/// Address space that is no memory: programs, libraries, stacks. Added where memory can only be bounded by addresses.
const ADDRESSES_ALLOWANCE_BYTES: u64 = 64 << 20;

/// `by_process`: the runtime, if limits are kept for each process.
fn process(spec: &SandboxSpec, by_process: Option<RuntimeKind>) -> Value {
    let none: [&str; 0] = [];
    let environment: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let limit = |name: &str, value: u64| json!({ "type": name, "soft": value, "hard": value });
    let mut limits = vec![
        limit("RLIMIT_CORE", 0),
        limit("RLIMIT_NOFILE", u64::from(spec.limits.open_files)),
        limit("RLIMIT_MEMLOCK", 64 << 10),
        limit("RLIMIT_MSGQUEUE", 64 << 10),
        limit("RLIMIT_NICE", 0),
        limit("RLIMIT_RTPRIO", 0),
    ];
    match by_process {
        None => {}
        // It keeps a bound on addresses, but none on data.
        Some(RuntimeKind::Runsc) => {
            limits.push(limit("RLIMIT_AS", spec.limits.memory_bytes.saturating_add(ADDRESSES_ALLOWANCE_BYTES)));
        }
        // They are under it themselves until they become the program, and reserve more addresses than any program has.
        Some(RuntimeKind::Runc | RuntimeKind::Crun) => limits.push(limit("RLIMIT_DATA", spec.limits.memory_bytes)),
    }
    json!({
        "terminal": false,
        "user": { "uid": NOBODY, "gid": NOBODY, "umask": 0o022 },
        "args": spec.command,
        "env": environment,
        "cwd": spec.cwd,
        "capabilities": {
            "bounding": none, "effective": none, "permitted": none, "inheritable": none, "ambient": none,
        },
        "noNewPrivileges": true,
        "rlimits": limits,
    })
}

/// A proxied program is in the network namespace the runtime was started in, which has the proxy and nothing else.
fn namespaces(network: SandboxNetwork) -> Value {
    let mut own = vec!["pid", "mount", "ipc", "uts"];
    if network == SandboxNetwork::None {
        own.push("network");
    }
    own.into_iter().map(|kind| json!({ "type": kind })).collect()
}

fn mounts(spec: &SandboxSpec, kind: RuntimeKind, layout: &RuntimeLayout) -> Value {
    let mut mounts = vec![
        proc(kind),
        json!({
            "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "noexec", "strictatime", "mode=755", "size=65536"],
        }),
    ];
    if kind == RuntimeKind::Runsc {
        // gVisor mounts a `/sys` of its own where none is mentioned. It shows nothing of the machine; nor is it needed.
        mounts.push(json!({
            "destination": "/sys", "type": "tmpfs", "source": "tmpfs",
            "options": ["ro", "nosuid", "nodev", "noexec", "mode=555", "size=4096"],
        }));
    }
    mounts.extend(scratch(spec.limits.scratch_bytes, &layout.scratch));
    mounts.extend(layout.binds.iter().map(|bind| {
        let access = match bind.access {
            MountAccess::Read => "ro",
            MountAccess::Write => "rw",
        };
        json!({
            "destination": bind.target, "type": "bind", "source": bind.source,
            "options": ["rbind", access, "nosuid", "nodev"],
        })
    }));
    Value::Array(mounts)
}

fn proc(kind: RuntimeKind) -> Value {
    let options: &[&str] = match kind {
        RuntimeKind::Runc | RuntimeKind::Crun => &["nosuid", "noexec", "nodev", "ro", "subset=pid"],
        RuntimeKind::Runsc => &["nosuid", "noexec", "nodev", "ro"],
    };
    json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": options })
}

fn scratch(bytes: u64, scratch: &ScratchPlace) -> [Value; 2] {
    ["/tmp", "/dev/shm"].map(|destination| match scratch {
        ScratchPlace::Prepared(source) => json!({
            "destination": destination, "type": "bind", "source": source,
            "options": ["bind", "rw", "nosuid", "nodev"],
        }),
        ScratchPlace::Own => json!({
            "destination": destination, "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "nodev", "mode=1777", format!("size={}", bytes / 2)],
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SandboxLimits;

    fn example() -> (SandboxSpec, RuntimeLayout) {
        let mut spec = SandboxSpec::new(["python3", "/tool/main.py"]);
        spec.cwd = "/tool".into();
        spec.limits = SandboxLimits { open_files: 99, scratch_bytes: 1 << 20, ..SandboxLimits::default() };
        let bind =
            |source: &str, target: &str, access| BindMount { source: source.into(), target: target.into(), access };
        let layout = RuntimeLayout {
            rootfs: "/mnt/rootfs".into(),
            binds: vec![
                bind("/mnt/seen/0", "/usr", MountAccess::Read),
                bind("/mnt/seen/1", "/tool", MountAccess::Read),
                bind("/mnt/seen/2", "/var/data", MountAccess::Write),
            ],
            scratch: ScratchPlace::Prepared("/mnt/scratch".into()),
            limits_by_process: false,
        };
        (spec, layout)
    }

    /// Written anew with `GANTRY_GOLDEN=1`, to be looked at before it is committed.
    fn golden(name: &str, config: &Value, expected: &str) {
        let text = format!("{config:#}\n");
        if option_env!("GANTRY_GOLDEN").is_some() {
            std::fs::write(format!("{}/src/oci/golden/{name}", env!("CARGO_MANIFEST_DIR")), &text).unwrap();
        }
        // The order of members depends on what else is built with us, and means nothing.
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(*config, expected, "{name} differs: if it should, run this test with GANTRY_GOLDEN=1");
    }

    #[test]
    fn a_specification_becomes_the_configuration_of_gvisor() {
        let (spec, layout) = example();
        golden("runsc.json", &config(&spec, RuntimeKind::Runsc, &layout), include_str!("golden/runsc.json"));
    }

    #[test]
    fn a_specification_becomes_the_configuration_of_runc() {
        let (spec, layout) = example();
        golden("runc.json", &config(&spec, RuntimeKind::Runc, &layout), include_str!("golden/runc.json"));
    }

    #[test]
    fn a_proxied_program_stays_in_the_network_namespace_that_was_made_for_it() {
        let (mut spec, layout) = example();
        let has_network = |spec: &SandboxSpec| {
            config(spec, RuntimeKind::Runsc, &layout)["linux"]["namespaces"].to_string().contains("network")
        };
        assert!(has_network(&spec));
        spec.network = SandboxNetwork::Proxied;
        assert!(!has_network(&spec));
    }
}
