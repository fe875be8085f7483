//! Values that were hidden in one place, looked for in all others. (SHOWN-1, DISC-2)
//!
//! Text is read once, however many values there are: an automaton knows all of them.
//!
//! Invariants
//! - HIDV-1: wherever one of the values stands, all of it is hidden, also where values overlap.
//! - HIDV-2: no bound leaves a value standing. Of a value longer than [`VALUE_BYTES_MAX`] the beginning is looked for, and the
//!   rest of the text goes with it; of more than [`TOTAL_BYTES_MAX`] of values none is looked for, and nothing is shown at all.
//!
//! Not here: which values these are (`discretion`).

use std::collections::HashSet;
use std::ops::Range;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::noncontiguous::NFA;
use aho_corasick::{Anchored, PatternID};
use serde_json::Value;

/// What takes the place of a value.
const HIDDEN: &str = "[REDACTED]";
/// Longest beginning of a value that is looked for.
const VALUE_BYTES_MAX: usize = 1_024;
/// All values together. The automaton takes a few dozen times as much while a result is looked at.
const TOTAL_BYTES_MAX: usize = 1024 * 1024;

/// The values.
#[derive(Debug)]
pub(crate) enum HiddenValues {
    None,
    Known(Box<KnownValues>),
    /// HIDV-2: too many to be looked for.
    TooMany,
}

#[derive(Debug)]
pub(crate) struct KnownValues {
    automaton: NFA,
    /// Which of them are only beginnings.
    cut: Vec<bool>,
}

impl HiddenValues {
    pub(crate) fn new(values: &[String]) -> Self {
        let mut known = HashSet::new();
        let (mut texts, mut cut, mut total) = (Vec::new(), Vec::new(), 0_usize);
        for value in values {
            let beginning = value.get(..value.floor_char_boundary(VALUE_BYTES_MAX)).unwrap_or(value);
            let is_cut = beginning.len() < value.len();
            if beginning.is_empty() || !known.insert((beginning, is_cut)) {
                continue;
            }
            total = total.saturating_add(beginning.len());
            texts.push(beginning);
            cut.push(is_cut);
        }
        if texts.is_empty() {
            return Self::None;
        }
        if total > TOTAL_BYTES_MAX {
            return Self::TooMany;
        }
        NFA::builder()
            .build(texts)
            .map_or(Self::TooMany, |automaton| Self::Known(Box::new(KnownValues { automaton, cut })))
    }

    /// A value without them.
    pub(crate) fn taken_out_of(&self, value: Value) -> Value {
        match self {
            Self::None => value,
            Self::Known(known) => known.taken_out_of(value),
            Self::TooMany => HIDDEN.into(),
        }
    }

    /// A text without them; nothing if none stands there.
    pub(crate) fn taken_out_of_text(&self, text: &str) -> Option<String> {
        match self {
            Self::None => None,
            Self::Known(known) => known.taken_out_of_text(text),
            Self::TooMany => Some(HIDDEN.to_owned()),
        }
    }
}

impl KnownValues {
    fn taken_out_of(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.taken_out_of_text(&text).unwrap_or(text)),
            Value::Number(number) if self.is_one(&number.to_string()) => HIDDEN.into(),
            Value::Array(items) => items.into_iter().map(|item| self.taken_out_of(item)).collect(),
            Value::Object(members) => {
                let shown = |name: String| self.taken_out_of_text(&name).unwrap_or(name);
                members.into_iter().map(|(name, member)| (shown(name), self.taken_out_of(member))).collect()
            }
            other => other,
        }
    }

    fn taken_out_of_text(&self, text: &str) -> Option<String> {
        let places = self.places(text);
        if places.is_empty() {
            return None;
        }
        let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
        for place in places {
            // Values are whole characters, so they begin and end at boundaries.
            shown.push_str(text.get(from..place.start).unwrap_or_default());
            shown.push_str(HIDDEN);
            from = place.end;
        }
        shown.push_str(text.get(from..).unwrap_or_default());
        Some(shown)
    }

    /// Is the text one of the values, and nothing else?
    fn is_one(&self, text: &str) -> bool {
        matches!(&*self.places(text), [place] if *place == (0..text.len()))
    }

    /// Where they stand, in order; those that touch or overlap are one place.
    fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut places: Vec<Range<usize>> = Vec::new();
        // It begins with a search that is not anchored, which every automaton of this kind knows.
        let Ok(mut state) = self.automaton.start_state(Anchored::No) else {
            places.push(0..text.len());
            return places;
        };
        for (at, byte) in text.bytes().enumerate() {
            state = self.automaton.next_state(Anchored::No, state, byte);
            if !self.automaton.is_match(state) {
                continue;
            }
            // The first is the longest that ends here; the others are its ends.
            let longest = self.automaton.match_pattern(state, 0);
            let start = (at + 1).saturating_sub(self.automaton.pattern_len(longest));
            while places.last().is_some_and(|last| last.start >= start) {
                places.pop();
            }
            match places.last_mut() {
                Some(last) if last.end >= start => last.end = at + 1,
                _ => places.push(start..at + 1),
            }
            if self.ends_a_beginning(state) {
                // HIDV-2: where the value ends is not known.
                places.last_mut().into_iter().for_each(|last| last.end = text.len());
                break;
            }
        }
        places
    }

    fn ends_a_beginning(&self, state: StateID) -> bool {
        let is_cut = |pattern: &PatternID| self.cut.get(pattern.as_usize()).copied().unwrap_or_default();
        // A beginning is as long as one may be, but for the last character of it.
        let is_long =
            |pattern: &PatternID| self.automaton.pattern_len(*pattern) + char::MAX.len_utf8() > VALUE_BYTES_MAX;
        let ending_here = (0..self.automaton.match_len(state)).map(|index| self.automaton.match_pattern(state, index));
        ending_here.take_while(is_long).any(|pattern| is_cut(&pattern))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn values(list: &[&str]) -> HiddenValues {
        HiddenValues::new(&list.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_that_overlap_are_hidden_as_one() {
        let hidden = values(&["abcd", "cdefgh", "wxyz"]);
        for (text, expected) in [
            ("<abcdefgh>", Some("<[REDACTED]>")),
            ("abcd-wxyz", Some("[REDACTED]-[REDACTED]")),
            ("ä abcd ß", Some("ä [REDACTED] ß")),
            ("abc", None),
        ] {
            assert_eq!(hidden.taken_out_of_text(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_and_names_are_looked_at_too() {
        let hidden = values(&["12345", "plain zebra"]);
        let value = json!({ "n": 12345, "m": 123_456, "plain zebra": [12345.5], "note": "12345 it is" });
        let shown = json!({ "n": HIDDEN, "m": 123_456, HIDDEN: [12345.5], "note": "[REDACTED] it is" });
        assert_eq!(hidden.taken_out_of(value), shown);
    }

    #[test]
    fn of_a_long_value_nothing_is_left_however_it_goes_on() {
        let long = "long ".repeat(VALUE_BYTES_MAX);
        let hidden = values(&[&long, "word"]);
        assert_eq!(
            hidden.taken_out_of_text(&format!("a word, then {long} and on")).unwrap(),
            "a [REDACTED], then [REDACTED]"
        );
    }

    #[test]
    fn more_values_than_can_be_looked_for_hide_everything() {
        let many: Vec<String> = (0..2_000).map(|n| format!("{n:04}{}", "x".repeat(1_000))).collect();
        let hidden = HiddenValues::new(&many);
        assert!(matches!(hidden, HiddenValues::TooMany));
        assert_eq!(hidden.taken_out_of(json!({ "a": 1 })), HIDDEN);
        assert_eq!(hidden.taken_out_of_text("anything").as_deref(), Some(HIDDEN));
    }

    proptest! {
        #[test]
        fn exactly_what_belongs_to_a_value_is_hidden(values in prop::collection::vec("[ab]{1,5}", 1..6), text in "[abc]{0,40}") {
            let mut inside = vec![false; text.len()];
            for value in &values {
                for (start, _) in text.char_indices().filter(|(at, _)| text.get(*at..).is_some_and(|rest| rest.starts_with(value.as_str()))) {
                    inside[start..start + value.len()].fill(true);
                }
            }
            let mut expected = String::new();
            for (at, letter) in text.char_indices() {
                match (inside[at], at > 0 && inside[at - 1]) {
                    (false, _) => expected.push(letter),
                    (true, false) => expected.push_str(HIDDEN),
                    (true, true) => {}
                }
            }
            let shown = HiddenValues::new(&values).taken_out_of_text(&text).unwrap_or(text);
            prop_assert_eq!(shown, expected);
        }
    }
}
