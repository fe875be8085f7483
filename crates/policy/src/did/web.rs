//! From `did:web` to the address of its document.
//!
//! The address is built from parts that were checked one by one, not by decoding the name and hoping: an encoded slash,
//! a user before the host or a query would make a name point to where its owner has no say.

use std::net::IpAddr;

/// `example.com%3A3000:user:alice` → `https://example.com:3000/user/alice/did.json`.
pub(super) fn document_url(id: &str, hosts: &[String]) -> Result<String, &'static str> {
    let mut segments = id.split(':');
    let authority = segments.next().unwrap_or_default();
    let (host, port) = match authority.split_once('%') {
        None => (authority, None),
        Some((host, encoded)) => {
            let port = encoded.strip_prefix("3A").or_else(|| encoded.strip_prefix("3a"));
            (host, Some(port.and_then(port_number).ok_or("only a port may be encoded in its host: `%3A3000`")?))
        }
    };
    check_host(host, hosts)?;
    let mut url = format!("https://{}", host.to_ascii_lowercase());
    if let Some(port) = port {
        url.push_str(&format!(":{port}"));
    }
    let mut path = String::new();
    for segment in segments {
        if matches!(segment, "" | "." | "..") || !only_foreign_letters_encoded(segment) {
            return Err("its path has an empty, relative or encoded part");
        }
        path.push('/');
        path.push_str(segment);
    }
    url.push_str(if path.is_empty() { "/.well-known" } else { &path });
    url.push_str("/did.json");
    Ok(url)
}

/// A decimal number in its one spelling.
fn port_number(text: &str) -> Option<u16> {
    let port: u16 = text.parse().ok()?;
    (port != 0 && port.to_string() == text).then_some(port)
}

fn check_host(host: &str, hosts: &[String]) -> Result<(), &'static str> {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if host.len() > 253 || !host.split('.').all(label) {
        return Err("its host is not a host name");
    }
    if (looks_like_address(host) || !host.contains('.')) && !hosts.iter().any(|known| known == host) {
        return Err("its host is an address or a name of the local network, which the configuration does not list");
    }
    Ok(())
}

/// Resolvers read more than `127.0.0.1` as an address: `127.1`, `0x7f.1` and `2130706433` too. A last part that is a
/// number is what they have in common, and no top-level domain is one.
fn looks_like_address(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or(host);
    let hexadecimal = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    host.parse::<IpAddr>().is_ok()
        || last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").or_else(|| last.strip_prefix("0X")).is_some_and(hexadecimal)
}

/// Percent encodings of ASCII would be slashes, dots or another spelling of a letter; other letters have no other way.
fn only_foreign_letters_encoded(segment: &str) -> bool {
    segment.split('%').skip(1).all(|rest| matches!(rest.bytes().next(), Some(b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F')))
}

#[cfg(test)]
mod tests {
    use super::document_url;

    #[test]
    fn names_become_addresses() {
        let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        for (id, url) in [
            ("example.com", "https://example.com/.well-known/did.json"),
            ("EXAMPLE.com", "https://example.com/.well-known/did.json"),
            ("example.com:user:alice", "https://example.com/user/alice/did.json"),
            ("example.com%3A3000:user:alice", "https://example.com:3000/user/alice/did.json"),
            ("example.com%3a443", "https://example.com:443/.well-known/did.json"),
            ("example.com:m%C3%BCller", "https://example.com/m%C3%BCller/did.json"),
            ("127.0.0.1%3A8443", "https://127.0.0.1:8443/.well-known/did.json"),
            ("localhost:a", "https://localhost/a/did.json"),
        ] {
            assert_eq!(document_url(id, &hosts).as_deref(), Ok(url), "{id}");
        }
    }

    #[test]
    fn names_that_point_elsewhere_are_refused() {
        for id in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "169.254.169.254",
            "localhost",
            "%5B%3A%3A1%5D",
            "example.com%3A",
            "example.com%3A0",
            "example.com%3A080",
            "example.com%3A65536",
            "example.com%3A80%3A80",
            "example.com%2Fevil",
            "user%40example.com",
            "user@example.com",
            "example.com%3Fx",
            "example.com%00",
            "a..b.com",
            ".example.com",
            "example.com.",
            "-a.com",
            "example.com:..",
            "example.com:.",
            "example.com::a",
            "example.com:a:..:b",
            "example.com:%2e%2e",
            "example.com:a%2Fb",
            "example.com:a%5Cb",
            "example.com:a%3Fb",
            "example.com:a%23b",
            "example.com:%41",
            "_x.com",
            "",
        ] {
            assert!(document_url(id, &[]).is_err(), "{id}");
        }
        assert!(document_url(&format!("{}.com", "a".repeat(64)), &[]).is_err());
    }
}
