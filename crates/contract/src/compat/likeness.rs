//! Likeness: whether two schemas demand the same, word for word, whatever their annotations.
//!
//! The cheapest proof that one schema accepts all that another does is that they are alike; most of two versions of a tool
//! is. References are followed on both sides, so that a renamed definition makes no difference.
//!
//! Not here: equivalence of differently written schemas (`prover`, in both directions).

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::effort::{of_each_with_each, spent, weight};
use crate::schema::document::{ReferenceTarget, SchemaDocument};

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

/// Two documents being compared, with what is known of their parts already.
///
/// Being alike is one long *and*, so a pair that comes again is taken as given: a difference anywhere ends the question, and
/// without one everything that was met is alike. Each pair is looked at once, also of documents whose parts refer to one another
/// in many ways, and there is no recursion.
pub(super) struct Likeness<'l, 'r> {
    left: &'l SchemaDocument<'l>,
    right: &'r SchemaDocument<'r>,
    known: RefCell<HashMap<Pair, bool>>,
}

/// The addresses of two schemas.
type Pair = (usize, usize);

/// Pairs that must be alike as well.
type Work<'x> = Vec<(&'x Value, &'x Value)>;

/// What one pair costs: every keyword is looked up on both sides.
const PAIR_STEPS: usize = 4;

impl<'l, 'r> Likeness<'l, 'r> {
    pub(super) fn new(left: &'l SchemaDocument<'l>, right: &'r SchemaDocument<'r>) -> Self {
        Self { left, right, known: RefCell::default() }
    }

    pub(super) fn alike(&self, left: &Value, right: &Value) -> bool {
        self.left.count(1);
        let mut work = vec![(left, right)];
        let mut met: HashSet<Pair> = HashSet::new();
        while let Some((one, other)) = work.pop() {
            let (Value::Object(a), Value::Object(b)) = (one, other) else {
                if one == other {
                    continue;
                }
                return false;
            };
            let pair = (std::ptr::from_ref(one).addr(), std::ptr::from_ref(other).addr());
            let known = self.known.borrow().get(&pair).copied();
            if known == Some(true) || !met.insert(pair) {
                continue;
            }
            if spent(self.left, self.right) {
                return false;
            }
            self.left.count(PAIR_STEPS);
            if known == Some(false) || !self.same_words(a, b, &mut work) {
                let asked = (std::ptr::from_ref(left).addr(), std::ptr::from_ref(right).addr());
                self.known.borrow_mut().extend([(pair, false), (asked, false)]);
                return false;
            }
        }
        self.known.borrow_mut().extend(met.into_iter().map(|pair| (pair, true)));
        true
    }

    /// Whether two schemas say the same apart from what is in them, which becomes work.
    fn same_words<'x>(&self, a: &'x Map<String, Value>, b: &'x Map<String, Value>, work: &mut Work<'x>) -> bool
    where
        'l: 'x,
        'r: 'x,
    {
        let both = |keyword: &str, test: &mut dyn FnMut(&'x Value, &'x Value) -> bool| match (
            a.get(keyword),
            b.get(keyword),
        ) {
            (None, None) => true,
            (Some(left), Some(right)) => test(left, right),
            (None, Some(_)) | (Some(_), None) => false,
        };
        ONE.iter().chain(&["$dynamicRef"]).all(|keyword| both(keyword, &mut |a, b| self.schemas(a, b, work)))
            && LISTS.iter().all(|keyword| both(keyword, &mut |a, b| lists(a, b, work)))
            && NAMED.iter().all(|keyword| both(keyword, &mut |a, b| named(a, b, work)))
            && SETS.iter().all(|keyword| both(keyword, &mut |a, b| self.sets(a, b)))
            && PLAIN.iter().chain(&["dependentRequired"]).all(|keyword| both(keyword, &mut |a, b| self.values(a, b)))
    }

    /// Schemas, or the texts of references to them.
    fn schemas<'x>(&self, left: &'x Value, right: &'x Value, work: &mut Work<'x>) -> bool
    where
        'l: 'x,
        'r: 'x,
    {
        let (Value::String(a), Value::String(b)) = (left, right) else {
            work.push((left, right));
            return true;
        };
        match (self.left.resolve(a), self.right.resolve(b)) {
            (ReferenceTarget::Local(_, left), ReferenceTarget::Local(_, right)) => {
                work.push((left, right));
                true
            }
            (ReferenceTarget::Meta, ReferenceTarget::Meta) => a == b,
            (
                ReferenceTarget::Local(..) | ReferenceTarget::Meta | ReferenceTarget::Missing | ReferenceTarget::Remote,
                _,
            ) => false,
        }
    }

    fn values(&self, left: &Value, right: &Value) -> bool {
        self.left.count(weight(left));
        left == right
    }

    fn sets(&self, left: &Value, right: &Value) -> bool {
        if self.values(left, right) {
            return true;
        }
        let members = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let (a, b) = (members(left), members(right));
        self.left.count(of_each_with_each(weight(left), weight(right)));
        !spent(self.left, self.right) && a.iter().all(|one| b.contains(one)) && b.iter().all(|one| a.contains(one))
    }
}

fn lists<'x>(left: &'x Value, right: &'x Value, work: &mut Work<'x>) -> bool {
    let (Some(a), Some(b)) = (left.as_array(), right.as_array()) else { return left == right };
    work.extend(a.iter().zip(b));
    a.len() == b.len()
}

fn named<'x>(left: &'x Value, right: &'x Value, work: &mut Work<'x>) -> bool {
    let (Some(a), Some(b)) = (left.as_object(), right.as_object()) else { return left == right };
    a.len() == b.len()
        && a.iter().all(|(name, left)| {
            b.get(name).is_some_and(|right| {
                work.push((left, right));
                true
            })
        })
}
