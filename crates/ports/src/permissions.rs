//! What a tool may touch outside itself, read from its manifest once, when it is registered (MAN-011, MAN-017, DESIGN §6.3).
//!
//! The words are the same for every way a tool can run: a process sees the paths as mounts, a WASM component as preopened
//! directories, both reach hosts through the same gate. The token's scopes are compared with the words themselves
//! (`policy::PermissionScope`); this is what is left to enforce once the call is authorized.
//!
//! Two members of a manifest speak of the network, and both open: a host is reachable if `required_permissions` or
//! `network_policy` lists it. `network_policy.deny_all_egress` closes all of it (decision 0019). What the network policy
//! opens is asked of the token too ([`DeclaredPermissions::needs`]), or it would be a way around the scopes.
//!
//! A word that nobody here knows is refused: whoever writes `filesytem:read:/x` must not find out by a tool that reads
//! nothing. The kinds that open nothing by themselves (`tool:`, `database:`) are rights of the caller.
//!
//! Invariants
//! - PRM-1: nothing is open that neither member lists.
//! - PRM-2: whatever is open is either a word of `required_permissions` or one of [`DeclaredPermissions::needs`].
//! - PRM-3: a tool that calls itself pure writes nowhere (DESIGN §8.18).
//!
//! Not here: whether a listed place may be had at all. `/` and every host of a scheme are kept as they are written; the
//! executor's policy has the last word about them.

use contract::manifest::{AdmissionFinding, Manifest, NetworkPolicy, SideEffectPolicy};
use policy::{NetworkPlace, PermissionScope, PlacePort, ScopeTarget};

/// The kinds of words, as an author writes them (MAN-011).
const KNOWN_WORDS: &str = "`filesystem:read:/path`, `filesystem:write:/path`, `network:https://host[:port]`, `credentials:name`, `tool:name` and `database:name`";
/// Of these, the kinds that open nothing.
const RIGHTS_OF_CALLERS: [&str; 2] = ["tool", "database"];

/// Ports of a host that is named without one: what MAN-017 allows by default.
const PORTS_DEFAULT: [u16; 2] = [80, 443];
/// Most places on the network that one tool may list, ports multiplied out. The token is asked about each.
const NETWORK_MAX: usize = 1024;
/// Longest name of a credential: it becomes the name of a file.
const CREDENTIAL_CHARS_MAX: usize = 128;

/// Everything a tool has declared. Each list is sorted and has nothing twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeclaredPermissions {
    /// Absolute paths it may read, with everything below.
    pub read: Vec<Box<str>>,
    /// Absolute paths it may write, with everything below.
    pub write: Vec<Box<str>>,
    /// Where it may connect to.
    pub network: Vec<NetworkPermission>,
    /// Names of secrets it is given.
    pub credentials: Vec<Box<str>>,
    needs: Vec<Box<str>>,
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkPermission {
    /// In lower case: a host name, an address (IPv6 without brackets), `*.example.com`, or `*` for every host.
    pub host: Box<str>,
    /// `None` is every port.
    pub port: Option<u16>,
}

impl DeclaredPermissions {
    /// What the manifest declares, or every reason why it cannot be granted.
    ///
    /// ```
    /// # use gantry_ports::permissions::{DeclaredPermissions, NetworkPermission};
    /// # let manifest = contract::manifest::Manifest::from_value(serde_json::json!({
    /// #     "tool_id": "send_mail", "version": "1.0.0", "name": "Mailer", "description": "Sends a mail to somebody.",
    /// #     "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
    /// #     "parameters": { "type": "object" }, "result_schema": {},
    /// #     "required_permissions": ["network:https://api.example.com", "credentials:mail"],
    /// # })).unwrap();
    /// let permissions = DeclaredPermissions::of(&manifest).unwrap();
    /// assert_eq!(permissions.network, [NetworkPermission { host: "api.example.com".into(), port: Some(443) }]);
    /// assert_eq!(*permissions.credentials[0], *"mail");
    /// ```
    pub fn of(manifest: &Manifest) -> Result<Self, Vec<AdmissionFinding>> {
        let mut reading = Reading { pure: manifest.side_effect_policy == SideEffectPolicy::Pure, ..Reading::default() };
        for (index, word) in manifest.required_permissions.iter().enumerate() {
            reading.word(&format!("/required_permissions/{index}"), word);
        }
        if let Some(word) = &manifest.requires_permission
            && let Err(error) = word.parse::<PermissionScope>()
        {
            reading.findings.push(AdmissionFinding::new("/requires_permission", format!("`{word}`: {error}")));
        }
        if let Some(policy) = &manifest.network_policy {
            reading.network_policy(policy);
        }
        reading.done()
    }

    /// What a list of the same words declares, for what has no manifest of its own: a server behind Gantry.
    ///
    /// ```
    /// # use gantry_ports::permissions::DeclaredPermissions;
    /// let permissions = DeclaredPermissions::of_words(&["filesystem:read:/srv/data"]).unwrap();
    /// assert_eq!(*permissions.read[0], *"/srv/data");
    /// let spaced = DeclaredPermissions::of_words(&["filesystem:write:/srv/my%20notes"]).unwrap();
    /// assert_eq!(*spaced.write[0], *"/srv/my notes");
    /// assert!(DeclaredPermissions::of_words(&["filesystem:eat:/srv"]).is_err());
    /// ```
    pub fn of_words<S: AsRef<str>>(words: &[S]) -> Result<Self, Vec<AdmissionFinding>> {
        let mut reading = Reading::default();
        for (index, word) in words.iter().enumerate() {
            reading.word(&format!("/permissions/{index}"), word.as_ref());
        }
        reading.done()
    }

    /// Scopes that a call needs besides the manifest's `required_permissions`: what only the network policy opens.
    pub fn needs(&self) -> impl Iterator<Item = &str> {
        self.needs.iter().map(|need| &**need)
    }
}

/// A manifest half read.
#[derive(Default)]
struct Reading {
    pure: bool,
    found: DeclaredPermissions,
    findings: Vec<AdmissionFinding>,
}

impl Reading {
    fn word(&mut self, path: &str, word: &str) {
        let scope: PermissionScope = match word.parse() {
            Ok(scope) => scope,
            Err(error) => return self.findings.push(AdmissionFinding::new(path, format!("`{word}`: {error}"))),
        };
        match scope.place() {
            ScopeTarget::Files { write: true, .. } if self.pure => self.findings.push(AdmissionFinding::new(
                path,
                format!(
                    "`{word}`: a pure tool writes to its scratch space only; remove it, or change side_effect_policy"
                ),
            )),
            ScopeTarget::Files { read, write, path } => {
                // A word has no spaces, because words stand in lists that are divided by them; a path may.
                let path = path.replace("%20", " ");
                if read {
                    self.found.read.push(path.as_str().into());
                }
                if write {
                    self.found.write.push(path.into());
                }
            }
            ScopeTarget::Network(NetworkPlace { port: PlacePort::Unknown, .. }) => {
                self.findings.push(AdmissionFinding::new(path, format!("`{word}`: the scheme has no usual port, so name one")));
            }
            ScopeTarget::Network(NetworkPlace { host: None, port: PlacePort::Any }) => self.findings.push(AdmissionFinding::new(
                path,
                format!("`{word}`: name the hosts, for example `network:https://*.example.com`; every host by one scheme is `network:https:*`"),
            )),
            ScopeTarget::Network(place) => self.found.network.extend(opened(place)),
            ScopeTarget::Word { kind: "credentials", name } if is_file_name(name) => {
                self.found.credentials.push(name.into());
            }
            ScopeTarget::Word { kind: "credentials", .. } => self.findings.push(AdmissionFinding::new(
                path,
                format!("`{word}`: a credential has letters, digits, `_`, `-` and `.`, and does not begin with a dot"),
            )),
            ScopeTarget::AllOf { prefix } if prefix.starts_with("credentials:") => {
                self.findings.push(AdmissionFinding::new(path, format!("`{word}`: name each credential")));
            }
            // Rights of the caller that no sandbox keeps, such as `tool:x`.
            ScopeTarget::Word { kind, .. } if RIGHTS_OF_CALLERS.contains(&kind) => {}
            ScopeTarget::AllOf { prefix } if RIGHTS_OF_CALLERS.iter().any(|kind| prefix.split(':').next() == Some(kind)) => {}
            ScopeTarget::Everything | ScopeTarget::AllOf { .. } | ScopeTarget::Word { .. } => {
                self.findings.push(AdmissionFinding::new(path, format!("`{word}` opens nothing; the words are {KNOWN_WORDS}")));
            }
        }
    }

    fn network_policy(&mut self, policy: &NetworkPolicy) {
        let ports = policy.allowed_ports.as_deref().unwrap_or(&PORTS_DEFAULT);
        if ports.len().saturating_mul(policy.allowed_domains.len()) > NETWORK_MAX {
            return self.findings.push(AdmissionFinding::new(
                "/network_policy",
                format!("allowed_domains times allowed_ports is more than {NETWORK_MAX} places"),
            ));
        }
        for (index, domain) in policy.allowed_domains.iter().enumerate() {
            // The same reader as for the words, so that both mean the same by a host.
            let path = format!("/network_policy/allowed_domains/{index}");
            let scope: PermissionScope = match format!("network:{domain}").parse() {
                Ok(scope) => scope,
                Err(error) => {
                    self.findings.push(AdmissionFinding::new(path, format!("`{domain}`: {error}")));
                    continue;
                }
            };
            let ScopeTarget::Network(NetworkPlace { host: Some(host), port: PlacePort::Unnamed }) = scope.place()
            else {
                self.findings.push(AdmissionFinding::new(path, format!("`{domain}` must be a host without a port")));
                continue;
            };
            self.open_by_policy(&host, ports);
        }
        if policy.deny_all_egress {
            self.found.network.clear();
            self.found.needs.clear();
        }
    }

    /// Opens the ports of a host. What the words have not opened by themselves the token must name.
    fn open_by_policy(&mut self, host: &str, ports: &[u16]) {
        for port in ports {
            let place = NetworkPermission { host: host.into(), port: Some(*port) };
            let known = |other: &NetworkPermission| other.host == place.host && other.port.is_none_or(|p| p == *port);
            if !self.found.network.iter().any(known) {
                self.found.needs.push(scope_for(host, *port).into());
                self.found.network.push(place);
            }
        }
    }

    fn done(self) -> Result<DeclaredPermissions, Vec<AdmissionFinding>> {
        let Self { mut found, mut findings, .. } = self;
        if found.network.len() > NETWORK_MAX {
            findings.push(AdmissionFinding::new(
                "",
                format!("the manifest lists more than {NETWORK_MAX} places on the network"),
            ));
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        for list in [&mut found.read, &mut found.write, &mut found.credentials, &mut found.needs] {
            list.sort_unstable();
            list.dedup();
        }
        found.network.sort_unstable();
        found.network.dedup();
        Ok(found)
    }
}

/// What a `network:` word opens.
fn opened(place: NetworkPlace) -> Vec<NetworkPermission> {
    let host: Box<str> = place.host.unwrap_or_else(|| "*".to_owned()).into();
    let at = |port: Option<u16>| NetworkPermission { host: host.clone(), port };
    match place.port {
        PlacePort::Any => vec![at(None)],
        PlacePort::One(port) => vec![at(Some(port))],
        PlacePort::Unnamed => PORTS_DEFAULT.map(|port| at(Some(port))).to_vec(),
        PlacePort::Unknown => Vec::new(),
    }
}

/// The word that a token has to cover for this place.
fn scope_for(host: &str, port: u16) -> String {
    match port {
        443 => format!("network:https://{host}"),
        80 => format!("network:http://{host}"),
        port => format!("network:{host}:{port}"),
    }
}

fn is_file_name(name: &str) -> bool {
    (1..=CREDENTIAL_CHARS_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests;
