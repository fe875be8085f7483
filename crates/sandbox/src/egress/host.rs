//! Hosts as they are asked for, and hosts as they are allowed.
//!
//! The grammar is that of network scopes: names in ASCII (international ones in punycode), compared without regard to
//! case; `*.example.com` is every name with at least one label more than `example.com`. One difference: programs may
//! write the dot that ends an absolute name, and it is taken away here, so that `example.com.` is what `example.com` is.
//!
//! What a resolver would read as an IPv4 address must be one in its usual spelling. `127.1`, `0x7f.1`, `2130706433` and
//! `0177.0.0.1` are nothing at all: not an address, and above all not a name, which would be resolved to 127.0.0.1
//! ([`base::host_name`]).
//!
//! INVARIANT: an address is kept in its plain form, `::ffff:10.0.0.1` as `10.0.0.1`, so one address has one [`EgressHost`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use base::host_name::{is_below, is_host_name, looks_like_address};

/// Why a text is not a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Empty, too long, or with characters that no host has.
    #[error("a host is a name in ASCII (international names in punycode) or an address")]
    Shape,
    /// A number that some resolvers take for an address.
    #[error("an IPv4 address is written as four decimal numbers")]
    AddressSpelling,
}

/// One host: a name in lower case without a dot at the end, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EgressHost {
    Name(Box<str>),
    Address(IpAddr),
}

/// One host or a family of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Every host. An address that is not public is not *declared* by this; see [`super::EgressPolicy`].
    Any,
    /// This one.
    Exact(EgressHost),
    /// Every name with at least one label more than this; addresses have no labels and are never below one.
    Below(Box<str>),
}

// ------------------------------------------------------------------------------------------------------------ Host

impl FromStr for EgressHost {
    type Err = HostError;

    /// Reads a name, an IPv4 address, or an IPv6 address with or without its brackets.
    fn from_str(text: &str) -> Result<Self, HostError> {
        if let Some(rest) = text.strip_prefix('[') {
            let address: Ipv6Addr = rest.strip_suffix(']').and_then(|a| a.parse().ok()).ok_or(HostError::Shape)?;
            return Ok(Self::from(IpAddr::V6(address)));
        }
        if text.contains(':') {
            return text.parse::<Ipv6Addr>().map(|a| Self::from(IpAddr::V6(a))).map_err(|_| HostError::Shape);
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        read_name(text).map(Self::Name)
    }
}

impl From<IpAddr> for EgressHost {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for EgressHost {
    /// As it stands in a URL, an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

// ----------------------------------------------------------------------------------------------------- HostPattern

impl HostPattern {
    /// Is it one of these?
    ///
    /// ```
    /// # use gantry_sandbox::egress::HostPattern;
    /// let below: HostPattern = "*.example.com".parse().unwrap();
    /// assert!(below.covers(&"a.b.EXAMPLE.com.".parse().unwrap()));
    /// assert!(!below.covers(&"example.com".parse().unwrap()));
    /// ```
    #[must_use]
    pub fn covers(&self, host: &EgressHost) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exact(own), host) => own == host,
            (Self::Below(domain), EgressHost::Name(name)) => is_below(name, domain),
            (Self::Below(_), EgressHost::Address(_)) => false,
        }
    }

    /// The hosts that are in both. Two families either contain one another or have nothing in common.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, pattern) | (pattern, Self::Any) => Some(pattern.clone()),
            (Self::Exact(host), pattern) | (pattern, Self::Exact(host)) => {
                pattern.covers(host).then(|| Self::Exact(host.clone()))
            }
            (Self::Below(left), Self::Below(right)) => {
                if left == right || is_below(left, right) {
                    Some(self.clone())
                } else {
                    is_below(right, left).then(|| other.clone())
                }
            }
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_prefix("*.") {
            Some(domain) => read_name(domain).map(Self::Below),
            None => text.parse().map(Self::Exact),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(host) => host.fmt(f),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- parts

/// Labels of letters, digits, `-` and `_` between single dots, of which one may stand at the end.
fn read_name(text: &str) -> Result<Box<str>, HostError> {
    let name = text.strip_suffix('.').unwrap_or(text);
    if !is_host_name(name) {
        return Err(HostError::Shape);
    }
    if looks_like_address(name) {
        return Err(HostError::AddressSpelling);
    }
    Ok(name.to_ascii_lowercase().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_covers_what_scopes_mean_by_it() {
        for (pattern, host, expected) in [
            ("example.com", "EXAMPLE.com", true),
            ("example.com", "example.com.", true),
            ("Example.Com.", "example.com", true),
            ("example.com", "a.example.com", false),
            ("example.com", "xample.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.Example.Com.", true),
            ("*.EXAMPLE.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evilexample.com", false),
            ("*.example.com", "example.com.evil.net", false),
            ("*.com", "example.com", true),
            ("*", "example.com", true),
            ("*", "10.0.0.1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "[::ffff:127.0.0.1]", true),
            ("[::1]", "[0:0:0:0:0:0:0:1]", true),
            ("[::1]", "::1", true),
            ("[::1]", "[::2]", false),
            ("xn--bcher-kva.de", "XN--bcher-kva.de", true),
        ] {
            let (pattern, host): (HostPattern, EgressHost) = (pattern.parse().unwrap(), host.parse().unwrap());
            assert_eq!(pattern.covers(&host), expected, "{pattern} {host}");
        }
    }

    #[test]
    fn what_is_neither_a_name_nor_a_plain_address_is_nothing() {
        let (label, name) = ("a".repeat(64), "a.".repeat(127) + "b");
        for bad in [
            "",
            ".",
            "..",
            ".a",
            "a..b",
            "a..",
            "*a",
            "a*",
            "a.*.b",
            "bücher.de",
            "a b",
            "a@b",
            "a/b",
            "a%b",
            "a\0b",
            "a\n",
            "a:b",
            "[::1",
            "::1]",
            "[::1%1]",
            "fe80::1%eth0",
            "[127.0.0.1]",
            "[]",
            "[a]",
            &label,
            &name,
        ] {
            assert_eq!(bad.parse::<EgressHost>(), Err(HostError::Shape), "{bad}");
        }
        for bad in [
            "127.1",
            "127.0.1",
            "0x7f.1",
            "0x7f.0.0.1",
            "0X7F000001",
            "0x",
            "2130706433",
            "017700000001",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.256",
            "1.2.3.4.5",
            "0",
            "127.0.0.1.",
            "2130706433.",
            "a.1",
            "a.0x1f",
        ] {
            assert_eq!(bad.parse::<EgressHost>(), Err(HostError::AddressSpelling), "{bad}");
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
            assert!(format!("*.{bad}").parse::<HostPattern>().is_err(), "{bad}");
        }
        for bad in ["*.", "*.*", "*.*.a", "**", "*.[::1]", "*.127.0.0.1"] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    fn label() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["a", "b", "c", "xn--a", "a1"]).prop_map(str::to_owned)
    }

    fn name() -> impl Strategy<Value = String> {
        prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."))
    }

    fn host() -> impl Strategy<Value = EgressHost> {
        prop_oneof![
            4 => name().prop_map(|n| n.parse().unwrap()),
            1 => (0u8..3).prop_map(|n| EgressHost::from(IpAddr::from([10, 0, 0, n]))),
        ]
    }

    fn pattern() -> impl Strategy<Value = HostPattern> {
        prop_oneof![
            1 => Just(HostPattern::Any),
            3 => host().prop_map(HostPattern::Exact),
            3 => name().prop_map(|n| format!("*.{n}").parse().unwrap()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn an_intersection_covers_exactly_what_both_cover(left in pattern(), right in pattern(), host in host()) {
            let both = left.intersect(&right).is_some_and(|p| p.covers(&host));
            prop_assert_eq!(both, left.covers(&host) && right.covers(&host));
        }

        #[test]
        fn hosts_and_patterns_read_back_as_written(host in host(), pattern in pattern()) {
            prop_assert_eq!(host.to_string().parse::<EgressHost>(), Ok(host));
            prop_assert_eq!(pattern.to_string().parse::<HostPattern>(), Ok(pattern));
        }

        #[test]
        fn no_text_makes_reading_fail_in_another_way(text in "\\PC{0,40}") {
            if let Ok(EgressHost::Name(name)) = text.parse() {
                prop_assert!(name.is_ascii() && name.parse::<IpAddr>().is_err());
            }
        }
    }
}
