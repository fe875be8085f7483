//! Proof steps for branches: `anyOf`, `oneOf`, `not`, `if`, `dependentSchemas`, and proof by cases.
//!
//! One branch that takes everything is enough for `anyOf`; for `oneOf` the others must also be shown to take nothing. That
//! needs schemas that exclude each other, which is shown by types, enumerations, and tags (a required property with
//! different constants).
//!
//! Not here: what a single branch demands (`prover`).

use serde_json::{Map, Value};

use super::conjunction::{Conjunction, Types, same};
use super::effort::of_each_with_each;
use super::gap::{Gap, What};
use super::prover::{CASES_DEEP_MAX, Prover, Spot};

impl<'n, 'w> Prover<'n, 'w> {
    /// `verbatim`: the same words on both sides mean the same, see `is_given`.
    pub(super) fn branches(
        &mut self,
        narrow: &Conjunction<'n>,
        part: &'w Map<String, Value>,
        verbatim: bool,
        spot: &Spot,
        gaps: &mut Vec<Gap>,
    ) {
        if let Some(Value::Array(list)) = part.get("anyOf")
            && !((verbatim && self.has_list(narrow, "anyOf", list)) || self.any_of(narrow, list, spot))
        {
            gaps.push(Gap::new(&spot.path, What::Unproven("anyOf")));
        }
        if let Some(Value::Array(list)) = part.get("oneOf")
            && !((verbatim && self.has_list(narrow, "oneOf", list)) || self.one_of(narrow, list, spot))
        {
            gaps.push(Gap::new(&spot.path, What::Unproven("oneOf")));
        }
        if let Some(excluded) = part.get("not")
            && !self.excludes(narrow, excluded)
        {
            gaps.push(Gap::new(&spot.path, What::Unproven("not")));
        }
        if part.contains_key("if") && !self.conditional(narrow, part, spot) {
            gaps.push(Gap::new(&spot.path, What::Unproven("if")));
        }
        if let Some(Value::Object(dependent)) = part.get("dependentSchemas")
            && narrow.types.meets(Types::OBJECT)
        {
            for (name, schema) in dependent {
                if !self.dependent(narrow, name, schema, spot) {
                    gaps.push(Gap::new(&spot.path, What::Unproven("dependentSchemas")));
                }
            }
        }
    }

    fn any_of(&mut self, narrow: &Conjunction<'n>, list: &'w [Value], spot: &Spot) -> bool {
        list.iter().any(|branch| self.prove(narrow, branch, &spot.branch()).is_empty())
    }

    fn one_of(&mut self, narrow: &Conjunction<'n>, list: &'w [Value], spot: &Spot) -> bool {
        list.iter().enumerate().any(|(index, branch)| {
            if self.is_spent() {
                return false;
            }
            let others = list.iter().enumerate().filter(|(other, _)| *other != index);
            let alone = others.map(|(_, other)| other).all(|other| {
                let other = Conjunction::of(self.wide, [other]);
                self.apart(narrow, &other, 0)
            });
            alone && self.prove(narrow, branch, &spot.branch()).is_empty()
        })
    }

    fn has_list(&self, narrow: &Conjunction<'n>, keyword: &str, list: &[Value]) -> bool {
        narrow.all(keyword).filter_map(Value::as_array).any(|known| {
            known.len() == list.len() && known.iter().zip(list).all(|(left, right)| self.likeness.alike(left, right))
        })
    }

    fn excludes(&mut self, narrow: &Conjunction<'n>, excluded: &'w Value) -> bool {
        let known = narrow.all("not").any(|known| self.likeness.alike(known, excluded));
        known || self.apart(narrow, &Conjunction::of(self.wide, [excluded]), 0)
    }

    fn conditional(&mut self, narrow: &Conjunction<'n>, part: &'w Map<String, Value>, spot: &Spot) -> bool {
        let Some(question) = part.get("if") else { return true };
        let (then, otherwise) = (part.get("then"), part.get("else"));
        let spot = spot.branch();
        let mut follows = |known: &Conjunction<'n>, demand: Option<&'w Value>| {
            demand.is_none_or(|demand| self.prove(known, demand, &spot).is_empty())
        };
        if follows(narrow, then) && follows(narrow, otherwise) {
            return true;
        }
        // The same question on both sides: answer by answer.
        let asked =
            narrow.parts.iter().find(|known| known.get("if").is_some_and(|known| self.likeness.alike(known, question)));
        let Some(asked) = asked.copied() else { return false };
        let yes = asked.get("then").into_iter().chain(asked.get("if")).fold(narrow.clone(), |all, one| all.with(one));
        let no = asked.get("else").into_iter().fold(narrow.clone(), |all, one| all.with(one));
        let mut follows = |known: &Conjunction<'n>, demand: Option<&'w Value>| {
            demand.is_none_or(|demand| self.prove(known, demand, &spot).is_empty())
        };
        follows(&yes, then) && follows(&no, otherwise)
    }

    fn dependent(&mut self, narrow: &Conjunction<'n>, name: &str, schema: &'w Value, spot: &Spot) -> bool {
        if self.property(narrow, name).impossible {
            return true;
        }
        let known = narrow.all("dependentSchemas").filter_map(|known| known.get(name));
        let known = known.fold(narrow.clone(), |all, one| all.with(one));
        self.prove(&known, schema, &spot.branch()).is_empty()
    }

    // --------------------------------------------------------------------------------------------------- cases

    /// Takes one set of branches of the narrow side (or its types) apart; every case has to be accepted.
    pub(super) fn prove_by_cases(&mut self, narrow: &Conjunction<'n>, wide: &'w Value, spot: &Spot) -> bool {
        debug_assert!(spot.cases < CASES_DEEP_MAX);
        let spot = Spot { cases: spot.cases + 1, ..spot.clone() };
        let parts = narrow.parts.clone();
        for list in parts.iter().flat_map(|part| [part.get("anyOf"), part.get("oneOf")]).flatten() {
            let address = std::ptr::from_ref(list).addr();
            let Value::Array(branches) = list else { continue };
            if narrow.opened.contains(&address) || branches.is_empty() {
                continue;
            }
            let mut opened = narrow.clone();
            opened.opened.push(address);
            if branches.iter().all(|branch| self.prove(&opened.with(branch), wide, &spot).is_empty()) {
                return true;
            }
        }
        let several = narrow.types != Types::ALL && narrow.types.each().count() > 1;
        several
            && narrow.types.each().all(|one| {
                let mut case = narrow.clone();
                case.narrow(one);
                self.prove(&case, wide, &spot).is_empty()
            })
    }

    /// Whether no value satisfies both.
    fn apart(&mut self, narrow: &Conjunction<'n>, other: &Conjunction<'w>, depth: usize) -> bool {
        self.count(1 + narrow.parts.len() + other.parts.len());
        if self.is_spent() {
            return false;
        }
        if narrow.impossible || other.impossible || !narrow.types.meets(other.types) {
            return true;
        }
        if let (Some(left), Some(right)) = (narrow.values(), other.values()) {
            let scalar = |value: &&Value| !value.is_object() && !value.is_array();
            self.count(of_each_with_each(left.len(), right.len()));
            if left.iter().all(scalar) && !left.iter().any(|one| right.iter().any(|other| same(one, other))) {
                return true;
            }
        }
        if narrow.types != Types::OBJECT || depth > 3 {
            return false;
        }
        let names: Vec<&str> =
            narrow.all("required").filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect();
        names.into_iter().any(|name| {
            let described = other.all("properties").filter_map(|named| named.get(name));
            let described = Conjunction::of(self.wide, described);
            let known = self.property(narrow, name);
            self.apart(&known, &described, depth + 1)
        })
    }
}
