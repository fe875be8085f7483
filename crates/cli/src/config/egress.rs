//! `[egress]`: where tools, and what tenants and callers name, may lead at most. (DESIGN §6, EXEC-011)
//!
//! The grammar of hosts and ranges is the gate's own (`sandbox::egress`); here is only which text was wrong.

use std::fmt::Display;
use std::str::FromStr;

use sandbox::egress::{Cidr, EgressBounds, EgressRule};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "egress";

const ALLOWED_HOSTS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "allowed_hosts",
    kind: KeyKind::List,
    default: None,
    unset: "any",
    doc: "Hosts and ports that tools may reach at most: `api.example.com`, `*.example.com:443`, `https://api.example.com`, \
          `10.0.0.7:8080`. Without a port: 80 and 443. A tool reaches what it declares *and* this list has. An empty list \
          allows none. Holds for MCP servers at an address, webhooks and callbacks too, except for what `[[upstreams.tenants]]` \
          and `[webhooks] allow` open. In the environment separated by commas.",
    since: "0.1",
};

const ALLOWED_NETWORKS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "allowed_networks",
    kind: KeyKind::List,
    default: None,
    unset: "any",
    doc: "Ranges of addresses in which tools may reach anything at all, for example `203.0.113.0/24`; compared with the address \
          after a name has been resolved. An empty list allows none. Holds for MCP servers at an address, webhooks and callbacks \
          too, also for those that were opened.",
    since: "0.1",
};

const OPEN_NETWORKS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "open_networks",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Networks that are not public and into which a declared *name* may lead all the same, for example `10.1.0.0/16` for \
          services of your own. Without it, a name that leads to a loopback, private, link-local or metadata address is a \
          violation: E3406. An address where clouds hand out credentials must be listed by itself (`169.254.169.254/32`).",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&ALLOWED_HOSTS, &ALLOWED_NETWORKS, &OPEN_NETWORKS];

/// The section's values.
#[derive(Debug)]
pub(crate) struct EgressSection {
    pub(crate) bounds: EgressBounds,
    pub(crate) open_networks: Vec<Cidr>,
}

impl EgressSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        Self {
            bounds: EgressBounds {
                rules: all::<EgressRule>(settings, &ALLOWED_HOSTS, problems),
                networks: all::<Cidr>(settings, &ALLOWED_NETWORKS, problems),
                bytes_per_second: None,
            },
            open_networks: all(settings, &OPEN_NETWORKS, problems).unwrap_or_default(),
        }
    }
}

/// Every text of a list; `None` if the key is unset. Each one that cannot be read is a problem of its own.
fn all<T: FromStr<Err: Display>>(
    settings: &EffectiveSettings,
    key: &ConfigKey,
    problems: &mut Vec<ConfigProblem>,
) -> Option<Vec<T>> {
    settings.get(key)?;
    let mut read = Vec::new();
    for text in settings.list(key) {
        match text.parse() {
            Ok(value) => read.push(value),
            Err(error) => problems.push(ConfigProblem::new(key.title(), format!("`{text}`: {error}"))),
        }
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::super::settings::ConfigFile;
    use super::*;
    use std::collections::BTreeMap;

    fn read(text: &str) -> (EgressSection, Vec<String>) {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: format!("[egress]\n{text}") };
        let settings = EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = EgressSection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
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
