//! Which pages and names may lead to this server: the check of `WebOrigin` and `Host` that keeps a page in somebody's browser
//! from talking to a server on that somebody's machine (DNS rebinding).
//!
//! The token alone would be enough against strangers. This is for the day it is in a browser.

use http::HeaderMap;
use http::Uri;
use http::header::{HOST, ORIGIN};

/// An origin: scheme, host and port (RFC 6454).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebOrigin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

/// Longest text that is looked at.
const BYTES_MAX: usize = 512;

/// An origin as browsers write it; nothing else is one.
pub(crate) fn origin(text: &str) -> Option<WebOrigin> {
    if text.len() > BYTES_MAX {
        return None;
    }
    let (scheme, rest) = text.split_once("://")?;
    let (host, port) = authority(rest)?;
    let scheme = scheme.to_ascii_lowercase();
    let usual = match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) => {
            return None;
        }
        _ => None,
    };
    Some(WebOrigin { scheme, host, port: port.or(usual) })
}

/// The host of a `host` header, in lower case and without its port.
pub(crate) fn host_of(text: &str) -> Option<String> {
    (text.len() <= BYTES_MAX).then(|| authority(text)).flatten().map(|(host, _)| host)
}

/// May a page with this `WebOrigin` talk to us? A request without one comes from no page.
pub(crate) fn origin_is_fine(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut shown = headers.get_all(ORIGIN).iter();
    let Some(first) = shown.next() else { return true };
    if shown.next().is_some() {
        return false;
    }
    let Some(given) = first.to_str().ok().and_then(origin) else { return false };
    is_loopback(&given.host) || allowed.iter().filter_map(|text| origin(text)).any(|one| one == given)
}

/// The names by which a door may be called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostNames<'a> {
    /// The names that the operator has given, for this door and for the other.
    pub(crate) allowed: [&'a [String]; 2],
    /// Must a name be one of those? It must on a listener of this machine alone, where a rebound name of a web page leads,
    /// and where the operator has named any.
    pub(crate) named_only: bool,
    /// Does the listener stand on a loopback address? Then the names of the machine itself are good.
    pub(crate) on_loopback: bool,
}

/// Is this server called by one of its names? A request has exactly one host (RFC 9112 §3.2), whatever the listener.
pub(crate) fn host_is_fine(headers: &HeaderMap, names: HostNames<'_>) -> bool {
    let mut shown = headers.get_all(HOST).iter();
    let (Some(first), None) = (shown.next(), shown.next()) else { return false };
    let Some(given) = first.to_str().ok().and_then(host_of) else { return false };
    !names.named_only
        || (names.on_loopback && is_loopback(&given))
        || names.allowed.iter().any(|allowed| allowed.contains(&given))
}

/// Does a target in absolute form (`GET http://host/path`) name the host that the header names? Of two names the target's would
/// count (RFC 9112 §3.2.2), while everything here reads the header; nobody who means well sends two.
pub(crate) fn is_one_host(target: &Uri, headers: &HeaderMap) -> bool {
    let Some(named) = target.authority() else { return true };
    let shown = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(host_of);
    shown.is_some() && shown == host_of(named.as_str())
}

/// Is the server called by a name of the machine itself, and by nothing else?
pub(crate) fn names_loopback(headers: &HeaderMap) -> bool {
    let mut shown = headers.get_all(HOST).iter();
    let (Some(first), None) = (shown.next(), shown.next()) else { return false };
    first.to_str().ok().and_then(host_of).is_some_and(|given| is_loopback(&given))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Host and port. IPv6 addresses lose their brackets.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return Some((host.to_ascii_lowercase(), port(rest).ok()?));
    }
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some((text.to_ascii_lowercase(), None));
    }
    let (host, rest) = text.find(':').map_or((text, ""), |at| text.split_at(at));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if host.is_empty() || !host.bytes().all(plain) {
        return None;
    }
    Some((host.to_ascii_lowercase(), port(rest).ok()?))
}

/// The port behind a host; an error if what stands there is none.
fn port(rest: &str) -> Result<Option<u16>, ()> {
    if rest.is_empty() {
        return Ok(None);
    }
    rest.strip_prefix(':').and_then(|digits| digits.parse().ok()).map(Some).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn with(name: &http::HeaderName, values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn pages_on_this_machine_and_named_ones_may_talk_to_us_and_no_others() {
        let allowed = ["https://app.example.com".to_owned(), "https://dev.example:8443".to_owned()];
        for (origins, expected) in [
            (&[][..], true),
            (&["http://localhost:5173"], true),
            (&["http://127.0.0.1"], true),
            (&["http://[::1]:80"], true),
            (&["https://app.example.com"], true),
            (&["https://APP.example.com:443"], true),
            (&["http://app.example.com"], false),
            (&["https://app.example.com:444"], false),
            (&["https://dev.example:8443"], true),
            (&["https://dev.example"], false),
            (&["https://app.example.com.evil.example"], false),
            (&["http://localhost.evil.example"], false),
            (&["http://127.0.0.1.evil.example"], false),
            (&["null"], false),
            (&[""], false),
            (&["http://user@localhost"], false),
            (&["http://localhost", "http://evil.example"], false),
        ] {
            assert_eq!(origin_is_fine(&with(&ORIGIN, origins), &allowed), expected, "{origins:?}");
        }
    }

    #[test]
    fn a_server_on_loopback_answers_to_its_own_names() {
        let allowed = ["gantry.internal".to_owned()];
        for (hosts, on_loopback, expected) in [
            (&["127.0.0.1:7300"][..], true, true),
            (&["localhost"], true, true),
            (&["[::1]:7300"], true, true),
            (&["gantry.internal:443"], true, true),
            (&["gantry.internal"], false, true),
            (&["rebound.example:7300"], true, false),
            (&["other.example"], false, false),
            (&["localhost"], false, false),
            (&["localhost", "evil.example"], true, false),
            (&[], true, false),
        ] {
            let names = HostNames { allowed: [&[], &allowed], named_only: true, on_loopback };
            assert_eq!(host_is_fine(&with(&HOST, hosts), names), expected, "{hosts:?} {on_loopback}");
        }
        let any = HostNames { allowed: [&[], &[]], named_only: false, on_loopback: false };
        for (hosts, expected) in [
            (&["anything.example"][..], true),
            (&["192.0.2.7:80"], true),
            (&[], false),
            (&["a", "b"], false),
            (&["a/b"], false),
        ] {
            assert_eq!(host_is_fine(&with(&HOST, hosts), any), expected, "{hosts:?}");
        }
    }
}
