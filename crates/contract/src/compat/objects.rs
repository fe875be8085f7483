//! Proof steps for objects: properties, required names, and what is said about all other names.
//!
//! The names of an object fall into those the narrow side mentions, those its patterns match, and the rest; each group is
//! looked at once. For the rest, what holds of *any* further name must suffice.
//!
//! Not here: `if`, `dependentSchemas` (`branches`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::conjunction::{Conjunction, Mentions, Types, names_of};
use super::effort::of_each_with_each;
use super::gap::{Gap, What};
use super::prover::{PATH_BYTES_PER_STEP, Prover, Spot};
use crate::schema::document::{SchemaDocument, join};

/// Keywords that count or inspect properties, so that one more of them is not harmless.
const FRAGILE: [&str; 13] = [
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "patternProperties",
    "if",
    "not",
    "anyOf",
    "oneOf",
    "uniqueItems",
    "contains",
    "enum",
    "const",
];

/// Whether filling in a property could make one of these demands fail.
pub(super) fn is_fragile(parts: &[&Map<String, Value>]) -> bool {
    let speaking = parts.iter().filter(|part| {
        ["properties", "patternProperties", "additionalProperties"].iter().any(|keyword| part.contains_key(*keyword))
    });
    // Two that speak of properties: the default of one was not tried on the other.
    speaking.count() > 1 || parts.iter().any(|part| FRAGILE.iter().any(|keyword| part.contains_key(*keyword)))
}

impl<'n, 'w> Prover<'n, 'w> {
    pub(super) fn objects(
        &mut self,
        narrow: &Conjunction<'n>,
        goal: &Conjunction<'w>,
        (part, node): (&'w Map<String, Value>, &'w Value),
        spot: &Spot,
        gaps: &mut Vec<Gap>,
    ) {
        if !narrow.types.meets(Types::OBJECT) {
            return;
        }
        self.required(narrow, goal, part, spot, gaps);
        self.properties(narrow, part, spot, gaps);
        self.patterns(narrow, part, spot, gaps);
        if let Some(others) = part.get("additionalProperties") {
            let covered = Covered::by_siblings(part);
            self.others(narrow, others, &covered, spot, gaps);
        }
        if let Some(others) = part.get("unevaluatedProperties") {
            let covered = self.evaluated(narrow, node);
            self.others(narrow, others, &covered, spot, gaps);
        }
        if let Some(names) = part.get("propertyNames") {
            self.names(narrow, names, spot, gaps);
        }
        if let Some(Value::Object(dependent)) = part.get("dependentRequired") {
            self.dependent_required(narrow, dependent, spot, gaps);
        }
    }

    fn required(
        &self,
        narrow: &Conjunction<'n>,
        goal: &Conjunction<'w>,
        part: &Map<String, Value>,
        spot: &Spot,
        gaps: &mut Vec<Gap>,
    ) {
        let Some(Value::Array(wanted)) = part.get("required") else { return };
        self.count(of_each_with_each(wanted.len(), list_len(narrow.all("required"))));
        self.count(wanted.len().saturating_mul(1 + spot.path.len() / PATH_BYTES_PER_STEP));
        if self.is_spent() {
            return;
        }
        let names = wanted.iter().filter_map(Value::as_str);
        for name in names.filter(|name| !narrow.requires(name)) {
            let described: Vec<&Value> = goal.all("properties").filter_map(|named| named.get(name)).collect();
            let by_default = match described.as_slice() {
                [one] => self.rules.defaults.contains(&std::ptr::from_ref(*one).addr()),
                _ => false,
            };
            if !(by_default && spot.filled && !spot.fragile) {
                gaps.push(Gap::new(&join(&spot.path, name), What::Required(name.to_owned())));
            }
        }
    }

    fn properties(&mut self, narrow: &Conjunction<'n>, part: &'w Map<String, Value>, spot: &Spot, gaps: &mut Vec<Gap>) {
        let Some(Value::Object(named)) = part.get("properties") else { return };
        let mentions = narrow.mentions();
        for (name, schema) in named {
            let known = self.property(narrow, name);
            let unknown = !mentions.names.contains(name.as_str());
            self.count(1 + spot.path.len() / PATH_BYTES_PER_STEP);
            if self.is_spent() {
                return;
            }
            let next = spot.part(name, true);
            if unknown && self.rules.names_matter {
                gaps.push(Gap::new(&next.path, What::WideOnly(name.clone())));
                continue;
            }
            let open = self.prove(&known, schema, &next);
            if unknown && !open.is_empty() {
                gaps.push(Gap::new(&next.path, What::WideOnly(name.clone())));
            } else {
                gaps.extend(open);
            }
        }
    }

    fn patterns(&mut self, narrow: &Conjunction<'n>, part: &'w Map<String, Value>, spot: &Spot, gaps: &mut Vec<Gap>) {
        let Some(Value::Object(wanted)) = part.get("patternProperties") else { return };
        let mentions = narrow.mentions();
        for (pattern, schema) in wanted {
            if self.is_spent() {
                return;
            }
            let mut open = Vec::new();
            for name in &mentions.names {
                if self.matches(pattern, name) {
                    let known = self.property(narrow, name);
                    open.extend(self.prove(&known, schema, &spot.part(name, false)));
                }
            }
            for known in &mentions.patterns {
                let known = self.by_pattern(narrow, known);
                open.extend(self.prove(&known, schema, &spot.part("*", false)));
            }
            if !mentions.patterns.contains(pattern.as_str()) {
                let rest = self.rest(narrow);
                open.extend(self.prove(&rest, schema, &spot.part("*", false)));
            }
            if !open.is_empty() {
                gaps.push(Gap::new(&spot.path, What::Unproven("patternProperties")));
            }
        }
    }

    /// `additionalProperties` or `unevaluatedProperties`: all names that are not covered otherwise.
    fn others(
        &mut self,
        narrow: &Conjunction<'n>,
        schema: &'w Value,
        covered: &Covered<'w>,
        spot: &Spot,
        gaps: &mut Vec<Gap>,
    ) {
        if *schema == Value::Bool(true) || covered.everything {
            return;
        }
        let mentions = narrow.mentions();
        for name in &mentions.names {
            if self.is_spent() {
                return;
            }
            if covered.names.contains(*name) || covered.patterns.iter().any(|pattern| self.matches(pattern, name)) {
                continue;
            }
            let next = spot.part(name, false);
            let known = self.property(narrow, name);
            let open = self.prove(&known, schema, &next);
            if !open.is_empty() {
                let whole = *schema == Value::Bool(false);
                if whole {
                    gaps.push(Gap::new(&next.path, What::NarrowOnly((*name).to_owned())));
                } else {
                    gaps.extend(open);
                }
            }
        }
        for pattern in mentions.patterns.iter().filter(|pattern| !covered.patterns.contains(**pattern)) {
            let known = self.by_pattern(narrow, pattern);
            if !self.prove(&known, schema, &spot.part("*", false)).is_empty() {
                gaps.push(Gap::new(&spot.path, What::Unproven("patternProperties")));
            }
        }
        let rest = self.rest(narrow);
        if !self.prove(&rest, schema, &spot.part("*", false)).is_empty() {
            gaps.push(Gap::new(&spot.path, What::Undeclared));
        }
    }

    /// `propertyNames`: by what the narrow side says there, or name by name if it is closed.
    fn names(&mut self, narrow: &Conjunction<'n>, names: &'w Value, spot: &Spot, gaps: &mut Vec<Gap>) {
        let mut known = Conjunction::of(self.narrow, narrow.all("propertyNames"));
        known.narrow(Types::STRING);
        if self.prove(&known, names, &spot.part("*", false)).is_empty() {
            return;
        }
        let Some(Value::Array(listed)) =
            names.get("enum").filter(|_| names.as_object().is_some_and(|map| map.len() == 1))
        else {
            gaps.push(Gap::new(&spot.path, What::Unproven("propertyNames")));
            return;
        };
        let mentions = narrow.mentions();
        self.count(of_each_with_each(mentions.names.len(), listed.len()));
        if self.is_spent() {
            return;
        }
        for name in mentions.names.iter().filter(|name| !listed.iter().any(|one| one.as_str() == Some(name))) {
            if !self.property(narrow, name).impossible {
                let path = join(&spot.path, name);
                gaps.push(Gap::new(&path, What::NarrowOnly((*name).to_owned())));
            }
        }
        if !mentions.patterns.is_empty() || !self.rest(narrow).impossible {
            gaps.push(Gap::new(&spot.path, What::Undeclared));
        }
    }

    fn dependent_required(
        &mut self,
        narrow: &Conjunction<'n>,
        wanted: &Map<String, Value>,
        spot: &Spot,
        gaps: &mut Vec<Gap>,
    ) {
        for (name, list) in wanted {
            let absent = self.property(narrow, name).impossible;
            let known: Vec<&str> = narrow
                .all("dependentRequired")
                .filter_map(|known| known.get(name)?.as_array())
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let demanded = list_len(narrow.all("required")).saturating_add(known.len());
            self.count(of_each_with_each(list.as_array().map_or(0, Vec::len), demanded));
            if self.is_spent() {
                return;
            }
            let missing = list.as_array().into_iter().flatten().filter_map(Value::as_str);
            let missing =
                missing.filter(|one| *one != name.as_str() && !known.contains(one) && !narrow.requires(one)).count();
            if missing > 0 && !absent {
                gaps.push(Gap::new(&spot.path, What::Bound("dependentRequired")));
            }
        }
    }

    // ------------------------------------------------------------------------------- what is known of one name

    /// What the narrow side demands of the property `name`.
    pub(super) fn property(&mut self, narrow: &Conjunction<'n>, name: &str) -> Conjunction<'n> {
        let mut schemas: Vec<&'n Value> = Vec::new();
        self.count(narrow.nodes.len());
        if self.is_spent() {
            return Conjunction::of(self.narrow, schemas);
        }
        for (part, node) in narrow.nodes.iter().filter_map(|node| Some((node.as_object()?, *node))) {
            let before = schemas.len();
            schemas.extend(part.get("properties").and_then(|named| named.get(name)));
            for (pattern, schema) in part.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
                if self.matches(pattern, name) {
                    schemas.push(schema);
                }
            }
            if schemas.len() == before {
                schemas.extend(part.get("additionalProperties"));
            }
            if let Some(Value::Array(listed)) = part.get("propertyNames").and_then(|names| names.get("enum")) {
                self.count(of_each_with_each(listed.len(), 1));
                if !listed.iter().any(|one| one.as_str() == Some(name)) {
                    schemas.push(&Value::Bool(false));
                }
            }
            if let Some(others) = part.get("unevaluatedProperties") {
                let below = self.mentioned_below(node);
                let mentioned = below.everything
                    || below.names.contains(name)
                    || below.patterns.iter().any(|pattern| self.matches(pattern, name));
                if !mentioned {
                    schemas.push(others);
                }
            }
        }
        Conjunction::of(self.narrow, schemas)
    }

    fn by_pattern(&self, narrow: &Conjunction<'n>, pattern: &str) -> Conjunction<'n> {
        let schemas = narrow.all("patternProperties").filter_map(|named| named.get(pattern));
        Conjunction::of(self.narrow, schemas)
    }

    /// What the narrow side demands of every name that it does not mention.
    fn rest(&self, narrow: &Conjunction<'n>) -> Conjunction<'n> {
        let mut schemas: Vec<&'n Value> = narrow.all("additionalProperties").collect();
        let mentions = narrow.mentions();
        let listed = narrow.all("propertyNames").filter_map(|names| names.get("enum")?.as_array());
        for names in listed {
            self.count(of_each_with_each(names.len(), 1));
            if names.iter().all(|name| name.as_str().is_none_or(|name| mentions.names.contains(name))) {
                schemas.push(&Value::Bool(false));
            }
        }
        for node in &narrow.nodes {
            if let Some(others) = node.get("unevaluatedProperties")
                && !Mentions::below(self.narrow, node).everything
            {
                schemas.push(others);
            }
        }
        Conjunction::of(self.narrow, schemas)
    }

    // -------------------------------------------------------------------------------- what the wide side covers

    /// The names that `node` surely evaluates, whatever the value, given that it satisfies the narrow side.
    fn evaluated(&mut self, narrow: &Conjunction<'n>, node: &'w Value) -> Covered<'w> {
        let mut covered = Covered::default();
        let sure = Conjunction::of(self.wide, [node]);
        for part in &sure.parts {
            covered.add_siblings(part);
            let own = node.as_object().is_some_and(|own| std::ptr::eq(own, *part));
            covered.everything |= part.contains_key("additionalProperties");
            covered.everything |= !own && part.get("unevaluatedProperties").is_some();
            for keyword in ["anyOf", "oneOf"] {
                if let Some(Value::Array(branches)) = part.get(keyword) {
                    covered.add_common(self.wide, branches);
                }
            }
        }
        self.same_branches(narrow, &sure, &mut covered);
        covered
    }

    /// A branch that both sides have word for word evaluates the same names on both.
    fn same_branches(&self, narrow: &Conjunction<'n>, sure: &Conjunction<'w>, covered: &mut Covered<'w>) {
        let like = |left: Option<&Value>, right: Option<&Value>| match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => self.likeness.alike(left, right),
            (None, Some(_)) | (Some(_), None) => false,
        };
        // Only a name that the narrow side admits through this branch alone may be vouched for by it.
        let mentions = narrow.mentions();
        let closed = narrow.all("unevaluatedProperties").any(|others| *others == Value::Bool(false));
        if !closed || mentions.everything || !mentions.patterns.is_empty() {
            return;
        }
        let elsewhere: BTreeSet<&str> = narrow.parts.iter().flat_map(|part| names_of(part, "properties")).collect();
        let conditional = |map: &Map<String, Value>| {
            ["anyOf", "oneOf", "if", "dependentSchemas"].iter().filter(|keyword| map.contains_key(**keyword)).count()
        };
        if narrow.parts.iter().map(|part| conditional(part)).sum::<usize>() != 1 {
            return;
        }
        for theirs in &narrow.parts {
            for ours in &sure.parts {
                let shared = conditional(theirs) == 1
                    && ["if", "then", "else"].iter().all(|keyword| like(theirs.get(*keyword), ours.get(*keyword)))
                    && ["anyOf", "oneOf"].iter().all(|keyword| match (theirs.get(*keyword), ours.get(*keyword)) {
                        (Some(Value::Array(a)), Some(Value::Array(b))) => {
                            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| like(Some(a), Some(b)))
                        }
                        (None, None) => true,
                        _ => false,
                    })
                    && theirs.get("dependentSchemas").is_none();
                if shared {
                    let mut mentions = Mentions::default();
                    for keyword in ["if", "then", "else"] {
                        if let Some(schema) = ours.get(keyword) {
                            mentions.add(sure.document, schema);
                        }
                    }
                    for keyword in ["anyOf", "oneOf"] {
                        for schema in ours.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                            mentions.add(sure.document, schema);
                        }
                    }
                    covered.names.extend(mentions.names.into_iter().filter(|name| !elsewhere.contains(name)));
                }
            }
        }
    }
}

/// How long the lists among these are together.
pub(super) fn list_len<'v>(lists: impl Iterator<Item = &'v Value>) -> usize {
    lists.filter_map(Value::as_array).map(Vec::len).sum()
}

/// Names that need not be looked at under `additionalProperties` or `unevaluatedProperties`.
#[derive(Debug, Default)]
struct Covered<'w> {
    names: BTreeSet<&'w str>,
    patterns: BTreeSet<&'w str>,
    everything: bool,
}

impl<'w> Covered<'w> {
    fn by_siblings(part: &'w Map<String, Value>) -> Self {
        let mut covered = Self::default();
        covered.add_siblings(part);
        covered
    }

    fn add_siblings(&mut self, part: &'w Map<String, Value>) {
        self.names.extend(names_of(part, "properties"));
        self.patterns.extend(names_of(part, "patternProperties"));
    }

    /// Names that every one of the branches evaluates, whichever holds.
    fn add_common(&mut self, document: &'w SchemaDocument<'w>, branches: &'w [Value]) {
        let mut common: Option<BTreeSet<&'w str>> = None;
        for branch in branches {
            let sure = Conjunction::of(document, [branch]);
            let names: BTreeSet<&str> = sure.parts.iter().flat_map(|part| names_of(part, "properties")).collect();
            common = Some(match common {
                Some(common) => common.intersection(&names).copied().collect(),
                None => names,
            });
        }
        self.names.extend(common.unwrap_or_default());
    }
}
