//! What a host name is: the grammar that scopes of tokens and rules of the egress proxy share, so that both mean the same by a host.
//!
//! Names are ASCII, because an international name is written in punycode: two names which look alike cannot be confused. What looks
//! like an address must be one in its only usual spelling: resolvers read `127.1`, `0x7f000001` and `017700000001` as `127.0.0.1`,
//! and a rule that compares texts must not be asked about those.
//!
//! Not here: what else a rule may name, such as families of hosts, addresses and ports (`policy::scope`, `sandbox::egress`).

/// Longest host name and longest label of DNS.
const HOST_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;

/// Labels of letters, digits, `-` and `_` between single dots.
pub fn is_host_name(text: &str) -> bool {
    text.len() <= HOST_CHARS_MAX
        && text.split('.').all(|label| {
            (1..=LABEL_CHARS_MAX).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

/// Would a resolver take this for an IPv4 address? It looks at the last label.
pub fn looks_like_address(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    digits.map_or_else(
        || last.bytes().all(|b| b.is_ascii_digit()),
        |digits| digits.bytes().all(|b| b.is_ascii_hexdigit()),
    )
}

/// Does `name` end in a dot and then `domain`, with something before it? Without regard to case.
pub fn is_below(name: &str, domain: &str) -> bool {
    let name = name.as_bytes();
    name.len().checked_sub(domain.len()).is_some_and(|before| {
        let (front, end) = name.split_at(before);
        front.len() > 1 && front.ends_with(b".") && end.eq_ignore_ascii_case(domain.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_between_single_dots() {
        let (label, name) = ("a".repeat(64), "a.".repeat(127) + "b");
        for bad in ["", ".", "a.", ".a", "a..b", "*", "bücher.de", "a b", "a@b", "a:b", "[a]", &label, &name] {
            assert!(!is_host_name(bad), "{bad}");
        }
        for fine in ["localhost", "a-b.c_d", "xn--bcher-kva.de", "1a", "127.0.0.1"] {
            assert!(is_host_name(fine), "{fine}");
        }
    }

    #[test]
    fn whatever_a_resolver_reads_as_a_number_looks_like_an_address() {
        for address in ["127.0.0.1", "127.1", "0x7f.1", "0X7F000001", "0x", "2130706433", "0177.0.0.1", "a.1", "a.0x1f"]
        {
            assert!(looks_like_address(address), "{address}");
        }
        for name in ["localhost", "1a", "4.example", "0xg", "a.b"] {
            assert!(!looks_like_address(name), "{name}");
        }
    }

    #[test]
    fn only_names_with_a_label_more_are_below_a_domain() {
        for (name, domain, expected) in [
            ("a.example.com", "example.com", true),
            ("a.b.Example.Com", "example.COM", true),
            ("example.com", "example.com", false),
            ("evilexample.com", "example.com", false),
            (".example.com", "example.com", false),
            ("example.com.evil.net", "example.com", false),
        ] {
            assert_eq!(is_below(name, domain), expected, "{name} {domain}");
        }
    }
}
