//! `[usage]`: what the server itself charges for, and for how long use is kept. (COST-008, COST-011)
//!
//! Not here: what a tool costs, which is in its manifest (`cost_config`).

use contract::cost::Prices;
use contract::money::{Amount, Currency};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "usage";

const CURRENCY: ConfigKey = text("currency", "USD", "The currency of the prices here, as three capital letters.");
const CPU_SECOND_PRICE: ConfigKey = text(
    "cpu_second_price",
    "0",
    "The price of one core for one second, as decimal text. Added to a call as `compute`, unless its tool charges in another \
     currency.",
);
const NETWORK_GIB_PRICE: ConfigKey =
    text("network_gib_price", "0", "The price of a GiB sent or received through the egress proxy. Added as `network`.");
const RETENTION_DAYS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "retention_days",
    kind: KeyKind::Integer(1..=3_650),
    default: Some("400"),
    unset: "",
    doc: "Days for which use by tenant, day, tool, agent and user is kept.",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&CURRENCY, &CPU_SECOND_PRICE, &NETWORK_GIB_PRICE, &RETENTION_DAYS];

const fn text(name: &'static str, default: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey { section: SECTION, name, kind: KeyKind::Text, default: Some(default), unset: "", doc, since: "0.2" }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct UsageSection {
    pub(crate) prices: Prices,
    pub(crate) retention_days: u32,
}

impl UsageSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        Self {
            prices: Prices {
                currency: read::<Currency>(&CURRENCY, settings, problems),
                cpu_second: read::<Amount>(&CPU_SECOND_PRICE, settings, problems),
                network_gib: read::<Amount>(&NETWORK_GIB_PRICE, settings, problems),
            },
            retention_days: u32::try_from(settings.integer(&RETENTION_DAYS)).unwrap_or(1),
        }
    }
}

fn read<T: std::str::FromStr<Err: std::fmt::Display> + Default>(
    key: &ConfigKey,
    settings: &EffectiveSettings,
    problems: &mut Vec<ConfigProblem>,
) -> T {
    let given = settings.text(key).unwrap_or_default();
    given.parse().unwrap_or_else(|error| {
        problems.push(ConfigProblem::new(key.title(), format!("{error}")));
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read_with(name: &str, value: &str) -> (UsageSection, Vec<String>) {
        let environment = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = UsageSection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn prices_are_decimals_and_nothing_else() {
        let (section, problems) = read_with("GANTRY_USAGE__CPU_SECOND_PRICE", "0.000012");
        assert!(problems.is_empty() && section.prices.network_gib.is_zero());
        assert_eq!((section.prices.cpu_second.to_string(), section.retention_days), ("0.000012".to_owned(), 400));
        for (name, value) in [("CPU_SECOND_PRICE", "1e-3"), ("NETWORK_GIB_PRICE", "-1"), ("CURRENCY", "usd")] {
            let (_, problems) = read_with(&format!("GANTRY_USAGE__{name}"), value);
            assert_eq!(problems.len(), 1, "{name}");
        }
    }
}
