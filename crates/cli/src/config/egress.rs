//! `[egress]`: where tools, and what tenants and callers name, may lead at most. (DESIGN §6, EXEC-011)
//!
//! The grammar of hosts and ranges is the gate's own (`sandbox::egress`); here is only which text was wrong.

use sandbox::egress::{Cidr, EgressBounds, EgressRule};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// Where tools, and what tenants and callers name, may lead at most.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct EgressKeys {
    /// Hosts and ports that tools may reach at most: `api.example.com`, `*.example.com:443`, `https://api.example.com`,
    /// `10.0.0.7:8080`. Without a port: 80 and 443. A tool reaches what it declares *and* this list has. An empty list
    /// allows none. Holds for MCP servers at an address, webhooks and callbacks too, except for what
    /// `[[upstreams.tenants]]` and `[webhooks] allow` open. In the environment separated by commas.
    #[schemars(extend("x-unset" = "any"))]
    pub(super) allowed_hosts: Option<Vec<String>>,
    /// Ranges of addresses in which tools may reach anything at all, for example `203.0.113.0/24`; compared with the
    /// address after a name has been resolved. An empty list allows none. Holds for MCP servers at an address, webhooks and
    /// callbacks too, also for those that were opened.
    #[schemars(extend("x-unset" = "any"))]
    pub(super) allowed_networks: Option<Vec<String>>,
    /// Networks that are not public and into which a declared *name* may lead all the same, for example `10.1.0.0/16` for
    /// services of your own. Without it, a name that leads to a loopback, private, link-local or metadata address is a
    /// violation: E3406. An address where clouds hand out credentials must be listed by itself (`169.254.169.254/32`).
    pub(super) open_networks: Vec<String>,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct EgressSection {
    pub(crate) bounds: EgressBounds,
    pub(crate) open_networks: Vec<Cidr>,
}

impl ConfigSection for EgressKeys {
    const NAME: &'static str = "egress";
    type Checked = EgressSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> EgressSection {
        EgressSection {
            bounds: EgressBounds {
                rules: self.allowed_hosts.map(|texts| problems.each::<EgressRule>("allowed_hosts", &texts)),
                networks: self.allowed_networks.map(|texts| problems.each::<Cidr>("allowed_networks", &texts)),
                bytes_per_second: None,
            },
            open_networks: problems.each("open_networks", &self.open_networks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_file;
    use super::*;

    fn read(text: &str) -> (EgressSection, Vec<String>) {
        of_file::<EgressKeys>(&format!("[egress]\n{text}"))
    }

    #[test]
    fn what_is_unset_bounds_nothing_and_opens_nothing() {
        let (section, problems) = read("");
        assert!(problems.is_empty() && section.open_networks.is_empty());
        assert_eq!(section.bounds, EgressBounds::default());
        let (section, _) = read("allowed_hosts = []\nallowed_networks = []");
        assert_eq!((section.bounds.rules, section.bounds.networks), (Some(Vec::new()), Some(Vec::new())));
    }

    #[test]
    fn rules_and_ranges_are_read_and_each_wrong_one_is_named() {
        let (section, problems) =
            read("allowed_hosts = ['*.example.com:443', 'https://a.example']\nopen_networks = ['10.0.0.0/8']");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((section.bounds.rules.unwrap().len(), section.open_networks.len()), (2, 1));
        for (text, word) in [
            ("allowed_hosts = ['a.example:0']", "[egress] allowed_hosts: `a.example:0`: the port"),
            ("allowed_networks = ['10.0.0.1/8']", "[egress] allowed_networks: `10.0.0.1/8`: the address of a range"),
            ("open_networks = ['private']", "[egress] open_networks: `private`: a range of addresses"),
        ] {
            let (_, problems) = read(text);
            assert!(problems.len() == 1 && problems[0].starts_with(word), "{text}: {problems:?}");
        }
    }
}
