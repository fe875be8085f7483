//! Real definitions of tools, read from public sets: lines of JSON, and the operations of OpenAPI documents.
//!
//! Of an operation is taken what an importer would take for a definition: its id, its description, its parameters, and the
//! JSON body with references written out. This is enough to count; it is not the importer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use contract::ids::ToolId;
use serde_json::{Map, Value, json};

/// References within references that are written out.
const REFERENCES_MAX: usize = 4;
/// Longest name; models are not given longer ones.
const NAME_CHARS_MAX: usize = 60;
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "patch", "head", "options"];

/// One tool as its author wrote it.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Value,
}

impl Definition {
    /// A tool whose name is made one that Gantry takes.
    pub(super) fn new(namespace: &str, name: &str, description: &str, parameters: Option<Value>) -> Self {
        let parameters = parameters.unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
        Self { namespace: snake(namespace), name: snake(name), description: description.to_owned(), parameters }
    }

    pub(super) fn id(&self) -> Result<ToolId> {
        ToolId::new(Some(&self.namespace), &self.name).context("a name that is no tool id")
    }

    /// As `tools/list` has it.
    pub(super) fn listed(&self) -> Value {
        let name = format!("{}__{}", self.namespace, self.name);
        json!({ "name": name, "description": self.description, "inputSchema": self.parameters })
    }

    /// The same under another name.
    pub(super) fn again(&self) -> Self {
        Self { name: format!("{}_again", self.name), ..self.clone() }
    }
}

/// All definitions below a folder, each name once, in the order of files and lines.
pub(super) fn read(data: &Path) -> Result<Vec<Definition>> {
    let mut found = Vec::new();
    for file in files(&data.join("tool_search"), "jsonl")? {
        found.extend(lines(&file)?);
    }
    for file in files(&data.join("openapi"), "yaml")? {
        found.extend(operations(&file)?);
    }
    let mut seen = BTreeSet::new();
    found.retain(|tool: &Definition| seen.insert((tool.namespace.clone(), tool.name.clone())));
    Ok(found)
}

/// Files of a folder that end so, by name; none if there is no such folder.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).context("the folder cannot be listed")?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    paths.sort();
    Ok(paths)
}

fn stem(file: &Path) -> String {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name.trim_end_matches("_dev").to_owned()
}

fn lines(file: &Path) -> Result<Vec<Definition>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("`{}` cannot be read", file.display()))?;
    let namespace = stem(file);
    let mut found = Vec::new();
    for line in text.lines() {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("`{}` has a bad line", file.display()))?;
        let Some(tool) = value.get("tool") else { continue };
        let member = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default();
        found.push(Definition::new(&namespace, member("name"), member("description"), tool.get("parameters").cloned()));
    }
    Ok(found)
}

fn operations(file: &Path) -> Result<Vec<Definition>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("`{}` cannot be read", file.display()))?;
    let yaml: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(&text).with_context(|| format!("`{}` is no YAML", file.display()))?;
    let document = json_of(&yaml);
    let namespace = stem(file);
    let mut found = Vec::new();
    for (path, item) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            let member = |name: &str| operation.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            let unnamed = || format!("{method} {path}");
            let name = member("operationId").map_or_else(unnamed, str::to_owned);
            let description = member("description").or_else(|| member("summary")).unwrap_or(path);
            let parameters = Some(parameters(&document, item, operation));
            found.push(Definition::new(&namespace, &name, description, parameters));
        }
    }
    Ok(found)
}

/// One schema of everything an operation takes.
fn parameters(document: &Value, item: &Value, operation: &Value) -> Value {
    let mut members = Map::new();
    let mut required = Vec::new();
    let lists = [item, operation].into_iter().filter_map(|holder| holder.get("parameters")?.as_array());
    for parameter in lists.flatten() {
        let parameter = written_out(document, parameter, REFERENCES_MAX);
        let Some(name) = parameter.get("name").and_then(Value::as_str) else { continue };
        let mut schema = parameter.get("schema").cloned().unwrap_or_else(|| json!({}));
        if let (Some(schema), Some(about)) = (schema.as_object_mut(), parameter.get("description")) {
            schema.insert("description".to_owned(), about.clone());
        }
        if parameter.get("required").and_then(Value::as_bool) == Some(true) {
            required.push(Value::from(name));
        }
        members.insert(name.to_owned(), schema);
    }
    let body = operation.get("requestBody").map(|body| written_out(document, body, REFERENCES_MAX));
    let content = body.as_ref().and_then(|body| body.get("content")?.get("application/json")?.get("schema"));
    if let Some(schema) = content {
        members.insert("body".to_owned(), schema.clone());
    }
    json!({ "type": "object", "properties": members, "required": required })
}

/// The value with references into the document replaced by what they refer to, so many deep.
fn written_out(document: &Value, value: &Value, references: usize) -> Value {
    match value {
        Value::Object(members) => {
            let target = members.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
            match target {
                Some(pointer) if references > 0 => document
                    .pointer(pointer)
                    .map_or_else(|| json!({}), |target| written_out(document, target, references - 1)),
                Some(_) => json!({ "type": "object" }),
                None => members
                    .iter()
                    .map(|(name, member)| (name.clone(), written_out(document, member, references)))
                    .collect::<Map<String, Value>>()
                    .into(),
            }
        }
        Value::Array(items) => items.iter().map(|item| written_out(document, item, references)).collect(),
        plain => plain.clone(),
    }
}

/// YAML as JSON; names that are numbers become texts, and what JSON does not know is null.
fn json_of(yaml: &serde_yaml_ng::Value) -> Value {
    use serde_yaml_ng::Value as Yaml;
    match yaml {
        Yaml::Mapping(members) => {
            let name = |key: &Yaml| key.as_str().map_or_else(|| json_of(key).to_string(), str::to_owned);
            members.iter().map(|(key, value)| (name(key), json_of(value))).collect::<Map<String, Value>>().into()
        }
        Yaml::Sequence(items) => items.iter().map(json_of).collect(),
        Yaml::Tagged(tagged) => json_of(&tagged.value),
        plain => serde_json::to_value(plain).unwrap_or(Value::Null),
    }
}

/// A name of small letters, digits and `_`, as tool ids have it.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut after_small = false;
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            if c.is_ascii_uppercase() && after_small {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
            after_small = !c.is_ascii_uppercase();
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
            after_small = false;
        }
        if out.len() >= NAME_CHARS_MAX {
            break;
        }
    }
    let mut out = out.trim_end_matches('_').to_owned();
    if !out.starts_with(|c: char| c.is_ascii_lowercase()) {
        out.insert_str(0, "t_");
    }
    while out.len() < 3 {
        out.push('x');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_tool_ids() {
        for (name, expected) in [
            ("analyzeEvidence", "analyze_evidence"),
            ("AI2sql", "ai2sql"),
            ("GET /v1/pages/{id}", "get_v1_pages_id"),
            ("2fa", "t_2fa"),
            ("ä", "t_x"),
            ("", "t_x"),
        ] {
            assert_eq!(snake(name), expected);
            assert!(ToolId::new(None, &snake(name)).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_operation_becomes_one_schema_with_its_references_written_out() {
        let document = json!({ "components": { "schemas": { "Pet": { "type": "object", "properties": { "id": { "type": "integer" } } } } } });
        let operation = json!({
            "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" }, "description": "Which." }],
            "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Pet" } } } },
        });
        let expected = json!({ "type": "object", "required": ["id"], "properties": {
            "id": { "type": "integer", "description": "Which." },
            "body": { "type": "object", "properties": { "id": { "type": "integer" } } },
        } });
        assert_eq!(parameters(&document, &json!({}), &operation), expected);
    }
}
