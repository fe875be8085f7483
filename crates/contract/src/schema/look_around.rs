//! Patterns with look-around, matched in linear time.
//!
//! The engine behind `pattern` runs in linear time because it knows no look-around. Real schemas do use it, mostly to say
//! what a text must not contain. An engine that backtracks would let the author of a schema burn a processor: a limit on
//! its backtracks bounds nothing, because nested repetitions of look-aheads run for years without a single one. Here a
//! look-around is a table with one answer for each position of the text. The inner tables are made first, each by one
//! sweep of an automaton over the text, and the pattern itself is one more sweep that reads them.
//!
//! Invariants
//! - LOOK-1: the work is at most `instructions × (characters + 1)`; a text for which that passes [`STEPS_MAX`] is not
//!   matched but refused with [`StepLimit`].
//! - LOOK-2: a pattern that this file accepts means what ECMA-262 says, apart from captures, which nobody asks for.
//!
//! Not here: back-references, which no linear engine can do (`unchecked` names them), and patterns without look-around.

mod parser;
mod program;

use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use self::program::Sweeps;

/// The keyword that stands for a `pattern` with look-around in what is handed to the validator.
pub(super) const KEYWORD: &str = "x-gantry-look-around";

/// Steps of the automaton that one text may cost: about a tenth of a second.
const STEPS_MAX: u64 = 20_000_000;
/// Instructions of one pattern, the repetitions written out.
const INSTRUCTIONS_MAX: usize = 10_000;
/// Groups within groups.
const NESTING_MAX: usize = 64;

/// Why a pattern cannot be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternFault {
    /// It refers back to what a group has matched.
    BackReference,
    /// It is no regular expression of ECMA-262.
    Syntax,
    /// It is too large once its repetitions are written out.
    TooLarge,
}

/// The text was too long for the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepLimit;

/// A pattern ready to be matched.
#[derive(Debug)]
pub(super) struct LookAround {
    source: String,
    sweeps: Sweeps,
}

impl LookAround {
    pub(super) fn compile(pattern: &str) -> Result<Self, PatternFault> {
        let sweeps = Sweeps::of(&parser::parse(pattern)?)?;
        Ok(Self { source: pattern.to_owned(), sweeps })
    }

    /// Whether the pattern is found anywhere in the text.
    pub(super) fn is_match(&self, text: &str) -> Result<bool, StepLimit> {
        self.sweeps.is_match(text, STEPS_MAX)
    }
}

/// Whether the pattern has a look-around or a back-reference, told by its letters alone.
pub(super) fn is_needed(pattern: &str) -> bool {
    let mut in_class = false;
    let mut rest = pattern.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => match rest.next() {
                Some('1'..='9') if !in_class => return true,
                Some('k') if !in_class && rest.as_str().starts_with('<') => return true,
                _ => {}
            },
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class && ["?=", "?!", "?<=", "?<!"].iter().any(|group| rest.as_str().starts_with(group)) => {
                return true;
            }
            _ => {}
        }
    }
    false
}

// ------------------------------------------------------------------------------------------------------ Keyword

/// The keyword's factory, as the validator wants it.
pub(super) fn keyword(value: &Value) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'static>> {
    let pattern = value.as_str().unwrap_or_default();
    match LookAround::compile(pattern) {
        Ok(compiled) => Ok(Box::new(compiled)),
        Err(_) => Err(ValidationError::custom("the pattern cannot be matched")),
    }
}

impl<'i> Keyword<'i> for LookAround {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        let Some(text) = instance.as_str() else { return Ok(()) };
        let shown = super::violation_text::short(&self.source);
        match self.is_match(text) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ValidationError::custom(format!("must match the pattern `{shown}`"))),
            Err(StepLimit) => Err(ValidationError::custom(format!(
                "is too long to be checked by the pattern `{shown}`: shorten it, or let the schema say `maxLength`"
            ))),
        }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        instance.as_str().is_none_or(|text| self.is_match(text) == Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        LookAround::compile(pattern).unwrap().is_match(text).unwrap()
    }

    #[test]
    fn patterns_that_people_write_mean_what_they_say() {
        for (pattern, good, bad) in [
            (r"^(?!\s*$).+", &["x", " a b "][..], &["", "   ", "\t"][..]),
            (r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,}$", &["Password1"], &["password1", "PASSWORD", "Pass1"]),
            (r"^(?!.*\.\.)(?!/)[^\0]+$", &["a/b.c"], &["a/../b", "/etc"]),
            (r"^(?:(?!-)[a-z0-9-]{1,63}(?<!-)\.)+[a-z]{2,}$", &["a-b.example.com"], &["-a.com", "a-.com", "a"]),
            (r"^((?!badword).)*$", &["fine", ""], &["a badword here"]),
            (r"(?<=\$)\d+(?!\d|\.)", &["it costs $15"], &["15", "$", "$15.5"]),
            (r"^(?!(?:con|nul)$)(?<name>\w+)$", &["cone"], &["con", "nul", "a b"]),
            (r"\b(?=\w{3}\b)\w*t\b", &["a cat"], &["a coat"]),
            (r"^(?=(?:..)*$)(?=(?:...)*$)", &["", "aaaaaa"], &["a", "aa", "aaaa"]),
            (r"^(?i)(?!ADMIN)[a-z]+$", &["adam"], &["admin", "AdMin1"]),
            (r"^(?=\p{Lu})[\p{L}\u00e4-\xff]+$", &["Äpfel"], &["äpfel"]),
            (r"^[^](?!.)", &["\n"], &["ab"]),
        ] {
            for text in good {
                assert!(matches(pattern, text), "{pattern} should match {text:?}");
            }
            for text in bad {
                assert!(!matches(pattern, text), "{pattern} should not match {text:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_matched_is_told_apart() {
        for (pattern, fault) in [
            (r"(a)\1(?=b)", PatternFault::BackReference),
            (r"(?<x>a)\k<x>", PatternFault::BackReference),
            ("(?=a", PatternFault::Syntax),
            ("(?=a))", PatternFault::Syntax),
            ("(?=a)**", PatternFault::Syntax),
            ("(?=[b-a])", PatternFault::Syntax),
            ("(?=a){3,2}", PatternFault::Syntax),
            (r"(?=\p{Nonsense})", PatternFault::Syntax),
            ("(?=((a{1000}){1000}){1000})", PatternFault::TooLarge),
            (&format!("{}(?=a){}", "(".repeat(100), ")".repeat(100)), PatternFault::TooLarge),
        ] {
            assert_eq!(LookAround::compile(pattern).err(), Some(fault), "{pattern}");
        }
    }

    #[test]
    fn only_what_needs_this_engine_is_sent_to_it() {
        for (pattern, needed) in [
            ("^(?=a)", true),
            ("(?<!a)b", true),
            (r"(a)\1", true),
            (r"(?<n>a)\k<n>", true),
            (r"\(?=a", false),
            ("[(?=]", false),
            (r"(?:a)(?<n>b)", false),
            (r"[\1]\\1", false),
        ] {
            assert_eq!(is_needed(pattern), needed, "{pattern}");
        }
    }

    #[test]
    fn hostile_patterns_cost_what_their_length_says() {
        // An engine that backtracks would not come back from these; one of them does not even backtrack.
        let text = "a".repeat(2_000);
        assert!(!matches("^(?=(a+)+$)(?:(a|a)*)*b", &text));
        assert!(matches("^(?:(?=(?:(?=(?:(?=.*a)){90})){90})){90}a", &text));
        assert!(!matches("^(?:(?=(?:(?=.*a)a)*b)a)*b", &text));
        let wide = LookAround::compile("(?!x)(?:[ab]{1,60}){60}c").unwrap();
        assert_eq!(wide.is_match(&"a".repeat(20_000)), Err(StepLimit));
    }

    /// Patterns small enough for an engine that backtracks, with everything in them.
    fn pattern() -> impl Strategy<Value = String> {
        let atom = prop::sample::select(vec!["a", "b", "[ab]", "[^a]", ".", r"\b", "^", "$", r"\w", r"\B"]);
        atom.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("{left}{right}")),
                (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("(?:{left}|{right})")),
                (inner.clone(), prop::sample::select(vec!["*", "+", "?", "{2}", "{1,2}", "{0,3}?"]))
                    .prop_map(|(body, times)| format!("(?:{body}){times}")),
                (inner, prop::sample::select(vec!["?=", "?!", "?<=", "?<!"]))
                    .prop_map(|(body, look)| format!("({look}{body})")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]
        #[test]
        fn an_engine_that_backtracks_comes_to_the_same_answer(pattern in pattern(), text in "[abc]{0,8}") {
            // The other engine refuses some look-behinds; those it takes are compared.
            let Ok(other) = fancy_regex::Regex::new(&pattern) else { return Ok(()) };
            let Ok(expected) = other.is_match(&text) else { return Ok(()) };
            prop_assert_eq!(LookAround::compile(&pattern).unwrap().is_match(&text).unwrap(), expected, "{} in {:?}", pattern, text);
        }

        #[test]
        fn no_text_takes_the_parser_down(pattern in r"[()\[\]?=!<>*+{}|\\a-c0-3,^$.:-]{0,40}") {
            if let Ok(compiled) = LookAround::compile(&pattern) {
                let _ = compiled.is_match("abcabc");
            }
        }
    }
}
