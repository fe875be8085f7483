//! JSON Schemas of the configuration: what the types of sections say about their keys, and the schema of the whole file.
//!
//! Beside the words of JSON Schema, fields say with words of ours what holds when a key is unset, since when there is one, and
//! which paths are in it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::SECTIONS;

/// What holds when the key is unset, for people.
pub(super) const UNSET: &str = "x-unset";
/// The version that first had the key; of a section, of all its keys that do not say another one.
pub(super) const SINCE: &str = "x-since";
/// Lists by name: the member of the tables that they may stand in.
pub(super) const NAMED: &str = "x-named";
/// A list of tables.
pub(super) const TABLES: &str = "x-tables";

/// The identity of the published schema.
const SCHEMA_ID: &str = "https://gantry.dev/schemas/gantry.toml.schema.json";

/// The schema of a type, with everything in its place and without null, which TOML does not have.
pub(super) fn of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    settle(&mut schema);
    schema
}

/// The schema of `gantry.toml`, for editors.
pub(crate) fn document() -> Value {
    let sections: Map<String, Value> =
        SECTIONS.iter().map(|section| (section.name.to_owned(), section.schema())).collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA_ID,
        "title": "Gantry configuration",
        "description": "The configuration file of Gantry, `gantry.toml`. Every key is explained in docs/configuration.md.",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

/// The words that a schema lets a text be, in their order; empty if it lets it be more than words.
pub(super) fn choices(schema: &Value) -> Vec<String> {
    let members = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let own = schema.get("const").into_iter().chain(members("enum"));
    let own = own.filter_map(Value::as_str).map(str::to_owned);
    own.chain(members("oneOf").flat_map(choices)).collect()
}

/// Takes null out, and breaks of lines out of descriptions.
fn settle(schema: &mut Value) {
    let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
    match schema {
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(members) => {
            if let Some(Value::Array(kinds)) = members.get("type")
                && let [kind, null] = kinds.as_slice()
                && null == "null"
            {
                let kind = kind.clone();
                members.insert("type".to_owned(), kind);
            }
            if let Some(Value::Array(words)) = members.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            if members.get("default").is_some_and(Value::is_null) {
                members.remove("default");
            }
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            // What may be missing is either null or what it is.
            if let Some(Value::Array(either)) = members.get("anyOf")
                && let [Value::Object(it), null] = either.as_slice()
                && is_null(null)
            {
                let it = it.clone();
                members.remove("anyOf");
                it.into_iter().for_each(|(name, member)| {
                    members.entry(name).or_insert(member);
                });
            }
            // Names of types are nobody's business.
            members.remove("title");
            for (word, member) in members {
                match (word.as_str(), member) {
                    ("properties", Value::Object(known)) => known.values_mut().for_each(settle),
                    ("default", _) => {}
                    (_, member) => settle(member),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use contract::schema::{CompiledSchema, SchemaLimits};

    use super::super::key::{ConfigKey, KeyKind};
    use super::super::settings::{ConfigFile, EffectiveSettings, all_keys};
    use super::*;

    /// `cargo xtask generate` brings it up to date.
    #[test]
    fn the_schema_in_the_repository_is_the_schema_this_build_writes() {
        let published: Value =
            serde_json::from_str(include_str!("../../../../schemas/gantry.toml.schema.json")).unwrap();
        assert_eq!(published, document());
    }

    /// What the loader says of a file that has nothing but this.
    fn loaded(key: &ConfigKey, value: &Value) -> Result<(), Vec<String>> {
        let text = toml::to_string(&BTreeMap::from([(key.section, BTreeMap::from([(key.name, value)]))])).unwrap();
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text };
        let gathered = EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new());
        gathered.map(|_| ()).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_the_schema_takes_is_loaded_and_what_it_refuses_is_refused_in_our_words() {
        let schema = CompiledSchema::plain(&document(), &SchemaLimits::default(), &[]).unwrap();
        let fits = |key: &ConfigKey, value: &Value| schema.check(&json!({ key.section: { key.name: value } })).is_ok();
        for key in all_keys() {
            let (taken, refused) = match &key.kind {
                KeyKind::Integer(range) => (
                    vec![json!(range.start()), json!(range.end())],
                    vec![json!(range.end() + 1), json!(-1), json!(1.5), json!("1")],
                ),
                KeyKind::Choice(words) => (words.iter().map(|word| json!(word)).collect(), vec![json!("no word")]),
                KeyKind::Flag => (vec![json!(true)], vec![json!("true"), json!(1)]),
                KeyKind::Text | KeyKind::Secret => (vec![json!("a")], vec![json!(1), json!(["a"])]),
                KeyKind::List => (vec![json!([]), json!(["a", "b"])], vec![json!("a"), json!([1])]),
                KeyKind::Named(member) => (
                    vec![json!({ "a": ["b"] }), json!({ "a": { member: ["b"] } })],
                    vec![json!(["a"]), json!({ "a": { member: ["b"], "c": 1 } })],
                ),
                KeyKind::Tables => (vec![json!([])], vec![json!("a"), json!([1])]),
            };
            for value in taken {
                assert!(fits(key, &value), "{} = {value}", key.title());
                assert_eq!(loaded(key, &value), Ok(()), "{} = {value}", key.title());
            }
            for value in refused {
                assert!(!fits(key, &value), "{} = {value}", key.title());
                let said = format!("gantry.toml {}: must be {}", key.title(), key.kind);
                assert_eq!(loaded(key, &value), Err(vec![said]), "{value}");
            }
        }
        assert!(schema.check(&json!({ "sever": {} })).is_err());
        assert!(schema.check(&json!({ "server": { "lissen": "x" } })).is_err());
        let sink = |sink: Value| schema.check(&json!({ "audit": { "sinks": [sink] } })).is_ok();
        assert!(sink(json!({ "name": "a", "kind": "file", "keep_days": 400 })));
        assert!(!sink(json!({ "name": "a", "kind": "file", "url": "https://a.example" })));
    }
}
