//! What a decision costs, before it is made. (decision 0117)
//!
//! Cedar evaluates to the end: nothing breaks it off. What it does is known beforehand, though. An expression has no loops, so each
//! operator is evaluated once at the most, and costs what its operands are large; only `like` costs more, up to the longest
//! piece of the pattern between two `*` for every character of the text. Operators and pieces are counted when policies are
//! compiled; the sizes of the arguments they read, when a question is put. The product is an upper bound, in steps of about a
//! nanosecond.
//!
//! Not here: how much is too much, and where long decisions are made (the kernel's).

use std::collections::HashMap;

use serde_json::Value;

use super::arguments::ARGUMENTS_MAX;
use super::reads::{Paths, Reads, View};

/// One operator on something short.
const OPERATOR: u64 = 200;
/// A policy without any operators: its scope is looked at.
const SCOPE: u64 = 5 * OPERATOR;
/// A part of the arguments that is looked at on the way to those that are read.
const PART: u64 = 200;
/// An element of a list, when it is made ready for the engine, and when an operator meets it.
const ELEMENT_READY: u64 = 1000;
const ELEMENT_MET: u64 = 50;
/// Bytes that are compared or copied in one step.
const BYTES_PER_STEP: u64 = 2;
/// How long a text may be that is no argument: names of tools, agents, servers, sessions.
const OTHER_TEXT: u64 = 128;

/// What evaluating some policies asks for, whatever the arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Demand {
    policies: u64,
    operators: u64,
    /// For each character of a text, over all `like`s.
    per_character: u64,
}

/// The demands of many policies, those that read the same together.
#[derive(Debug, Default)]
pub(super) struct Demands {
    all: Demand,
    by_reads: HashMap<Reads, Demand>,
}

impl Demand {
    /// Of the policy with this JSON form; `None` if it has no conditions.
    pub(super) fn of_policy(json: Option<&Value>) -> Self {
        let mut demand = Self { policies: 1, ..Self::default() };
        if let Some(json) = json {
            demand.visit(json.get("conditions").unwrap_or(json));
        }
        demand
    }

    // Recursion is as deep as the policy, and that is bounded (`nesting`).
    fn visit(&mut self, node: &Value) {
        match node {
            Value::Object(members) => {
                self.operators += 1;
                if let Some(pattern) = members.get("like").and_then(|like| like.get("pattern")) {
                    self.per_character += 2 + longest_piece(pattern);
                }
                members.values().for_each(|child| self.visit(child));
            }
            Value::Array(items) => items.iter().for_each(|child| self.visit(child)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.policies = self.policies.saturating_add(other.policies);
        self.operators = self.operators.saturating_add(other.operators);
        self.per_character = self.per_character.saturating_add(other.per_character);
    }

    fn cost(&self, size: Size) -> u64 {
        let operators = self.operators.saturating_mul(OPERATOR.saturating_add(size.met()));
        let searches = self.per_character.saturating_mul(size.text.max(OTHER_TEXT));
        self.policies.saturating_mul(SCOPE).saturating_add(operators).saturating_add(searches)
    }
}

/// The characters of the longest run without a `*`. A match that fails begins anew one character further, so each character
/// may be looked at so often. What is not recognised counts in full.
fn longest_piece(pattern: &Value) -> u64 {
    let Value::Array(elements) = pattern else { return pattern.to_string().len() as u64 };
    let (mut longest, mut here) = (0, 0);
    for element in elements {
        match element.get("Literal").and_then(Value::as_str) {
            Some(literal) => here += literal.chars().count() as u64,
            None => here = 0,
        }
        longest = longest.max(here);
    }
    longest
}

impl Demands {
    pub(super) fn add(&mut self, reads: &Reads, demand: Demand) {
        self.all.add(demand);
        // Reads of two policies differ in their arguments; the rest makes no difference here.
        match self.by_reads.get_mut(reads) {
            Some(known) => known.add(demand),
            None => {
                self.by_reads.insert(reads.clone(), demand);
            }
        }
    }

    /// As if every policy read the largest argument that any of them reads.
    pub(super) fn cost_at_most(&self, sizes: &Sizes) -> u64 {
        self.all.cost(sizes.largest)
    }

    /// With what each policy reads.
    pub(super) fn cost(&self, sizes: &Sizes) -> u64 {
        let costs = self.by_reads.iter().map(|(reads, demand)| demand.cost(sizes.largest_of(reads)));
        costs.fold(0, u64::saturating_add)
    }
}

/// How large something is that policies read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    /// Characters, at the most.
    text: u64,
    bytes: u64,
    elements: u64,
}

impl Size {
    fn of(value: &Value) -> Self {
        let bytes = |value: &Value| match value {
            Value::String(text) => text.len() as u64,
            _ => 8,
        };
        match value {
            Value::String(text) => Self { text: text.len() as u64, bytes: text.len() as u64, elements: 0 },
            Value::Array(items) => Self { text: 0, bytes: items.iter().map(bytes).sum(), elements: items.len() as u64 },
            // A number has at most a few hundred digits, an object is shown by its path alone.
            Value::Number(_) => Self { text: 32, bytes: 32, elements: 0 },
            Value::Null | Value::Bool(_) | Value::Object(_) => Self::default(),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            text: self.text.max(other.text),
            bytes: self.bytes.max(other.bytes),
            elements: self.elements.max(other.elements),
        }
    }

    fn met(self) -> u64 {
        (self.bytes / BYTES_PER_STEP).saturating_add(self.elements.saturating_mul(ELEMENT_MET))
    }

    fn made_ready(self) -> u64 {
        self.bytes.saturating_add(self.elements.saturating_mul(ELEMENT_READY))
    }
}

/// How large the arguments are that policies read.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    by_path: HashMap<String, Size>,
    largest: Size,
    /// What it costs to make them ready for the engine.
    pub(super) facts: u64,
    too_many: bool,
}

impl Sizes {
    /// Goes the way that `arguments` goes, which refuses what is more than that.
    pub(super) fn of(arguments: &Value, reads: &Reads) -> Self {
        let mut sizes = Self::default();
        if reads.arguments() {
            sizes.descend(&mut String::new(), arguments, reads);
        }
        sizes
    }

    fn descend(&mut self, path: &mut String, value: &Value, reads: &Reads) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, child)| self.child(path, name, child, reads)),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, child)| self.child(path, &index.to_string(), child, reads));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn child(&mut self, path: &mut String, name: &str, value: &Value, reads: &Reads) {
        self.facts = self.facts.saturating_add(PART.saturating_add((path.len() + name.len()) as u64));
        if value.is_null() || self.too_many {
            return;
        }
        let outer = path.len();
        if outer > 0 {
            path.push('.');
        }
        path.push_str(name);
        let views = View::ALL.into_iter().filter(|view| reads.view(*view).wants(path)).count() as u64;
        if views > 0 || reads.names {
            let size = Size::of(value);
            self.facts =
                self.facts.saturating_add(size.made_ready().saturating_mul(views)).saturating_add(ELEMENT_READY);
            self.largest = self.largest.or(size);
            // Of two arguments with one path, neither is put to the engine.
            self.by_path.insert(path.clone(), size);
            self.too_many = self.by_path.len() > ARGUMENTS_MAX;
        }
        if reads.names || View::ALL.into_iter().any(|view| reads.view(view).wants_below(path)) {
            self.descend(path, value, reads);
        }
        path.truncate(outer);
    }

    fn largest_of(&self, reads: &Reads) -> Size {
        let mut largest = Size::default();
        for view in View::ALL {
            match reads.view(view) {
                Paths::All => return self.largest,
                Paths::Only(paths) => {
                    let sizes = paths.iter().filter_map(|path| self.by_path.get(path).copied());
                    largest = sizes.fold(largest, Size::or);
                }
            }
        }
        largest
    }
}

/// Parts of a value, counted as far as `most`.
pub(super) fn has_more_parts_than(value: &Value, most: usize) -> bool {
    let mut left = most;
    let mut work = vec![value];
    while let Some(value) = work.pop() {
        let (more, parts): (usize, Box<dyn Iterator<Item = &Value>>) = match value {
            Value::Array(items) => (items.len(), Box::new(items.iter())),
            Value::Object(members) => (members.len(), Box::new(members.values())),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => continue,
        };
        match left.checked_sub(more) {
            Some(rest) => left = rest,
            None => return true,
        }
        work.extend(parts);
    }
    false
}

#[cfg(test)]
mod tests {
    use cedar_policy::Policy;
    use serde_json::json;

    use super::*;

    fn read(condition: &str) -> (Reads, Demand) {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        let json = Policy::parse(None, text).unwrap().to_json().unwrap();
        let mut reads = Reads::nothing();
        reads.add_policy(&json);
        (reads, Demand::of_policy(Some(&json)))
    }

    fn cost(conditions: &[&str], arguments: &Value) -> (u64, u64) {
        let (mut reads, mut demands) = (Reads::nothing(), Demands::default());
        for condition in conditions {
            let (own, demand) = read(condition);
            reads.add(&own);
            demands.add(&own, demand);
        }
        let sizes = Sizes::of(arguments, &reads);
        (demands.cost_at_most(&sizes), demands.cost(&sizes))
    }

    #[test]
    fn a_pattern_costs_its_longest_piece_for_each_character() {
        for (pattern, piece) in [("abc", 3), ("*abc*de*", 3), ("*a*b*c*", 1), ("*", 0), ("a\\*b*c", 3)] {
            assert_eq!(read(&format!(r#"resource.name like "{pattern}""#)).1.per_character, piece + 2, "{pattern}");
        }
        let search = |piece: usize| {
            let condition = format!(r#"context.arguments.text.getTag("t") like "*{}*""#, "a".repeat(piece));
            cost(&[&condition], &json!({ "t": "a".repeat(100_000) })).1
        };
        assert!(search(1000) >= 1000 * 100_000, "{}", search(1000));
        assert!(search(3) < 2_000_000, "{}", search(3));
    }

    #[test]
    fn what_a_policy_does_not_read_costs_it_nothing() {
        let condition =
            r#"context.arguments.text.hasTag("to") && context.arguments.text.getTag("to") like "*@example.com""#;
        let body = r#"context.arguments.text.getTag("body") != """#;
        let small = cost(&[condition], &json!({ "to": "a@example.com" }));
        assert_eq!(small, cost(&[condition], &json!({ "to": "a@example.com", "body": "x".repeat(900_000) })));
        let many: Vec<&str> = std::iter::repeat_n(condition, 200).chain([body]).collect();
        let (at_most, cost) = cost(&many, &json!({ "to": "a@example.com", "body": "x".repeat(900_000) }));
        assert!(cost * 100 < at_most, "{cost} {at_most}");
    }

    #[test]
    fn a_path_that_cannot_be_told_counts_as_the_largest_argument() {
        let arguments = json!({ "l": [1, 2, 3], "a": { "b.c": "x".repeat(1000) } });
        let computed = cost(&[r#"context.arguments.text.getTag(resource.name) like "*x*""#], &arguments).1;
        let named = cost(&[r#"context.arguments.text.getTag("a.b.c") like "*x*""#], &arguments).1;
        assert!(named >= 3000 && computed >= named, "{named} {computed}");
    }

    #[test]
    fn parts_are_counted_as_far_as_asked() {
        let value = json!({ "a": [1, 2, { "b": 3 }] });
        assert_eq!([4, 5, 6].map(|most| has_more_parts_than(&value, most)), [true, false, false]);
    }
}
