//! What a tool itself says about a call: what it has cost, and how many tokens it took. (COST-004)
//!
//! ```text
//!   in the result      where the manifest says that it stands (`cost_config.cost_field`, `tokens_field`): any kind of tool
//!   beside the result  `usage` in the answer of a `gantry/1` tool, `_meta["gantry/usage"]` in that of an MCP server
//! ```
//!
//! What is said beside the result goes before what stands in it: it was said about this call and nothing else. A report that
//! cannot be read is as good as none, and then the manifest's prices stand; a call does not fail because of its bill.
//!
//! Not here: whether a tool is to be believed. It is: its manifest was admitted by whoever pays.

use serde_json::Value;

use crate::manifest::CostConfig;
use crate::money::{Amount, Currency, Money};

/// Decimals of a price that was written as a JSON number; what money keeps.
const NUMBER_DECIMALS: usize = 12;
/// A number above this is no price: floats have no exact decimals there.
const NUMBER_MAX: f64 = 1e12;

/// A report; what was not said is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedCost {
    /// Stands in place of the manifest's prices.
    pub cost: Option<Money>,
    pub tokens: Option<u64>,
}

impl ReportedCost {
    /// The name of a report in the metadata of MCP.
    pub const META: &'static str = "gantry/usage";

    /// What stands in an object with `cost_incurred`, `currency` and `tokens_used`, in this spelling or in that of
    /// JavaScript. Without a currency `USD` is meant.
    ///
    /// ```
    /// use gantry_contract::cost::ReportedCost;
    /// let said = ReportedCost::read(&serde_json::json!({ "costIncurred": "0.02", "currency": "EUR", "tokensUsed": 12 }));
    /// assert_eq!(said.cost.map(|cost| cost.amount.to_string()).as_deref(), Some("0.02"));
    /// assert_eq!(said.tokens, Some(12));
    /// ```
    pub fn read(said: &Value) -> Self {
        let member = |plain: &str, camel: &str| said.get(plain).or_else(|| said.get(camel));
        let currency = match said.get("currency") {
            None | Some(Value::Null) => Some(Currency::default()),
            Some(given) => given.as_str().and_then(|text| text.parse().ok()),
        };
        let amount = member("cost_incurred", "costIncurred").and_then(amount);
        Self {
            cost: amount.zip(currency).map(|(amount, currency)| Money { amount, currency }),
            tokens: member("tokens_used", "tokensUsed").and_then(Value::as_u64),
        }
    }

    /// What stands in a result, where the manifest says; in the currency of the manifest.
    pub fn in_result(config: Option<&CostConfig>, result: &Value) -> Self {
        let Some(config) = config else { return Self::default() };
        let at = |pointer: &Option<String>| pointer.as_deref().and_then(|pointer| result.pointer(pointer));
        let currency = config.currency.unwrap_or_default();
        Self {
            cost: at(&config.cost_field).and_then(amount).map(|amount| Money { amount, currency }),
            tokens: at(&config.tokens_field).and_then(Value::as_u64),
        }
    }
}

/// An amount as text, or as a JSON number.
fn amount(said: &Value) -> Option<Amount> {
    match said {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => match number.as_u64() {
            Some(whole) => whole.to_string().parse().ok(),
            None => {
                let number = number.as_f64().filter(|number| (0.0..=NUMBER_MAX).contains(number))?;
                format!("{number:.NUMBER_DECIMALS$}").parse().ok()
            }
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn money(text: &str, currency: &str) -> Option<Money> {
        Some(Money { amount: text.parse().unwrap(), currency: currency.parse().unwrap() })
    }

    #[test]
    fn a_report_is_read_in_both_spellings_and_nonsense_is_none() {
        for (said, cost, tokens) in [
            (
                json!({ "cost_incurred": "0.0005", "currency": "EUR", "tokens_used": 7 }),
                money("0.0005", "EUR"),
                Some(7),
            ),
            (json!({ "costIncurred": 0.1, "tokensUsed": 0 }), money("0.1", "USD"), Some(0)),
            (json!({ "costIncurred": 1.4e-7 }), money("0.00000014", "USD"), None),
            (json!({ "cost_incurred": 3 }), money("3", "USD"), None),
            (json!({ "cost_incurred": "0", "currency": null }), money("0", "USD"), None),
            (json!({ "cost_incurred": "0.1", "currency": "euro" }), None, None),
            (json!({ "cost_incurred": "0.1", "currency": 5 }), None, None),
            (json!({ "cost_incurred": -1, "tokens_used": -1 }), None, None),
            (json!({ "cost_incurred": "-0.1", "tokens_used": 1.5 }), None, None),
            (json!({ "cost_incurred": 1e300, "tokens_used": "12" }), None, None),
            (json!({ "cost_incurred": ["0.1"] }), None, None),
            (json!("0.1"), None, None),
            (json!(null), None, None),
        ] {
            assert_eq!(ReportedCost::read(&said), ReportedCost { cost, tokens }, "{said}");
        }
    }

    #[test]
    fn a_result_is_read_where_the_manifest_says() {
        let config: CostConfig = serde_json::from_value(
            json!({ "currency": "EUR", "cost_field": "/usage/cost", "tokens_field": "/usage/tokens" }),
        )
        .unwrap();
        let result = json!({ "usage": { "cost": "0.25", "tokens": 40 }, "cost": "9" });
        let expected = ReportedCost { cost: money("0.25", "EUR"), tokens: Some(40) };
        assert_eq!(ReportedCost::in_result(Some(&config), &result), expected);
        assert_eq!(ReportedCost::in_result(Some(&config), &json!({ "usage": "none" })), ReportedCost::default());
        assert_eq!(ReportedCost::in_result(None, &result), ReportedCost::default());
    }
}
