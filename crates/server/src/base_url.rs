//! The address under which a caller has found this server, for answers that must name it: the metadata of RFC 9728 and
//! the challenge that leads there.
//!
//! It is taken from the caller's own `host` header; the scheme from the connection, or from what a TLS proxy in front says. Whoever
//! lies there misleads nobody else: such answers are made anew for each request and may not be kept.

use http::header::{HOST, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

/// What proxies say about the scheme the caller has used.
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Longest host that is repeated.
const HOST_BYTES_MAX: usize = 255;

/// Left by the accept loop in requests that came over TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverTls;

/// Where this server is, as the caller sees it. Written out only when somebody wants to know.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl {
    host: Option<HeaderValue>,
    over_tls: bool,
}

impl BaseUrl {
    /// Of a request, which knows whether it came over TLS.
    pub(crate) fn of_request(parts: &Parts) -> Self {
        let told = Self::of(&parts.headers);
        Self { over_tls: told.over_tls || parts.extensions.get::<OverTls>().is_some(), ..told }
    }

    /// From the headers of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let over_tls =
            headers.get(X_FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
        Self { host: headers.get(HOST).cloned(), over_tls }
    }

    /// Without a slash at its end. `None`: the request has no host, or one that is none.
    pub(crate) fn text(&self) -> Option<String> {
        let host = self.host.as_ref()?.to_str().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(plain) {
            return None;
        }
        let scheme = if self.over_tls { "https" } else { "http" };
        Some(format!("{scheme}://{}", host.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_host_header_if_it_is_one() {
        for (host, proto, expected) in [
            (Some("127.0.0.1:7300"), None, Some("http://127.0.0.1:7300")),
            (Some("Gantry.Example.com"), Some("HTTPS"), Some("https://gantry.example.com")),
            (Some("[::1]:7300"), Some("http"), Some("http://[::1]:7300")),
            (Some("a\"b"), None, None),
            (Some("a/b"), None, None),
            (Some("user@host"), None, None),
            (Some(""), None, None),
            (None, Some("https"), None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [(HOST, host), (X_FORWARDED_PROTO, proto)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            assert_eq!(BaseUrl::of(&headers).text().as_deref(), expected, "{host:?}");
        }
    }
}
