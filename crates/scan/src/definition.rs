//! A tool definition, the names around it, and the walk over every text in it that a model would read.
//!
//! Models are given the whole schema, so an order can stand in a parameter's name, title, default, enum value or example
//! as well as in the description. A description that is itself JSON is walked too.
//!
//! Invariants: at most [`PLACES_MAX`] texts, [`TOTAL_BYTES_MAX`] bytes and [`DEPTH_MAX`] levels are read of one
//! definition; what was left out is a finding.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::features::ToolPurpose;
use crate::findings::{FindingKind, FindingList, FindingSeverity};
use crate::text::{self, TextSurface};
use crate::words::{KnownNames, identifier_words, sentences};

/// Most texts of one definition that are read.
const PLACES_MAX: usize = 2048;
/// Most bytes of one definition that are read.
const TOTAL_BYTES_MAX: usize = 512 * 1024;
/// Deepest level of a schema that is read.
const DEPTH_MAX: usize = 32;
/// A parameter's name of fewer words is a name, of more a sentence.
const NAME_WORDS_MIN: usize = 4;
/// An enum value, default or example of fewer words is data, of more a sentence.
const VALUE_WORDS_MIN: usize = 3;

/// Characters of a description in which its purpose is looked for.
const PURPOSE_CHARS: usize = 1000;

/// The parts of a tool's definition that a model is given.
#[derive(Debug, Clone, Copy)]
pub struct ScannedDefinition<'a> {
    /// Name of the tool, without its namespace.
    pub name: &'a str,
    /// Title for people.
    pub title: Option<&'a str>,
    /// What the tool says about itself.
    pub description: &'a str,
    /// JSON schema of the parameters.
    pub parameters: &'a Value,
    /// JSON schema of the result.
    pub output_schema: Option<&'a Value>,
    /// Annotations and other members that are shown to a model.
    pub annotations: Option<&'a Value>,
}

/// Names of the tools around the one that is scanned.
#[derive(Debug, Default, Clone)]
pub struct NeighbourNames {
    pub(crate) siblings: BTreeSet<String>,
    pub(crate) foreign: BTreeSet<String>,
}

impl NeighbourNames {
    /// `siblings` are tools of the same server, `foreign` those of all others.
    pub fn new<S: Into<String>, F: Into<String>>(
        siblings: impl IntoIterator<Item = S>,
        foreign: impl IntoIterator<Item = F>,
    ) -> Self {
        Self {
            siblings: siblings.into_iter().map(Into::into).collect(),
            foreign: foreign.into_iter().map(Into::into).collect(),
        }
    }
}

/// Scans every text of a definition.
pub(crate) fn scan(definition: &ScannedDefinition<'_>, neighbours: &NeighbourNames, findings: &mut FindingList) {
    scan_with(definition, &names(definition, neighbours), findings);
}

/// Scans every text of a definition whose names are known.
pub(crate) fn scan_with(definition: &ScannedDefinition<'_>, names: &KnownNames, findings: &mut FindingList) {
    let mut walk = Walk { names, whole: whole_purpose(definition, names), findings, places: 0, bytes: 0, cut: false };
    walk.name(definition.name, "/name");
    if let Some(title) = definition.title {
        walk.text(title, "/title", TextSurface::Prose);
    }
    walk.text(definition.description, "/description", TextSurface::Prose);
    walk.embedded(definition.description, "/description");
    walk.value(definition.parameters, "/parameters", 0);
    if let Some(schema) = definition.output_schema {
        walk.value(schema, "/outputSchema", 0);
    }
    if let Some(annotations) = definition.annotations {
        walk.value(annotations, "/annotations", 0);
    }
    if walk.cut {
        findings.add(FindingKind::Oversized, FindingSeverity::Medium, "", "more text than is read", definition.name);
    }
}

/// The names with a meaning for a definition's texts, and what the tool is about.
pub(crate) fn names(definition: &ScannedDefinition<'_>, neighbours: &NeighbourNames) -> KnownNames {
    let properties = definition.parameters.get("properties").and_then(Value::as_object);
    let mut purpose = ToolPurpose::default();
    let named = sentences(&identifier_words(definition.name).join(" "), &KnownNames::default(), false);
    named.iter().for_each(|sentence| purpose.learn(sentence));
    // The first of several sentences says what a tool does; a lone one may be all there is to judge.
    let described = sentences(bounded(definition.description), &KnownNames::default(), false);
    if let [first, _, ..] = described.as_slice() {
        purpose.learn(first);
    }
    KnownNames {
        own: definition.name.to_owned(),
        parameters: properties.map(|map| map.keys().cloned().collect()).unwrap_or_default(),
        siblings: neighbours.siblings.clone(),
        foreign: neighbours.foreign.iter().filter(|name| !neighbours.siblings.contains(*name)).cloned().collect(),
        purpose,
        rules_only: false,
    }
}

/// What parameters are about: all that the description says, which is judged by itself.
pub(crate) fn whole_purpose(definition: &ScannedDefinition<'_>, names: &KnownNames) -> ToolPurpose {
    let mut purpose = names.purpose.clone();
    let described = sentences(bounded(definition.description), &KnownNames::default(), false);
    described.iter().for_each(|sentence| purpose.learn(sentence));
    purpose
}

/// What one parameter is about: the same, and what its name says.
pub(crate) fn purpose_of(parameter: &str, whole: &ToolPurpose) -> ToolPurpose {
    let mut purpose = whole.clone();
    let named = sentences(&identifier_words(parameter).join(" "), &KnownNames::default(), false);
    named.iter().for_each(|sentence| purpose.learn(sentence));
    purpose
}

/// The beginning of a description, which is enough to know what it is about.
fn bounded(text: &str) -> &str {
    let end = text.char_indices().nth(PURPOSE_CHARS).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

// --- Walk ----------------------------------------------------------------------------------------------------------

struct Walk<'a> {
    names: &'a KnownNames,
    /// What the parameters are about.
    whole: ToolPurpose,
    findings: &'a mut FindingList,
    places: usize,
    bytes: usize,
    /// Something was left out.
    cut: bool,
}

impl Walk<'_> {
    fn text(&mut self, text: &str, place: &str, surface: TextSurface) {
        if self.places >= PLACES_MAX || self.bytes >= TOTAL_BYTES_MAX {
            self.cut = true;
            return;
        }
        self.places += 1;
        self.bytes += text.len();
        if matches!(place, "/name" | "/title" | "/description") {
            text::scan(text, place, surface, self.names, &self.names.purpose, self.findings);
        } else {
            let parameter = place.rsplit('/').nth(1).unwrap_or_default();
            let purpose = purpose_of(parameter, &self.whole);
            text::scan(text, place, surface, self.names, &purpose, self.findings);
        }
    }

    /// A name that is a sentence is read as one.
    fn name(&mut self, name: &str, place: &str) {
        let words = identifier_words(name);
        if words.len() >= NAME_WORDS_MIN || !name.is_ascii() {
            self.text(&words.join(" "), place, TextSurface::Value);
        }
    }

    /// A description that is itself JSON carries texts of its own.
    fn embedded(&mut self, text: &str, place: &str) {
        if !text.trim_start().starts_with(['{', '[']) || text.len() > text::TEXT_BYTES_MAX {
            return;
        }
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            self.value(&value, place, 0);
        }
    }

    fn value(&mut self, value: &Value, place: &str, depth: usize) {
        if depth > DEPTH_MAX {
            self.cut = true;
            return;
        }
        match value {
            Value::String(text) => self.string(text, place),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, &format!("{place}/{index}"), depth + 1);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    let place = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
                    self.name(key, &place);
                    self.value(member, &place, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn string(&mut self, text: &str, place: &str) {
        let prose = place.ends_with("/description") || place.ends_with("/title") || place.ends_with("/$comment");
        if prose {
            self.text(text, place, TextSurface::Prose);
        } else if text.split_whitespace().nth(VALUE_WORDS_MIN - 1).is_some() || !text.is_ascii() || text.len() > 24 {
            self.text(text, place, TextSurface::Value);
        } else {
            self.name(text, place);
        }
    }
}
