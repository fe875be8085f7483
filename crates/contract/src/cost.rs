//! What a call costs: the estimate before it, the bill after it, and the parts of the bill. (COST-001…004, COST-008)
//!
//! ```text
//!   manifest: fixed + units × price of a unit   ── replaced by what the tool itself reports (`costIncurred`)
//!   price list of the server: CPU time, bytes   ── on top
//! ```
//!
//! A unit is a token, a character, a record or a second (COST-002). What can be counted from the parameters is counted
//! before the call; tokens and seconds only after it.
//!
//! A call that failed after its tool was begun costs the fixed part: whoever sells by the call has been called. What it
//! used is charged too if that is known, which it is when the tool did its work and its result was not fit to be returned.
//!
//! Not here: budgets, and where the bill is kept.

mod reported;

use base::SaturatingFrom as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manifest::{CostConfig, CostUnit};
use crate::money::{Amount, Currency, Money};

pub use reported::ReportedCost;

/// Latency of a tool about whose cost nothing is known (COST-001).
const UNKNOWN_LATENCY_MS: u64 = 1_000;
/// Latency of a tool that names no timeout (COST-002).
const DEFAULT_LATENCY_MS: u64 = 30_000;
/// Characters of a token, roughly (COST-002).
const CHARS_PER_TOKEN: u64 = 4;
/// Bytes of what a price for traffic is about.
const GIB: u64 = 1 << 30;

/// The parts of a bill (COST-008).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostComponent {
    Compute,
    ExternalApi,
    StorageIo,
    Network,
    Token,
    HumanReview,
}

impl CostComponent {
    /// Every part.
    pub const ALL: [Self; 6] =
        [Self::Compute, Self::ExternalApi, Self::StorageIo, Self::Network, Self::Token, Self::HumanReview];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::ExternalApi => "external_api",
            Self::StorageIo => "storage_io",
            Self::Network => "network",
            Self::Token => "token",
            Self::HumanReview => "human_review",
        }
    }

    /// The part of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.as_str() == word)
    }
}

/// A bill in one currency, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    pub currency: Currency,
    parts: [Amount; CostComponent::ALL.len()],
}

impl Costs {
    /// An empty bill.
    pub fn none_in(currency: Currency) -> Self {
        Self { currency, ..Self::default() }
    }

    /// Adds to one part.
    pub fn add(&mut self, component: CostComponent, amount: Amount) {
        if let Some(part) = self.parts.get_mut(component as usize) {
            *part = part.plus(amount);
        }
    }

    /// The parts that are not nothing.
    pub fn parts(&self) -> impl Iterator<Item = (CostComponent, Amount)> {
        CostComponent::ALL.into_iter().zip(self.parts).filter(|(_, amount)| !amount.is_zero())
    }

    /// All of it.
    pub fn total(&self) -> Amount {
        self.parts.iter().fold(Amount::ZERO, |sum, part| sum.plus(*part))
    }

    /// Is it nothing?
    pub fn is_zero(&self) -> bool {
        self.parts.iter().all(|part| part.is_zero())
    }
}

/// What the server itself charges for, by a price list in one currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    pub currency: Currency,
    /// One core for one second.
    pub cpu_second: Amount,
    /// A GiB of traffic, in and out together.
    pub network_gib: Amount,
}

/// What was measured of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeasuredUsage {
    /// Units counted from the parameters ([`units_of`]).
    pub units: Option<u64>,
    pub tokens: Option<u64>,
    pub duration_ms: u64,
    pub cpu_millicore_seconds: u64,
    pub network_bytes: u64,
    /// What the tool says that it has cost.
    pub reported: Option<Money>,
}

/// How sure an estimate is (COST-003).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EstimateConfidence {
    /// No part of it is estimated.
    Exact,
    Estimate,
    /// The manifest says nothing about cost.
    Unknown,
}

/// What a call will probably cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    pub cost: Money,
    pub tokens: Option<u64>,
    pub latency_ms: u64,
    pub confidence: EstimateConfidence,
}

/// Before the call (COST-001…003).
pub fn estimate(config: Option<&CostConfig>, parameters: &Value, timeout_ms: Option<u64>) -> CostEstimate {
    let Some(config) = config else {
        let cost = Money { amount: Amount::ZERO, currency: Currency::default() };
        return CostEstimate {
            cost,
            tokens: None,
            latency_ms: UNKNOWN_LATENCY_MS,
            confidence: EstimateConfidence::Unknown,
        };
    };
    let unit = config.per_unit.as_ref();
    let units = unit.map(|unit| match unit.unit {
        CostUnit::Second => (timeout_ms.unwrap_or(DEFAULT_LATENCY_MS) / 1_000).max(1),
        CostUnit::Token | CostUnit::Character | CostUnit::Record => units_of(Some(config), parameters).unwrap_or(0),
    });
    let variable = unit.zip(units).map(|(unit, units)| price(Some(&unit.cost_per_unit)).times(units));
    let amount = price(config.fixed_cost.as_deref()).plus(variable.unwrap_or_default());
    CostEstimate {
        cost: Money { amount, currency: config.currency.unwrap_or_default() },
        tokens: unit.filter(|unit| unit.unit == CostUnit::Token).and(units),
        latency_ms: timeout_ms.unwrap_or(DEFAULT_LATENCY_MS),
        // What the tool will report is not known before.
        confidence: match (unit, &config.cost_field) {
            (None, None) => EstimateConfidence::Exact,
            _ => EstimateConfidence::Estimate,
        },
    }
}

/// The units that the parameters of a call tell; `None` if the manifest charges for none of them.
pub fn units_of(config: Option<&CostConfig>, parameters: &Value) -> Option<u64> {
    let unit = config?.per_unit.as_ref()?;
    let field = unit.input_field.as_deref().and_then(|name| parameters.get(name));
    let characters = || match field {
        Some(Value::String(text)) => u64::saturating_from(text.chars().count()),
        Some(Value::Null) | None => 0,
        Some(other) => u64::saturating_from(other.to_string().chars().count()),
    };
    match unit.unit {
        CostUnit::Token => Some(characters().div_ceil(CHARS_PER_TOKEN)),
        CostUnit::Character => Some(characters()),
        CostUnit::Record => Some(field.map_or(1, records)),
        CostUnit::Second => None,
    }
}

/// How many a parameter says: by its value, however it is written. Part of one is one, and less than nothing is nothing. What is
/// no number says nothing, which is one.
fn records(field: &Value) -> u64 {
    match field {
        Value::Number(number) => number.as_u64().unwrap_or_else(|| match number.as_f64() {
            // The cast keeps within the bounds of the type.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as wanted")]
            Some(units) => units.max(0.0).ceil() as u64,
            None => 1,
        }),
        _ => 1,
    }
}

/// After the call (COST-004). What the tool reports stands in place of the manifest's prices. A price list in another
/// currency than the tool's cannot be added to it; the tool's stands.
pub fn bill(config: Option<&CostConfig>, prices: &Prices, measured: &MeasuredUsage) -> Costs {
    let own = measured.reported.map(|reported| reported.currency);
    let own = own.or_else(|| config.map(|config| config.currency.unwrap_or_default()));
    let mut costs = Costs::none_in(own.unwrap_or(prices.currency));
    if let Some(reported) = measured.reported {
        costs.add(CostComponent::ExternalApi, reported.amount);
    } else if let Some(config) = config {
        costs.add(CostComponent::ExternalApi, price(config.fixed_cost.as_deref()));
        if let Some(unit) = &config.per_unit {
            let (component, units) = match unit.unit {
                // What was measured counts; what was estimated from the parameters counts when nothing was.
                CostUnit::Token => (CostComponent::Token, measured.tokens.or(measured.units).unwrap_or(0)),
                CostUnit::Character | CostUnit::Record => (CostComponent::ExternalApi, measured.units.unwrap_or(0)),
                CostUnit::Second => (CostComponent::Compute, measured.duration_ms.div_ceil(1_000)),
            };
            costs.add(component, price(Some(&unit.cost_per_unit)).times(units));
        }
    }
    if costs.currency == prices.currency || costs.is_zero() {
        if costs.is_zero() {
            costs.currency = prices.currency;
        }
        costs.add(CostComponent::Compute, prices.cpu_second.times(measured.cpu_millicore_seconds).divided_by(1_000));
        costs.add(CostComponent::Network, prices.network_gib.times(measured.network_bytes).divided_by(GIB));
    }
    costs
}

/// The part of the bill that does not depend on what the tool did: of a call that began and came to nothing.
pub fn fixed_part(config: Option<&CostConfig>) -> Costs {
    let Some(config) = config else { return Costs::default() };
    let mut costs = Costs::none_in(config.currency.unwrap_or_default());
    costs.add(CostComponent::ExternalApi, price(config.fixed_cost.as_deref()));
    costs
}

/// A price of the manifest. The manifest's schema has admitted its digits; one that is too large to be true is nothing.
fn price(text: Option<&str>) -> Amount {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> CostConfig {
        serde_json::from_value(value).unwrap()
    }

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn records_are_counted_by_the_value_however_it_is_written() {
        let config: CostConfig = serde_json::from_value(
            json!({ "per_unit": { "unit": "record", "cost_per_unit": "0.5", "input_field": "count" } }),
        )
        .unwrap();
        let units = |text: &str| units_of(Some(&config), &serde_json::from_str(text).unwrap());
        for (text, expected) in [
            (r#"{"count": 100}"#, 100),
            (r#"{"count": 100.0}"#, 100),
            (r#"{"count": 1e2}"#, 100),
            (r#"{"count": 99.5}"#, 100),
            (r#"{"count": 0}"#, 0),
            (r#"{"count": -5}"#, 0),
            (r#"{"count": "many"}"#, 1),
            ("{}", 1),
        ] {
            assert_eq!(units(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn estimates_follow_the_unit() {
        let per = |unit: &str| {
            let unit = json!({ "unit": unit, "cost_per_unit": "0.001", "input_field": "q" });
            config(json!({ "fixed_cost": "0.01", "per_unit": unit }))
        };
        let cases = [
            ("token", json!({ "q": "a b c d e" }), None, "0.013", Some(3)),
            ("token", json!({}), None, "0.01", Some(0)),
            ("character", json!({ "q": "äöü" }), None, "0.013", None),
            ("record", json!({ "q": 5 }), None, "0.015", None),
            ("record", json!({ "q": "many" }), None, "0.011", None),
            ("second", json!({}), Some(5_000), "0.015", None),
            ("second", json!({}), None, "0.04", None),
        ];
        for (unit, parameters, timeout, expected, tokens) in cases {
            let estimate = estimate(Some(&per(unit)), &parameters, timeout);
            assert_eq!((estimate.cost.amount, estimate.tokens), (amount(expected), tokens), "{unit}");
            assert_eq!(estimate.confidence, EstimateConfidence::Estimate);
        }
        let fixed = estimate(Some(&config(json!({ "fixed_cost": "0.5" }))), &json!({}), Some(7));
        assert_eq!((fixed.confidence, fixed.latency_ms), (EstimateConfidence::Exact, 7));
        let reporting =
            estimate(Some(&config(json!({ "fixed_cost": "0.5", "cost_field": "/cost" }))), &json!({}), None);
        assert_eq!(reporting.confidence, EstimateConfidence::Estimate);
        let unknown = estimate(None, &json!({}), Some(7));
        assert_eq!((unknown.confidence, unknown.latency_ms), (EstimateConfidence::Unknown, 1_000));
        assert!(unknown.cost.amount.is_zero());
    }

    #[test]
    fn a_bill_has_its_parts_and_what_the_tool_reports_stands_for_its_price() {
        let unit = json!({ "unit": "token", "cost_per_unit": "0.00000014" });
        let manifest = config(json!({ "fixed_cost": "0.01", "per_unit": unit, "currency": "EUR" }));
        let prices = Prices { currency: "EUR".parse().unwrap(), cpu_second: amount("0.5"), network_gib: amount("1") };
        let measured = MeasuredUsage {
            tokens: Some(1_000_000),
            cpu_millicore_seconds: 500,
            network_bytes: GIB / 4,
            ..MeasuredUsage::default()
        };
        let costs = bill(Some(&manifest), &prices, &measured);
        let parts: Vec<_> = costs.parts().map(|(part, amount)| (part.as_str(), amount.to_string())).collect();
        let text = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|(part, amount)| (*part, (*amount).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            parts,
            text(&[("compute", "0.25"), ("external_api", "0.01"), ("network", "0.25"), ("token", "0.14")])
        );
        assert_eq!((costs.total(), costs.currency.as_str()), (amount("0.65"), "EUR"));

        let reported = Some(Money { amount: amount("3"), currency: Currency::USD });
        let costs = bill(Some(&manifest), &prices, &MeasuredUsage { reported, ..measured });
        assert_eq!((costs.total(), costs.currency), (amount("3"), Currency::USD), "currencies are not mixed");
        let free = bill(None, &prices, &MeasuredUsage { cpu_millicore_seconds: 1_000, ..MeasuredUsage::default() });
        assert_eq!((free.total(), free.currency.as_str()), (amount("0.5"), "EUR"));
    }

    #[test]
    fn the_fixed_part_stands_alone() {
        let unit = json!({ "unit": "character", "cost_per_unit": "1" });
        let costs = fixed_part(Some(&config(json!({ "fixed_cost": "0.01", "per_unit": unit, "currency": "EUR" }))));
        assert_eq!((costs.total(), costs.currency.as_str()), (amount("0.01"), "EUR"));
        assert!(fixed_part(Some(&config(json!({})))).is_zero() && fixed_part(None).is_zero());
    }

    #[test]
    fn every_part_has_its_word() {
        for part in CostComponent::ALL {
            assert_eq!(CostComponent::of_word(part.as_str()), Some(part));
        }
    }
}
