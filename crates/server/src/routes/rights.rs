//! How the rights of a token are written in requests: tools, limits on arguments, a budget. For the published schema only;
//! what is read are the types of `policy` themselves.

use contract::version::VersionRange;
use schemars::JsonSchema;
use serde_json::{Number, Value};

/// One entry of `tools`.
#[derive(JsonSchema)]
#[schemars(rename = "ToolGrant")]
#[expect(dead_code, reason = "exists only for its schema")]
pub(super) struct GrantBody {
    /// A tool id, `namespace.*` or `*`.
    tool_id: String,
    /// Absent means every version.
    version_range: Option<VersionRange>,
}

/// One limit on the arguments of calls. Every bound that is there must hold; there must be one.
#[derive(JsonSchema)]
#[schemars(rename = "ArgumentLimit")]
#[expect(dead_code, reason = "exists only for its schema")]
pub(super) struct LimitBody {
    /// Which tools it is about: a tool id, `namespace.*` or `*`.
    tool_id: String,
    /// Where in the parameters, as a JSON pointer: `/amount`. Empty means the parameters as a whole.
    argument: String,
    /// The value is a number of at least this.
    #[schemars(with = "Option<f64>")]
    min: Option<Number>,
    /// The value is a number of at most this.
    #[schemars(with = "Option<f64>")]
    max: Option<Number>,
    /// The value is one of these.
    one_of: Option<Vec<Value>>,
    /// The value is a string of at most this many characters.
    max_length: Option<u64>,
    /// The value is a path or URL at or below this one.
    under: Option<String>,
}

/// How much may be done with a token.
#[derive(JsonSchema)]
#[schemars(rename = "Budget")]
#[expect(dead_code, reason = "exists only for its schema")]
pub(super) struct BudgetBody {
    /// Calls with this token and everything delegated from it; absent means unlimited.
    calls: Option<u64>,
}

#[cfg(test)]
mod tests {
    use policy::{ArgumentLimit, CallBudget, ToolGrant};
    use schemars::SchemaGenerator;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    /// Members of a schema, and of a value with every member that has been read and written again.
    fn members<T: DeserializeOwned + Serialize, S: JsonSchema>(full: Value) -> [Vec<String>; 2] {
        let names = |value: &Value| -> Vec<String> {
            let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        let read: T = serde_json::from_value(full).unwrap();
        let schema = SchemaGenerator::default().into_root_schema_for::<S>().to_value();
        [names(&serde_json::to_value(read).unwrap()), names(&schema["properties"])]
    }

    #[test]
    fn the_published_schemas_have_the_members_that_are_read() {
        let [read, published] = members::<ToolGrant, GrantBody>(json!({ "tool_id": "*", "version_range": "^1" }));
        assert_eq!(read, published);
        let [read, published] = members::<ArgumentLimit, LimitBody>(json!({
            "tool_id": "*", "argument": "/x", "min": 1, "max": 2, "one_of": [1], "max_length": 3, "under": "/data",
        }));
        assert_eq!(read, published);
        let [read, published] = members::<CallBudget, BudgetBody>(json!({ "calls": 1 }));
        assert_eq!(read, published);
    }
}
