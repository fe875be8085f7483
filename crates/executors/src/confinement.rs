//! From what a manifest declares to what a tool is given: mounts, a gate to the network, secrets, limits.
//!
//! One place for all kinds of untrusted tools, so that a word means the same to a process, a container and a WASM
//! component. What is declared was already compared with the caller's grant (`authorize`); here it meets the operator's
//! word, which only takes away (DESIGN §6.3).
//!
//! Invariants
//! - CONF-1: a path is given as it is declared or the call is refused; never less, never more.
//! - CONF-2: blocked wins over allowed, and a path that *contains* a blocked one is blocked too.
//! - CONF-3: a tool without a `network:` permission has no gate at all.
//! - CONF-4: secrets are fetched for one call, by the names the manifest declares and no other.
//!   Only MCP servers are given a folder that holds the server's own data, with that data covered ([`masks`](Masks)).
//! - CONF-5: nothing of a person's home is given to a tool unless the operator has listed it.
//!
//! Not here: how a mount or a preopened directory is made (`sandbox`, `wasm`).

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use ports::executor::{ResourceUsage, ToolCall, forbidden_destinations};
use ports::permissions::{DeclaredPermissions, NetworkPermission};
use ports::resolved_limits::ResolvedLimits;
use ports::secret_source::{SecretSource, SecretValue};
use sandbox::egress::{
    self, Cidr, EgressBounds, EgressGate, EgressPolicy, EgressRule, GateOwner, HostResolver, PortSet,
};
use sandbox::{MountAccess, SandboxLimits, SandboxMount};

use crate::process::scrub::SecretScrubber;

mod masks;

pub use masks::PathMasks;

/// Paths that are the machine itself and not data: given to no tool, whatever an operator allows.
const NEVER: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/boot", "/tool"];

/// The operator's word about what tools may be given.
#[derive(Debug, Clone)]
pub struct OperatorReach {
    /// Where declared paths may lie; `None` is everywhere that is not blocked.
    pub allowed_paths: Option<Vec<PathBuf>>,
    /// Where they may not, with everything above and below.
    pub blocked_paths: Vec<PathBuf>,
    /// Homes of people. Given to a tool only if [`allowed_paths`](Self::allowed_paths) is said and has them.
    pub homes: Vec<PathBuf>,
    /// What is the server's own and nobody else's. Blocked, and no tool's folder or system directory may hold it either.
    pub private_paths: Vec<PathBuf>,
    /// What covers it in folders that MCP servers are given; without, such folders are not given.
    pub masks: Option<PathMasks>,
    /// Where tools may connect to at most.
    pub egress: EgressBounds,
    /// Private networks into which a declared name may lead.
    pub open_networks: Vec<Cidr>,
    /// Processes and threads of one call.
    pub pids: u32,
    /// Descriptors of one process.
    pub open_files: u32,
    /// Bytes a second to the disks behind writable paths.
    pub io_bytes_per_second: Option<u64>,
    /// System directories that processes see read-only.
    pub system: Vec<PathBuf>,
}

impl Default for OperatorReach {
    fn default() -> Self {
        Self {
            allowed_paths: None,
            blocked_paths: Vec::new(),
            homes: Vec::new(),
            private_paths: Vec::new(),
            masks: None,
            egress: EgressBounds::default(),
            open_networks: Vec::new(),
            pids: 128,
            open_files: 1024,
            io_bytes_per_second: None,
            system: sandbox::SYSTEM.iter().map(PathBuf::from).collect(),
        }
    }
}

/// Gives tools what they declare.
#[derive(Debug, Clone)]
pub struct ToolConfinement {
    reach: Arc<OperatorReach>,
    secrets: Arc<dyn SecretSource>,
    resolver: Arc<dyn HostResolver>,
}

/// The secrets of one call, by name.
pub(crate) struct CallSecrets(Vec<(Box<str>, SecretValue)>);

impl ToolConfinement {
    /// With the operator's word, and where secrets and addresses come from.
    pub fn new(reach: OperatorReach, secrets: Arc<dyn SecretSource>, resolver: Arc<dyn HostResolver>) -> Self {
        Self { reach: Arc::new(reach), secrets, resolver }
    }

    /// System directories that a process sees.
    pub(crate) fn system(&self) -> Vec<PathBuf> {
        self.reach.system.clone()
    }

    /// The paths that a tool declares, each as it may be used.
    pub(crate) fn mounts(&self, permissions: &DeclaredPermissions) -> Result<Vec<SandboxMount>, Refusal> {
        Self::mounted(permissions, |path, _| self.admitted(path).map(|()| Vec::new()))
    }

    /// The same for a server behind Gantry, whose paths the operator has named: homes are open to it.
    pub(crate) fn mounts_of_server(&self, permissions: &DeclaredPermissions) -> Result<Vec<SandboxMount>, Refusal> {
        Self::mounted(permissions, |path, access| self.masked(path, access))
    }

    /// What has to be mounted besides a path of a server, so that it may be given.
    fn masked(&self, declared: &str, access: MountAccess) -> Result<Vec<SandboxMount>, Refusal> {
        let (path, private) = (Path::new(declared), &self.reach.private_paths);
        let allowed = |private: &[PathBuf]| match self.fence(declared, private) {
            Some(fence) => Err(self.refused_to_server(declared, fence)),
            None => Ok(()),
        };
        match &self.reach.masks {
            // What is the server's own itself is given to nobody.
            Some(masks) if !private.iter().any(|own| path.starts_with(own)) => {
                let covers = masks.over(path, access, private)?;
                allowed(&[]).map(|()| covers)
            }
            _ => allowed(private).map(|()| Vec::new()),
        }
    }

    fn mounted(
        permissions: &DeclaredPermissions,
        admitted: impl Fn(&str, MountAccess) -> Result<Vec<SandboxMount>, Refusal>,
    ) -> Result<Vec<SandboxMount>, Refusal> {
        let one = |path: &str, access| {
            let mut mounts = admitted(path, access)?;
            mounts.push(SandboxMount { source: path.into(), target: path.into(), access });
            Ok(mounts)
        };
        // What may be written may also be read, because there is no way to mount it otherwise; where a path is declared
        // for both, the wider mount is the only one.
        let written: Vec<&str> = permissions.write.iter().map(|path| &**path).collect();
        let read = permissions.read.iter().map(|path| &**path).filter(|path| !written.contains(path));
        let all = read
            .map(|path| one(path, MountAccess::Read))
            .chain(written.iter().map(|path| one(path, MountAccess::Write)));
        let mut mounts: Vec<SandboxMount> = Vec::new();
        for some in all {
            for mount in some? {
                // Two folders, one in the other, have the same below them that is covered.
                if !mounts.contains(&mount) {
                    mounts.push(mount);
                }
            }
        }
        Ok(mounts)
    }

    /// CONF-5 and CONF-2.
    pub(crate) fn admitted(&self, declared: &str) -> Result<(), Refusal> {
        let path = Path::new(declared);
        let at_home = self.reach.homes.iter().any(|home| path.starts_with(home) || home.starts_with(path));
        if at_home && self.reach.allowed_paths.is_none() {
            return Err(Refusal::new(
                ErrorCode::E3405,
                format!(
                    "the tool declares `{declared}`, which is somebody's home and given to no tool unless it is listed"
                ),
            )
            .hint("declare a path outside of all homes, or let the operator list it in `[sandbox] allowed_paths`")
            .retryable(false));
        }
        self.fenced(declared)
    }

    /// CONF-2.
    fn fenced(&self, declared: &str) -> Result<(), Refusal> {
        if self.fence(declared, &self.reach.private_paths).is_none() {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::E3405,
            format!("the tool declares `{declared}`, which this server gives to no tool"),
        )
        .hint("declare a narrower path, or let the operator change `[sandbox] allowed_paths` or `blocked_paths`")
        .retryable(false))
    }

    /// What keeps this path from everybody.
    fn fence(&self, declared: &str, private: &[PathBuf]) -> Option<Fence> {
        let path = Path::new(declared);
        let touches = |other: &Path| path.starts_with(other) || other.starts_with(path);
        if NEVER.iter().any(|never| touches(Path::new(never))) || private.iter().any(|own| touches(own)) {
            return Some(Fence::Own);
        }
        if self.reach.blocked_paths.iter().any(|other| touches(other)) {
            return Some(Fence::Blocked);
        }
        let allowed = self.reach.allowed_paths.as_ref();
        let is_left_out = allowed.is_some_and(|allowed| !allowed.iter().any(|other| path.starts_with(other)));
        is_left_out.then_some(Fence::NotAllowed)
    }

    /// The same for whoever looks after an MCP server, with the lines of the configuration that would give the path.
    fn refused_to_server(&self, declared: &str, fence: Fence) -> Refusal {
        let (key, hint) = match fence {
            Fence::Own => {
                let message = format!("`{declared}` is the system's own or this Gantry's, and is given to no server");
                return Refusal::new(ErrorCode::E3405, message).hint("give it another folder").retryable(false);
            }
            Fence::Blocked => {
                let path = Path::new(declared);
                let is_clear = |other: &&str| !path.starts_with(other) && !Path::new(other).starts_with(path);
                let is_usual = self.reach.blocked_paths.iter().eq(USUALLY_BLOCKED.iter().map(Path::new));
                let left: Vec<&str> = USUALLY_BLOCKED.into_iter().filter(is_clear).collect();
                let hint = if is_usual {
                    // Nobody has written the list, so nobody knows where it is.
                    format!(
                        "give it another folder; or write the lines `[sandbox]` and `blocked_paths = {left:?}` into the `gantry.toml` \
                         that Gantry is started with, and start Gantry again"
                    )
                } else {
                    "give it another folder; or take what blocks it out of `blocked_paths` in `[sandbox]` of `gantry.toml`, and start \
                     Gantry again"
                        .to_owned()
                };
                ("`[sandbox] blocked_paths` keeps from everybody", hint)
            }
            Fence::NotAllowed => (
                "`[sandbox] allowed_paths` does not list",
                format!("add {declared:?} to `allowed_paths` in `[sandbox]` of `gantry.toml`, and start Gantry again"),
            ),
        };
        Refusal::new(ErrorCode::E3405, format!("the server is to have `{declared}`, which {key}"))
            .hint(hint)
            .retryable(false)
    }

    /// A directory that every tool of a kind sees must not hold what is the server's own. As root the tool could not read
    /// it; as an ordinary user the tool *is* that user.
    pub(crate) fn without_private(&self, dir: &Path, what: &str) -> Result<(), Refusal> {
        if self.reach.private_paths.iter().any(|own| own.starts_with(dir)) {
            return Err(Refusal::new(
                ErrorCode::E3405,
                format!("{what} holds the server's own data, so it is shown to no tool"),
            )
            .hint("move the data directory (`--data-dir`) and the configuration file to a place of their own")
            .retryable(false));
        }
        Ok(())
    }

    /// The way out, if the tool has declared one.
    pub(crate) fn gate(
        &self,
        call: &ToolCall,
        permissions: &DeclaredPermissions,
    ) -> Result<Option<Arc<EgressGate>>, Refusal> {
        if permissions.network.is_empty() {
            return Ok(None);
        }
        self.gate_even_if_closed(call, permissions).map(Some)
    }

    /// The same for a program that serves many calls, which has one also if it may go nowhere.
    pub(crate) fn gate_of_server(
        &self,
        server: &str,
        permissions: &DeclaredPermissions,
        limits: &ResolvedLimits,
    ) -> Result<Arc<EgressGate>, Refusal> {
        Ok(Arc::new(self.gate_within(limits, permissions)?.owned_by(GateOwner::Server(server.into()))))
    }

    /// The same for those who have to be told that they may go nowhere: a gate that lets nothing through still counts.
    pub(crate) fn gate_even_if_closed(
        &self,
        call: &ToolCall,
        permissions: &DeclaredPermissions,
    ) -> Result<Arc<EgressGate>, Refusal> {
        self.gate_within(&call.limits, permissions).map(Arc::new)
    }

    fn gate_within(&self, limits: &ResolvedLimits, permissions: &DeclaredPermissions) -> Result<EgressGate, Refusal> {
        let rules = permissions.network.iter().map(rule).collect::<Result<_, _>>()?;
        // A megabit is a million bits.
        let bytes_per_second = limits.network_mbps.and_then(|mbps| NonZeroU64::new(mbps.saturating_mul(125_000)));
        let policy = EgressPolicy {
            rules,
            open_networks: self.reach.open_networks.clone(),
            bytes_per_second,
            ..EgressPolicy::default()
        };
        Ok(EgressGate::new(policy.within(&self.reach.egress), Arc::clone(&self.resolver)))
    }

    /// A gate that belongs to no call and lets nothing through.
    pub(crate) fn closed_gate(&self) -> Arc<EgressGate> {
        Arc::new(EgressGate::new(EgressPolicy::default(), Arc::clone(&self.resolver)))
    }

    /// CONF-4.
    pub(crate) async fn secrets(
        &self,
        call: &ToolCall,
        permissions: &DeclaredPermissions,
    ) -> Result<CallSecrets, Refusal> {
        let mut found = Vec::new();
        for name in &permissions.credentials {
            let secret = self.secrets.secret(&call.tenant, name).await.map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(tool = %call.tool.id, tenant = %call.tenant, credential = %name, %error, %cause, "a tool's credential cannot be had");
                error.refusal(name)
            })?;
            found.push((name.clone(), secret));
        }
        Ok(CallSecrets(found))
    }

    /// What the call may use, in the sandbox's units.
    pub(crate) fn limits(&self, call: &ToolCall) -> SandboxLimits {
        self.limits_of(&call.limits)
    }

    /// The same for a program that serves many calls.
    pub(crate) fn limits_of(&self, limits: &ResolvedLimits) -> SandboxLimits {
        let memory_bytes = limits.memory_mb << 20;
        SandboxLimits {
            memory_bytes,
            cpu_millicores: limits.cpu_millicores,
            pids: self.reach.pids,
            open_files: self.reach.open_files,
            // Scratch is in memory and counted as such. Half of it at most, so that a full disk is told as a full disk
            // and not as a want of memory.
            scratch_bytes: (limits.scratch_mb << 20).min(memory_bytes / 2),
            io_bytes_per_second: self.reach.io_bytes_per_second,
        }
    }
}

fn rule(permission: &NetworkPermission) -> Result<EgressRule, Refusal> {
    let host = permission.host.parse().map_err(|error: egress::HostError| {
        Refusal::new(ErrorCode::E3405, format!("the tool declares the host `{}`: {error}", permission.host))
            .retryable(false)
    })?;
    let ports = permission.port.map_or(PortSet::Any, |port| PortSet::from([port]));
    Ok(EgressRule { host, ports })
}

/// What went through a gate is counted; what tried to go elsewhere is a violation, whatever came of the call (E3406).
pub(crate) fn settled(call: &ToolCall, gate: Option<&EgressGate>, usage: &mut ResourceUsage) -> Result<(), Refusal> {
    let Some(gate) = gate else { return Ok(()) };
    let traffic = gate.meter().snapshot();
    usage.network_bytes_sent = traffic.bytes_sent;
    usage.network_bytes_received = traffic.bytes_received;
    if traffic.violations == 0 {
        return Ok(());
    }
    let tried: Vec<String> = traffic.kept.iter().map(ToString::to_string).collect();
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, times = traffic.violations, ?tried, "a tool tried to connect to where it may not");
    Err(forbidden(call, &tried))
}

/// The refusal for connections that were not let through, each as `host:port`. An author who has declared a place is not
/// told to declare it, but why that is not enough.
pub(crate) fn forbidden(call: &ToolCall, tried: &[String]) -> Refusal {
    let declared = call.tool.permissions().map(|permissions| permissions.network.as_slice()).unwrap_or_default();
    let declared =
        EgressPolicy { rules: declared.iter().filter_map(|one| rule(one).ok()).collect(), ..EgressPolicy::default() };
    let is_declared = |place: &&String| {
        let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
        host.parse().ok().zip(port.parse().ok()).is_some_and(|(host, port)| declared.admits(&host, port))
    };
    let (known, unknown): (Vec<_>, Vec<_>) = tried.iter().partition(is_declared);
    if !unknown.is_empty() {
        return forbidden_destinations(&call.tool, unknown.into_iter().map(String::as_str));
    }
    let mut refusal = forbidden_destinations(&call.tool, known.into_iter().map(String::as_str));
    refusal.message = refusal.message.replace(NOT_ALLOWED, NOT_GIVEN);
    refusal.hint(
        "a declared name must not lead to this machine or into a network that is not public: declare the address itself, \
         for example `network:http://127.0.0.1:8080`, or let the operator open the network (`[egress] open_networks`); \
         `[egress] allowed_hosts` and `allowed_networks` may leave it out too",
    )
}

/// Why a path is given to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    /// It is the system's, or our own.
    Own,
    /// The operator has blocked it.
    Blocked,
    /// The operator has listed others.
    NotAllowed,
}

/// What is blocked where nobody has said anything (`[sandbox] blocked_paths`).
const USUALLY_BLOCKED: [&str; 2] = ["/etc", "/var"];

/// The end of the usual words, and what stands there if they would not be true.
const NOT_ALLOWED: &str = "which its manifest does not allow";
const NOT_GIVEN: &str = "which its manifest declares, but to which this server lets no tool";

// ------------------------------------------------------------------------------------------------------ CallSecrets

impl CallSecrets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        self.0.iter().map(|(name, secret)| (&**name, secret))
    }

    /// Takes the values out of whatever the tool says.
    pub(crate) fn scrubber(&self) -> SecretScrubber {
        // A value that is no text cannot stand in JSON as it is; its encodings are not looked for.
        let texts = self.iter().filter_map(|(name, secret)| Some((name, std::str::from_utf8(secret.expose()).ok()?)));
        // A line end at the end of a file is how it was written, not part of the secret.
        SecretScrubber::new(&texts.map(|(name, text)| (name, text.trim_end_matches(['\r', '\n']))).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use ports::secret_source::NoSecrets;
    use sandbox::egress::SystemResolver;

    use super::*;

    fn confinement(reach: OperatorReach) -> ToolConfinement {
        ToolConfinement::new(reach, Arc::new(NoSecrets), Arc::new(SystemResolver))
    }

    #[test]
    fn blocked_wins_over_allowed_above_and_below() {
        let reach = OperatorReach {
            allowed_paths: Some(vec!["/data".into(), "/srv".into()]),
            blocked_paths: vec!["/data/private".into()],
            ..OperatorReach::default()
        };
        let confinement = confinement(reach);
        for (path, admitted) in [
            ("/data/public", true),
            ("/data/privateer", true),
            ("/srv", true),
            ("/data", false),
            ("/", false),
            ("/data/private", false),
            ("/data/private/key", false),
            ("/home", false),
            ("/proc", false),
        ] {
            assert_eq!(confinement.admitted(path).is_ok(), admitted, "{path}");
        }
        // Without a list everything that is not blocked may be had, but never the machine itself.
        let confinement = super::tests::confinement(OperatorReach::default());
        for (path, admitted) in
            [("/data/me", true), ("/", false), ("/sys/fs", false), ("/dev", false), ("/tool", false)]
        {
            assert_eq!(confinement.admitted(path).is_ok(), admitted, "{path}");
        }
    }

    #[test]
    fn homes_are_given_only_where_they_are_listed() {
        let homes: Vec<PathBuf> = vec!["/people".into(), "/srv/gantry".into()];
        let unlisted = confinement(OperatorReach { homes: homes.clone(), ..OperatorReach::default() });
        for (path, admitted) in
            [("/people", false), ("/people/ann/x", false), ("/srv/gantry/x", false), ("/srv", false), ("/data", true)]
        {
            assert_eq!(unlisted.admitted(path).is_ok(), admitted, "{path}");
        }
        let mut permissions = DeclaredPermissions::default();
        permissions.read = vec!["/people/ann/notes".into()];
        assert!(unlisted.mounts(&permissions).is_err());
        assert!(unlisted.mounts_of_server(&permissions).is_ok(), "whoever operates this has named it");
        let allowed_paths = Some(vec!["/people/ann".into()]);
        let listed = confinement(OperatorReach { homes, allowed_paths, ..OperatorReach::default() });
        assert!(listed.admitted("/people/ann/notes").is_ok() && listed.admitted("/people/bob").is_err());
    }

    #[test]
    fn whoever_looks_after_a_server_reads_the_lines_that_would_give_it_the_path() {
        let said = |reach: OperatorReach, path: &str| {
            let mut permissions = DeclaredPermissions::default();
            permissions.read = vec![path.into()];
            let refusal = confinement(reach).mounts_of_server(&permissions).unwrap_err();
            format!("{} {}", refusal.message, refusal.hint.unwrap())
        };
        let blocked = |paths: &[&str]| OperatorReach {
            blocked_paths: paths.iter().map(PathBuf::from).collect(),
            ..OperatorReach::default()
        };
        let usual = said(blocked(&["/etc", "/var"]), "/var/www/project");
        assert!(usual.contains("`[sandbox]` and `blocked_paths = [\"/etc\"]`") && !usual.contains("tool"), "{usual}");
        let own = said(blocked(&["/data/private", "/var/www"]), "/var/www/project");
        assert!(own.contains("take what blocks it out of `blocked_paths`") && !own.contains("/data/private"), "{own}");
        let listed = OperatorReach { allowed_paths: Some(vec!["/data".into()]), ..OperatorReach::default() };
        let listed = said(listed, "/srv/project");
        assert!(listed.contains("add \"/srv/project\" to `allowed_paths`") && !listed.contains("/data"), "{listed}");
        let private = OperatorReach { private_paths: vec!["/srv/.gantry".into()], ..OperatorReach::default() };
        assert!(said(private, "/srv/.gantry/x").contains("this Gantry's"));
    }

    #[test]
    fn a_folder_that_holds_the_servers_own_data_is_shown_to_no_tool() {
        let reach =
            OperatorReach { private_paths: vec!["/srv/tools/stats/.gantry".into()], ..OperatorReach::default() };
        let confinement = confinement(reach);
        for (dir, shown) in [
            ("/srv/tools/stats", false),
            ("/srv", false),
            ("/srv/tools/stats/.gantry", false),
            ("/srv/tools/other", true),
        ] {
            assert_eq!(confinement.without_private(Path::new(dir), "it").is_ok(), shown, "{dir}");
        }
        assert!(confinement.admitted("/srv/tools/stats/.gantry").is_err());
    }

    #[test]
    fn a_path_for_reading_and_writing_is_mounted_once() {
        let mut permissions = DeclaredPermissions::default();
        permissions.read = vec!["/a".into(), "/b".into()];
        permissions.write = vec!["/b".into()];
        let mounts = confinement(OperatorReach::default()).mounts(&permissions).unwrap();
        let seen: Vec<_> = mounts.iter().map(|mount| (mount.target.to_str().unwrap(), mount.access)).collect();
        assert_eq!(seen, [("/a", MountAccess::Read), ("/b", MountAccess::Write)]);
    }
}
