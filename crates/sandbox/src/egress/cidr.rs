//! Ranges of addresses: `10.0.0.0/8`, `fd00::/8`, or one address.
//!
//! A range with bits set behind its prefix is refused rather than rounded: `10.1.2.3/8` is somebody's mistake, and which
//! mistake cannot be known. IPv4 ranges in IPv6 clothes (`::ffff:10.0.0.0/104`) become the IPv4 range they mean.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    first: IpAddr,
    prefix: u8,
}

/// Why a text or a pair is not a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Not `address/prefix` nor an address.
    #[error("a range of addresses is written as `10.0.0.0/8`, `fd00::/8` or one address")]
    Shape,
    /// A prefix longer than the address.
    #[error("the prefix of an IPv4 range is at most 32, that of an IPv6 range at most 128")]
    Prefix,
    /// The first address has bits behind the prefix.
    #[error("the address of a range must be its first one")]
    HostBits,
}

/// Length of the prefix of IPv4 addresses written as IPv6 ones.
const MAPPED_PREFIX: u8 = 96;

impl Cidr {
    /// The range that begins at `first` and whose addresses share its first `prefix` bits.
    pub fn new(first: IpAddr, prefix: u8) -> Result<Self, CidrError> {
        if prefix > width(first) {
            return Err(CidrError::Prefix);
        }
        if bits(first) & !mask(prefix) != 0 {
            return Err(CidrError::HostBits);
        }
        match (first.to_canonical(), prefix.checked_sub(MAPPED_PREFIX)) {
            (plain @ IpAddr::V4(_), Some(prefix)) if first.is_ipv6() => Ok(Self { first: plain, prefix }),
            _ => Ok(Self { first, prefix }),
        }
    }

    /// Is the address in it? An IPv4 address in IPv6 clothes is taken for what it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && (bits(address) ^ bits(self.first)) & mask(self.prefix) == 0
    }

    /// Is it exactly one address?
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.prefix == width(self.first)
    }

    /// The smaller one of two that overlap.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let (outer, inner) = if self.prefix <= other.prefix { (self, other) } else { (other, self) };
        // A range that begins in a larger one lies in it as a whole. `contains` is not asked, since the first address
        // of an IPv6 range may look like an IPv4 address.
        let same = outer.first.is_ipv4() == inner.first.is_ipv4();
        (same && (bits(outer.first) ^ bits(inner.first)) & mask(outer.prefix) == 0).then_some(*inner)
    }
}

impl From<IpAddr> for Cidr {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { first: address, prefix: width(address) }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let Some((address, prefix)) = text.split_once('/') else {
            return text.parse::<IpAddr>().map(Self::from).map_err(|_| CidrError::Shape);
        };
        let address = address.parse().map_err(|_| CidrError::Shape)?;
        let plain = prefix.bytes().all(|b| b.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
        let prefix = prefix.parse().ok().filter(|_| plain).ok_or(CidrError::Shape)?;
        Self::new(address, prefix)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// The address at the left end of 128 bits, so that one mask serves both families.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_has_its_first_and_last_address_and_not_their_neighbours() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0"]),
            ("172.16.0.0/12", ["172.16.0.0", "172.31.255.255"], ["172.15.255.255", "172.32.0.0"]),
            ("192.168.1.7", ["192.168.1.7", "::ffff:192.168.1.7"], ["192.168.1.6", "192.168.1.8"]),
            ("fd00::/8", ["fd00::", "fdff:ffff::1"], ["fcff::", "fe00::"]),
            ("::1", ["::1", "0:0::1"], ["::", "::2"]),
            ("::ffff:10.0.0.0/104", ["10.0.0.0", "::ffff:10.9.9.9"], ["11.0.0.0", "::a00:1"]),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::1", "fd00::1"]),
            ("::/0", ["::1", "ffff::"], ["10.0.0.1", "::ffff:10.0.0.1"]),
        ] {
            let cidr: Cidr = range.parse().unwrap();
            assert!(inside.iter().all(|a| cidr.contains(a.parse().unwrap())), "{range}");
            assert!(!outside.iter().any(|a| cidr.contains(a.parse().unwrap())), "{range}");
        }
    }

    #[test]
    fn a_careless_range_is_refused() {
        for (text, error) in [
            ("", CidrError::Shape),
            ("10", CidrError::Shape),
            ("10.0.0.0/", CidrError::Shape),
            ("10.0.0.0/08", CidrError::Shape),
            ("10.0.0.0/+8", CidrError::Shape),
            ("10.0.0.0/8/8", CidrError::Shape),
            ("010.0.0.0/8", CidrError::Shape),
            ("10.0.0.0/256", CidrError::Shape),
            ("[fd00::]/8", CidrError::Shape),
            ("10.0.0.0/33", CidrError::Prefix),
            ("fd00::/129", CidrError::Prefix),
            ("10.1.2.3/8", CidrError::HostBits),
            ("fd00::1/8", CidrError::HostBits),
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(error), "{text}");
        }
    }

    /// Few distinct bits, so that ranges meet.
    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (0u32..16, 0u32..4).prop_map(|(high, low)| IpAddr::from(((high << 28) | low).to_be_bytes())),
            (0u128..16, 0u128..4).prop_map(|(high, low)| IpAddr::from(((high << 124) | low).to_be_bytes())),
        ]
    }

    fn cidr() -> impl Strategy<Value = Cidr> {
        (address(), prop_oneof![0u8..6, 28u8..=32, 126u8..=128]).prop_map(|(address, prefix)| {
            let prefix = prefix.min(width(address));
            let kept = bits(address) & mask(prefix);
            let first = match address {
                IpAddr::V4(_) => IpAddr::from(u32::try_from(kept >> 96).unwrap().to_be_bytes()),
                IpAddr::V6(_) => IpAddr::from(kept.to_be_bytes()),
            };
            Cidr::new(first, prefix).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn an_intersection_has_exactly_the_addresses_of_both(a in cidr(), b in cidr(), address in address()) {
            let both = a.intersect(&b).is_some_and(|c| c.contains(address));
            prop_assert_eq!(both, a.contains(address) && b.contains(address));
        }

        #[test]
        fn a_range_reads_back_as_written(cidr in cidr()) {
            prop_assert_eq!(cidr.to_string().parse::<Cidr>(), Ok(cidr));
        }
    }
}
