//! What a scope is about, taken apart for whoever has to open exactly that and nothing else.
//!
//! [`PermissionScope::covers`](super::PermissionScope::covers) compares scopes; a sandbox does not compare, it mounts and connects. This is the
//! same meaning in the terms of files and connections.
//!
//! Two things are lost on the way, both to the safe side or said plainly:
//! - the path of a URL: a connection knows hosts and ports only, so `https://h/v1` is a connection to `h:443`;
//! - `x:*` stands for a scheme and for a host in scopes. Here it is the scheme if `x` is one whose port is known, and the
//!   host otherwise.
//!
//! Not here: whether a place may be opened (the kernel), and opening it (the sandbox).

use super::host::Host;
use super::network::{Network, Port, UrlScope, usual_port};
use super::{Mode, PermissionScope, Target};

/// What a scope is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeTarget<'s> {
    /// `*`.
    Everything,
    /// A path and everything below it, in its shortest spelling.
    Files {
        read: bool,
        write: bool,
        path: String,
    },
    Network(NetworkPlace),
    /// `kind:a:*`, with the text before the star.
    AllOf {
        prefix: &'s str,
    },
    /// `kind:name` of any other kind.
    Word {
        kind: &'s str,
        name: &'s str,
    },
}

/// Where on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPlace {
    /// In lower case: a name, `*.example.com`, or an address (IPv6 without brackets). `None` is every host.
    pub host: Option<String>,
    pub port: PlacePort,
}

/// Which ports of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacePort {
    Any,
    One(u16),
    /// None is named, and there is no scheme that would say which is meant.
    Unnamed,
    /// None is named, and the scheme has no usual one.
    Unknown,
}

impl PermissionScope {
    /// What this scope is about.
    ///
    /// ```
    /// # use gantry_policy::{NetworkPlace, ScopeTarget, PlacePort, PermissionScope};
    /// let place = |text: &str| text.parse::<PermissionScope>().unwrap();
    /// assert_eq!(place("filesystem:read:/data//x/").place(), ScopeTarget::Files { read: true, write: false, path: "/data/x".into() });
    /// let host = Some("api.example.com".to_owned());
    /// assert_eq!(place("network:https://API.example.com/v1").place(), ScopeTarget::Network(NetworkPlace { host, port: PlacePort::One(443) }));
    /// assert_eq!(place("credentials:sendgrid").place(), ScopeTarget::Word { kind: "credentials", name: "sendgrid" });
    /// ```
    pub fn place(&self) -> ScopeTarget<'_> {
        match &self.target {
            Target::Everything => ScopeTarget::Everything,
            Target::Files(mode, path) => ScopeTarget::Files {
                read: *mode != Some(Mode::Write),
                write: *mode != Some(Mode::Read),
                path: path.shortest(),
            },
            Target::Network(place) => ScopeTarget::Network(network(place)),
            Target::Below(prefix) => ScopeTarget::AllOf { prefix },
            Target::Exactly(text) => {
                let (kind, name) = text.split_once(':').unwrap_or((text, ""));
                ScopeTarget::Word { kind, name }
            }
        }
    }
}

fn network(place: &Network<Box<str>>) -> NetworkPlace {
    match place {
        Network::Everywhere => NetworkPlace { host: None, port: PlacePort::Any },
        Network::At(UrlScope { host, port, .. }) => NetworkPlace { host: Some(written(host)), port: port_of(*port) },
        Network::Bare(host, port) => {
            NetworkPlace { host: Some(written(host)), port: port.map_or(PlacePort::Unnamed, PlacePort::One) }
        }
        Network::Begins(host) => match host {
            Host::Name(name) if usual_port(name).is_some() => {
                NetworkPlace { host: None, port: usual_port(name).map_or(PlacePort::Unnamed, PlacePort::One) }
            }
            _ => NetworkPlace { host: Some(written(host)), port: PlacePort::Any },
        },
    }
}

fn port_of(port: Port) -> PlacePort {
    match port {
        Port::Any => PlacePort::Any,
        Port::Number(number) => PlacePort::One(number),
        Port::Unsaid => PlacePort::Unknown,
    }
}

fn written(host: &Host<Box<str>>) -> String {
    match host {
        Host::Name(name) => name.to_ascii_lowercase(),
        Host::Below(domain) => format!("*.{}", domain.to_ascii_lowercase()),
        Host::V6(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_scopes_come_apart_into_host_and_port() {
        use PlacePort::{Any, One, Unknown, Unnamed};
        for (text, host, port) in [
            ("*", None, Any),
            ("https://h.example", Some("h.example"), One(443)),
            ("http://H.Example/v1", Some("h.example"), One(80)),
            ("https://h.example:8443", Some("h.example"), One(8443)),
            ("https://h.example:*", Some("h.example"), Any),
            ("https://*.Example.com", Some("*.example.com"), One(443)),
            ("ssh://h.example", Some("h.example"), Unknown),
            ("ssh://h.example:22", Some("h.example"), One(22)),
            ("h.example", Some("h.example"), Unnamed),
            ("h.example:5432", Some("h.example"), One(5432)),
            ("h.example:*", Some("h.example"), Any),
            ("localhost:*", Some("localhost"), Any),
            ("https:*", None, One(443)),
            ("10.0.0.1:80", Some("10.0.0.1"), One(80)),
            ("https://[::1]:8443", Some("::1"), One(8443)),
        ] {
            let scope: PermissionScope = format!("network:{text}").parse().unwrap();
            let expected = NetworkPlace { host: host.map(str::to_owned), port };
            assert_eq!(scope.place(), ScopeTarget::Network(expected), "{text}");
        }
    }

    #[test]
    fn other_scopes_come_apart_into_what_they_name() {
        let files = |read, write, path: &str| ScopeTarget::Files { read, write, path: path.into() };
        for (text, place) in [
            ("*", ScopeTarget::Everything),
            ("filesystem:*", files(true, true, "/")),
            ("filesystem:read:*", files(true, false, "/")),
            ("filesystem:write:/a/./b//", files(false, true, "/a/b")),
            ("credentials:*", ScopeTarget::AllOf { prefix: "credentials:" }),
            ("credentials:a:b", ScopeTarget::Word { kind: "credentials", name: "a:b" }),
            ("tool:x", ScopeTarget::Word { kind: "tool", name: "x" }),
        ] {
            assert_eq!(text.parse::<PermissionScope>().unwrap().place(), place, "{text}");
        }
    }
}
