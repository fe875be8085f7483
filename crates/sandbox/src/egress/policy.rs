//! What may be reached, as data, and the two questions asked of it: this host and port? this address?
//!
//! Three hands write it. The tool's manifest gives the [rules](Policy::rules). The operator says into which networks
//! that are not public a name may lead ([`EgressPolicy::open_networks`]). Whoever stands above – the operator again, a tenant,
//! the invocation that made this one – gives [`EgressBounds`], which only take away.
//!
//! When is an address that is not public reached?
//! - It lies in an open network. The addresses where clouds hand out credentials must be opened by themselves
//!   (`169.254.169.254/32`): whoever opens `fd00::/8` or `100.64.0.0/10` has hardly meant those.
//! - Or a rule names this very address, and it is loopback, private or shared. A manifest that says `10.0.0.7:80` was
//!   read by somebody; a name that happens to lead to 10.0.0.7 was not.
//!
//! An address that carries another one (`64:ff9b::7f00:1`) is reached when all its parts are.

use std::net::IpAddr;
use std::num::NonZeroU64;

use super::address::{AddressClass, carried};
use super::cidr::Cidr;
use super::host::{EgressHost, HostPattern};
use super::rule::{EgressRule, PortSet};
use crate::spec::DirectPlaces;

/// As many addresses have listeners of their own.
const DIRECT_ADDRESSES_MAX: usize = 16;

/// What one call may reach. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Hosts and ports; what no rule admits is refused.
    pub rules: Vec<EgressRule>,
    /// Networks that are not public and into which names may lead all the same.
    pub open_networks: Vec<Cidr>,
    /// If set, the only networks in which anything is reached.
    pub networks: Option<Vec<Cidr>>,
    /// Of all connections of the call together, both directions added; `None` is not limited.
    pub bytes_per_second: Option<NonZeroU64>,
    /// The rules as the manifest has them, once bounds were put on them: only they can name an address that is not public.
    /// What `*` and a bound of `10.0.0.7` have in common is that address, and still nobody has asked for it by name.
    pub declared: Option<Vec<EgressRule>>,
}

/// What somebody above allows at most. It adds nothing, and what it does not mention it does not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressBounds {
    pub rules: Option<Vec<EgressRule>>,
    pub networks: Option<Vec<Cidr>>,
    pub bytes_per_second: Option<NonZeroU64>,
}

/// What speaks against an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objection {
    /// It is not public, and nobody opened it.
    Class(AddressClass),
    /// It is in none of [`EgressPolicy::networks`].
    Outside,
}

impl EgressPolicy {
    /// The same, as far as the bounds allow it.
    ///
    /// ```
    /// # use gantry_sandbox::egress::{EgressBounds, EgressPolicy};
    /// let tool = EgressPolicy { rules: vec!["*.example.com:443".parse().unwrap()], ..EgressPolicy::default() };
    /// let above = EgressBounds { rules: Some(vec!["a.example.com:*".parse().unwrap()]), ..EgressBounds::default() };
    /// let both = tool.within(&above);
    /// assert!(both.admits(&"a.example.com".parse().unwrap(), 443));
    /// assert!(!both.admits(&"b.example.com".parse().unwrap(), 443));
    /// ```
    #[must_use]
    pub fn within(&self, bounds: &EgressBounds) -> Self {
        let rules = match &bounds.rules {
            Some(limits) => pairs(&self.rules, limits, EgressRule::intersect),
            None => self.rules.clone(),
        };
        let networks = match (&self.networks, &bounds.networks) {
            (Some(left), Some(right)) => Some(pairs(left, right, Cidr::intersect)),
            (left, right) => left.clone().or_else(|| right.clone()),
        };
        let bytes_per_second = self.bytes_per_second.into_iter().chain(bounds.bytes_per_second).min();
        let declared = Some(self.declared.as_ref().unwrap_or(&self.rules).clone());
        Self { rules, open_networks: self.open_networks.clone(), networks, bytes_per_second, declared }
    }

    /// This policy as bounds for what the call starts itself.
    #[must_use]
    pub fn bounds(&self) -> EgressBounds {
        EgressBounds {
            rules: Some(self.rules.clone()),
            networks: self.networks.clone(),
            bytes_per_second: self.bytes_per_second,
        }
    }

    /// May this port of this host be asked for at all? Asked before a name is resolved.
    #[must_use]
    pub fn admits(&self, host: &EgressHost, port: u16) -> bool {
        self.rules.iter().any(|rule| rule.admits(host, port))
    }

    /// Does a rule speak of this host, whatever the port?
    #[must_use]
    pub fn covers(&self, host: &EgressHost) -> bool {
        self.rules.iter().any(|rule| rule.host.covers(host))
    }

    /// The ports and addresses at which connections of programs that know no proxy are taken: those that rules name, and the
    /// usual ones of services where a rule names none.
    #[must_use]
    pub fn direct_places(&self) -> DirectPlaces {
        let mut places = DirectPlaces::default();
        for rule in &self.rules {
            match &rule.ports {
                PortSet::Of(ports) => places.ports.extend(ports),
                PortSet::Any => places.add_usual_ports(),
            }
            if let HostPattern::Exact(EgressHost::Address(IpAddr::V4(address))) = &rule.host
                && !address.is_loopback()
                && places.addresses.len() < DIRECT_ADDRESSES_MAX
            {
                places.addresses.insert(*address);
            }
        }
        places.cut();
        places
    }

    /// The same, and the usual ports of services whatever the rules are: there what a program wanted is told, and not only seen
    /// as a closed port. For programs that somebody else wrote, and that serve nothing to themselves.
    #[must_use]
    pub fn direct_places_that_tell(&self) -> DirectPlaces {
        let mut places = self.direct_places();
        places.add_usual_ports();
        places.cut();
        places
    }

    /// May a connection to this port of this host, which [is admitted](Self::admits), end at this address? If the
    /// address is the machine's own, it is loopback, however public it looks.
    pub(super) fn judge(&self, host: &EgressHost, port: u16, address: IpAddr, own: bool) -> Result<(), Objection> {
        let address = address.to_canonical();
        if self.networks.as_ref().is_some_and(|networks| !lies_in(networks, address)) {
            return Err(Objection::Outside);
        }
        let declared = *host == EgressHost::Address(address) && self.declares(host, port);
        for part in std::iter::once(address).chain(carried(address)) {
            let class = match AddressClass::of(part) {
                AddressClass::Public if own => AddressClass::Loopback,
                class => class,
            };
            let opened = self.opens(part) || (class != AddressClass::Metadata && self.opens(address));
            if class != AddressClass::Public && !opened && !(declared && class.is_declarable()) {
                return Err(Objection::Class(class));
            }
        }
        Ok(())
    }

    /// Does a rule name this very host, instead of a family that has it?
    fn declares(&self, host: &EgressHost, port: u16) -> bool {
        let rules = self.declared.as_ref().unwrap_or(&self.rules).iter();
        let mut rules = rules.filter(|rule| rule.ports.contains(port));
        rules.any(|rule| matches!(&rule.host, HostPattern::Exact(own) if own == host))
    }

    fn opens(&self, address: IpAddr) -> bool {
        let alone = AddressClass::of(address) == AddressClass::Metadata;
        self.open_networks.iter().any(|network| network.contains(address) && (!alone || network.is_one()))
    }
}

/// Is the address, or else all that it carries, in one of these?
fn lies_in(networks: &[Cidr], address: IpAddr) -> bool {
    let has = |address: IpAddr| networks.iter().any(|network| network.contains(address));
    let mut inside = carried(address).peekable();
    has(address) || (inside.peek().is_some() && inside.all(has))
}

/// What any two have in common, each once.
fn pairs<T: PartialEq>(left: &[T], right: &[T], both: impl Fn(&T, &T) -> Option<T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for common in left.iter().flat_map(|l| right.iter().filter_map(|r| both(l, r))) {
        if !all.contains(&common) {
            all.push(common);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::egress::PortSet;

    fn policy(rules: &[&str], open: &[&str]) -> EgressPolicy {
        EgressPolicy {
            rules: rules.iter().map(|r| r.parse().unwrap()).collect(),
            open_networks: open.iter().map(|c| c.parse().unwrap()).collect(),
            ..EgressPolicy::default()
        }
    }

    /// Rules, open networks, the host asked for and where it leads: is that allowed?
    type Case<'t> = (&'t [&'t str], &'t [&'t str], &'t str, &'t str, bool);

    #[test]
    fn addresses_that_are_not_public_need_the_word_of_somebody() {
        let cases: &[Case<'_>] = &[
            (&["h:80"], &[], "h", "8.8.8.8", true),
            (&["h:80"], &[], "h", "10.0.0.1", false),
            (&["h:80"], &[], "h", "127.0.0.1", false),
            (&["h:80"], &[], "h", "::ffff:127.0.0.1", false),
            (&["h:80"], &[], "h", "64:ff9b::7f00:1", false),
            (&["h:80"], &[], "h", "64:ff9b::808:808", true),
            (&["h:80"], &[], "h", "2002:7f00:1::", false),
            (&["h:80"], &[], "h", "2002:808:808::", true),
            (&["h:80"], &[], "h", "2001:0:808:808::80ff:fffe", false),
            (&["h:80"], &[], "h", "2001:0:808:808::f7f7:f7f7", true),
            (&["h:80"], &[], "h", "2a00::5efe:127.0.0.1", false),
            (&["h:80"], &[], "h", "0.0.0.0", false),
            (&["h:80"], &[], "h", "::", false),
            (&["h:80"], &["10.0.0.0/8"], "h", "10.0.0.1", true),
            (&["h:80"], &["10.0.0.0/8"], "h", "::ffff:10.0.0.1", true),
            (&["h:80"], &["10.0.0.0/8"], "h", "64:ff9b::a00:1", true),
            (&["h:80"], &["10.0.0.0/8"], "h", "127.0.0.1", false),
            (&["h:80"], &["64:ff9b::/96"], "h", "64:ff9b::a00:1", true),
            (&["h:80"], &["64:ff9b::/96"], "h", "64:ff9b::a9fe:a9fe", false),
            (&["h:80"], &["169.254.0.0/16"], "h", "169.254.1.1", true),
            (&["h:80"], &["169.254.0.0/16"], "h", "169.254.169.254", false),
            (&["h:80"], &["169.254.169.254/32"], "h", "169.254.169.254", true),
            (&["h:80"], &["0.0.0.0/0", "::/0"], "h", "100.100.100.200", false),
            (&["h:80"], &["0.0.0.0/0", "::/0"], "h", "fd00:ec2::254", false),
            (&["h:80"], &["0.0.0.0/0", "::/0"], "h", "168.63.129.16", false),
            (&["10.0.0.1:80"], &[], "10.0.0.1", "10.0.0.1", true),
            (&["127.0.0.1:80"], &[], "127.0.0.1", "127.0.0.1", true),
            (&["[::1]:80"], &[], "[::1]", "::1", true),
            (&["100.64.0.1:80"], &[], "100.64.0.1", "100.64.0.1", true),
            (&["10.0.0.1:81"], &[], "10.0.0.1", "10.0.0.1", false),
            (&["*:*"], &[], "10.0.0.1", "10.0.0.1", false),
            (&["*:*"], &[], "8.8.8.8", "8.8.8.8", true),
            (&["10.0.0.1:80", "h:80"], &[], "h", "10.0.0.1", false),
            (&["169.254.169.254:80"], &[], "169.254.169.254", "169.254.169.254", false),
            (&["169.254.1.1:80"], &[], "169.254.1.1", "169.254.1.1", false),
            (&["[fe80::1]:80"], &[], "[fe80::1]", "fe80::1", false),
            (&["[fd00:ec2::254]:80"], &[], "[fd00:ec2::254]", "fd00:ec2::254", false),
            (&["100.100.100.200:80"], &[], "100.100.100.200", "100.100.100.200", false),
            (&["0.0.0.0:80"], &[], "0.0.0.0", "0.0.0.0", false),
            (&["224.0.0.1:80"], &[], "224.0.0.1", "224.0.0.1", false),
            (&["[64:ff9b::a9fe:a9fe]:80"], &[], "[64:ff9b::a9fe:a9fe]", "64:ff9b::a9fe:a9fe", false),
            (&["[64:ff9b::a00:1]:80"], &[], "[64:ff9b::a00:1]", "64:ff9b::a00:1", true),
        ];
        for (rules, open, host, address, expected) in cases {
            let allowed =
                policy(rules, open).judge(&host.parse().unwrap(), 80, address.parse().unwrap(), false).is_ok();
            assert_eq!(allowed, *expected, "{rules:?} {open:?} {host} {address}");
        }
    }

    #[test]
    fn networks_limit_public_addresses_too() {
        let mut policy = policy(&["h:80", "10.0.0.1:80"], &[]);
        policy.networks = Some(vec!["8.8.8.0/24".parse().unwrap()]);
        let judge =
            |host: &str, address: &str| policy.judge(&host.parse().unwrap(), 80, address.parse().unwrap(), false);
        assert_eq!(judge("h", "8.8.8.8"), Ok(()));
        assert_eq!(judge("h", "64:ff9b::808:808"), Ok(()));
        assert_eq!(judge("h", "1.1.1.1"), Err(Objection::Outside));
        assert_eq!(judge("10.0.0.1", "10.0.0.1"), Err(Objection::Outside));
    }

    #[test]
    fn an_address_of_this_machine_is_loopback_however_public() {
        for (rules, open, host, allowed) in [
            (&["h:80"][..], &[][..], "h", false),
            (&["*:*"], &[], "8.8.8.8", false),
            (&["8.8.8.8:80"], &[], "8.8.8.8", true),
            (&["h:80"], &["8.8.8.8/32"], "h", true),
        ] {
            let judged = policy(rules, open).judge(&host.parse().unwrap(), 80, "8.8.8.8".parse().unwrap(), true);
            assert_eq!(judged.is_ok(), allowed, "{rules:?} {open:?} {host}");
        }
    }

    #[test]
    fn a_bound_that_names_an_address_declares_it_for_nobody() {
        let above = EgressBounds { rules: Some(vec!["10.0.0.1:80".parse().unwrap()]), ..EgressBounds::default() };
        let judge = |rule: &str| {
            let both = policy(&[rule], &[]).within(&above).within(&above);
            both.judge(&"10.0.0.1".parse().unwrap(), 80, "10.0.0.1".parse().unwrap(), false)
        };
        assert_eq!(judge("*:*"), Err(Objection::Class(AddressClass::Private)));
        assert_eq!(judge("10.0.0.1:80"), Ok(()));
    }

    #[test]
    fn the_default_admits_nothing() {
        assert!(!EgressPolicy::default().admits(&"example.com".parse().unwrap(), 443));
        assert!(!EgressPolicy::default().within(&EgressBounds::default()).admits(&"example.com".parse().unwrap(), 443));
    }

    fn rule() -> impl Strategy<Value = EgressRule> {
        let host = prop::sample::select(vec!["*", "*.c", "*.b.c", "b.c", "a.b.c", "10.0.0.1", "8.8.8.8"]);
        let ports = prop_oneof![Just(PortSet::Any), prop::collection::btree_set(1u16..4, 1..3).prop_map(PortSet::Of)];
        (host, ports).prop_map(|(host, ports)| EgressRule { host: host.parse().unwrap(), ports })
    }

    fn networks() -> impl Strategy<Value = Vec<Cidr>> {
        let range = prop::sample::select(vec!["10.0.0.0/8", "10.0.0.1", "8.0.0.0/8", "8.8.8.8", "0.0.0.0/0"]);
        prop::collection::vec(range.prop_map(|c| c.parse().unwrap()), 0..3)
    }

    fn bounds() -> impl Strategy<Value = EgressBounds> {
        let rules = prop::option::of(prop::collection::vec(rule(), 0..4));
        let rate = (0u64..9).prop_map(NonZeroU64::new);
        (rules, prop::option::of(networks()), rate).prop_map(|(rules, networks, bytes_per_second)| EgressBounds {
            rules,
            networks,
            bytes_per_second,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn bounds_take_away_exactly_what_they_do_not_have(
            rules in prop::collection::vec(rule(), 0..4),
            open_networks in networks(),
            own in bounds(),
            above in bounds(),
            host in prop::sample::select(vec!["c", "b.c", "a.b.c", "x.b.c", "10.0.0.1", "8.8.8.8"]),
            port in 1u16..4,
            address in prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "8.8.8.8", "9.9.9.9"]),
            of_this_machine in any::<bool>(),
        ) {
            let (host, address): (EgressHost, IpAddr) = (host.parse().unwrap(), address.parse().unwrap());
            let tool = EgressPolicy { rules, open_networks, networks: own.networks, bytes_per_second: own.bytes_per_second, declared: None };
            let both = tool.within(&above);
            let above_admits = above.rules.as_ref().is_none_or(|rules| rules.iter().any(|r| r.admits(&host, port)));
            prop_assert_eq!(both.admits(&host, port), tool.admits(&host, port) && above_admits);
            let above_has = above.networks.as_ref().is_none_or(|networks| lies_in(networks, address));
            if both.admits(&host, port) {
                let judged = tool.judge(&host, port, address, of_this_machine).is_ok() && above_has;
                prop_assert_eq!(both.judge(&host, port, address, of_this_machine).is_ok(), judged);
            }
            prop_assert!(above.bytes_per_second.is_none_or(|most| both.bytes_per_second.is_some_and(|r| r <= most)));
            prop_assert_eq!(both.within(&both.bounds()).admits(&host, port), both.admits(&host, port));
        }
    }
}
