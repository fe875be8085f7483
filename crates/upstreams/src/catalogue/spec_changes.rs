//! What was changed in the description of a server, in words for the audit log: whoever reads it wants to see which right was
//! given, and to what.
//!
//! Permissions are named whole, everything else by its member: values of variables and headers are nobody's business there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::spec::ServerSpec;

/// Characters of the words; the rest is counted.
const CHARS_MAX: usize = 1_500;
/// Members of maps, whose own members are named, too.
const MAPS: [&str; 3] = ["env", "headers", "upkeep"];

/// `: +filesystem:read:/srv, -network:https://x.example, env.REGION`, or nothing if nothing is different. Without a former
/// description all permissions are new, and the rest goes without saying.
pub(super) fn changes(before: Option<&ServerSpec>, after: &ServerSpec) -> String {
    let (permitted, permits) = (before.map(permissions).unwrap_or_default(), permissions(after));
    let mut words: Vec<String> = permits.difference(&permitted).map(|word| format!("+{word}")).collect();
    words.extend(permitted.difference(&permits).map(|word| format!("-{word}")));
    if let Some(before) = before {
        members(&flat(before), &flat(after), &mut words);
    }
    if words.is_empty() {
        return String::new();
    }
    let all = words.join(", ");
    match all.char_indices().nth(CHARS_MAX) {
        None => format!(": {all}"),
        Some((end, _)) => {
            let (shown, left) = all.split_at(end);
            let shown = shown.rsplit_once(", ").map_or(shown, |(whole, _)| whole);
            let told = shown.split(", ").count();
            format!(": {shown} and {} more ({} characters)", words.len().saturating_sub(told), left.chars().count())
        }
    }
}

fn permissions(spec: &ServerSpec) -> BTreeSet<String> {
    let document = flat(spec);
    let words = document.get("permissions").and_then(Value::as_array).into_iter().flatten();
    words.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The description with the members of `reach` beside the others.
fn flat(spec: &ServerSpec) -> Map<String, Value> {
    let Ok(Value::Object(mut document)) = serde_json::to_value(spec) else { return Map::new() };
    if let Some(Value::Object(reach)) = document.remove("reach") {
        document.extend(reach);
    }
    document
}

fn members(before: &Map<String, Value>, after: &Map<String, Value>, words: &mut Vec<String>) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names.into_iter().filter(|name| *name != "permissions") {
        let (old, new) = (before.get(name), after.get(name));
        if old == new {
            continue;
        }
        if !MAPS.contains(&name.as_str()) {
            words.push(name.clone());
            continue;
        }
        let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
        let inner: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        let differs = |key: &&&String| old.and_then(|map| map.get(**key)) != new.and_then(|map| map.get(**key));
        words.extend(inner.iter().filter(differs).map(|key| format!("{name}.{}", plain(key))));
    }
}

/// A name as it is if it is a word, else in quotes: a variable may be called `X, +filesystem:read:/`, and must not read like a
/// right.
fn plain(name: &str) -> Cow<'_, str> {
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if is_word { name.into() } else { format!("{name:?}").into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(permissions: &[&str], env: &Value) -> ServerSpec {
        let reach = json!({ "type": "stdio", "command": "x", "env": env, "permissions": permissions });
        serde_json::from_value(json!({ "reach": reach })).unwrap()
    }

    #[test]
    fn rights_are_named_whole_and_settings_by_their_names_alone() {
        let before = spec(&["filesystem:read:/srv", "network:https://x.example"], &json!({ "A": "1", "B": "2" }));
        let after = ServerSpec {
            disabled: true,
            ..spec(&["filesystem:read:/etc", "network:https://x.example"], &json!({ "A": "hunter2", "B": "2" }))
        };
        assert_eq!(changes(Some(&before), &after), ": +filesystem:read:/etc, -filesystem:read:/srv, disabled, env.A");
        assert_eq!(changes(Some(&after), &after), "");
        assert_eq!(changes(None, &before), ": +filesystem:read:/srv, +network:https://x.example");
    }

    #[test]
    fn a_name_that_reads_like_a_right_stands_in_quotes() {
        let named = spec(&[], &json!({ "X, +filesystem:read:/etc": "1" }));
        assert_eq!(changes(Some(&spec(&[], &json!({}))), &named), ": env.\"X, +filesystem:read:/etc\"");
    }

    #[test]
    fn words_of_a_large_change_are_cut_between_two_and_the_rest_is_counted() {
        let many: Vec<String> = (0..200).map(|n| format!("filesystem:read:/srv/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let words = changes(None, &spec(&many, &json!({})));
        let told = words.matches('+').count();
        assert!(words.len() < CHARS_MAX + 60 && words.contains(&format!(" and {} more", 200 - told)), "{words}");
    }
}
