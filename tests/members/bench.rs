//! The members of a published schema, and a server on which each of them is tried: a bench of tools that differ in one member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::{Value, json};

use super::TOOL;
use crate::support::{Answer, Gantry, manifest};

/// The members of a schema, by their names from the root: `retry_policy.max_attempts`, `execution.process.command`.
pub(super) fn members(schema: &Value, definitions: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(schema, definitions, "", &mut Vec::new(), &mut found);
    found
}

fn collect<'s>(
    schema: &'s Value,
    definitions: &'s Value,
    place: &str,
    within: &mut Vec<&'s str>,
    found: &mut BTreeSet<String>,
) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next())
        && !within.contains(&name)
    {
        within.push(name);
        collect(&definitions[name], definitions, place, within, found);
        within.pop();
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let path = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        collect(member, definitions, &path, within, found);
        found.insert(path);
    }
    collect_if_there(&schema["items"], definitions, place, within, found);
    for union in ["anyOf", "oneOf", "allOf"] {
        for branch in schema[union].as_array().into_iter().flatten() {
            // Each way of running has members of its own.
            let kind = branch["properties"]["type"]["const"].as_str();
            let place = kind.map_or_else(|| place.to_owned(), |kind| format!("{place}.{kind}"));
            collect(branch, definitions, &place, within, found);
        }
    }
}

fn collect_if_there<'s>(
    schema: &'s Value,
    definitions: &'s Value,
    place: &str,
    within: &mut Vec<&'s str>,
    found: &mut BTreeSet<String>,
) {
    if schema.is_object() {
        collect(schema, definitions, place, within, found);
    }
}

// ------------------------------------------------------------------------------------------------------------ trying

/// A server, and a counter that names tools.
pub(super) struct Bench {
    pub(super) gantry: Gantry,
    /// A token without any scope.
    pub(super) narrow: String,
    tools: AtomicUsize,
}

impl Bench {
    pub(super) async fn new() -> Self {
        let gantry = Gantry::start().await;
        let narrow = gantry.mint(json!({ "scopes": [] })).await;
        Self { gantry, narrow, tools: AtomicUsize::new(0) }
    }

    /// A manifest under a name of its own.
    pub(super) fn manifest(&self, change: &Value) -> Value {
        let number = self.tools.fetch_add(1, Ordering::Relaxed);
        let mut whole = manifest(json!({ "tool_id": format!("tool_{number}") }));
        for (member, value) in change.as_object().unwrap() {
            whole[member] = value.clone();
        }
        whole
    }

    /// Publishes a tool with this change; answers its id.
    pub(super) async fn published(&self, change: &Value) -> String {
        let whole = self.manifest(change);
        let answer = self.gantry.register(whole).await;
        assert_eq!(answer.status, 201, "{change}: {}", answer.text);
        answer.body["tool_id"].as_str().unwrap().to_owned()
    }

    /// The manifest with this change is refused, and the reason names the member.
    pub(super) async fn refused(&self, change: Value, path: &str) {
        let answer = self.gantry.register(self.manifest(&change)).await;
        assert_eq!(answer.refusal(), (422, "E3105"), "{change}");
        assert!(answer.text.contains(path), "{change}: {}", answer.text);
    }

    /// What is only for people is shown to them as it was given.
    pub(super) async fn shown(&self, change: Value) {
        let id = self.published(&change).await;
        let detail = self.gantry.get(&format!("/v1/tools/{id}")).await;
        for (member, value) in change.as_object().unwrap() {
            assert_eq!(detail.body["manifest"][member], *value, "{}", detail.text);
        }
    }

    pub(super) async fn call(&self, id: &str, token: &str, more: &Value) -> Answer {
        let mut request = json!({ "tool_id": id, "parameters": { "expression": "1+1" } });
        for (member, value) in more.as_object().unwrap() {
            request[member] = value.clone();
        }
        self.gantry.request(Method::POST, TOOL, Some(token), Some(request)).await
    }

    /// The same call of two tools has different ends; `at` points to what is compared.
    pub(super) async fn differs(&self, one: Value, other: Value, request: Value, at: &str) {
        self.differs_for(&self.gantry.token, (one, other), request, at).await;
    }

    pub(super) async fn differs_for(&self, token: &str, (one, other): (Value, Value), request: Value, at: &str) {
        let mut ends = Vec::new();
        for change in [&one, &other] {
            let id = self.published(change).await;
            let answer = self.call(&id, token, &request).await;
            let part = answer.body.pointer(at).cloned().unwrap_or_default();
            ends.push(if at == "/status" { json!([answer.status, answer.code()]) } else { part });
        }
        assert_ne!(ends[0], ends[1], "{one} and {other} end the same");
    }

    /// Another test shows what this member does. It must be there, and the member's name must be in it, or in something of its
    /// file that it names.
    pub(super) fn shown_by(member: &str, file: &str, test: &str) {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let items = items(&text);
        let body = items.get(test).unwrap_or_else(|| panic!("{file} has no test {test}"));
        let name = member.rsplit('.').next().unwrap();
        let named = |body: &str| words(body).any(|word| word == name);
        let touched = named(body) || words(body).filter_map(|word| items.get(word)).any(|body| named(body));
        assert!(touched, "{test} of {file} does nothing with `{member}`");
    }
}

/// The functions and constants of a source file, by name.
fn items(source: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let (Some((_, rest)), bare) = (source.split_at_checked(start), line.trim_start()) else { continue };
        let indent = line.strip_suffix(bare).unwrap_or_default();
        start += line.len();
        let plain = bare.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ").trim_start_matches("pub ");
        let plain = plain.trim_start_matches("async ");
        let (named, end) = match (plain.strip_prefix("fn "), plain.strip_prefix("const ")) {
            (Some(named), _) => (named, format!("\n{indent}}}\n")),
            (None, Some(named)) => (named, ";\n".to_owned()),
            (None, None) => continue,
        };
        if let (Some(name), Some((body, _))) = (words(named).next(), rest.split_once(&end)) {
            found.insert(name, body);
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn a_citation_is_of_a_test_that_touches_its_member() {
    let source = "const SENT: &str = \"max_age\";\n\nfn helper() {\n    shared();\n}\n\nasync fn shows() {\n    helper(SENT);\n}\n";
    let items = items(source);
    assert_eq!(items.keys().copied().collect::<Vec<_>>(), ["SENT", "helper", "shows"]);
    assert!(words(items["SENT"]).any(|word| word == "max_age") && items["helper"].contains("shared"));
    assert!(!items["shows"].contains("shared"));
}
