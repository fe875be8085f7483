//! One thing that may be reached: a host or a family of hosts, and some of its ports.
//!
//! Read from the places of network permissions:
//!
//! | written                   | host            | ports                                           |
//! |---------------------------|-----------------|-------------------------------------------------|
//! | `*`                       | every one       | every one                                       |
//! | `https://h[:port][/path]` | `h`             | the one named, or the usual one of the scheme   |
//! | `https://h:*`             | `h`             | every one                                       |
//! | `h:port`                  | `h`             | this one                                        |
//! | `h`                       | `h`             | 80 and 443, since it says nothing about the protocol |
//! | `h:*`                     | `h`             | every one                                       |
//! | `https:*` and the like    | every one       | every one, as the URLs of a scheme may have any |
//!
//! `h` may be `*.domain`. The path is read and left out: it is nothing a connection can be held to.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::host::{EgressHost, HostError, HostPattern};

/// Hosts and ports that may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    pub host: HostPattern,
    pub ports: PortSet,
}

/// Some ports of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortSet {
    Any,
    Of(BTreeSet<u16>),
}

/// Why a text is not a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error(transparent)]
    Host(#[from] HostError),
    /// Not a port.
    #[error("the port must be a number from 1 to 65535, or `*`")]
    Port,
    /// `ftp://host`: which port?
    #[error("a scheme without a usual port needs one")]
    NoUsualPort,
    /// User names mislead about the host; queries and fragments say nothing about where.
    #[error("write `scheme://host[:port]` or `host[:port]`")]
    Shape,
}

/// What a host without a word about protocol or port means.
const WEB_PORTS: [u16; 2] = [80, 443];

// ------------------------------------------------------------------------------------------------------------ Rule

impl EgressRule {
    /// One port of a host or of a family of hosts.
    pub fn new(host: &str, port: u16) -> Result<Self, RuleError> {
        if port == 0 {
            return Err(RuleError::Port);
        }
        Ok(Self { host: host.parse()?, ports: PortSet::from([port]) })
    }

    /// The host of a URL: the port it names, or the usual one of its scheme.
    pub fn of_url(scheme: &str, host: &str, port: Option<u16>) -> Result<Self, RuleError> {
        Self::new(host, port.or_else(|| usual_port(scheme)).ok_or(RuleError::NoUsualPort)?)
    }

    /// May this port of this host be reached?
    #[must_use]
    pub fn admits(&self, host: &EgressHost, port: u16) -> bool {
        self.ports.contains(port) && self.host.covers(host)
    }

    /// What both admit; nothing if that is nothing.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        Some(Self { host: self.host.intersect(&other.host)?, ports: self.ports.intersect(&other.ports)? })
    }
}

impl FromStr for EgressRule {
    type Err = RuleError;

    /// Reads a place of a network permission.
    ///
    /// ```
    /// # use gantry_sandbox::egress::EgressRule;
    /// let rule: EgressRule = "https://*.example.com/v1".parse().unwrap();
    /// assert!(rule.admits(&"api.example.com".parse().unwrap(), 443));
    /// ```
    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text == "*" {
            return Ok(Self { host: HostPattern::Any, ports: PortSet::Any });
        }
        if text.contains(['@', '\\', '?', '#']) {
            return Err(RuleError::Shape);
        }
        let (scheme, authority) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest.split('/').next().unwrap_or(rest)),
            None if text.contains('/') => return Err(RuleError::Shape),
            None => (None, text),
        };
        match (scheme, split_port(authority)) {
            // The one text that is a host with all its ports and a scheme with all its URLs; the latter contains the
            // former, unless the scheme is one nobody has.
            (None, (name, Some("*"))) if usual_port(name).is_some() => {
                Ok(Self { host: HostPattern::Any, ports: PortSet::Any })
            }
            (_, (host, Some("*"))) => Ok(Self { host: host.parse()?, ports: PortSet::Any }),
            (_, (host, Some(port))) => Self::new(host, read_port(port)?),
            (Some(scheme), (host, None)) => Self::of_url(scheme, host, None),
            (None, (host, None)) => Ok(Self { host: host.parse()?, ports: PortSet::from(WEB_PORTS) }),
        }
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.host)?;
        match &self.ports {
            PortSet::Any => f.write_str("*"),
            PortSet::Of(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                f.write_str(&ports.join(","))
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- Ports

impl PortSet {
    /// Is it one of them? Port 0 is no port and never is.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        port != 0
            && match self {
                Self::Any => true,
                Self::Of(ports) => ports.contains(&port),
            }
    }

    /// The ports that are in both; `None` if there is none.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, ports) | (ports, Self::Any) => Some(ports.clone()),
            (Self::Of(left), Self::Of(right)) => {
                let both: BTreeSet<u16> = left.intersection(right).copied().collect();
                (!both.is_empty()).then_some(Self::Of(both))
            }
        }
    }
}

impl<const N: usize> From<[u16; N]> for PortSet {
    fn from(ports: [u16; N]) -> Self {
        Self::Of(ports.into())
    }
}

// ----------------------------------------------------------------------------------------------------------- parts

/// Cuts the port off an authority; the colons of an address in brackets are its own.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// One spelling per port: no sign, no zeros in front.
pub(super) fn read_port(text: &str) -> Result<u16, RuleError> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain).ok_or(RuleError::Port)
}

/// The port a URL means when it names none.
fn usual_port(scheme: &str) -> Option<u16> {
    let is = |name: &str| scheme.eq_ignore_ascii_case(name);
    if is("https") || is("wss") { Some(443) } else { (is("http") || is("ws")).then_some(80) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_permissions_are_read_as_the_table_says() {
        for (text, expected) in [
            ("*", "*:*"),
            ("https://api.example.com", "api.example.com:443"),
            ("HTTP://Api.Example.com", "api.example.com:80"),
            ("wss://h", "h:443"),
            ("https://api.example.com:8443/v1/x", "api.example.com:8443"),
            ("https://*.example.com", "*.example.com:443"),
            ("https://h:*", "h:*"),
            ("smtp://mail.example.com:25", "mail.example.com:25"),
            ("h:5432", "h:5432"),
            ("h", "h:80,443"),
            ("h:*", "h:*"),
            ("https:*", "*:*"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("http://[::1]", "[::1]:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ] {
            assert_eq!(text.parse::<EgressRule>().map(|r| r.to_string()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_place_is_refused() {
        for (text, error) in [
            ("", RuleError::Host(HostError::Shape)),
            ("https://", RuleError::Host(HostError::Shape)),
            ("https://a@b", RuleError::Shape),
            ("https://a?b", RuleError::Shape),
            ("a/b", RuleError::Shape),
            ("https://a\\b", RuleError::Shape),
            ("ftp://a", RuleError::NoUsualPort),
            ("a:", RuleError::Port),
            ("a:0", RuleError::Port),
            ("a:080", RuleError::Port),
            ("a:+80", RuleError::Port),
            ("a:65536", RuleError::Port),
            ("http://0x7f.1", RuleError::Host(HostError::AddressSpelling)),
            ("http://::1", RuleError::Host(HostError::Shape)),
        ] {
            assert_eq!(text.parse::<EgressRule>(), Err(error), "{text}");
        }
    }

    #[test]
    fn port_zero_is_never_one_of_them() {
        assert!(!PortSet::Any.contains(0));
        assert!(EgressRule::new("h", 0).is_err());
        assert_eq!(PortSet::from([1]).intersect(&PortSet::from([2])), None);
    }
}
