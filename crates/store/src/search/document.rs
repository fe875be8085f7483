//! What of a manifest can be found, and which version of a tool stands for it.
//!
//! Five fields, because a word in a name says more than the same word in the description of a parameter. The weights were
//! chosen on two public sets of tools and queries (`cargo xtask search-eval`); the result is flat around them, so they
//! are round numbers.
//!
//! Not here: how the fields are stored (the adapters).

use contract::manifest::{LifecycleState, Manifest};
use contract::version::Version;
use serde_json::Value;

use super::words;

/// Weights of name, labels, description, parameter names and parameter descriptions.
pub(crate) const FIELD_WEIGHTS: [f64; 5] = [4.0, 3.0, 1.5, 0.75, 0.5];
/// Most bytes of text taken from a parameter schema. Schemas may be huge; the first properties say what a tool is about.
const PARAMETER_BYTES_MAX: usize = 16 * 1024;
/// Deepest nesting of parameter schemas that is read.
const PARAMETER_DEPTH_MAX: usize = 6;

/// The terms of one tool, by field. Each field is a text of terms with one space between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolDocument {
    pub(crate) fields: [String; 5],
}

impl ToolDocument {
    /// What can be found of this manifest.
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let mut properties = Properties::default();
        properties.read(&manifest.parameters, 0);
        // The id is most often the name in snake case: a term that both have counts once.
        let name = std::iter::once(manifest.tool_id.as_str())
            .chain([manifest.name.as_str()])
            .chain(manifest.aliases.iter().map(String::as_str));
        let labels = manifest.tags.iter().chain(&manifest.categories).chain(&manifest.namespace).map(String::as_str);
        Self {
            fields: [
                distinct(name),
                distinct(labels),
                words::terms(&manifest.description).join(" "),
                words::terms(&properties.names).join(" "),
                words::terms(&properties.descriptions).join(" "),
            ],
        }
    }

    /// Every term once, in alphabetical order.
    pub(crate) fn vocabulary(&self) -> Vec<&str> {
        let mut terms: Vec<&str> = self.fields.iter().flat_map(|field| field.split(' ')).collect();
        terms.retain(|term| !term.is_empty());
        terms.sort_unstable();
        terms.dedup();
        terms
    }
}

/// May tools be found through a version in this recorded state?
fn is_searchable(state: LifecycleState) -> bool {
    match state {
        LifecycleState::Active | LifecycleState::Deprecated => true,
        LifecycleState::Sunset | LifecycleState::Removed => false,
    }
}

/// The version that stands for its tool: the newest searchable release, or else the newest searchable pre-release,
/// because that is what a caller gets who asks for the tool without a version.
pub(crate) fn newest_searchable(versions: impl IntoIterator<Item = (Version, LifecycleState)>) -> Option<Version> {
    versions
        .into_iter()
        .filter(|(_, state)| is_searchable(*state))
        .map(|(version, _)| version)
        .max_by(|left, right| (!left.is_prerelease(), left).cmp(&(!right.is_prerelease(), right)))
}

// --------------------------------------------------------------------------------------------------- private parts

/// The terms of several texts, each term once, in the order of first occurrence.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut terms: Vec<String> = Vec::new();
    for term in texts.flat_map(words::terms) {
        if !terms.contains(&term) {
            terms.push(term);
        }
    }
    terms.join(" ")
}

/// Names and descriptions of parameters, nested ones included.
#[derive(Debug, Default)]
struct Properties {
    names: String,
    descriptions: String,
}

impl Properties {
    fn read(&mut self, schema: &Value, depth: usize) {
        if depth >= PARAMETER_DEPTH_MAX {
            return;
        }
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if self.names.len() + self.descriptions.len() + name.len() > PARAMETER_BYTES_MAX {
                return;
            }
            self.names.push_str(name);
            self.names.push(' ');
            if let Some(text) = property.get("description").and_then(Value::as_str) {
                let room = PARAMETER_BYTES_MAX.saturating_sub(self.names.len() + self.descriptions.len());
                self.descriptions.extend(text.chars().take(room));
                self.descriptions.push(' ');
            }
            self.read(property, depth + 1);
        }
        if let Some(items) = schema.get("items") {
            self.read(items, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn the_newest_searchable_release_stands_for_its_tool() {
        use LifecycleState::{Active, Deprecated, Removed, Sunset};
        let cases = [
            (vec![("1.9.0", Active), ("1.10.0", Active)], Some("1.10.0")),
            (vec![("1.0.0", Deprecated), ("2.0.0", Sunset)], Some("1.0.0")),
            (vec![("1.0.0", Active), ("2.0.0-rc.1", Active)], Some("1.0.0")),
            (vec![("1.0.0", Removed), ("2.0.0-rc.1", Active), ("2.0.0-rc.2", Deprecated)], Some("2.0.0-rc.2")),
            (vec![("1.0.0", Removed), ("2.0.0", Sunset)], None),
            (vec![], None),
        ];
        for (versions, expected) in cases {
            let found = newest_searchable(versions.iter().map(|(text, state)| (version(text), *state)));
            assert_eq!(found, expected.map(version), "{versions:?}");
        }
    }

    #[test]
    fn nested_parameters_are_read_up_to_a_limit() {
        let mut properties = Properties::default();
        properties.read(
            &serde_json::json!({ "properties": {
                "rows": { "description": "lines", "items": { "properties": { "cell_text": {} } } },
                "big": { "description": "x".repeat(PARAMETER_BYTES_MAX * 2) },
            }}),
            0,
        );
        assert!(properties.names.contains("cell_text") || properties.names.contains("big"));
        assert!(properties.names.len() + properties.descriptions.len() <= PARAMETER_BYTES_MAX + 64);
    }
}
