//! From a JSON value to a typed request, with messages for people: the path of the member, what it must be, and the name
//! that was probably meant.
//!
//! serde says "unknown field `dry_rnu`, expected one of `async_mode`, …" without a path and with Rust's type names. The
//! happy way uses serde alone; only a refused value is read a second time, now with the path tracked, and its message is
//! put into our words. Values of the request are never echoed beyond a short name, because they may be secrets.
//!
//! Not here: the grammar of JSON (`contract::json`), the meaning of parameters (the kernel).

use contract::error::{ErrorCode, Refusal};
use contract::nearest::nearest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::Segment;

/// Longest name that is repeated in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// Converts a value; `again` gives it once more if that fails. `place` is the path of the value itself, empty for a body.
pub(crate) fn typed<T: DeserializeOwned>(
    value: Value,
    place: &str,
    again: impl FnOnce() -> Value,
) -> Result<T, Refusal> {
    // serde would take an array for a struct, member by member.
    if !value.is_object() {
        return Err(explain(place, &format!("invalid type: {}, expected a map", kind_of(&value))));
    }
    serde_json::from_value(value).map_err(|plain| {
        let traced = serde_path_to_error::deserialize::<_, T>(again()).err();
        let (path, message) = match traced {
            Some(traced) => (written(traced.path(), traced.inner()), traced.inner().to_string()),
            None => (String::new(), plain.to_string()),
        };
        explain(&joined(place, &path), &message)
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "sequence",
        Value::Object(_) => "map",
    }
}

/// The path as text. serde puts a member that nobody knows into it; the message names it already.
fn written(path: &serde_path_to_error::Path, error: &serde_json::Error) -> String {
    let unknown = error.to_string().starts_with("unknown field");
    let length = path.iter().len().saturating_sub(usize::from(unknown));
    path.iter().take(length).fold(String::new(), |text, segment| match segment {
        Segment::Seq { index } => format!("{text}[{index}]"),
        Segment::Map { key } => joined(&text, &short(key)),
        Segment::Enum { .. } | Segment::Unknown => text,
    })
}

fn joined(place: &str, path: &str) -> String {
    match (place, path) {
        (place, "") => place.to_owned(),
        ("", path) => path.to_owned(),
        (place, path) => format!("{place}.{path}"),
    }
}

/// Puts serde's message about the member at `path` into our words.
fn explain(path: &str, message: &str) -> Refusal {
    let at = if path.is_empty() { "the body".to_owned() } else { format!("`{path}`") };
    let names = quoted(message);
    let (first, rest) = names.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
    let first = short(first);
    let refusal = |text: String| Refusal::new(ErrorCode::E3004, text).details(json!({ "path": path }));
    if message.starts_with("unknown field") {
        let inside = if path.is_empty() { String::new() } else { format!(" in {at}") };
        let refused = refusal(format!("there is no member `{first}`{inside}"));
        return match nearest(&first, rest.iter().copied()) {
            Some(near) => refused.hint(format!("did you mean `{near}`?")),
            None if rest.is_empty() => refused.hint("leave it out"),
            None => refused.hint(format!("known members: {}", rest.join(", "))),
        };
    }
    if message.starts_with("missing field") {
        let inside = if path.is_empty() { String::new() } else { format!(" in {at}") };
        return refusal(format!("`{first}` is missing{inside}")).hint(format!("add `{first}`"));
    }
    if message.starts_with("duplicate field") {
        return refusal(format!("`{first}` is given twice, once under another name")).hint("send it once");
    }
    if message.starts_with("unknown variant") {
        return refusal(format!("{at} has an unknown value")).hint(match nearest(&first, rest.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? known values: {}", rest.join(", ")),
            None => format!("use one of: {}", rest.join(", ")),
        });
    }
    if let Some(wrong) = message.strip_prefix("invalid type: ") {
        let (given, expected) = wrong.rsplit_once(", expected ").unwrap_or((wrong, "something else"));
        return refusal(format!("{at} must be {}, not {}", expected_words(expected), given_words(given)));
    }
    if let Some((_, expected)) =
        message.strip_prefix("invalid value: ").and_then(|wrong| wrong.rsplit_once(", expected "))
    {
        return refusal(format!("{at} must be {}", expected_words(expected)));
    }
    if let Some((_, expected)) =
        message.strip_prefix("invalid length ").and_then(|wrong| wrong.rsplit_once(", expected "))
    {
        return refusal(format!("{at} has a wrong length: it must be {}", expected_words(expected)));
    }
    // What is left are messages of our own types, which are fit for strangers.
    refusal(format!("{at}: {message}"))
}

/// The texts between backticks.
fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

fn short(name: &str) -> String {
    let mut shown: String = name.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if name.chars().count() > SHOWN_CHARS_MAX {
        shown.push('…');
    }
    shown
}

/// serde's word for what was found.
fn given_words(given: &str) -> &'static str {
    match given.split([' ', ':', '`']).next().unwrap_or_default() {
        "string" | "character" => "a string",
        "integer" | "floating" | "number" => "a number",
        "boolean" => "true or false",
        "null" | "unit" | "Option" => "null",
        "sequence" => "an array",
        "map" => "an object",
        _ => "that",
    }
}

/// serde's word for what was wanted.
fn expected_words(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        "a string" | "a borrowed string" | "str" => "a string".to_owned(),
        other if other.starts_with("struct ") || other.contains("struct variant ") => "an object".to_owned(),
        other if other.starts_with("enum ") => "one of its known values".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use contract::envelope::InvokeRequest;

    use super::*;

    fn refusal(value: &Value) -> String {
        let refusal = typed::<InvokeRequest>(value.clone(), "", || value.clone()).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3004);
        let hint = refusal.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{}{hint}", refusal.message)
    }

    #[test]
    fn wrong_members_are_explained_with_path_and_remedy() {
        let secret = "tok-".repeat(1000);
        for (value, expected) in [
            (json!({}), "`tool_id` is missing; add `tool_id`"),
            (json!(["x"]), "the body must be an object, not an array"),
            (json!("x"), "the body must be an object, not a string"),
            (json!({ "tool_id": 7 }), "`tool_id` must be a string, not a number"),
            (json!({ "tool_id": "x", "paramters": {} }), "there is no member `paramters`; did you mean `parameters`?"),
            (
                json!({ "tool_id": "x", "execution_options": { "dry_rnu": true } }),
                "there is no member `dry_rnu` in `execution_options`; did you mean `dry_run`?",
            ),
            (
                json!({ "tool_id": "x", "execution_options": { "dry_run": "yes" } }),
                "`execution_options.dry_run` must be true or false, not a string",
            ),
            (
                json!({ "tool_id": "x", "execution_options": { "priority": "hig" } }),
                "`execution_options.priority` has an unknown value; did you mean `high`? known values: low, normal, high",
            ),
            (
                json!({ "tool_id": "x", "resource_limits": { "memory_mb_limit": -1 } }),
                "`resource_limits.memory_mb_limit` must be a whole number from 0 to 4294967295",
            ),
            (json!({ "tool_id": "x", "parameters": secret }), "`parameters` must be an object, not a string"),
            (
                json!({ "tool_id": "x", "parameters": {}, "args": {} }),
                "`parameters` is given twice, once under another name; send it once",
            ),
            (json!({ "tool_id": "x", "invocation_id": "7" }), "`invocation_id`: invocation id `7` is not a UUID"),
        ] {
            assert_eq!(refusal(&value), expected);
        }
    }

    #[test]
    fn a_place_is_put_before_the_path() {
        let value = json!({ "tool_id": "x", "execution_options": { "dry_run": 1 } });
        let refusal = typed::<InvokeRequest>(value.clone(), "calls[3]", || value).unwrap_err();
        assert!(refusal.message.starts_with("`calls[3].execution_options.dry_run` must be"), "{}", refusal.message);
    }

    #[test]
    fn what_is_refused_is_never_repeated_at_length() {
        let long = "s".repeat(5000);
        for value in [
            json!({ "tool_id": "x", "execution_options": { "priority": long } }),
            json!({ "tool_id": "x", "execution_options": long }),
            json!({ "tool_id": "x", "invocation_id": long }),
        ] {
            assert!(refusal(&value).len() < 400);
        }
        let mut members = serde_json::Map::new();
        members.insert(long, Value::Null);
        assert!(refusal(&Value::Object(members)).len() < 400);
    }
}
