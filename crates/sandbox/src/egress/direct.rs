//! The way out for programs that know no proxy: database drivers, older runtimes, whoever opens a socket and no more.
//!
//! The program asks for a name as everywhere and gets an address of its own loopback that stands for it; at that address our
//! listeners take its connection, and the gate makes the real one, or does not. So nothing changes about who decides: the
//! address that the program holds leads nowhere but here.
//!
//! ```text
//!   program ── "db.example.com?" ──▶ 127.0.0.1:53      DirectNames   a rule covers it: 127.77.0.1, else "no such name"
//!           ── connect 127.77.0.1:5432 ─▶ a listener ─▶ Gate.connect("db.example.com", 5432)
//! ```
//!
//! Invariants
//! - DIR-1: nobody outside is asked for a name here; that is the gate's, once it connects.
//! - DIR-2: a name that no rule covers has no address, and the wish is written down in the meter.
//! - DIR-3: names are bounded in number; one beyond that is answered with a failure, not with another's address.
//!
//! Not here: how the sockets come to be inside (`inside`), and the protocols of proxies (`proxy`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use base::MutexExt as _;

use super::dns::{Outcome, Query, QueryKind};
use super::gate::EgressGate;
use super::host::EgressHost;

/// As many names have an address; more than any honest program asks for.
const NAMES_MAX: u16 = 4096;
/// The network their addresses are from; loopback, so that every sandbox has it.
const NETWORK: [u8; 2] = [127, 77];
const LOCALHOST: &str = "localhost";

/// Which name is behind which address, for one program.
#[derive(Debug)]
pub(super) struct DirectNames {
    gate: Arc<EgressGate>,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    addresses: HashMap<Box<str>, Ipv4Addr>,
    names: HashMap<Ipv4Addr, Box<str>>,
}

impl DirectNames {
    pub(super) fn new(gate: Arc<EgressGate>) -> Self {
        Self { gate, given: Mutex::default() }
    }

    /// The answer to a packet, if it deserves one.
    pub(super) fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let query = Query::read(packet)?;
        Some(query.answer(self.decide(&query)))
    }

    fn decide(&self, query: &Query) -> Outcome {
        // Names of addresses, mail exchangers and the like: nobody connects to those.
        if query.kind == QueryKind::Other {
            return Outcome::NoSuchName;
        }
        let Ok(host @ EgressHost::Name(_)) = query.name.parse::<EgressHost>() else { return Outcome::NoSuchName };
        let EgressHost::Name(name) = &host else { return Outcome::NoSuchName };
        if &**name == LOCALHOST {
            return found(query.kind, Ipv4Addr::LOCALHOST);
        }
        if !self.gate.policy().covers(&host) {
            // A name of one label is mostly the sandbox's own, which programs like to ask for.
            if name.contains('.') {
                self.gate.refuse_name(name);
            }
            return Outcome::NoSuchName;
        }
        self.address_of(name).map_or(Outcome::Failure, |address| found(query.kind, address))
    }

    fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        let mut given = self.given.lock_unpoisoned();
        if let Some(known) = given.addresses.get(name) {
            return Some(*known);
        }
        let number = u16::try_from(given.addresses.len()).ok().filter(|number| *number < NAMES_MAX)?;
        let [first, second] = NETWORK;
        let [third, fourth] = (number + 1).to_be_bytes();
        let address = Ipv4Addr::new(first, second, third, fourth);
        given.addresses.insert(name.into(), address);
        given.names.insert(address, name.into());
        Some(address)
    }

    /// The host that a connection to this address is meant for.
    pub(super) fn host_behind(&self, address: IpAddr, port: u16) -> String {
        let address = address.to_canonical();
        if let IpAddr::V4(address) = address
            && let Some(name) = self.given.lock_unpoisoned().names.get(&address)
        {
            return name.to_string();
        }
        // `localhost` is in the program's own list of hosts and never asked for.
        let policy = self.gate.policy();
        if address.is_loopback() && !policy.admits(&EgressHost::Address(address), port) {
            let name = EgressHost::Name(LOCALHOST.into());
            if policy.admits(&name, port) {
                return LOCALHOST.to_owned();
            }
        }
        address.to_string()
    }
}

/// The addresses here are all of the fourth version.
const fn found(kind: QueryKind, address: Ipv4Addr) -> Outcome {
    match kind {
        QueryKind::AddressV4 => Outcome::Address(address),
        QueryKind::AddressV6 | QueryKind::Other => Outcome::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::dns::tests::question;
    use super::super::{EgressPolicy, SystemResolver};
    use super::*;

    fn names(rules: &[&str]) -> DirectNames {
        let policy =
            EgressPolicy { rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(), ..EgressPolicy::default() };
        DirectNames::new(Arc::new(EgressGate::new(policy, Arc::new(SystemResolver))))
    }

    fn ask(names: &DirectNames, name: &str, kind: u16) -> Outcome {
        names.decide(&Query::read(&question(name, kind)).unwrap())
    }

    #[test]
    fn a_name_that_a_rule_covers_has_one_address_and_it_leads_back_to_the_name() {
        let names = names(&["api.example.com", "*.db.example.com:5432"]);
        let Outcome::Address(api) = ask(&names, "API.example.com", 1) else { panic!("no address") };
        assert_eq!(ask(&names, "api.example.com", 1), Outcome::Address(api), "the same each time");
        let Outcome::Address(database) = ask(&names, "one.db.example.com", 1) else { panic!("no address") };
        assert_ne!(api, database);
        assert_eq!(names.host_behind(api.into(), 443), "api.example.com");
        assert_eq!(names.host_behind(database.into(), 5432), "one.db.example.com");
        assert_eq!(ask(&names, "api.example.com", 28), Outcome::Nothing, "it has none of the sixth version");
        assert_eq!(names.gate.meter().snapshot().violations, 0);
    }

    #[test]
    fn a_name_that_no_rule_covers_has_none_and_the_wish_is_written_down() {
        let names = names(&["api.example.com"]);
        assert_eq!(ask(&names, "other.example.com", 1), Outcome::NoSuchName);
        assert_eq!(ask(&names, "sandbox", 1), Outcome::NoSuchName, "the program's own name is no wish");
        assert_eq!(ask(&names, "1.0.0.127.in-addr.arpa", 12), Outcome::NoSuchName, "nor is the name of an address");
        let kept = names.gate.meter().snapshot().kept;
        assert_eq!(kept.iter().map(ToString::to_string).collect::<Vec<_>>(), ["other.example.com"]);
    }

    #[test]
    fn an_address_that_stands_for_no_name_is_itself_or_localhost_where_that_is_allowed() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(names(&["127.0.0.1:5432"]).host_behind(local, 5432), "127.0.0.1");
        assert_eq!(names(&["localhost:5432"]).host_behind(local, 5432), "localhost");
        assert_eq!(names(&["localhost:5432"]).host_behind(local, 80), "127.0.0.1");
        assert_eq!(names(&[]).host_behind("10.0.0.7".parse().unwrap(), 80), "10.0.0.7");
    }

    #[test]
    fn names_without_end_get_no_addresses_without_end() {
        let names = names(&["*.example.com"]);
        for number in 0..NAMES_MAX {
            assert!(names.address_of(&format!("n{number}.example.com")).is_some());
        }
        assert_eq!(ask(&names, "more.example.com", 1), Outcome::Failure);
        assert!(matches!(ask(&names, "n7.example.com", 1), Outcome::Address(_)), "those who have one keep it");
    }
}
