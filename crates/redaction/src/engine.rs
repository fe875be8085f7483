//! The engine: all detectors over one text, and what a tenant or a call adds to them.

use std::borrow::Cow;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

use crate::boundary::at;
use crate::findings::{REDACTED, RedactionFinding, RedactionKind, replace, settle};
use crate::name_facts::{NameFacts, NameMemory};
use crate::names::{NameMeaning, says, words};
use crate::numbers::{self, NumberHint};
use crate::secrets::SecretDetector;
use crate::{addresses, email, iban};

/// Shortest value that is looked for as it is. Shorter ones would be found everywhere.
const VALUE_MIN: usize = 4;
/// Most values, names and patterns that can be added.
const ADDED_MAX: usize = 1_000;
/// Largest compiled pattern, bytes.
const PATTERN_BYTES_MAX: usize = 256 * 1024;
/// A replacement can bring about a shape that was not there before. So often is looked again; of a text in which there is
/// still something then, nothing is shown.
const ROUNDS_MAX: usize = 8;
/// Bytes that are passed over at once where nothing begins.
const STRIDE: usize = 16;

/// What is redacted besides what every engine knows.
#[derive(Debug, Clone, Default)]
pub struct RedactionAdditions {
    /// Values that are secret: they go wherever they stand. Those shorter than four bytes are ignored.
    pub values: Vec<String>,
    /// Names of members whose value goes. `*` at the start or the end stands for any words.
    pub names: Vec<String>,
    /// Names that are no secrets here, whatever they sound like.
    pub exempt: Vec<String>,
    /// Regular expressions; what they match goes.
    pub patterns: Vec<String>,
}

/// Why additions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdditionsError {
    /// There are too many of them.
    #[error("at most {ADDED_MAX} values, names and patterns can be added to redaction")]
    TooMany,
    /// A pattern does not compile, or becomes too large.
    #[error("the redaction pattern `{0}` cannot be used")]
    Pattern(String, #[source] Box<regex::Error>),
    /// The automaton for the values could not be built.
    #[error("the values to be redacted cannot be searched for")]
    Automaton(#[source] aho_corasick::BuildError),
}

/// Finds what must not be seen. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RedactionEngine {
    detector: Arc<SecretDetector>,
    added: Arc<Added>,
    names: Arc<NameMemory>,
}

/// Room to look at texts in, used again for every text of a document.
#[derive(Debug, Default)]
pub(crate) struct ScanBuffers {
    found: Vec<RedactionFinding>,
    groups: numbers::GroupBuffer,
}

#[derive(Debug, Default)]
struct Added {
    values: Option<AhoCorasick>,
    names: Vec<Named>,
    exempt: Vec<Named>,
    patterns: Vec<Regex>,
}

/// A name, its words written together, with open ends.
#[derive(Debug)]
struct Named {
    text: String,
    open_start: bool,
    open_end: bool,
}

impl Named {
    fn of(name: &str) -> Self {
        Self { text: words(name).concat(), open_start: name.starts_with('*'), open_end: name.ends_with('*') }
    }

    fn fits(&self, name: &str) -> bool {
        !self.text.is_empty()
            && match (self.open_start, self.open_end) {
                (false, false) => name == self.text,
                (true, false) => name.ends_with(&self.text),
                (false, true) => name.starts_with(&self.text),
                (true, true) => name.contains(&self.text),
            }
    }
}

impl RedactionEngine {
    /// An engine with these additions.
    pub fn new(additions: &RedactionAdditions) -> Result<Self, AdditionsError> {
        let detector = Arc::new(SecretDetector::new());
        Self { detector, added: Arc::default(), names: Arc::default() }.with(additions)
    }

    /// This engine with other additions in place of its own. The detectors are shared.
    pub fn with(&self, additions: &RedactionAdditions) -> Result<Self, AdditionsError> {
        let RedactionAdditions { values, names, exempt, patterns } = additions;
        if [values.len(), names.len(), exempt.len(), patterns.len()].iter().any(|count| *count > ADDED_MAX) {
            return Err(AdditionsError::TooMany);
        }
        let compile = |pattern: &String| {
            let built = regex::RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
            built.map_err(|error| AdditionsError::Pattern(pattern.clone(), Box::new(error)))
        };
        let added = Added {
            values: automaton(values)?,
            names: names.iter().map(|name| Named::of(name)).collect(),
            exempt: exempt.iter().map(|name| Named::of(name)).collect(),
            patterns: patterns.iter().map(compile).collect::<Result<_, _>>()?,
        };
        // What names say depends on what was added.
        Ok(Self { detector: Arc::clone(&self.detector), added: Arc::new(added), names: Arc::default() })
    }

    /// Whether no pattern that was added matches where there is nothing: such a one finds a place everywhere.
    pub fn has_only_solid_patterns(&self) -> bool {
        !self.added.patterns.iter().any(|pattern| pattern.is_match(""))
    }

    /// What must not be seen of a text, in order and without overlaps. Offsets are in bytes, at characters' boundaries.
    pub fn findings(&self, text: &str) -> Vec<RedactionFinding> {
        let mut room = ScanBuffers::default();
        self.find(text, NumberHint::default(), &mut room);
        room.found
    }

    /// The text with words in place of what must not be seen.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.text_in(text, NumberHint::default(), &mut ScanBuffers::default()).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// What is shown in place of a text; nothing if it can be shown as it is.
    pub(crate) fn text_in(&self, text: &str, hint: NumberHint, room: &mut ScanBuffers) -> Option<String> {
        let mut redacted: Option<String> = None;
        for _ in 0..ROUNDS_MAX {
            let shown = redacted.as_deref().unwrap_or(text);
            self.find(shown, hint, room);
            if room.found.is_empty() {
                return redacted;
            }
            // Nothing that every engine knows is in a word alone, so it need not be looked at again.
            let whole = matches!(*room.found, [RedactionFinding { start: 0, end, .. }] if end == shown.len());
            redacted = Some(replace(shown, &room.found));
            if whole && self.added.values.is_none() && self.added.patterns.is_empty() {
                return redacted;
            }
        }
        Some(REDACTED.to_owned())
    }

    /// Leaves in `room` what must not be seen of a text.
    fn find(&self, text: &str, hint: NumberHint, room: &mut ScanBuffers) {
        let ScanBuffers { found, groups } = room;
        found.clear();
        let secret = |start, end| RedactionFinding { kind: RedactionKind::Secret, start, end };
        if let Some(values) = &self.added.values {
            found.extend(values.find_iter(text).map(|hit| secret(hit.start(), hit.end())));
        }
        for pattern in &self.added.patterns {
            found.extend(pattern.find_iter(text).map(|hit| secret(hit.start(), hit.end())));
        }
        self.detector.find(text, found);
        sweep(text, hint, groups, found);
        if !found.is_empty() {
            settle(found);
        }
    }

    /// Is a setting of this name and text a secret, by its name or by what stands in it?
    pub fn is_secret(&self, name: &str, text: &str) -> bool {
        self.hides(&words(name)) || self.findings(text).iter().any(|finding| finding.kind == RedactionKind::Secret)
    }

    /// What the name of a member says about it.
    pub(crate) fn facts(&self, name: &str) -> NameFacts {
        self.names.facts(self, name)
    }

    /// Whether the value of a member with a name of these words goes, whatever it is.
    pub(crate) fn hides(&self, words: &[String]) -> bool {
        let plain = words.concat();
        if self.added.names.iter().any(|added| added.fits(&plain)) {
            return true;
        }
        says(words) >= NameMeaning::Secret && !self.added.exempt.iter().any(|exempt| exempt.fits(&plain))
    }
}

/// An automaton for values, as they are and as they stand in JSON.
fn automaton(values: &[String]) -> Result<Option<AhoCorasick>, AdditionsError> {
    let escaped = |value: &String| {
        let quoted = serde_json::Value::from(value.as_str()).to_string();
        quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
    };
    let mut all: Vec<String> = values
        .iter()
        .filter(|value| value.len() >= VALUE_MIN)
        .flat_map(|value| [value.clone(), escaped(value)])
        .collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Ok(None);
    }
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(all);
    built.map(Some).map_err(AdditionsError::Automaton)
}

/// Everything that is found from a digit, an `@` or a colon.
fn sweep(text: &str, hint: NumberHint, groups: &mut numbers::GroupBuffer, found: &mut Vec<RedactionFinding>) {
    let bytes = text.as_bytes();
    let (mut place, mut floor) = (0, 0);
    while let Some(skip) = bytes.get(place..).and_then(next_beginning) {
        place += skip;
        match at(bytes, place) {
            b'0'..=b'9' => {
                let place_after = if let Some((start, end)) = iban::around(bytes, place) {
                    found.push(RedactionFinding { kind: RedactionKind::Iban, start, end });
                    floor = end;
                    end
                } else if !crate::boundary::begins(bytes, place) {
                    crate::boundary::run(bytes, place, usize::MAX, crate::boundary::is_word)
                } else {
                    numbers::phrase(bytes, place, hint, groups, found)
                };
                place = place_after.max(place + 1);
            }
            b'@' => {
                if let Some((start, end)) = email::around(text, place, floor.min(place)) {
                    found.push(RedactionFinding { kind: RedactionKind::Email, start, end });
                    floor = end;
                    place = end;
                } else {
                    place += 1;
                }
            }
            b':' if is_near_address(bytes, place) => {
                let (next, address) = addresses::v6(text, place, floor.min(place));
                if let Some((start, end)) = address {
                    found.push(RedactionFinding { kind: RedactionKind::IpAddress, start, end });
                    floor = end;
                }
                place = next;
            }
            _ => place += 1,
        }
    }
}

/// Where the next digit, `@` or colon stands.
fn next_beginning(bytes: &[u8]) -> Option<usize> {
    // Digits and the colon are neighbours in ASCII.
    let begins_something = |byte: &u8| byte.wrapping_sub(b'0') <= b':' - b'0' || *byte == b'@';
    // Without a way out in the middle, the machine looks at a whole stride at once.
    let has_one = |stride: &[u8]| stride.iter().fold(false, |any, byte| any | begins_something(byte));
    let passed = bytes.chunks_exact(STRIDE).take_while(|stride| !has_one(stride)).count() * STRIDE;
    bytes.get(passed..)?.iter().position(begins_something).map(|place| passed + place)
}

/// A colon with a digit or another colon next to it on both sides, as far as there are any: most colons of JSON are not.
fn is_near_address(bytes: &[u8], colon: usize) -> bool {
    let next = at(bytes, colon + 1);
    let previous = crate::boundary::before(bytes, colon);
    next == b':' || (next.is_ascii_hexdigit() && (previous.is_ascii_hexdigit() || previous == b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_found_in_the_words_that_take_a_place() {
        let engine = RedactionEngine::new(&RedactionAdditions::default()).unwrap();
        for kind in RedactionKind::ALL {
            for (phone, ssn) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut room = ScanBuffers::default();
                engine.find(kind.replacement(), NumberHint { phone, ssn }, &mut room);
                assert!(room.found.is_empty(), "{kind:?}");
            }
        }
    }

    #[test]
    fn what_was_added_is_looked_for_in_words_that_take_a_place_as_well() {
        let additions = RedactionAdditions { patterns: vec!["EMAIL_[A-Z]+".into()], ..RedactionAdditions::default() };
        let engine = RedactionEngine::new(&additions).unwrap();
        assert_eq!(engine.text("ada@example.org"), "[[REDACTED]]");
    }
}
