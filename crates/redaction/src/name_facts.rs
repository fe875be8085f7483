//! What the name of a member says, worked out once: names come again and again, in every call of a tool and in every item of
//! a list.
//!
//! The memory has so many places and each name only one of them, where the last that came stays: whoever makes names up only
//! makes it slow. Nobody waits for anybody. It changes nothing but the time: the same name always says the same to the same
//! engine.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::engine::RedactionEngine;
use crate::names::words;
use crate::numbers::NumberHint;

/// Names that are remembered, at most.
const PLACES: usize = 2_048;
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
    pub(crate) hint: NumberHint,
    /// What is shown in place of the name, if something in it must not be seen.
    pub(crate) shown: Option<Arc<str>>,
}

/// The names that were met before. The places are made when the first name comes: many engines meet none.
#[derive(Debug, Default)]
pub(crate) struct NameMemory(OnceLock<Box<[Place]>>);

type Place = ArcSwapOption<(Box<str>, NameFacts)>;

impl NameFacts {
    fn of(engine: &RedactionEngine, name: &str) -> Self {
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
    pub(crate) fn facts(&self, engine: &RedactionEngine, name: &str) -> NameFacts {
        if name.len() > NAME_BYTES_MAX {
            return NameFacts::of(engine, name);
        }
        let places = self.0.get_or_init(|| (0..PLACES).map(|_| Place::empty()).collect());
        let Some(place) = places.get(place_of(name)) else { return NameFacts::of(engine, name) };
        if let Some((known, facts)) = place.load().as_deref()
            && **known == *name
        {
            return facts.clone();
        }
        let facts = NameFacts::of(engine, name);
        place.store(Some(Arc::new((name.into(), facts.clone()))));
        facts
    }
}

/// The place of a name. Names that are made up to have the same place only drive each other out of it.
fn place_of(name: &str) -> usize {
    // FNV-1a: short, and good enough for names.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ hash >> 16) as usize % PLACES
}

/// What a name of these words says about numbers below it.
fn hint(words: &[String]) -> NumberHint {
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    NumberHint {
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
    use crate::RedactionAdditions;

    #[test]
    fn a_name_says_the_same_the_second_time_and_after_it_was_forgotten() {
        let engine = RedactionEngine::new(&RedactionAdditions::default()).unwrap();
        let memory = NameMemory::default();
        let told = |name: &str| {
            let NameFacts { hides, counts_tokens, hint, shown } = memory.facts(&engine, name);
            (hides, counts_tokens, hint, shown)
        };
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["apiKey", "max_tokens", "phone", "ada@example.org", "plain", &long] {
            let first = told(name);
            assert_eq!(told(name), first, "{name}");
            let rivals = (0..).map(|number| format!("made up {number}"));
            rivals.filter(|rival| place_of(rival) == place_of(name)).take(2).for_each(|rival| drop(told(&rival)));
            assert_eq!(told(name), first, "{name}");
        }
        assert!(told("apiKey").0 && told("max_tokens").1 && told("phone").2.phone);
        assert_eq!(told("ada@example.org").3.as_deref(), Some("[EMAIL_REDACTED]"));
        let places = memory.0.get().unwrap();
        assert!(places.iter().all(|place| place.load().as_deref().is_none_or(|(name, _)| **name != *long)));
    }
}
