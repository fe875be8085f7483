//! How much a comparison may look at. (decision 0115)
//!
//! Whether one schema accepts all that another does is a question that grows with the product of both, and with every way
//! in which their parts refer to one another: a few kilobytes can ask for hours. Nothing can be broken off here, so everything that
//! is looked at is counted, in the two documents, and beyond a bound nothing more is looked at. What was found by then
//! proves nothing, and the whole answer is the cautious one.
//!
//! Not here: the words of that answer (`compat`, `negotiation`), what a walk counts (`schema::document`).

use serde_json::Value;

use crate::schema::document::{BYTES_PER_STEP, SchemaDocument};

/// Steps of one comparison, some tenths of a second.
pub const COMPARISON_STEPS_MAX: u64 = 1_000_000;

/// Values that are compared with one another as quickly as one schema is looked at.
const PAIRS_PER_STEP: usize = 16;

/// Whether no more is looked at.
pub(super) fn spent(one: &SchemaDocument<'_>, other: &SchemaDocument<'_>) -> bool {
    one.steps().saturating_add(other.steps()) > COMPARISON_STEPS_MAX
}

/// What reading a whole value costs.
pub(super) fn weight(value: &Value) -> usize {
    // Recursion is as deep as the schema, and that is bounded by admission.
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + text.len() / BYTES_PER_STEP,
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => {
            1 + map.iter().map(|(name, value)| weight(value) + name.len() / BYTES_PER_STEP).sum::<usize>()
        }
    }
}

/// What comparing each value of one list with each of another costs.
pub(super) fn of_each_with_each(one: usize, other: usize) -> usize {
    one.saturating_mul(other) / PAIRS_PER_STEP
}
