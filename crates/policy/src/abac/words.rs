//! Closed vocabularies in policies: `resource.side_effects == "irreversable"` is well typed and never true, and a forbid
//! with it would be silently dead. The schema cannot say so, so it is found here.

use serde_json::Value;

/// Which words an attribute can have.
struct Closed {
    variable: &'static str,
    attribute: &'static str,
    words: &'static [&'static str],
}

const CLOSED: [Closed; 4] = [
    Closed {
        variable: "resource",
        attribute: "side_effects",
        words: &["pure", "idempotent", "compensatable", "irreversible", "unclassified"],
    },
    Closed { variable: "resource", attribute: "output_schema", words: &["declared", "unconstrained"] },
    Closed { variable: "context", attribute: "risk", words: &["low", "medium", "high"] },
    Closed {
        variable: "principal",
        attribute: "roles",
        words: &["admin", "operator", "approver", "auditor", "tool_author", "agent"],
    },
];

/// Operators that relate an attribute to words.
const RELATIONS: [&str; 5] = ["==", "!=", "contains", "containsAny", "containsAll"];

/// A message for each comparison with a word that can never be there.
pub(super) fn unknown_words(policy: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit(policy, &mut found);
    found
}

fn visit(node: &Value, found: &mut Vec<String>) {
    match node {
        Value::Object(members) => {
            for (operator, operands) in members {
                if RELATIONS.contains(&operator.as_str())
                    && let (Some(left), Some(right)) = (operands.get("left"), operands.get("right"))
                {
                    check(left, right, found);
                    check(right, left, found);
                }
                visit(operands, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check(attribute: &Value, literal: &Value, found: &mut Vec<String>) {
    let Some(closed) = CLOSED.iter().find(|closed| closed.is(attribute)) else { return };
    for word in literal_words(literal).into_iter().filter(|word| !closed.words.contains(word)) {
        let Closed { variable, attribute, words } = closed;
        found.push(format!("`{variable}.{attribute}` is never `{word}`: there are {}", words.join(", ")));
    }
}

impl Closed {
    fn is(&self, node: &Value) -> bool {
        node.get(".").is_some_and(|access| {
            access.get("attr").and_then(Value::as_str) == Some(self.attribute)
                && access.get("left").and_then(|left| left.get("Var")).and_then(Value::as_str) == Some(self.variable)
        })
    }
}

/// `"word"`, or the words of `["one", "other"]`.
fn literal_words(node: &Value) -> Vec<&str> {
    match node.get("Set").and_then(Value::as_array) {
        Some(items) => items.iter().filter_map(|item| item.get("Value").and_then(Value::as_str)).collect(),
        None => node.get("Value").and_then(Value::as_str).into_iter().collect(),
    }
}
