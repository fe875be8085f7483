//! Likeness: whether two schemas demand the same, word for word, whatever their annotations.
//!
//! The cheapest proof that one schema accepts all that another does is that they are alike; most of two versions of a tool
//! is. References are followed on both sides, so that a renamed definition makes no difference.
//!
//! Not here: equivalence of differently written schemas (`prover`, in both directions).

use serde_json::Value;

use crate::schema::document::{Document, Target};

/// Keywords whose value is one schema, a list of schemas, or schemas by name.
const ONE: [&str; 11] = [
    "if",
    "then",
    "else",
    "not",
    "items",
    "contains",
    "propertyNames",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$ref",
];
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// Keywords whose value is a set: the order does not matter.
const SETS: [&str; 3] = ["type", "enum", "required"];
const PLAIN: [&str; 17] = [
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
];

/// Two documents being compared, with the pairs that are under comparison already.
pub(super) struct Likeness<'l, 'r> {
    left: &'l Document<'l>,
    right: &'r Document<'r>,
    open: Vec<(usize, usize)>,
}

impl<'l, 'r> Likeness<'l, 'r> {
    pub(super) fn new(left: &'l Document<'l>, right: &'r Document<'r>) -> Self {
        Self { left, right, open: Vec::new() }
    }

    pub(super) fn alike(&mut self, left: &Value, right: &Value) -> bool {
        let (Value::Object(a), Value::Object(b)) = (left, right) else { return left == right };
        let pair = (std::ptr::from_ref(left).addr(), std::ptr::from_ref(right).addr());
        if self.open.contains(&pair) {
            // Recursive on both sides and no difference found on the way: the same as far as it goes.
            return true;
        }
        self.open.push(pair);
        let like = ONE.iter().all(|keyword| self.both(a.get(*keyword), b.get(*keyword), Self::schema))
            && self.both(a.get("$dynamicRef"), b.get("$dynamicRef"), Self::schema)
            && LISTS.iter().all(|keyword| self.both(a.get(*keyword), b.get(*keyword), Self::lists))
            && NAMED.iter().all(|keyword| self.both(a.get(*keyword), b.get(*keyword), Self::named))
            && SETS.iter().all(|keyword| self.both(a.get(*keyword), b.get(*keyword), |_, a, b| sets(a, b)))
            && PLAIN.iter().all(|keyword| a.get(*keyword) == b.get(*keyword))
            && self.both(a.get("dependentRequired"), b.get("dependentRequired"), |_, a, b| a == b);
        self.open.pop();
        like
    }

    fn both(
        &mut self,
        left: Option<&Value>,
        right: Option<&Value>,
        test: fn(&mut Self, &Value, &Value) -> bool,
    ) -> bool {
        match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => test(self, left, right),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// A schema, or the text of a reference to one.
    fn schema(&mut self, left: &Value, right: &Value) -> bool {
        let (Value::String(a), Value::String(b)) = (left, right) else { return self.alike(left, right) };
        match (self.left.resolve(a), self.right.resolve(b)) {
            (Target::Local(_, left), Target::Local(_, right)) => self.alike(left, right),
            (Target::Meta, Target::Meta) => a == b,
            (Target::Local(..) | Target::Meta | Target::Missing | Target::Remote, _) => false,
        }
    }

    fn lists(&mut self, left: &Value, right: &Value) -> bool {
        let (Some(a), Some(b)) = (left.as_array(), right.as_array()) else { return left == right };
        a.len() == b.len() && a.iter().zip(b).all(|(left, right)| self.alike(left, right))
    }

    fn named(&mut self, left: &Value, right: &Value) -> bool {
        let (Some(a), Some(b)) = (left.as_object(), right.as_object()) else { return left == right };
        a.len() == b.len() && a.iter().all(|(name, left)| b.get(name).is_some_and(|right| self.alike(left, right)))
    }
}

fn sets(left: &Value, right: &Value) -> bool {
    let members = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let (a, b) = (members(left), members(right));
    a.iter().all(|one| b.contains(one)) && b.iter().all(|one| a.contains(one))
}
