//! Hosts in scopes and limits: a name, an address, or every name below a domain (`*.example.com`).
//!
//! Names are compared without regard to case; what a name is, and which names are below a domain, says [`base::host_name`], for
//! the egress proxy as well. A dot at the end is refused, because `example.com.` and `example.com` are one host and two texts.

use std::net::{Ipv4Addr, Ipv6Addr};

use base::host_name::{is_below, is_host_name, looks_like_address};

/// A host or a family of hosts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Host<S> {
    /// A name or an IPv4 address.
    Name(S),
    /// Every name with at least one label more than this.
    Below(S),
    /// An address that is written in brackets.
    V6(Ipv6Addr),
}

impl<'t> Host<&'t str> {
    /// Reads a host as it stands in a URL; `None` if it is not one.
    pub(super) fn read(text: &'t str) -> Option<Self> {
        if let Some(address) = text.strip_prefix('[') {
            return address.strip_suffix(']')?.parse().ok().map(Self::V6);
        }
        match text.strip_prefix("*.") {
            Some(domain) => (is_host_name(domain) && !looks_like_address(domain)).then_some(Self::Below(domain)),
            None => (is_host_name(text) && (!looks_like_address(text) || text.parse::<Ipv4Addr>().is_ok()))
                .then_some(Self::Name(text)),
        }
    }

    /// The same with its own text.
    pub(super) fn keep(self) -> Host<Box<str>> {
        match self {
            Self::Name(name) => Host::Name(name.into()),
            Self::Below(domain) => Host::Below(domain.into()),
            Self::V6(address) => Host::V6(address),
        }
    }
}

impl<S: AsRef<str>> Host<S> {
    /// Is every host of `other` one of these?
    pub(super) fn covers<T: AsRef<str>>(&self, other: &Host<T>) -> bool {
        match (self, other) {
            (Self::Name(left), Host::Name(right)) => left.as_ref().eq_ignore_ascii_case(right.as_ref()),
            (Self::V6(left), Host::V6(right)) => left == right,
            (Self::Below(domain), Host::Name(name)) => is_below(name.as_ref(), domain.as_ref()),
            (Self::Below(domain), Host::Below(inner)) => {
                inner.as_ref().eq_ignore_ascii_case(domain.as_ref()) || is_below(inner.as_ref(), domain.as_ref())
            }
            (Self::Name(_) | Self::V6(_), Host::Below(_))
            | (Self::Name(_) | Self::Below(_), Host::V6(_))
            | (Self::V6(_), Host::Name(_)) => false,
        }
    }

    /// Is it one host?
    pub(super) fn is_one(&self) -> bool {
        !matches!(self, Self::Below(_))
    }

    /// Is it this name?
    pub(super) fn is_named(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if own.as_ref().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_covers_its_sub_domains_only() {
        for (outer, inner, expected) in [
            ("example.com", "EXAMPLE.com", true),
            ("example.com", "a.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.Example.Com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evilexample.com", false),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.a.example.com", true),
            ("*.a.example.com", "*.example.com", false),
            ("a.example.com", "*.a.example.com", false),
            ("[::1]", "[0:0:0:0:0:0:0:1]", true),
            ("[::1]", "[::2]", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "[::ffff:127.0.0.1]", false),
        ] {
            let (from, to) = (Host::read(outer).unwrap(), Host::read(inner).unwrap());
            assert_eq!(from.covers(&to), expected, "{outer} {inner}");
            assert_eq!(from.keep().covers(&to.keep()), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn only_plain_ascii_hosts_are_hosts() {
        let long = "a".repeat(64);
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "*",
            "*.",
            "*.*.a",
            "a.*.b",
            "a*",
            "*a.b",
            "bücher.de",
            "a b",
            "a@b",
            "a/b",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "1.2.3.04",
            "1.2.3.256",
            "*.0.0.1",
            "[::1",
            "::1",
            "[::1%1]",
            "[127.0.0.1]",
            "[]",
            &long,
        ] {
            assert!(Host::read(bad).is_none(), "{bad}");
        }
        for fine in ["localhost", "a-b.c_d", "xn--bcher-kva.de", "1a", "127.0.0.1", "4.example", "*.com"] {
            assert!(Host::read(fine).is_some(), "{fine}");
        }
    }
}
