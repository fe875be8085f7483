//! Where on the network: the part of a `network:` scope after the kind, and the URLs of argument limits.
//!
//! | written                     | means                                                                           |
//! |-----------------------------|---------------------------------------------------------------------------------|
//! | `*`                         | every place                                                                     |
//! | `https://h[:port][/path]`   | this origin, at and below the path; 80 and 443 may be left out where they are usual |
//! | `https://*.h…`              | the same for every name with at least one label more than `h`                   |
//! | `https://h:*`               | every port of `h`, the usual one included                                       |
//! | `h`, `h:port`               | this host, or this port of it, without a word about the protocol: only itself   |
//! | `x:*`                       | all that begins so: every URL of the scheme `x`, and every port of the host `x` |
//!
//! Schemes and hosts are compared without regard to case. User names, queries and fragments are refused: the first
//! mislead the reader about the host, the others say nothing about where.

use super::host::Host;
use super::path::{PathError, PathSubtree};

/// Why a text is not a place on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Neither of the two forms.
    #[error("write `scheme://host[:port][/path]` or `host[:port]`")]
    Shape,
    /// `user:password@`.
    #[error("a URL must not carry a user name")]
    UserInfo,
    /// Not a name or an address.
    #[error(
        "the host must be a name in ASCII without a dot at the end (international names in punycode), `*.` and a name, an IPv4 address in four decimal numbers or an IPv6 address in brackets"
    )]
    Host,
    /// Not a port.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// A star that would be taken for a pattern and is none.
    #[error("a star stands for the labels before a domain, as in `*.example.com`, or for the port")]
    Star,
    /// After the path.
    #[error("a URL must not carry a query or a fragment")]
    Query,
    /// The path of the URL.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A place or a family of places.
#[derive(Debug, Clone, Copy)]
pub(super) enum Network<S> {
    Everywhere,
    At(UrlScope<S>),
    Bare(Host<S>, Option<u16>),
    /// `x:*`: the URLs of this scheme, and the ports of this host.
    Begins(Host<S>),
}

/// A URL and everything below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UrlScope<S> {
    scheme: S,
    pub(super) host: Host<S>,
    pub(super) port: Port,
    path: PathSubtree<S>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// Any that is named or usual.
    Any,
    Number(u16),
    /// None is named, and the scheme has no usual one.
    Unsaid,
}

// --------------------------------------------------------------------------------------------------------- Network

impl<'t> Network<&'t str> {
    pub(super) fn read(text: &'t str) -> Result<Self, NetworkError> {
        if text == "*" {
            return Ok(Self::Everywhere);
        }
        if text.contains("://") {
            return UrlScope::read_family(text).map(Self::At);
        }
        if text.contains('@') {
            return Err(NetworkError::UserInfo);
        }
        if text.contains(['/', '\\', '?', '#']) {
            return Err(NetworkError::Shape);
        }
        match split_port(text) {
            (host, Some("*")) => Ok(Self::Begins(Host::read(host).ok_or(NetworkError::Host)?)),
            (host, port) => {
                Ok(Self::Bare(Host::read(host).ok_or(NetworkError::Host)?, port.map(read_port).transpose()?))
            }
        }
    }

    pub(super) fn keep(self) -> Network<Box<str>> {
        match self {
            Self::Everywhere => Network::Everywhere,
            Self::At(url) => Network::At(url.keep()),
            Self::Bare(host, port) => Network::Bare(host.keep(), port),
            Self::Begins(host) => Network::Begins(host.keep()),
        }
    }
}

impl<S: AsRef<str>> Network<S> {
    /// Is every place of `other` one of these?
    pub(super) fn covers<T: AsRef<str>>(&self, other: &Network<T>) -> bool {
        match (self, other) {
            (Self::Everywhere, _) => true,
            (Self::At(left), Network::At(right)) => left.covers(right),
            (Self::Bare(left, own), Network::Bare(right, port)) => own == port && left.covers(right),
            (Self::Begins(host), Network::At(url)) => host.is_named(url.scheme.as_ref()),
            (Self::Begins(left), Network::Bare(right, port)) => port.is_some() && left.covers(right),
            // A host below a domain has a dot and is no scheme, so comparing hosts compares the schemes as well.
            (Self::Begins(left), Network::Begins(right)) => left.covers(right),
            (_, Network::Everywhere)
            | (Self::At(_), Network::Bare(..) | Network::Begins(_))
            | (Self::Bare(..), Network::At(_) | Network::Begins(_)) => false,
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- Url

impl<'t> UrlScope<&'t str> {
    /// Reads a URL that stands for all below it: in a scope, or as the bound of a limit.
    pub(crate) fn read_family(text: &'t str) -> Result<Self, NetworkError> {
        if text.contains(['?', '#']) {
            return Err(NetworkError::Query);
        }
        let url = Self::read(text)?;
        if url.path.has_star() { Err(NetworkError::Star) } else { Ok(url) }
    }

    /// Reads `scheme://host[:port][/path]`.
    fn read(text: &'t str) -> Result<Self, NetworkError> {
        let (scheme, rest) =
            text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).ok_or(NetworkError::Shape)?;
        if text.chars().any(|c| c == '\\' || c.is_whitespace() || c.is_control()) {
            return Err(NetworkError::Shape);
        }
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end).ok_or(NetworkError::Shape)?;
        if authority.contains('@') {
            return Err(NetworkError::UserInfo);
        }
        let (host, port) = split_port(authority);
        let host = Host::read(host).ok_or(NetworkError::Host)?;
        let port = match port {
            Some("*") if path.is_empty() => Port::Any,
            Some(port) => Port::Number(read_port(port)?),
            None => usual_port(scheme).map_or(Port::Unsaid, Port::Number),
        };
        Ok(Self {
            scheme,
            host,
            port,
            path: if path.is_empty() { PathSubtree::ROOT } else { PathSubtree::read(path)? },
        })
    }

    /// Reads the URL of one resource, as it stands in the arguments of a call. Its query and fragment say nothing about
    /// where it is and are left out.
    pub(crate) fn read_one(text: &'t str) -> Result<Self, NetworkError> {
        // Whatever stands behind a `?` or `#` is not part of the authority or the path, however it looks.
        let place = text.split(['?', '#']).next().unwrap_or(text);
        let url = Self::read(place)?;
        if !url.host.is_one() {
            return Err(NetworkError::Host);
        }
        if url.port == Port::Any { Err(NetworkError::Port) } else { Ok(url) }
    }

    fn keep(self) -> UrlScope<Box<str>> {
        UrlScope { scheme: self.scheme.into(), host: self.host.keep(), port: self.port, path: self.path.keep() }
    }
}

impl<S: AsRef<str>> UrlScope<S> {
    pub(crate) fn covers<T: AsRef<str>>(&self, other: &UrlScope<T>) -> bool {
        self.scheme.as_ref().eq_ignore_ascii_case(other.scheme.as_ref())
            && self.host.covers(&other.host)
            && (self.port == other.port || (self.port == Port::Any && other.port != Port::Unsaid))
            && self.path.covers(&other.path)
    }
}

// ----------------------------------------------------------------------------------------------------------- parts

/// Cuts the port off an authority; the colons of an address in brackets are its own.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// One spelling per port: no sign, no zeros in front.
fn read_port(text: &str) -> Result<u16, NetworkError> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain).ok_or(NetworkError::Port)
}

/// The port a URL means when it names none.
pub(super) fn usual_port(scheme: &str) -> Option<u16> {
    let is = |name: &str| scheme.eq_ignore_ascii_case(name);
    if is("https") || is("wss") { Some(443) } else { (is("http") || is("ws")).then_some(80) }
}

/// Letters first, then also digits, `-` and `+`. Dots, which RFC 3986 has too, would make hosts of schemes.
fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'+')
}
