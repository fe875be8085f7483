//! Keys that are lists by name, `[section.key.NAME]`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::schema;

/// Texts by name. In the file each name is a list, or a table that has nothing but the list `tools`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NamedTools(pub(super) BTreeMap<String, Vec<String>>);

/// The member of such a table.
const MEMBER: &str = "tools";

impl JsonSchema for NamedTools {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NamedTools".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let list = json_schema!({ "type": "array", "items": { "type": "string" } });
        let mut schema = json_schema!({
            "type": "object",
            "additionalProperties": {
                "anyOf": [list, { "type": "object", "properties": { MEMBER: list }, "required": [MEMBER], "additionalProperties": false }]
            }
        });
        schema.insert(schema::NAMED.to_owned(), MEMBER.into());
        schema
    }
}
