//! What a program may have: everything that is not in its [`SandboxSpec`] does not exist for it.
//!
//! A specification is plain data. It travels to the launcher as JSON, so that the launcher, which may have rights that
//! nobody else has, reads one bounded message and nothing else.
//!
//! Not here: what the words of a manifest mean (`executors::confinement`), which is somebody else's policy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::oci::OciContainer;

/// One program to run, and all it may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Program and arguments. A program without a slash is looked for in [`PATH`], inside.
    pub command: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where it starts, as seen inside.
    pub cwd: PathBuf,
    /// What it sees of the machine's files, beside the system directories.
    pub mounts: Vec<SandboxMount>,
    /// Files that exist only inside, for example secrets under `/run/secrets`.
    pub files: Vec<OwnFile>,
    /// System directories it sees read-only; those that do not exist are left out.
    pub system: Vec<PathBuf>,
    pub limits: SandboxLimits,
    pub network: SandboxNetwork,
    /// Where programs that know no proxy are met, if it has a network.
    pub direct: DirectPlaces,
    /// How much of the sandbox is built around it.
    pub confinement: WallBuilder,
    /// Whether it is to be frozen at times ([`Child::freeze`](crate::SandboxChild::freeze)), which has to be known beforehand.
    pub freezable: bool,
}

/// Where programs are looked for inside.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What interpreters and dynamic programs need of a system, and no more.
pub const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// A part of the machine's files that the program sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxMount {
    /// On the machine.
    pub source: PathBuf,
    /// Inside.
    pub target: PathBuf,
    pub access: MountAccess,
}

/// What may be done below a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAccess {
    Read,
    Write,
}

/// A file that exists inside only, readable by the program alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFile {
    pub path: PathBuf,
    pub contents: Vec<u8>,
}

/// What it may use up. Zero is never "unlimited": the limits have no such value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    pub memory_bytes: u64,
    /// Thousandths of a core.
    pub cpu_millicores: u64,
    /// Processes and threads together.
    pub pids: u32,
    pub open_files: u32,
    /// Size of `/tmp`, in memory and counted as such.
    pub scratch_bytes: u64,
    /// Bytes a second to and from the disks behind writable mounts.
    pub io_bytes_per_second: Option<u64>,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            cpu_millicores: 500,
            pids: 64,
            open_files: 1024,
            scratch_bytes: 100 << 20,
            io_bytes_per_second: None,
        }
    }
}

/// What it sees of networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum SandboxNetwork {
    /// A namespace without any interface that is up.
    #[default]
    None,
    /// Its own loopback with a listener on [`PROXY_PORT`], a socket where names are asked for, and listeners at the [direct
    /// places](DirectPlaces); all of them belong to whoever spawned it.
    Proxied,
}

/// Where connections are taken of programs that open sockets without asking a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DirectPlaces {
    /// At every address of the program's loopback.
    pub ports: BTreeSet<u16>,
    /// Addresses that are the loopback's too, so that connections to them end there.
    pub addresses: BTreeSet<Ipv4Addr>,
}

impl DirectPlaces {
    pub(crate) fn add_usual_ports(&mut self) {
        let spare = DIRECT_PORTS_MAX.saturating_sub(self.ports.len());
        let usual = SERVICE_PORTS.into_iter().filter(|port| !self.ports.contains(port)).take(spare);
        self.ports.extend(usual.collect::<Vec<_>>());
    }

    /// As many as there may be; which ones is the same each time.
    pub(crate) fn cut(&mut self) {
        while self.ports.len() > DIRECT_PORTS_MAX {
            self.ports.pop_last();
        }
    }
}

/// As many ports have listeners of their own: the descriptors travel in one message.
const DIRECT_PORTS_MAX: usize = 32;
/// Ports of services that programs connect to by themselves: the web, shells, mail, directories, databases, queues. None at which
/// programs like to serve something to themselves, for there they would find the place taken.
const SERVICE_PORTS: [u16; 20] =
    [80, 443, 22, 25, 143, 389, 465, 587, 636, 993, 1433, 1521, 3306, 5432, 5671, 5672, 6379, 6380, 9092, 27017];

/// Where a proxied program finds its proxy, on 127.0.0.1 inside.
pub const PROXY_PORT: u16 = 3128;
/// Where it asks for names, likewise.
pub(crate) const NAMES_PORT: u16 = 53;

/// Who builds the walls around the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum WallBuilder {
    /// We do, all of them.
    #[default]
    Full,
    /// A container runtime, from the same specification. Of ours it has the namespaces, the control group and the end of
    /// everything with the first process; but the runtime itself runs with the machine's own root and identity.
    Runtime(OciContainer),
}

impl SandboxSpec {
    /// A program with the system directories, an own `/tmp`, and nothing else.
    ///
    /// ```
    /// use gantry_sandbox::SandboxSpec;
    /// let spec = SandboxSpec::new(["python3", "main.py"]);
    /// assert_eq!(spec.network, gantry_sandbox::SandboxNetwork::None);
    /// assert!(spec.mounts.is_empty());
    /// ```
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(command: I) -> Self {
        let env = [("PATH", PATH), ("LANG", "C.UTF-8"), ("HOME", "/tmp"), ("TMPDIR", "/tmp")];
        Self {
            command: command.into_iter().map(Into::into).collect(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            cwd: PathBuf::from("/"),
            mounts: Vec::new(),
            files: Vec::new(),
            system: SYSTEM.iter().map(PathBuf::from).collect(),
            limits: SandboxLimits::default(),
            network: SandboxNetwork::None,
            direct: DirectPlaces::default(),
            confinement: WallBuilder::Full,
            freezable: false,
        }
    }

    /// Shows a directory or file of the machine, at the same path or another.
    #[must_use]
    pub fn mount(mut self, source: impl Into<PathBuf>, target: impl Into<PathBuf>, access: MountAccess) -> Self {
        self.mounts.push(SandboxMount { source: source.into(), target: target.into(), access });
        self
    }
}

/// Contents may be secrets.
impl std::fmt::Debug for OwnFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnFile").field("path", &self.path).field("bytes", &self.contents.len()).finish()
    }
}
