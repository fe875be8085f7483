//! One tool as a candidate for a model's context: what can be said of it, and how much it would help.
//!
//! Borrowed from the registry, because a catalogue of thousands is looked at for every objective and copied for none.

use base::SaturatingFrom as _;
use contract::ids::ToolId;
use contract::manifest::{Manifest, MutationClass};
use contract::version::Version;
use serde_json::Value;

/// Where a schema says what it costs (LAZY-007).
const TOKEN_COST: &str = "x-token-cost";

/// A tool that may be shown to a model.
#[derive(Debug, Clone, Copy)]
pub struct Affordance<'a> {
    /// The name under which the model calls it, if that is not the tool id.
    pub name: Option<&'a str>,
    pub tool_id: &'a ToolId,
    pub version: &'a Version,
    /// As the manifest has it; may be long, and may come from a stranger.
    pub description: &'a str,
    pub mutation_class: MutationClass,
    /// JSON Schema.
    pub parameters: &'a Value,
    /// How much it helps with the objective, from search. What is not a positive number counts as next to nothing.
    pub utility: f64,
}

impl<'a> Affordance<'a> {
    /// A tool as its manifest has it, under its own id.
    pub fn of(tool_id: &'a ToolId, manifest: &'a Manifest, utility: f64) -> Self {
        Self {
            name: None,
            tool_id,
            version: &manifest.version,
            description: &manifest.description,
            mutation_class: manifest.side_effect_policy.mutation_class(),
            parameters: &manifest.parameters,
            utility,
        }
    }

    /// What the author says the schema costs: of the whole, or else of its members together.
    ///
    /// Used as a least cost when choosing. It can make a tool dearer and never cheaper than it is: the author is not
    /// always a friend, and the budget is kept by counting.
    pub fn declared_tokens(&self) -> Option<usize> {
        let of = |schema: &Value| schema.get(TOKEN_COST).and_then(Value::as_u64).map(clamped);
        of(self.parameters).or_else(|| {
            let members = self.parameters.get("properties").and_then(Value::as_object)?;
            members.values().filter_map(of).reduce(usize::saturating_add)
        })
    }
}

/// A cost nobody has room for is as good as any greater one.
fn clamped(tokens: u64) -> usize {
    usize::saturating_from(tokens)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_declared_cost_is_that_of_the_whole_or_else_the_sum_of_the_members() {
        for (parameters, expected) in [
            (json!({ "type": "object" }), None),
            (json!({ "x-token-cost": 40 }), Some(40)),
            (json!({ "x-token-cost": -1 }), None),
            (json!({ "x-token-cost": "many" }), None),
            (json!({ "properties": { "a": { "x-token-cost": 3 }, "b": {}, "c": { "x-token-cost": 4 } } }), Some(7)),
            (json!({ "x-token-cost": 9, "properties": { "a": { "x-token-cost": 3 } } }), Some(9)),
            (
                json!({ "properties": { "a": { "x-token-cost": u64::MAX }, "b": { "x-token-cost": 1 } } }),
                Some(usize::MAX),
            ),
            (json!(true), None),
        ] {
            let (tool_id, version) = ("demo.tool".parse().unwrap(), "1.0.0".parse().unwrap());
            let affordance = Affordance {
                name: None,
                tool_id: &tool_id,
                version: &version,
                description: "",
                mutation_class: MutationClass::ReadOnly,
                parameters: &parameters,
                utility: 1.0,
            };
            assert_eq!(affordance.declared_tokens(), expected, "{parameters}");
        }
    }
}
