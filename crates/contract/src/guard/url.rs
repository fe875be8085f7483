//! The url guard: an address a caller hands in must lead to the public web.
//!
//! Two readings have to agree. The raw text is checked for what parsers dispute (control characters, white space,
//! backslashes, an `@`, a missing slash), and what is left is read as browsers and our HTTP client read it, which unmasks
//! decimal, hexadecimal, octal, percent-encoded and full-width hosts.
//!
//! Not here: names that resolve to private addresses. Nobody can see that in the text; the guarded client of `outbound`
//! looks at every address after resolution. This guard gives the early and clear answer.

use std::net::{Ipv4Addr, Ipv6Addr};

use ::url::{Host, Url};

const PRIVATE: &str = "its host is a loopback, private, link-local or otherwise not public address";

/// Names and their sub-domains that are never public: RFC 6761, 6762, 8375, ICANN's `internal`, and habits.
const INTERNAL_NAMES: [&str; 11] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "home.arpa",
    "home",
    "lan",
    "corp",
    "private",
    "cluster",
];

pub(super) fn broken_by(text: &str) -> Option<&'static str> {
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Some("it has white space or a control character: encode it");
    }
    if text.contains('\\') {
        return Some("it has a backslash, which readers of URLs disagree about");
    }
    let Some(after_scheme) = after_web_scheme(text) else {
        return Some("it does not start with `http://` or `https://`");
    };
    let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Some("it has no host");
    }
    if authority.contains('@') {
        return Some("it has a user name or password before the host");
    }
    let Ok(url) = Url::parse(text) else { return Some("it cannot be read as a URL") };
    match url.host() {
        None => Some("it has no host"),
        Some(Host::Ipv4(address)) if !is_public_v4(address) => Some(PRIVATE),
        Some(Host::Ipv4(address)) => {
            // `010.0.0.1` is 8.0.0.1 for one reader and 10.0.0.1 for the next.
            let written = authority.split(':').next().unwrap_or_default();
            (written != address.to_string()).then_some("its host is an address in an unusual form")
        }
        Some(Host::Ipv6(address)) => (!is_public_v6(address)).then_some(PRIVATE),
        Some(Host::Domain(name)) => internal_name(name),
    }
}

/// What follows `http://` or `https://`, in any case, with exactly two slashes.
fn after_web_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    let web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    (web && !rest.starts_with('/')).then_some(rest)
}

/// `name` comes in lower case from the parser.
fn internal_name(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if !name.contains('.') {
        return Some("its host is a name without a dot, which only an inner network knows");
    }
    let inner = INTERNAL_NAMES
        .iter()
        .any(|suffix| name.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with('.')));
    inner.then_some("its host is a name of an inner network")
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        // This network; private, shared and benchmarking ranges; protocol assignments; multicast and beyond.
        (0 | 10 | 127 | 224..=255, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0)
            | (198, 18 | 19, _)
    );
    // The address under which one cloud serves its metadata, though it looks public.
    !special && address != Ipv4Addr::new(168, 63, 129, 16)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // Mapped (`::ffff:1.2.3.4`), translated (`::ffff:0:1.2.3.4`) and compatible (`::1.2.3.4`, with `::` and `::1`).
        (0, 0) if c == 0 && d == 0 => matches!((e, f), (0, 0xffff) | (0xffff, 0)) && v4(g, h),
        // NAT64 with the well-known prefix; the local-use prefix is never public.
        (0x64, 0xff9b) => [c, d, e, f] == [0; 4] && v4(g, h),
        // 6to4.
        (0x2002, _) => v4(b, c),
        // Teredo hides the address behind a server's.
        (0x2001, 0) => false,
        // Global unicast is 2000::/3; all else is local, multicast or unassigned.
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::super::expectations::{names_the_rule, tells_apart};
    use super::*;

    const HOSTILE: [&str; 58] = [
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.com/",
        "example.com",
        "/relative",
        "https:/example.com",
        "https:example.com",
        "https:///example.com",
        "http://",
        "",
        "https://user@example.com/",
        "https://user:secret@example.com/",
        "https://example.com@evil.example/",
        "https://@example.com/",
        "https://example.com\\@evil.example/",
        "https://example.com/\n",
        " https://example.com/",
        "https://exam\tple.com/",
        "https://example.com/a b",
        "http://localhost/",
        "http://LOCALHOST:8080/",
        "http://localhost./",
        "http://app.localhost/",
        "http://printer.local/",
        "http://metadata.google.internal/",
        "http://kubernetes/",
        "http://redis:6379/",
        "http://svc.default.cluster.local/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://010.0.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://172.16.5.4/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://168.63.129.16/",
        "http://%31%32%37.0.0.1/",
        "http://１２７.0.0.1/",
        "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[::7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
    ];

    const HONEST: [&str; 20] = [
        "https://example.com",
        "http://example.com/",
        "HTTPS://Example.COM/Path",
        "https://example.com:8443/a/b?c=d&e=f#g",
        "https://example.com/?mail=a@b.example",
        "https://example.com/@user",
        "https://example.com/a%20b",
        "https://example.com/..%2f",
        "https://example.com/?next=http://localhost/",
        "https://sub.domain.example.co.uk/",
        "https://münchen.example/",
        "https://xn--mnchen-3ya.example/",
        "https://8.8.8.8/",
        "https://93.184.216.34:443/",
        "https://172.32.0.1/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/",
        "https://[::ffff:8.8.8.8]/",
        "https://localhost.example.com/",
        "https://mylocal.example/",
        "https://internal-affairs.example/",
    ];

    #[test]
    fn inner_and_disputed_addresses_are_refused_and_public_ones_pass() {
        tells_apart(broken_by, &HOSTILE, &HONEST);
    }

    #[test]
    fn the_broken_rule_is_named() {
        names_the_rule(
            broken_by,
            &[
                ("ftp://a.example", "http"),
                ("http://a@b.example", "user name"),
                ("http://2130706433", "loopback"),
                ("http://010.0.0.1", "unusual"),
                ("http://redis", "without a dot"),
            ],
        );
    }
}
