//! From a `did:web` to the address of its document.
//!
//! `did:web:example.com%3A3000:user:alice` is at `https://example.com:3000/user/alice/did.json`, and without a path at
//! `/.well-known/did.json`. A DID comes out of a token, so the address is put together from checked parts, and whatever a
//! URL parser could read in two ways is refused: the host that is matched against the list is the host that is asked.

use reqwest::Url;

use crate::address::is_loopback;

/// The address of the document, `None` if this is no `did:web` or not a clean one. Plain http on this machine.
pub(super) fn of(did: &str) -> Option<Url> {
    let mut parts = did.strip_prefix("did:web:")?.split(':');
    let (host, port) = host_and_port(parts.next()?)?;
    let mut url = Url::parse(&format!("https://{host}/")).ok()?;
    // Numbers and hexadecimal forms of an address would have been rewritten by the parser.
    if url.host_str() != Some(host.as_str()) {
        return None;
    }
    if is_loopback(&url) {
        url.set_scheme("http").ok()?;
    }
    url.set_port(port).ok()?;
    let mut path = String::new();
    for segment in parts {
        path.push('/');
        path.push_str(clean_segment(segment)?);
    }
    url.set_path(&if path.is_empty() { "/.well-known/did.json".to_owned() } else { format!("{path}/did.json") });
    Some(url)
}

/// `example.com` or `example.com%3A3000`; the host in lower case.
fn host_and_port(part: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match part.split_once('%') {
        None => (part, None),
        Some((host, rest)) => {
            let digits = rest.strip_prefix("3A").or_else(|| rest.strip_prefix("3a"))?;
            let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
            (host, Some(digits.parse::<u16>().ok().filter(|_| plain)?))
        }
    };
    is_host(host).then(|| (host.to_ascii_lowercase(), port))
}

/// Labels of letters, digits, `-` and `_`, none empty. Literal IPv6 addresses cannot be written in a DID.
pub(super) fn is_host(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        })
}

/// A path segment as it stands if its decoded form is an ordinary name.
fn clean_segment(segment: &str) -> Option<&str> {
    let mut decoded = Vec::new();
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b if b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_') => b,
            _ => return None,
        });
    }
    let special = |b: &u8| b.is_ascii_control() || matches!(b, b'/' | b'\\' | b'%' | b'?' | b'#');
    let ordinary = !matches!(decoded.as_slice(), b"" | b"." | b"..") && !decoded.iter().any(special);
    ordinary.then_some(segment)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_did_has_one_address() {
        for (did, expected) in [
            ("did:web:example.com", "https://example.com/.well-known/did.json"),
            ("did:web:EXAMPLE.com", "https://example.com/.well-known/did.json"),
            ("did:web:example.com:user:alice", "https://example.com/user/alice/did.json"),
            ("did:web:example.com%3A3000:user:alice", "https://example.com:3000/user/alice/did.json"),
            ("did:web:example.com%3a3000", "https://example.com:3000/.well-known/did.json"),
            ("did:web:example.com%3A443", "https://example.com/.well-known/did.json"),
            ("did:web:example.com%3A80", "https://example.com:80/.well-known/did.json"),
            ("did:web:example.com:a%20b:c.d", "https://example.com/a%20b/c.d/did.json"),
            ("did:web:10.0.0.1", "https://10.0.0.1/.well-known/did.json"),
            ("did:web:localhost%3A8080", "http://localhost:8080/.well-known/did.json"),
            ("did:web:localhost%3A443", "http://localhost:443/.well-known/did.json"),
            ("did:web:127.0.0.1%3A8080:x", "http://127.0.0.1:8080/x/did.json"),
        ] {
            assert_eq!(of(did).map(String::from).as_deref(), Some(expected), "{did}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_has_none() {
        for did in [
            "",
            "did:web:",
            "did:web",
            "did:key:z6Mk",
            "did:webs:example.com",
            "DID:web:example.com",
            "did:web::user",
            "did:web:example.com:",
            "did:web:example.com::alice",
            "did:web:example.com:user:",
            "did:web:example.com:..:secret",
            "did:web:example.com:%2e%2e:secret",
            "did:web:example.com:.%2E",
            "did:web:example.com:.",
            "did:web:example.com:a%2Fb",
            "did:web:example.com:a%2fb",
            "did:web:example.com:a%5Cb",
            "did:web:example.com:a%252Fb",
            "did:web:example.com:a%00b",
            "did:web:example.com:a%0d%0ab",
            "did:web:example.com:a%3Fb",
            "did:web:example.com:a%23b",
            "did:web:example.com:a%",
            "did:web:example.com:a%4",
            "did:web:example.com:a%zz",
            "did:web:example.com/path",
            "did:web:example.com?query",
            "did:web:example.com#key-1",
            "did:web:example.com:alice#key-1",
            "did:web:user@example.com",
            "did:web:user%40example.com",
            "did:web:user%3Apassword@example.com",
            "did:web:example.com%3A",
            "did:web:example.com%3A0",
            "did:web:example.com%3A080",
            "did:web:example.com%3A65536",
            "did:web:example.com%3A+80",
            "did:web:example.com%3A-1",
            "did:web:example.com%3A80%3A81",
            "did:web:example.com%2Fpath",
            "did:web:example..com",
            "did:web:.example.com",
            "did:web:example.com.",
            "did:web:ex%61mple.com",
            "did:web:exämple.com",
            "did:web:2130706433",
            "did:web:0x7f.1",
            "did:web:127.1",
            "did:web:0177.0.0.1",
            "did:web:%5B%3A%3A1%5D",
            "did:web:[::1]",
        ] {
            assert_eq!(of(did).map(String::from), None, "{did}");
        }
    }
}
