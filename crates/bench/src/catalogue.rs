//! A catalogue of many tools with texts as people write them, and questions as people ask them.
//!
//! The texts are those of the public tool search sets under `testdata/`. When more tools are wanted than the sets have,
//! descriptions are joined in pairs: new documents with the word statistics of the old ones, the same in every run.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::repository;

const SETS: [&str; 2] = ["testdata/tool_search/metatool_dev.jsonl", "testdata/tool_search/sealtools_dev.jsonl"];
/// Longest description a manifest may have.
const DESCRIPTION_CHARS_MAX: usize = 2000;

/// Texts and questions.
pub(super) struct Catalogue {
    tools: Vec<Text>,
    questions: Vec<String>,
}

struct Text {
    name: String,
    description: String,
    parameters: Map<String, Value>,
}

impl Catalogue {
    /// Reads the sets.
    pub(super) fn read() -> Result<Self> {
        let mut catalogue = Self { tools: Vec::new(), questions: Vec::new() };
        for path in SETS {
            let lines = repository::read(path)?;
            for line in lines.lines() {
                catalogue.take(
                    &serde_json::from_str(line).with_context(|| format!("`{path}` has a line that is not JSON"))?,
                );
            }
        }
        anyhow::ensure!(
            !catalogue.tools.is_empty() && !catalogue.questions.is_empty(),
            "the tool search sets are empty"
        );
        Ok(catalogue)
    }

    fn take(&mut self, line: &Value) {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(tool) = line.get("tool") {
            let parameters =
                tool.pointer("/parameters/properties").and_then(Value::as_object).cloned().unwrap_or_default();
            self.tools.push(Text { name: text(tool, "name"), description: text(tool, "description"), parameters });
        }
        if let Some(question) = line.get("query") {
            self.questions.push(text(question, "query"));
        }
    }

    /// The manifest of tool number `number`, the same in every run.
    pub(super) fn manifest(&self, number: usize) -> Option<Value> {
        let (pass, place) = (number / self.tools.len(), number % self.tools.len());
        let text = self.tools.get(place)?;
        let mut description = text.description.clone();
        if pass > 0 {
            let other = self.tools.get((place * 31 + pass * 977) % self.tools.len())?;
            description = format!("{description} {}", other.description);
        }
        description = format!("{description:<10}").chars().take(DESCRIPTION_CHARS_MAX).collect();
        let id = snake(&text.name);
        let properties: Map<String, Value> = text
            .parameters
            .iter()
            .map(|(name, schema)| {
                let about = schema.get("description").and_then(Value::as_str).unwrap_or("no description");
                (name.clone(), json!({ "type": "string", "description": about }))
            })
            .collect();
        Some(json!({
            "tool_id": format!("{}_{number}", id.chars().take(60).collect::<String>()),
            "namespace": "bench",
            "version": "1.0.0",
            "name": format!("{:<3}", text.name).chars().take(255).collect::<String>(),
            "description": description,
            "provider": "Bench",
            "protocol": "native",
            "side_effect_policy": "pure",
            "timeout_class": "standard",
            "tags": [format!("set_{}", place % 20)],
            "categories": [format!("category_{}", place % 12)],
            "parameters": { "type": "object", "properties": properties },
            "result_schema": { "type": "object", "additionalProperties": true },
        }))
    }

    /// Questions for search, the same in every run.
    pub(super) fn questions(&self, count: usize) -> impl Iterator<Item = &str> {
        let step = (self.questions.len() / count.max(1)).max(1);
        self.questions.iter().step_by(step).map(String::as_str)
    }
}

/// A name as a tool id: lower case, words joined by underscores, beginning with a letter.
fn snake(name: &str) -> String {
    let mut id = String::from("t");
    for character in name.chars() {
        match character {
            'A'..='Z' => {
                id.push('_');
                id.push(character.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' => id.push(character),
            _ => id.push('_'),
        }
    }
    id
}

/// A text as the value of a query parameter.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_admissible_and_no_two_have_one_id() {
        let catalogue = Catalogue::read().unwrap();
        let mut ids = std::collections::HashSet::new();
        // Every text once, and some of the second and third pass.
        for number in (0..catalogue.tools.len()).step_by(7).chain([catalogue.tools.len(), 9_999]) {
            let value = catalogue.manifest(number).unwrap();
            let manifest =
                contract::manifest::Manifest::from_value(value).unwrap_or_else(|error| panic!("{number}: {error}"));
            assert!(ids.insert(manifest.tool_id.clone()), "{number}");
        }
        assert!(catalogue.questions(200).count() >= 200);
    }

    #[test]
    fn names_become_ids_and_texts_become_query_values() {
        assert_eq!(snake("analyzeEvidence"), "tanalyze_evidence");
        assert_eq!(snake("3D-Print"), "t3_d__print");
        assert_eq!(percent_encoded("a b&ü"), "a%20b%26%C3%BC");
    }
}
