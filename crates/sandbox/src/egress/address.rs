//! What an address is for, and which other addresses it carries inside.
//!
//! Addresses are judged after resolution, so this is where names that point inwards end. The order of the two tables is
//! their precedence: the first range that has the address names its class. What IPv6 has not handed out is [reserved],
//! so a range that gets a meaning later is closed until somebody thinks about it.
//!
//! Several IPv6 forms carry an IPv4 address to which some machine on the way will send the packet: NAT64, 6to4, Teredo,
//! ISATAP and two old compatibility forms. [`carried`] unwraps them, and every part has to be allowed.
//!
//! [reserved]: AddressClass::Reserved

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// What an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// Anybody's: the only class that needs no declaration.
    Public,
    /// This machine.
    Loopback,
    /// Somebody's own network: RFC 1918, unique local, site-local.
    Private,
    /// Between a provider and its customers (100.64.0.0/10), also used by overlay networks.
    Shared,
    /// This cable.
    LinkLocal,
    /// Where clouds hand credentials to whoever asks.
    Metadata,
    /// No address at all, which systems take for this machine.
    Unspecified,
    /// Many machines at once, broadcast included.
    Multicast,
    /// In books.
    Documentation,
    /// Protocols, benchmarks, the future.
    Reserved,
}

impl AddressClass {
    /// The class of one address, taken at its face; the addresses inside are judged apart.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        }
    }

    /// May a rule that names such an address open it? The others need the operator's word.
    #[must_use]
    pub const fn is_declarable(self) -> bool {
        matches!(self, Self::Public | Self::Loopback | Self::Private | Self::Shared)
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Shared => "shared",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Documentation => "documentation",
            Self::Reserved => "reserved",
        })
    }
}

/// The IPv4 addresses to which packets for this address may be sent in the end; none for most.
pub(super) fn carried(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let (first, second) = match address.to_canonical() {
        IpAddr::V4(_) => (None, None),
        IpAddr::V6(v6) => carried_v4(v6),
    };
    first.into_iter().chain(second).map(IpAddr::V4)
}

/// Is it one of this machine's own addresses? Behind a public one there may be services that a firewall keeps from the
/// public, and what comes from the machine itself passes the firewall. The kernel is asked for its route: to oneself it
/// leads from the address itself. A datagram socket is connected for that, which sends nothing.
pub(super) fn is_own(address: IpAddr) -> bool {
    let any = if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    UdpSocket::bind((any, 0))
        .and_then(|socket| socket.connect((address, ROUTE_PORT)).and_then(|()| socket.local_addr()))
        // Where no route leads, nothing can be reached.
        .is_ok_and(|from| from.ip() == address)
}

/// Some port, for a route has none but a socket wants one.
const ROUTE_PORT: u16 = 9;

// ------------------------------------------------------------------------------------------------------------ IPv4

/// First address and length of the prefix.
type RangeV4 = ([u8; 4], u32);

const V4: &[(RangeV4, AddressClass)] = &[
    // Credentials: most clouds, AWS containers, Alibaba, Oracle's older one, and Azure's, which looks public.
    (([169, 254, 169, 254], 32), AddressClass::Metadata),
    (([169, 254, 170, 2], 32), AddressClass::Metadata),
    (([169, 254, 170, 23], 32), AddressClass::Metadata),
    (([100, 100, 100, 200], 32), AddressClass::Metadata),
    (([192, 0, 0, 192], 32), AddressClass::Metadata),
    (([168, 63, 129, 16], 32), AddressClass::Metadata),
    (([0, 0, 0, 0], 8), AddressClass::Unspecified),
    (([127, 0, 0, 0], 8), AddressClass::Loopback),
    (([10, 0, 0, 0], 8), AddressClass::Private),
    (([172, 16, 0, 0], 12), AddressClass::Private),
    (([192, 168, 0, 0], 16), AddressClass::Private),
    (([100, 64, 0, 0], 10), AddressClass::Shared),
    (([169, 254, 0, 0], 16), AddressClass::LinkLocal),
    (([192, 0, 2, 0], 24), AddressClass::Documentation),
    (([198, 51, 100, 0], 24), AddressClass::Documentation),
    (([203, 0, 113, 0], 24), AddressClass::Documentation),
    // Protocol assignments, AS112, relays of 6to4, benchmarks.
    (([192, 0, 0, 0], 24), AddressClass::Reserved),
    (([192, 31, 196, 0], 24), AddressClass::Reserved),
    (([192, 52, 193, 0], 24), AddressClass::Reserved),
    (([192, 88, 99, 0], 24), AddressClass::Reserved),
    (([192, 175, 48, 0], 24), AddressClass::Reserved),
    (([198, 18, 0, 0], 15), AddressClass::Reserved),
    (([224, 0, 0, 0], 4), AddressClass::Multicast),
    (([255, 255, 255, 255], 32), AddressClass::Multicast),
    (([240, 0, 0, 0], 4), AddressClass::Reserved),
];

fn of_v4(address: Ipv4Addr) -> AddressClass {
    let same = |(first, prefix): RangeV4| {
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
        (address.to_bits() ^ u32::from_be_bytes(first)) & mask == 0
    };
    V4.iter().find(|(range, _)| same(*range)).map_or(AddressClass::Public, |(_, class)| *class)
}

// ------------------------------------------------------------------------------------------------------------ IPv6

/// First address and length of the prefix.
type RangeV6 = (u128, u32);

/// The addresses of clouds' metadata, then the ranges by their leading bits.
const V6: &[(RangeV6, AddressClass)] = &[
    ((0xfd00_0ec2_0000_0000_0000_0000_0000_0254, 128), AddressClass::Metadata),
    ((0xfd00_0ec2_0000_0000_0000_0000_0000_0023, 128), AddressClass::Metadata),
    ((0xfd20_00ce_0000_0000_0000_0000_0000_0254, 128), AddressClass::Metadata),
    ((0, 128), AddressClass::Unspecified),
    ((1, 128), AddressClass::Loopback),
    ((0xfc00 << 112, 7), AddressClass::Private),
    ((0xfec0 << 112, 10), AddressClass::Private),
    ((0xfe80 << 112, 10), AddressClass::LinkLocal),
    ((0xff00 << 112, 8), AddressClass::Multicast),
    ((0x2001_0db8 << 96, 32), AddressClass::Documentation),
    ((0x3fff << 112, 20), AddressClass::Documentation),
    // Forms that carry an IPv4 address are what they carry: their own prefix says nothing.
    ((0, 96), AddressClass::Public),
    ((0xffff_0000_0000 << 16, 96), AddressClass::Public),
    ((0x0064_ff9b << 96, 96), AddressClass::Public),
    ((0x2002 << 112, 16), AddressClass::Public),
    ((0x2001_0000 << 96, 32), AddressClass::Public),
    // Protocol assignments, AS112; and then all that may be routed at all.
    ((0x2001_0000 << 96, 23), AddressClass::Reserved),
    ((0x2620_004f_8000 << 80, 48), AddressClass::Reserved),
    ((0x2000 << 112, 3), AddressClass::Public),
];

fn of_v6(address: Ipv6Addr) -> AddressClass {
    let same = |(first, prefix): RangeV6| {
        let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
        (address.to_bits() ^ first) & mask == 0
    };
    V6.iter().find(|(range, _)| same(*range)).map_or(AddressClass::Reserved, |(_, class)| *class)
}

fn carried_v4(address: Ipv6Addr) -> (Option<Ipv4Addr>, Option<Ipv4Addr>) {
    let bits = address.to_bits();
    let at = |shift: u32| {
        let [.., a, b, c, d] = (bits >> shift).to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        // Unspecified and loopback are themselves, not 0.0.0.0 and 0.0.0.1 in an old form.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => (None, None),
        // IPv4-compatible, IPv4-translated and NAT64: at the end.
        [0, 0, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            (Some(at(0)), None)
        }
        // 6to4: behind its prefix.
        [0x2002, ..] => (Some(at(80)), None),
        // Teredo: its server in the open, its client turned around.
        [0x2001, 0, ..] => (Some(at(64)), Some(Ipv4Addr::from_bits(!at(0).to_bits()))),
        // ISATAP below any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => (Some(at(0)), None),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::AddressClass::{
        Documentation, LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved, Shared, Unspecified,
    };
    use super::*;

    #[test]
    fn addresses_have_the_class_of_their_range() {
        for (address, class) in [
            ("8.8.8.8", Public),
            ("1.1.1.1", Public),
            ("93.184.216.34", Public),
            ("223.255.255.255", Public),
            ("9.255.255.255", Public),
            ("11.0.0.0", Public),
            ("172.15.255.255", Public),
            ("172.32.0.0", Public),
            ("192.167.255.255", Public),
            ("192.169.0.0", Public),
            ("100.63.255.255", Public),
            ("100.128.0.0", Public),
            ("126.255.255.255", Public),
            ("128.0.0.0", Public),
            ("168.63.129.15", Public),
            ("198.17.255.255", Public),
            ("198.20.0.0", Public),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.0.1", Private),
            ("100.64.0.0", Shared),
            ("100.127.255.255", Shared),
            ("100.100.100.200", Metadata),
            ("169.254.169.254", Metadata),
            ("169.254.170.2", Metadata),
            ("168.63.129.16", Metadata),
            ("192.0.0.192", Metadata),
            ("169.254.0.1", LinkLocal),
            ("169.254.169.253", LinkLocal),
            ("192.0.2.1", Documentation),
            ("198.51.100.1", Documentation),
            ("203.0.113.255", Documentation),
            ("192.0.0.1", Reserved),
            ("192.88.99.1", Reserved),
            ("198.18.0.1", Reserved),
            ("198.19.255.255", Reserved),
            ("240.0.0.1", Reserved),
            ("255.255.255.254", Reserved),
            ("255.255.255.255", Multicast),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", Metadata),
            ("::ffff:8.8.8.8", Public),
            ("::", Unspecified),
            ("::1", Loopback),
            ("2606:4700::1111", Public),
            ("2a00:1450:4001:81b::200e", Public),
            ("3ffe::1", Public),
            ("fc00::1", Private),
            ("fd12:3456::1", Private),
            ("fec0::1", Private),
            ("fd00:ec2::254", Metadata),
            ("fd00:ec2::23", Metadata),
            ("fd20:ce::254", Metadata),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("ff02::1", Multicast),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2001:10::1", Reserved),
            ("2001:2::1", Reserved),
            ("100::1", Reserved),
            ("64:ff9b:1::1", Reserved),
            ("5f00::1", Reserved),
            ("4000::1", Reserved),
            ("1000::1", Reserved),
        ] {
            assert_eq!(AddressClass::of(address.parse().unwrap()), class, "{address}");
        }
    }

    #[test]
    fn addresses_inside_addresses_are_found() {
        for (address, inside) in [
            ("64:ff9b::7f00:1", &["127.0.0.1"][..]),
            ("64:ff9b::a9fe:a9fe", &["169.254.169.254"]),
            ("64:ff9b::808:808", &["8.8.8.8"]),
            ("::7f00:1", &["127.0.0.1"]),
            ("::2", &["0.0.0.2"]),
            ("::ffff:0:7f00:1", &["127.0.0.1"]),
            ("2002:7f00:1::", &["127.0.0.1"]),
            ("2002:a00:1::1", &["10.0.0.1"]),
            ("2001:0:7f00:1::", &["127.0.0.1", "255.255.255.255"]),
            ("2001:0:808:808::80ff:fffe", &["8.8.8.8", "127.0.0.1"]),
            ("2a00::5efe:10.0.0.1", &["10.0.0.1"]),
            ("2a00::200:5efe:10.0.0.1", &["10.0.0.1"]),
            ("::1", &[]),
            ("::", &[]),
            ("2a00::1", &[]),
            ("8.8.8.8", &[]),
            ("::ffff:8.8.8.8", &[]),
        ] {
            let found: Vec<String> = carried(address.parse().unwrap()).map(|a| a.to_string()).collect();
            assert_eq!(found, inside, "{address}");
        }
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        for (address, own) in [("127.0.0.1", true), ("192.0.2.1", false), ("2001:db8::1", false)] {
            assert_eq!(is_own(address.parse().unwrap()), own, "{address}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_standard_library_finds_nothing_public_that_it_would_not_call_so(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let inward = v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
            prop_assert!(!(inward && AddressClass::of(IpAddr::V4(v4)) == Public));
        }

        #[test]
        fn an_ipv4_address_is_found_in_all_its_clothes(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let low = u128::from(bits);
            prop_assert_eq!(AddressClass::of(IpAddr::V6(v4.to_ipv6_mapped())), of_v4(v4));
            for clothes in [(0x0064_ff9b << 96) | low, (0xffff << 32 << 16) | low, (0x2002 << 112) | (low << 80)] {
                let found: Vec<IpAddr> = carried(IpAddr::V6(Ipv6Addr::from_bits(clothes))).collect();
                prop_assert_eq!(found, vec![IpAddr::V4(v4)]);
            }
        }
    }
}
