//! What the name of a member says, worked out once: names come again and again, in every call of a tool and in every item of
//! a list.
//!
//! The memory is bounded in names and in their length, and forgets everything when it is full: whoever makes names up only
//! makes it slow. It changes nothing but the time: the same name always says the same to the same engine.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::engine::Engine;
use crate::names::words;
use crate::numbers::Hint;

/// Names that are remembered.
const NAMES_MAX: usize = 4_096;
/// Longest name that is remembered, bytes.
const NAME_BYTES_MAX: usize = 64;

/// What a name says about its member.
#[derive(Debug, Clone)]
pub(crate) struct NameFacts {
    /// Its value goes, whatever it is.
    pub(crate) hides: bool,
    /// It ends with the word for a token: a number under it counts them.
    pub(crate) counts_tokens: bool,
    /// What it says about numbers below it.
    pub(crate) hint: Hint,
    /// What is shown in place of the name, if something in it must not be seen.
    pub(crate) shown: Option<Arc<str>>,
}

/// The names that were met before.
#[derive(Debug, Default)]
pub(crate) struct NameMemory(RwLock<HashMap<Box<str>, NameFacts>>);

impl NameFacts {
    fn of(engine: &Engine, name: &str) -> Self {
        let words = words(name);
        let shown = match engine.text(name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted.into()),
        };
        Self {
            hides: engine.hides(&words),
            counts_tokens: words.last().is_some_and(|word| word == "token" || word == "tokens"),
            hint: hint(&words),
            shown,
        }
    }
}

impl NameMemory {
    /// What `name` says to `engine`, whose memory this is.
    pub(crate) fn facts(&self, engine: &Engine, name: &str) -> NameFacts {
        if name.len() > NAME_BYTES_MAX {
            return NameFacts::of(engine, name);
        }
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return known.clone();
        }
        let facts = NameFacts::of(engine, name);
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name.into(), facts.clone());
        facts
    }
}

/// What a name of these words says about numbers below it.
fn hint(words: &[String]) -> Hint {
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    Hint {
        phone: any(&[
            "phone",
            "telephone",
            "mobile",
            "fax",
            "tel",
            "cell",
            "cellphone",
            "msisdn",
            "whatsapp",
            "sms",
            "phones",
        ]),
        ssn: any(&["itin", "tin", "ssn", "taxpayer"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Additions;

    #[test]
    fn a_name_says_the_same_the_second_time_and_after_everything_was_forgotten() {
        let engine = Engine::new(&Additions::default()).unwrap();
        let memory = NameMemory::default();
        let told = |name: &str| {
            let NameFacts { hides, counts_tokens, hint, shown } = memory.facts(&engine, name);
            (hides, counts_tokens, hint, shown)
        };
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["apiKey", "max_tokens", "phone", "ada@example.org", "plain", &long] {
            let first = told(name);
            assert_eq!(told(name), first, "{name}");
            (0..NAMES_MAX).for_each(|number| drop(told(&format!("made up {number}"))));
            assert!(memory.0.read().unwrap().len() <= NAMES_MAX);
            assert_eq!(told(name), first, "{name}");
        }
        assert!(told("apiKey").0 && told("max_tokens").1 && told("phone").2.phone);
        assert_eq!(told("ada@example.org").3.as_deref(), Some("[EMAIL_REDACTED]"));
        assert!(!memory.0.read().unwrap().contains_key(long.as_str()));
    }
}
