//! One configuration key: its name, what values it takes, its default, and its documentation.
//!
//! Nothing of it is written down here. A key is a field of its section's type, and what is known of it is read from the JSON Schema
//! of that type ([`schema`](super::schema)), so that the loader, `gantry doctor`, the reference page and the schema for editors
//! cannot say different things.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::schema;
use super::value::KeyValue;

/// One key.
#[derive(Debug)]
pub(crate) struct ConfigKey {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: KeyKind,
    /// `None` means unset.
    pub(crate) default: Option<Value>,
    /// What holds when the key is unset.
    pub(crate) unset: String,
    /// For people, with the unit.
    pub(crate) doc: String,
    pub(crate) since: String,
    /// Everything else that the field's type says.
    pub(super) schema: Value,
}

/// What values a key takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Text,
    /// Text that is never shown.
    Secret,
    Flag,
    Integer(RangeInclusive<u64>),
    Choice(Vec<String>),
    /// Several texts; in the environment separated by commas.
    List,
    /// Lists by name: in the file a table of tables with one list of this name each, or a table of lists; in the environment
    /// `name=one|two,other=three`.
    Named(String),
    /// Any number of tables of the same shape; in the environment one JSON array.
    Tables,
}

impl ConfigKey {
    /// The key that a field's schema describes. `None` for a type that is no key's.
    pub(super) fn of(section: &'static str, name: &'static str, since: &str, schema: &Value) -> Option<Self> {
        let kind = KeyKind::of(schema)?;
        let text = |member: &str| schema.get(member).and_then(Value::as_str);
        let default = match (schema.get("default"), &kind) {
            (None | Some(Value::Null), KeyKind::Tables) => Some(Value::Array(Vec::new())),
            (found, _) => found.filter(|default| !default.is_null()).cloned(),
        };
        Some(Self {
            section,
            name,
            kind,
            default,
            unset: text(schema::UNSET).unwrap_or_default().to_owned(),
            doc: text("description").unwrap_or_default().to_owned(),
            since: text(schema::SINCE).unwrap_or(since).to_owned(),
            schema: schema.clone(),
        })
    }

    /// The variable that overrides the key.
    pub(crate) fn variable(&self) -> String {
        format!("GANTRY_{}__{}", self.section.to_uppercase(), self.name.to_uppercase())
    }

    /// The key as people write it in messages.
    pub(crate) fn title(&self) -> String {
        title(self.section, self.name)
    }

    /// From the environment.
    pub(crate) fn parse(&self, text: &str) -> Result<KeyValue, String> {
        self.kind.parse(text).map(|value| self.value(value))
    }

    /// From a value of the file, or of a flag.
    pub(super) fn read(&self, value: &Value) -> Result<KeyValue, String> {
        self.kind.read(value).map(|value| self.value(value))
    }

    pub(super) fn value(&self, value: Value) -> KeyValue {
        KeyValue::new(value, self.kind == KeyKind::Secret)
    }
}

/// A key as people write it in messages.
pub(crate) fn title(section: &str, name: &str) -> String {
    format!("[{section}] {name}")
}

impl KeyKind {
    /// What a schema takes, if it is one that a key, or a member of a table, may have.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let text = |member: &str| schema.get(member).and_then(Value::as_str);
        if let Some(member) = text(schema::NAMED) {
            return Some(Self::Named(member.to_owned()));
        }
        let choices = schema::choices(schema);
        if !choices.is_empty() {
            return Some(Self::Choice(choices));
        }
        let bound = |member: &str| schema.get(member).and_then(Value::as_u64);
        match text("type")? {
            "string" if schema.get("writeOnly") == Some(&Value::Bool(true)) => Some(Self::Secret),
            "string" => Some(Self::Text),
            "boolean" => Some(Self::Flag),
            "integer" => Some(Self::Integer(bound("minimum").unwrap_or(0)..=bound("maximum").unwrap_or(u64::MAX))),
            "array" if schema.get(schema::TABLES).is_some() => Some(Self::Tables),
            "array" => Some(Self::List),
            _ => None,
        }
    }

    /// From text, as the environment has it.
    fn parse(&self, text: &str) -> Result<Value, String> {
        let items = |separator| text.split(separator).map(str::trim).filter(|part: &&str| !part.is_empty());
        let found = match self {
            Self::Text | Self::Secret => Some(Value::from(text)),
            Self::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(Value::Bool(true)),
                "false" | "0" | "no" | "off" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Integer(range) => text.parse().ok().filter(|number| range.contains(number)).map(Value::from),
            Self::Choice(words) => words.iter().any(|word| word == text).then(|| Value::from(text)),
            Self::List => Some(items(',').collect()),
            Self::Named(_) => named_lists(items(',')),
            Self::Tables if text.is_empty() => Some(Value::Array(Vec::new())),
            Self::Tables => serde_json::from_str(text).ok().filter(are_tables),
        };
        found.ok_or_else(|| self.refusal())
    }

    /// From a value of the file. What is taken is as sections read it.
    pub(super) fn read(&self, value: &Value) -> Result<Value, String> {
        let taken = match (self, value) {
            (Self::Text | Self::Secret | Self::Choice(_), Value::String(text)) => return self.parse(text),
            (Self::Integer(_), Value::Number(number)) => return self.parse(&number.to_string()),
            (Self::Named(member), Value::Object(sets)) => {
                let list = |(name, set): (&String, &Value)| Some((name.clone(), named_list(set, member)?.clone()));
                sets.iter().map(list).collect::<Option<Map<_, _>>>().map(Value::Object)
            }
            (Self::Flag, Value::Bool(_)) => Some(value.clone()),
            (Self::List, Value::Array(items)) => items.iter().all(Value::is_string).then(|| value.clone()),
            (Self::Tables, _) => are_tables(value).then(|| value.clone()),
            _ => None,
        };
        taken.ok_or_else(|| self.refusal())
    }

    fn refusal(&self) -> String {
        format!("must be {self}")
    }
}

fn are_tables(value: &Value) -> bool {
    value.as_array().is_some_and(|tables| tables.iter().all(Value::is_object))
}

/// The lists of `name=one|two` texts. A name that stands twice has the items of both.
fn named_lists<'a>(parts: impl Iterator<Item = &'a str>) -> Option<Value> {
    let mut lists = Map::new();
    for part in parts {
        let (name, items) = part.split_once('=')?;
        let items = items.split('|').map(str::trim).filter(|item| !item.is_empty()).map(Value::from);
        let list = lists.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut()?.extend(items);
    }
    Some(Value::Object(lists))
}

/// A list of texts, or the one of a table that has nothing but it.
fn named_list<'a>(set: &'a Value, member: &str) -> Option<&'a Value> {
    let list = match set {
        Value::Object(table) if table.len() == 1 => table.get(member)?,
        list => list,
    };
    list.as_array().filter(|items| items.iter().all(Value::is_string)).map(|_| list)
}

impl fmt::Display for KeyKind {
    /// Completes "must be …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text | Self::Secret => f.write_str("text"),
            Self::Flag => f.write_str("true or false"),
            Self::Integer(range) => write!(f, "a whole number from {} to {}", range.start(), range.end()),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::List => f.write_str("a list of texts"),
            Self::Named(member) => write!(f, "tables by name, each with `{member} = […]`"),
            Self::Tables => f.write_str("any number of tables; in the environment a JSON array of objects"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_taken_only_in_the_shape_the_key_has() {
        let words = || KeyKind::Choice(vec!["human".into(), "json".into()]);
        let named = || KeyKind::Named("tools".into());
        let cases = [
            (KeyKind::Flag, "true", Some(json!(true))),
            (KeyKind::Flag, "off", Some(json!(false))),
            (KeyKind::Flag, "maybe", None),
            (KeyKind::Integer(1..=10), "10", Some(json!(10))),
            (KeyKind::Integer(1..=10), "11", None),
            (KeyKind::Integer(1..=10), "-1", None),
            (KeyKind::Integer(1..=10), "1.5", None),
            (words(), "json", Some(json!("json"))),
            (words(), "JSON5", None),
            (KeyKind::List, "a, b,,", Some(json!(["a", "b"]))),
            (named(), "a=x|y, b=, a=z", Some(json!({ "a": ["x", "y", "z"], "b": [] }))),
            (named(), "a", None),
            (KeyKind::Tables, "", Some(json!([]))),
            (KeyKind::Tables, r#"[{"a": 1}, {}]"#, Some(json!([{ "a": 1 }, {}]))),
            (KeyKind::Tables, r#"[1]"#, None),
        ];
        for (kind, text, expected) in cases {
            assert_eq!(kind.parse(text).ok(), expected, "{text} for {kind}");
        }
    }

    #[test]
    fn the_file_must_use_the_right_toml_type() {
        let named = KeyKind::Named("tools".into());
        for (kind, value) in [
            (&KeyKind::Integer(0..=9), json!("3")),
            (&KeyKind::Integer(0..=9), json!(3.0)),
            (&KeyKind::Integer(0..=9), json!(-3)),
            (&KeyKind::Flag, json!(1)),
            (&KeyKind::List, json!("a")),
            (&KeyKind::List, json!([1])),
            (&KeyKind::Tables, json!([1])),
            (&named, json!({ "a": { "tools": [], "more": 1 } })),
            (&named, json!({ "a": [1] })),
        ] {
            assert_eq!(kind.read(&value), Err(format!("must be {kind}")), "{value}");
        }
        let sets = json!({ "a": { "tools": ["x"] }, "b": [] });
        assert_eq!(named.read(&sets), Ok(json!({ "a": ["x"], "b": [] })));
    }
}
