//! What a request asks for: `host:port` of a tunnel, or the URL of a plain request.
//!
//! Only the shape is read here; whether the host is one is the gate's question, so that a strange spelling of an address
//! counts as what it is: an attempt.

use super::answer::Answer;
use crate::egress::rule::{read_port, split_port};

/// Where a request wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Tunnel(Authority),
    Forward(Url),
}

/// A host as it was written, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A URL of plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) authority: Authority,
    /// As written, for the `Host` of the request to upstream.
    pub(super) host_field: String,
    /// Path and query, as written.
    pub(super) path: String,
}

impl Target {
    pub(super) fn parse(method: &str, text: &str) -> Result<Self, Answer> {
        // Nothing that needs quoting anywhere, and no fragment, which never leaves a client.
        if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'#' | b'\\' | b'"' | b'<' | b'>' | b'`')) {
            return Err(Answer::new(400, "the target of the request has characters that no URL has"));
        }
        if method == "CONNECT" {
            return Authority::parse(text, None).map(Self::Tunnel);
        }
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(Answer::new(400, "https goes through this proxy by CONNECT"));
            }
            _ => return Err(Answer::new(400, "this is a proxy: it takes CONNECT, http:// URLs and SOCKS5")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let path = match path {
            "" if method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        Ok(Self::Forward(Url { authority: Authority::parse(host, Some(80))?, host_field: host.to_owned(), path }))
    }
}

impl Authority {
    /// Reads `host:port`, or `host` where there is a usual port.
    pub(super) fn parse(text: &str, usual: Option<u16>) -> Result<Self, Answer> {
        let bad = || Answer::new(400, "the target of the request has no host and port that could be read");
        let (host, port) = split_port(text);
        let port = match port {
            Some(port) => read_port(port).map_err(|_| bad())?,
            None => usual.ok_or_else(bad)?,
        };
        // An address with colons has brackets here, or its last part would be taken for a port.
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || host.contains(['@', '/', '?']) || (host.contains(':') && !bracketed) {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_proxies_are_read() {
        for (method, text, host, port, path) in [
            ("CONNECT", "example.com:443", "example.com", 443, None),
            ("CONNECT", "[::1]:443", "[::1]", 443, None),
            ("CONNECT", "2130706433:80", "2130706433", 80, None),
            ("GET", "http://example.com", "example.com", 80, Some("/")),
            ("GET", "HTTP://Example.com:8080/a?b=c", "Example.com", 8080, Some("/a?b=c")),
            ("GET", "http://example.com?b", "example.com", 80, Some("/?b")),
            ("GET", "http://example.com/a@b:80", "example.com", 80, Some("/a@b:80")),
            ("GET", "http://[::1]/", "[::1]", 80, Some("/")),
            ("OPTIONS", "http://example.com", "example.com", 80, Some("*")),
        ] {
            let (authority, found) = match Target::parse(method, text).unwrap() {
                Target::Tunnel(authority) => (authority, None),
                Target::Forward(url) => (url.authority, Some(url.path)),
            };
            assert_eq!((authority.host.as_str(), authority.port), (host, port), "{text}");
            assert_eq!(found.as_deref(), path, "{text}");
        }
    }

    #[test]
    fn ambiguous_targets_are_refused() {
        for (method, text) in [
            ("CONNECT", "example.com"),
            ("CONNECT", "example.com:"),
            ("CONNECT", "example.com:0"),
            ("CONNECT", "example.com:99999"),
            ("CONNECT", "example.com:0443"),
            ("CONNECT", ":443"),
            ("CONNECT", "::1:443"),
            ("CONNECT", "a@example.com:443"),
            ("CONNECT", "http://example.com:443"),
            ("CONNECT", "example.com:443/x"),
            ("GET", "/"),
            ("GET", "*"),
            ("GET", "example.com:80"),
            ("GET", "https://example.com/"),
            ("GET", "ftp://example.com/"),
            ("GET", "http:///x"),
            ("GET", "http://a@example.com/"),
            ("GET", "http://allowed.example\\@evil.example/"),
            ("GET", "http://example.com#@evil.example/"),
            ("GET", "http://example.com:80:81/"),
            ("GET", "http://::1/"),
            ("GET", "http://bücher.example/"),
        ] {
            assert_eq!(Target::parse(method, text).unwrap_err().status, 400, "{method} {text}");
        }
    }
}
