//! How much is said of a tool: a line of the index, a reference, the top level of its schema, or all of it.
//!
//! | tier | detail | what |
//! |---|---|---|
//! | 0 | line | `id — sentence [mutation class]` (LAZY-001) |
//! | – | [`DetailLevel::Minimal`] | the sentence, and where the rest is (LAZY-003) |
//! | 2 | [`DetailLevel::TopLevel`] | the parameters without what is inside them (LAZY-003) |
//! | 1 | [`DetailLevel::Standard`] | the whole description and schema (LAZY-002) |
//!
//! The fields of [`ToolEntry`] are in the order in which a model reads best: what it is, what it does, how it is called.

use contract::ids::ToolId;
use contract::manifest::MutationClass;
use contract::version::Version;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::affordance::Affordance;
use crate::meta_tools::DESCRIBE_TOOL;
use crate::sentence::first_sentence;
use crate::top_level::top_level;

/// Longest sentence of a line.
const LINE_SENTENCE_CHARS_MAX: usize = 60;
/// Longest sentence of a reference and of a top level.
const SENTENCE_CHARS_MAX: usize = 160;

/// How much of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DetailLevel {
    /// A reference.
    Minimal,
    /// Without what is nested.
    TopLevel,
    /// Everything.
    #[default]
    Standard,
}

/// What the reader can do to learn more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NavigationHints {
    /// It has the meta-tools.
    #[default]
    MetaTools,
    /// It has the REST door.
    Rest,
}

/// A tool as it is shown to a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolEntry {
    #[serde(serialize_with = "id_text")]
    pub tool_id: ToolId,
    /// The name to call it by, if that is not the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(serialize_with = "version_text")]
    pub version: Version,
    pub description: String,
    pub mutation_class: MutationClass,
    pub detail: DetailLevel,
    /// JSON Schema; absent from a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Where the rest is, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
}

impl ToolEntry {
    /// The tool in this detail; `None` if that would be the same as [`DetailLevel::Standard`].
    pub(crate) fn of(tool: &Affordance<'_>, detail: DetailLevel, wayfinding: NavigationHints) -> Option<Self> {
        let (description, parameters) = match detail {
            DetailLevel::Minimal => (first_sentence(tool.description, SENTENCE_CHARS_MAX), None),
            DetailLevel::TopLevel => {
                (first_sentence(tool.description, SENTENCE_CHARS_MAX), Some(top_level(tool.parameters)?))
            }
            DetailLevel::Standard => (tool.description.to_owned(), Some(tool.parameters.clone())),
        };
        Some(Self {
            tool_id: tool.tool_id.clone(),
            name: tool.name.map(str::to_owned),
            version: tool.version.clone(),
            description,
            mutation_class: tool.mutation_class,
            detail,
            parameters,
            more: (detail != DetailLevel::Standard).then(|| wayfinding.to_definition(tool)),
        })
    }
}

impl NavigationHints {
    fn to_definition(self, tool: &Affordance<'_>) -> String {
        match self {
            Self::MetaTools => format!("whole schema: {DESCRIBE_TOOL}"),
            Self::Rest => format!("whole schema: GET /v1/tools/{}/versions/{}", tool.tool_id, tool.version),
        }
    }
}

/// A line of the index; without the sentence it is the shortest thing that can be said of a tool.
pub(crate) fn line(tool: &Affordance<'_>, with_sentence: bool) -> String {
    let class = mutation_word(tool.mutation_class);
    let sentence =
        if with_sentence { first_sentence(tool.description, LINE_SENTENCE_CHARS_MAX) } else { String::new() };
    if sentence.is_empty() {
        return format!("{} [{class}]", tool.tool_id);
    }
    format!("{} — {sentence} [{class}]", tool.tool_id)
}

/// The word on the wire.
fn mutation_word(class: MutationClass) -> &'static str {
    match class {
        MutationClass::ReadOnly => "read-only",
        MutationClass::WriteReversible => "write-reversible",
        MutationClass::WriteIrreversible => "write-irreversible",
    }
}

fn id_text<S: Serializer>(id: &ToolId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_str())
}

fn version_text<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_detail_says_less_than_the_one_above_it() {
        let (tool_id, version) = ("crm.create_note".parse().unwrap(), "1.2.0".parse().unwrap());
        let parameters = json!({ "type": "object", "required": ["note"], "properties": {
            "note": { "type": "object", "description": "What to write.", "properties": { "text": { "type": "string" } } },
        } });
        let tool = Affordance {
            name: None,
            tool_id: &tool_id,
            version: &version,
            description: "Writes a note. It stays until somebody deletes it.",
            mutation_class: MutationClass::WriteReversible,
            parameters: &parameters,
            utility: 1.0,
        };
        let entry = |detail| serde_json::to_value(ToolEntry::of(&tool, detail, NavigationHints::Rest)).unwrap();
        let more = "whole schema: GET /v1/tools/crm.create_note/versions/1.2.0";
        assert_eq!(
            entry(DetailLevel::Minimal),
            json!({ "tool_id": "crm.create_note", "version": "1.2.0", "description": "Writes a note",
                "mutation_class": "write-reversible", "detail": "minimal", "more": more })
        );
        let top = entry(DetailLevel::TopLevel);
        assert_eq!(
            top["parameters"]["properties"]["note"],
            json!({ "type": "object", "description": "What to write.", "x-nested": true })
        );
        assert_eq!((&top["more"], &top["description"]), (&json!(more), &json!("Writes a note")));
        let standard = entry(DetailLevel::Standard);
        assert_eq!((&standard["parameters"], &standard["description"]), (&parameters, &json!(tool.description)));
        assert!(standard.get("more").is_none());
        assert_eq!(line(&tool, true), "crm.create_note — Writes a note [write-reversible]");
        assert_eq!(line(&tool, false), "crm.create_note [write-reversible]");
    }
}
