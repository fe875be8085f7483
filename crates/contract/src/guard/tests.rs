//! Places, modes and bounds; the rules themselves are tested beside each guard.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn paths(schema: &Value, value: &Value) -> Vec<String> {
    InputGuards::compile(schema).check(value).into_iter().map(|breach| breach.path).collect()
}

#[test]
fn annotated_places_are_found_wherever_the_schema_puts_them() {
    let guarded = json!({ "type": "string", "x-guard": "shell" });
    let recursive = json!({
        "$ref": "#/$defs/node",
        "$defs": { "node": { "properties": { "cmd": guarded, "next": { "$ref": "#/$defs/node" } } } }
    });
    for (schema, value, expected) in [
        (json!({ "properties": { "a": guarded, "b": {} } }), json!({ "a": ";", "b": ";" }), vec!["/a"]),
        (json!({ "properties": { "a": { "items": guarded } } }), json!({ "a": ["x", ";"] }), vec!["/a/1"]),
        (json!({ "prefixItems": [true, guarded], "items": true }), json!([";", ";", ";"]), vec!["/1"]),
        (json!({ "prefixItems": [true], "items": guarded }), json!([";", ";"]), vec!["/1"]),
        (json!({ "allOf": [{ "properties": { "a": guarded } }, {}] }), json!({ "a": ";" }), vec!["/a"]),
        (json!({ "properties": { "a": { "anyOf": [{ "type": "null" }, guarded] } } }), json!({ "a": ";" }), vec!["/a"]),
        (json!({ "oneOf": [{ "properties": { "a": guarded } }, {}] }), json!({ "a": ";" }), vec!["/a"]),
        (json!({ "if": {}, "then": { "properties": { "a": guarded } } }), json!({ "a": ";" }), vec!["/a"]),
        (recursive, json!({ "cmd": "x", "next": { "next": { "cmd": ";" } } }), vec!["/next/next/cmd"]),
        (
            json!({ "patternProperties": { "^c_": guarded, "^t_": {} } }),
            json!({ "c_a": ";", "t_a": ";", "other": ";" }),
            vec!["/c_a"],
        ),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": guarded }),
            json!({ "a": ";", "b/c": ";" }),
            vec!["/b~1c"],
        ),
        (
            json!({ "allOf": [{ "properties": { "a": {} } }], "unevaluatedProperties": guarded }),
            json!({ "a": ";", "b": ";" }),
            vec!["/b"],
        ),
        (json!({ "properties": { "a": guarded } }), json!({ "a": 1 }), vec![]),
        (json!({ "$defs": { "unused": guarded } }), json!({ "a": ";" }), vec![]),
        (json!(true), json!({ "a": ";" }), vec![]),
    ] {
        assert_eq!(paths(&schema, &value), expected, "{schema} {value}");
    }
}

#[test]
fn a_guard_reaches_down_to_every_text_and_undeclared_name() {
    let schema = json!({ "properties": { "env": { "type": "object", "x-guard": ["shell", "path"] }, "note": {} } });
    let guards = InputGuards::compile(&schema);
    let found = guards.check(&json!({ "env": { "A": ["x", { "B": ";" }], "a;b": "x", "c": "../" }, "note": ";" }));
    let found: Vec<_> = found.iter().map(|breach| (breach.path.as_str(), breach.guard)).collect();
    assert_eq!(found, [("/env/A/1/B", GuardKind::Shell), ("/env", GuardKind::Shell), ("/env/c", GuardKind::Path)]);
}

#[test]
fn unannotated_text_is_data() {
    let guards = InputGuards::compile(&json!({ "type": "object", "properties": { "query": { "type": "string" } } }));
    assert!(guards.is_empty());
    let mut value = json!({ "query": "\"; DROP TABLE documents;--" });
    assert_eq!(guards.check(&value), []);
    assert_eq!(guards.strip(&mut value), Vec::<String>::new());
    assert_eq!(value, json!({ "query": "\"; DROP TABLE documents;--" }));
}

#[test]
fn stripping_changes_annotated_text_and_says_where() {
    let schema = json!({ "properties": {
        "cmd": { "x-guard": "shell" },
        "page": { "x-guard": ["html", "sql"] },
        "file": { "x-guard": "path" },
        "free": {}
    }});
    let guards = InputGuards::compile(&schema);
    let mut value = json!({ "cmd": "a;b$(c)", "page": "<script>x</script>hi; there--", "file": "../x", "free": ";" });
    assert_eq!(guards.strip(&mut value), ["/cmd", "/page"]);
    assert_eq!(value, json!({ "cmd": "abc", "page": "hi there", "file": "../x", "free": ";" }));
    let left = guards.check_stripped(&value);
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].path.as_str(), left[0].guard), ("/file", GuardKind::Path));
}

#[test]
fn wrong_annotations_are_named_with_their_place() {
    for (schema, path, part) in [
        (json!({ "properties": { "a": { "x-guard": "shel" } } }), "/properties/a/x-guard", "did you mean `shell`?"),
        (json!({ "properties": { "a": { "x-guard": "nonsense" } } }), "/properties/a/x-guard", "there are `shell`"),
        (json!({ "properties": { "a": { "x-guard": ["url", "htlm"] } } }), "/properties/a/x-guard/1", "`html`"),
        (json!({ "properties": { "a": { "x-guard": 5 } } }), "/properties/a/x-guard", "a list of guards"),
        (json!({ "properties": { "a": { "x-guard": [] } } }), "/properties/a/x-guard", "a list of guards"),
        (json!({ "propertyNames": { "x-guard": "path" } }), "/propertyNames/x-guard", "no effect"),
        (json!({ "not": { "x-guard": "path" } }), "/not/x-guard", "no effect"),
        (json!({ "properties": { "a": { "type": "integer", "x-guard": "sql" } } }), "/properties/a/x-guard", "text"),
        (
            json!({ "properties": { "a": { "x-guard": "path", "default": "/etc" } } }),
            "/properties/a/default",
            "absolute",
        ),
    ] {
        let found = misuses(&schema);
        assert!(found.iter().any(|one| one.path == path && one.message.contains(part)), "{schema}: {found:?}");
    }
    for schema in [
        json!({ "properties": { "a": { "type": ["string", "null"], "x-guard": ["path", "shell"], "default": "x" } } }),
        json!({ "properties": { "a": { "$ref": "#/$defs/cmd" } }, "$defs": { "cmd": { "x-guard": "shell" } } }),
        json!({ "properties": { "x-guard": { "type": "string" } }, "default": { "x-guard": "nonsense" } }),
    ] {
        assert_eq!(misuses(&schema), [], "{schema}");
    }
}

#[test]
fn an_unknown_guard_that_got_in_all_the_same_guards_everything() {
    let schema = json!({ "properties": { "a": { "x-guard": "future" } } });
    assert_eq!(paths(&schema, &json!({ "a": "/etc; id" })).len(), 3, "shell, path and url");
}

#[test]
fn breaches_are_bounded_and_never_quote_the_value() {
    let guards = InputGuards::compile(&json!({ "x-guard": "shell" }));
    let many: Vec<String> = (0..1_000).map(|n| format!("secret{n};")).collect();
    let found = guards.check(&json!(many));
    assert_eq!(found.len(), VIOLATIONS_MAX);
    assert!(!serde_json::to_string(&found).unwrap().contains("secret"));
}

#[test]
fn no_text_takes_more_than_linear_time() {
    // Each is the worst for some rule; a quadratic rule would take minutes here.
    const BYTES: usize = 50_000;
    for part in [
        "'",
        ";",
        "--",
        "' or ",
        "')",
        "/*",
        "<",
        "<a ",
        "<script",
        "on",
        " on",
        "on=",
        "j\n",
        "javascript:",
        "data:",
        "&",
        "&#",
        "&#0",
        "&#38;",
        "&amp;",
        "%25",
        "..",
        "../",
        "a",
        " ",
        "\"",
        "select ",
        "; select ",
        "union ",
        "#",
        "(",
        "a'",
        "' and (",
        "=",
        "<b on",
        "</script",
        "é",
        "o",
    ] {
        let text = part.repeat(BYTES / part.len());
        for guard in GuardKind::ALL {
            let _ = guard.broken_by(&text);
        }
        let _ = stripped(&text, GuardSet::ALL);
    }
}

proptest! {
    #[test]
    fn no_text_makes_a_guard_stumble(text in any::<String>()) {
        for guard in GuardKind::ALL {
            let _ = guard.broken_by(&text);
        }
    }

    #[test]
    fn stripping_twice_is_stripping_once(text in "[a-c<>/;:=|&$()'\\-* on]{0,24}|(<script>|</script>|javascript:|on|a=|--|/\\*|;){0,8}") {
        for guards in [GuardSet::of(GuardKind::Shell), GuardSet::of(GuardKind::Sql), GuardSet::of(GuardKind::Html), GuardSet::ALL] {
            let once = stripped(&text, guards).unwrap_or_else(|| text.clone());
            prop_assert_eq!(stripped(&once, guards), None);
        }
    }

    #[test]
    fn plain_words_pass_every_guard_but_url(text in "[A-Za-zäöü0-9 ,.]{0,40}") {
        prop_assume!(!text.contains(".."));
        for guard in [GuardKind::Shell, GuardKind::Sql, GuardKind::Html, GuardKind::Path] {
            prop_assert_eq!(guard.broken_by(&text), None, "{}", guard);
        }
    }
}
