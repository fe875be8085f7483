//! Proof steps for arrays: items by position, the items after them, uniqueness and `contains`.
//!
//! Not here: lengths (`prover`, with the other bounds).

use serde_json::{Map, Value};

use super::conjunction::{Conjunction, Types};
use super::gap::{Gap, What};
use super::prover::{Prover, Spot};

impl<'n, 'w> Prover<'n, 'w> {
    pub(super) fn arrays(
        &mut self,
        narrow: &Conjunction<'n>,
        (part, node): (&'w Map<String, Value>, &'w Value),
        spot: &Spot,
        gaps: &mut Vec<Gap>,
    ) {
        if !narrow.types.meets(Types::ARRAY) {
            return;
        }
        let longest = narrow.all("maxItems").filter_map(Value::as_u64).min();
        let reachable =
            |index: usize| longest.is_none_or(|longest| u64::try_from(index).is_ok_and(|index| index < longest));
        let prefix = part.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, schema) in prefix.iter().enumerate().filter(|(index, _)| reachable(*index)) {
            gaps.extend(self.prove(&narrow.item(index), schema, &spot.part(&index.to_string(), true)));
        }
        if let Some(schema) = part.get("items") {
            // Those the narrow side describes one by one, and one more for all that follow.
            let last = narrow.prefix_len().max(prefix.len());
            for index in (prefix.len()..=last).filter(|index| reachable(*index)) {
                let token = if index == last { "*".to_owned() } else { index.to_string() };
                gaps.extend(self.prove(&narrow.item(index), schema, &spot.part(&token, true)));
            }
        }
        let unique = narrow.all("uniqueItems").any(|known| *known == Value::Bool(true));
        if part.get("uniqueItems") == Some(&Value::Bool(true)) && !unique && longest.is_none_or(|longest| longest > 1) {
            gaps.push(Gap::new(&spot.path, What::Bound("uniqueItems")));
        }
        if part.contains_key("contains") && !self.contains(narrow, part, spot) {
            gaps.push(Gap::new(&spot.path, What::Unproven("contains")));
        }
        if part.get("unevaluatedItems").is_some_and(|schema| *schema != Value::Bool(true))
            && !self.is_among(narrow, node)
        {
            gaps.push(Gap::new(&spot.path, What::Unproven("unevaluatedItems")));
        }
    }

    /// `contains` with its two counts; the count upwards needs the very same question.
    fn contains(&mut self, narrow: &Conjunction<'n>, part: &'w Map<String, Value>, spot: &Spot) -> bool {
        let Some(wanted) = part.get("contains") else { return true };
        let count = |map: &Map<String, Value>, keyword: &str| map.get(keyword).and_then(Value::as_f64);
        let (least, most) = (count(part, "minContains").unwrap_or(1.0), count(part, "maxContains"));
        if least <= 0.0 && most.is_none() {
            return true;
        }
        let parts = narrow.parts.clone();
        parts.iter().any(|known| {
            let Some(question) = known.get("contains") else { return false };
            let enough = count(known, "minContains").unwrap_or(1.0) >= least;
            match most {
                None => {
                    let found = Conjunction::of(self.narrow, [question]);
                    enough && self.prove(&found, wanted, &spot.part("*", false)).is_empty()
                }
                Some(most) => {
                    let alike = self.likeness.alike(question, wanted);
                    (enough || least <= 0.0) && alike && count(known, "maxContains").is_some_and(|known| known <= most)
                }
            }
        })
    }
}
