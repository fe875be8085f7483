//! `[usage]`: what the server itself charges for, and for how long use is kept. (COST-008, COST-011)
//!
//! Not here: what a tool costs, which is in its manifest (`cost_config`).

use contract::cost::Prices;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// What the server itself charges for, and for how long use is kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct UsageKeys {
    /// The currency of the prices here, as three capital letters.
    pub(super) currency: String,
    /// The price of one core for one second, as decimal text. Added to a call as `compute`, unless its tool charges in
    /// another currency.
    pub(super) cpu_second_price: String,
    /// The price of a GiB sent or received through the egress proxy. Added as `network`.
    pub(super) network_gib_price: String,
    /// Days for which use by tenant, day, tool, agent and user is kept.
    #[schemars(range(min = 1, max = 3_650))]
    pub(super) retention_days: u32,
}

impl Default for UsageKeys {
    fn default() -> Self {
        Self {
            currency: "USD".to_owned(),
            cpu_second_price: "0".to_owned(),
            network_gib_price: "0".to_owned(),
            retention_days: 400,
        }
    }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct UsageSection {
    pub(crate) prices: Prices,
    pub(crate) retention_days: u32,
}

impl ConfigSection for UsageKeys {
    const NAME: &'static str = "usage";
    type Checked = UsageSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> UsageSection {
        UsageSection {
            prices: Prices {
                currency: problems.parsed("currency", &self.currency),
                cpu_second: problems.parsed("cpu_second_price", &self.cpu_second_price),
                network_gib: problems.parsed("network_gib_price", &self.network_gib_price),
            },
            retention_days: self.retention_days,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn prices_are_decimals_and_nothing_else() {
        let (section, problems) = of_variables::<UsageKeys>(&[("CPU_SECOND_PRICE", "0.000012")]);
        assert!(problems.is_empty() && section.prices.network_gib.is_zero());
        assert_eq!((section.prices.cpu_second.to_string(), section.retention_days), ("0.000012".to_owned(), 400));
        for (name, value) in [("CPU_SECOND_PRICE", "1e-3"), ("NETWORK_GIB_PRICE", "-1"), ("CURRENCY", "usd")] {
            let (_, problems) = of_variables::<UsageKeys>(&[(name, value)]);
            assert_eq!(problems.len(), 1, "{name}");
        }
    }
}
