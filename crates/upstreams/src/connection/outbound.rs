//! HTTP to servers elsewhere: what may be sent, and what an answer means. Which addresses are reached at all is judged by
//! `admission`, and kept by the client (`outbound`): a redirect is followed only to the same scheme, host and port, so that
//! no credential goes to somebody else, and only if it repeats the request as it is (307, 308). So a status or a broken
//! connection is always about the request that was sent.
//!
//! Invariants
//! - UOUT-2: a body is read up to its bound and no further, whatever length was announced.
//! - UOUT-3: a credential goes over TLS, or to this machine.

use std::time::Duration;

use ::outbound::{ClientOptions, denial};
use contract::error::{ErrorCode, Refusal};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::Response;
use url::{Host, Url};

use super::MESSAGE_BYTES_MAX;
use crate::admission::denied_on_the_way;
use crate::fault::UpstreamFault;

/// How clients for servers behave.
pub(crate) const CLIENT: ClientOptions = ClientOptions {
    connect: Some(Duration::from_secs(10)),
    // A call is bounded by its deadline, and a stream may stay open.
    total: None,
    idle_per_host: 64,
    environment_proxy: false,
};
/// Longest `Retry-After` that is handed on.
const RETRY_AFTER_SECONDS_MAX: u64 = 3_600;

/// Headers that are the protocol's or the connection's, and cannot be set by a specification.
const RESERVED: [&str; 9] = [
    "accept",
    "content-length",
    "content-type",
    "connection",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// The address of a server, if it is one that can be asked.
pub(crate) fn address(url: &str, with_credentials: bool) -> Result<Url, Refusal> {
    let unusable = |why: &str| {
        Refusal::new(ErrorCode::E3502, format!("the address of the server cannot be used: {why}"))
            .hint("let the operator correct `url` of this server")
            .retryable(false)
    };
    let url = Url::parse(url).map_err(|error| unusable("it is no address").caused_by(error))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unusable("credentials do not belong into an address"));
    }
    match url.scheme() {
        "https" => Ok(url),
        // UOUT-3.
        "http" if with_credentials && !is_local(&url) => Err(unusable("credentials are sent over https only")),
        "http" => Ok(url),
        _ => Err(unusable("it is neither http nor https")),
    }
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The headers a specification asks for.
pub(crate) fn headers<'a>(settings: impl Iterator<Item = (&'a str, Vec<u8>)>) -> Result<HeaderMap, Refusal> {
    let mut headers = HeaderMap::new();
    for (name, value) in settings {
        let refused = |what: &str| {
            Refusal::new(ErrorCode::E3502, format!("the header `{name}` of the server {what}"))
                .hint("let the operator correct `headers` of this server")
                .retryable(false)
        };
        if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(refused("is the protocol's own"));
        }
        let key = HeaderName::try_from(name)
            .map_err(|error| refused("has no name that a header can have").caused_by(error))?;
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| refused("has no value that a header can have"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// Why a request has failed before there was an answer.
pub(crate) fn failed(error: &reqwest::Error) -> UpstreamFault {
    tracing::debug!(%error, "a request to a server failed");
    if let Some(refusal) = denial(error).and_then(denied_on_the_way) {
        return refusal.into();
    }
    if error.is_connect() || error.is_builder() {
        UpstreamFault::NotSent("no connection could be made")
    } else {
        UpstreamFault::Lost("the connection broke off")
    }
}

/// What a status means that is no answer. `None`: it is one.
pub(crate) fn judged(response: &Response, has_session: bool) -> Option<UpstreamFault> {
    match response.status() {
        status if status.is_success() => None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(UpstreamFault::Denied(response.status().as_u16())),
        StatusCode::TOO_MANY_REQUESTS => Some(UpstreamFault::Busy { retry_after_ms: retry_after(response.headers()) }),
        // The session is not known any more; nothing was done with the request.
        StatusCode::NOT_FOUND if has_session => Some(UpstreamFault::NotSent(SESSION_GONE)),
        status => Some(UpstreamFault::Status(status.as_u16())),
    }
}

/// The server has forgotten us.
pub(crate) const SESSION_GONE: &str = "the server has ended the session";

fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.min(RETRY_AFTER_SECONDS_MAX) * 1_000)
}

/// UOUT-2.
pub(crate) async fn body(mut response: Response) -> Result<Vec<u8>, UpstreamFault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        if body.len() + chunk.len() > MESSAGE_BYTES_MAX {
            return Err(UpstreamFault::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Is the body of this kind?
pub(crate) fn is_of_type(response: &Response, kind: &str) -> bool {
    let named = response.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    named.is_some_and(|named| named.split(';').next().is_some_and(|named| named.trim().eq_ignore_ascii_case(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_over_tls_or_nowhere_else() {
        for (url, with, good) in [
            ("https://a.example/mcp", true, true),
            ("http://a.example/mcp", true, false),
            ("http://a.example/mcp", false, true),
            ("http://127.0.0.1:1/mcp", true, true),
            ("http://[::1]:1/mcp", true, true),
            ("http://localhost/mcp", true, true),
            ("http://localhost.example/mcp", true, false),
            ("https://me:pw@a.example", false, false),
            ("ftp://a.example", false, false),
            ("nonsense", false, false),
        ] {
            assert_eq!(address(url, with).is_ok(), good, "{url} {with}");
        }
    }

    #[test]
    fn headers_of_the_protocol_cannot_be_set() {
        let one = |name: &'static str, value: &[u8]| headers([(name, value.to_vec())].into_iter());
        assert!(one("Authorization", b"Bearer x").unwrap()["authorization"].is_sensitive());
        for (name, value) in [("Host", &b"x"[..]), ("MCP-Session-Id", b"x"), ("a b", b"x"), ("x", b"a\nb")] {
            assert!(one(name, value).is_err(), "{name}");
        }
    }
}
