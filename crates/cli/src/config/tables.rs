//! Keys that are any number of tables of the same shape, `[[section.key]]`.
//!
//! A table that cannot be read is told with its number, and the others are read all the same.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::key::KeyKind;
use super::problems::SectionProblems;
use super::schema;

/// The tables of a key, each read or with what is wrong with it.
#[derive(Debug)]
pub(crate) struct ConfigTables<T>(Vec<Result<T, String>>);

impl<T> Default for ConfigTables<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ConfigTables<T> {
    /// What is made of each table, beside its number. Everything wrong is a problem, and a table with one is left out.
    pub(super) fn each<M>(
        self,
        place: &str,
        most: usize,
        problems: &mut SectionProblems<'_>,
        make: impl Fn(T) -> Result<M, String>,
    ) -> Vec<(usize, M)> {
        if self.0.len() > most {
            problems.at_place(place, format!("there are more than {most}"));
        }
        let mut made = Vec::new();
        for (number, table) in (1..).zip(self.0.into_iter().take(most)) {
            match table.and_then(&make) {
                Ok(table) => made.push((number, table)),
                Err(wrong) => problems.at_place(format!("{place} number {number}"), wrong),
            }
        }
        made
    }
}

/// One table. What is wrong with a member is told in the words that are used for keys.
pub(super) fn table<T: JsonSchema + DeserializeOwned>(members: &Value) -> Result<T, String> {
    let schema = schema::of::<T>();
    for (name, member) in members.as_object().into_iter().flatten() {
        let kind = schema.get("properties").and_then(|known| known.get(name)).and_then(KeyKind::of);
        if let Some(Err(wrong)) = kind.map(|kind| kind.read(member)) {
            return Err(format!("`{name}` {wrong}"));
        }
    }
    serde_path_to_error::deserialize(members).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner().to_string();
        match path.as_str() {
            // It names the member itself.
            _ if inner.contains(&format!("`{path}`")) => inner,
            "." => inner,
            _ => format!("`{path}`: {inner}"),
        }
    })
}

impl<'de, T: JsonSchema + DeserializeOwned> Deserialize<'de> for ConfigTables<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tables = Vec::<Value>::deserialize(deserializer)?;
        Ok(Self(tables.iter().map(table).collect()))
    }
}

impl<T: JsonSchema> JsonSchema for ConfigTables<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ConfigTables".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "array", "items": generator.subschema_for::<T>() });
        schema.insert(schema::TABLES.to_owned(), Value::Bool(true));
        schema
    }
}
