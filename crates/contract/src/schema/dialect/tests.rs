//! What older drafts say otherwise, word by word; the official suites are in `tests/json_schema_suite.rs`.

use serde_json::json;

use super::super::{Coercion, CompiledSchema, SchemaLimits};
use super::*;
use crate::compat::{CompatVerdict, NegotiationFit, SchemaDirection, compare, negotiate};

const DRAFT_04: &str = "http://json-schema.org/draft-04/schema#";
const DRAFT_07: &str = "http://json-schema.org/draft-07/schema#";
const YEAR_2019: &str = "https://json-schema.org/draft/2019-09/schema";

fn input(schema: &Value) -> CompiledSchema {
    CompiledSchema::input(schema, &SchemaLimits::default(), Coercion::Lossless).unwrap()
}

#[test]
fn what_draft_07_says_otherwise_is_said_in_our_words() {
    let old = json!({
        "$schema": DRAFT_07, "type": "object",
        "properties": {
            "pair": { "type": "array", "items": [{ "type": "string" }, { "type": "number" }], "additionalItems": false },
            "items": { "type": "string", "default": { "items": [1] } },
        },
        "dependencies": { "a": ["b"], "c": { "required": ["d"] } },
    });
    let new = json!({
        "type": "object",
        "properties": {
            "pair": { "type": "array", "prefixItems": [{ "type": "string" }, { "type": "number" }], "items": false },
            "items": { "type": "string", "default": { "items": [1] } },
        },
        "dependentRequired": { "a": ["b"] },
        "dependentSchemas": { "c": { "required": ["d"] } },
    });
    assert_eq!(*modern(&old), new);
}

#[test]
fn what_is_ours_already_or_no_schema_of_its_draft_stays_as_it_is() {
    for schema in [
        json!({ "type": "object", "dependencies": { "a": ["b"] } }),
        json!({ "$schema": META_SCHEMA, "type": "object" }),
        json!({ "$schema": "https://json-schema.org/draft/2020-12/schema#", "prefixItems": [true] }),
        json!({ "$schema": "https://example.com/mine", "items": [{}] }),
        json!({ "$schema": DRAFT_07, "items": 7 }),
        json!(true),
    ] {
        assert_eq!(*modern(&schema), schema);
    }
}

#[test]
fn every_way_to_write_the_address_of_a_draft_is_understood() {
    for (address, draft) in [
        ("http://json-schema.org/draft-04/schema", Some(Draft::Four)),
        ("https://json-schema.org/draft-04/schema#", Some(Draft::Four)),
        ("http://json-schema.org/draft-06/schema#", Some(Draft::Six)),
        ("https://json-schema.org/draft-07/schema", Some(Draft::Seven)),
        ("https://json-schema.org/draft/2019-09/schema", Some(Draft::Year2019)),
        ("https://json-schema.org/draft/2020-12/schema#", Some(Draft::Year2020)),
        ("http://json-schema.org/schema#", Some(Draft::Year2020)),
        ("http://json-schema.org/draft-03/schema#", None),
        ("https://example.com/draft-07/schema#", None),
    ] {
        assert_eq!(Draft::named(address), draft, "{address}");
    }
}

#[test]
fn calls_are_checked_by_the_draft_that_the_schema_names() {
    let four = json!({
        "$schema": DRAFT_04, "id": "http://example.com/a#", "type": "object",
        "properties": {
            "share": { "type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1, "exclusiveMaximum": false },
            "kind": { "const": "ignored in draft-04" },
            "pair": { "items": [{ "type": "integer" }], "additionalItems": false },
            "first": { "$ref": "#/properties/pair/items/0" },
        },
        "required": ["share"],
    });
    let seven = json!({
        "$schema": DRAFT_07, "type": "object",
        "properties": {
            "kind": { "const": "a" },
            "child": { "$ref": "#/definitions/node", "maxProperties": 0, "description": "beside a reference" },
            "card": { "$id": "#/properties/card", "type": "string" },
            "named": { "$ref": "#spot" },
            "one": { "$ref": "#/dependencies/x/properties/y" },
        },
        "definitions": { "node": { "type": "object", "properties": { "n": { "type": "integer", "default": 3 } } },
            "spotted": { "$id": "#spot", "type": "boolean" } },
        "dependencies": { "x": { "properties": { "y": { "type": "null" } } }, "kind": ["child"] },
        "if": { "required": ["card"] }, "then": { "required": ["kind"] },
    });
    let nineteen = json!({
        "$schema": YEAR_2019, "type": "object",
        "properties": {
            "tree": { "type": "array", "items": { "$ref": "#/$defs/node" } },
            "more": { "items": [{ "const": 1 }], "additionalItems": { "type": "string" } },
            "some": { "contains": { "const": 1 }, "unevaluatedItems": { "const": 2 }, "not": { "maxItems": 0 } },
            "again": { "$recursiveRef": "#" },
        },
        "$defs": { "node": { "type": "object", "minProperties": 1, "additionalProperties": true } },
        "dependentRequired": { "tree": ["more"] }, "dependencies": { "more": ["tree"] },
    });
    for (schema, value, expected) in [
        (&four, json!({ "share": 1 }), true),
        (&four, json!({ "share": 0 }), false),
        (&four, json!({ "share": 1.5 }), false),
        (&four, json!({ "share": 1, "kind": 7 }), true),
        (&four, json!({ "share": 1, "pair": [1] }), true),
        (&four, json!({ "share": 1, "pair": [1, 2] }), false),
        (&four, json!({ "share": 1, "first": "x" }), false),
        (&four, json!({ "share": 1, "shar": 1 }), false),
        (&seven, json!({ "kind": "a", "child": {} }), true),
        (&seven, json!({ "kind": "a" }), false),
        (&seven, json!({ "kind": "b", "child": {} }), false),
        (&seven, json!({ "child": { "n": 1 } }), true),
        (&seven, json!({ "child": { "m": 1 } }), false),
        (&seven, json!({ "card": "x" }), false),
        (&seven, json!({ "named": 3 }), false),
        (&seven, json!({ "one": null }), true),
        (&seven, json!({ "one": 1 }), false),
        (&nineteen, json!({ "more": [1, "a"], "tree": [{ "a": 1 }] }), true),
        (&nineteen, json!({ "more": [1, 2], "tree": [] }), false),
        (&nineteen, json!({ "more": [1] }), false),
        (&nineteen, json!({ "tree": [] }), false),
        (&nineteen, json!({ "some": [2, 1] }), false),
        (&nineteen, json!({ "again": { "tree": [] } }), false),
    ] {
        let found = input(schema).prepare(value.clone());
        assert_eq!(found.is_ok(), expected, "{value}: {found:?}");
    }
    assert_eq!(input(&seven).prepare(json!({ "child": {} })).unwrap().defaults_filled, ["/child/n"]);
}

#[test]
fn a_schema_that_names_no_draft_is_read_by_the_newest_that_it_is_valid_in() {
    let tuple = json!({ "type": "object", "properties": { "pair": { "items": [{ "type": "integer" }], "additionalItems": false } } });
    assert!(input(&tuple).prepare(json!({ "pair": [1] })).is_ok());
    assert!(input(&tuple).prepare(json!({ "pair": [1, 2] })).is_err());
    let above = json!({ "type": "object", "properties": { "n": { "minimum": 0, "exclusiveMinimum": true } } });
    assert!(input(&above).prepare(json!({ "n": 0 })).is_err());
    let both = json!({ "type": "object", "properties": { "n": { "minimum": 0, "exclusiveMinimum": true }, "m": { "items": 7 } } });
    let refused = CompiledSchema::input(&both, &SchemaLimits::default(), Coercion::Off).unwrap_err();
    assert!(refused.0.iter().all(|one| one.message.starts_with("not valid by the meta-schema:")), "{refused:?}");
}

#[test]
fn what_a_draft_ignores_and_what_no_engine_can_match_is_named() {
    let schema = json!({
        "$schema": DRAFT_04, "type": "object",
        "properties": {
            "a": { "const": 1 },
            "b": { "$ref": "#/definitions/b", "maxLength": 3, "description": "fine" },
            "c": { "type": "string", "pattern": "^(.)\\1$" },
            "d": { "type": "object", "patternProperties": { "^(?!x)": { "type": "integer" }, "^y": { "type": "boolean" } }, "additionalProperties": false },
        },
        "definitions": { "b": { "type": "string" } },
    });
    let compiled = input(&schema);
    let mut paths: Vec<&str> = compiled.unchecked().iter().map(|part| part.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "/properties/a/const",
        "/properties/b/maxLength",
        "/properties/c/pattern",
        "/properties/d/patternProperties/^(?!x)",
    ];
    assert_eq!(paths, expected);
    assert!(compiled.prepare(json!({ "a": 2, "b": "long enough", "c": "ab", "d": { "q": "?" } })).is_ok());
    assert!(compiled.prepare(json!({ "d": { "y": 1 } })).is_err());
    assert!(compiled.prepare(json!({ "c": 7 })).is_err());
    assert!(input(&json!({ "type": "object" })).unchecked().is_empty());
}

#[test]
fn a_pattern_with_look_around_is_checked_and_the_refusal_says_so() {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string", "pattern": "^(?!\\.)[a-z.]+(?<!\\.)$" } } });
    let compiled = input(&schema);
    assert!(compiled.unchecked().is_empty());
    assert!(compiled.prepare(json!({ "name": "a.b" })).is_ok());
    let refused = compiled.prepare(json!({ "name": ".b" })).unwrap_err();
    assert_eq!(refused.violations[0].message, "must match the pattern `^(?!\\.)[a-z.]+(?<!\\.)$`, found `\".b\"`");
    let wide = json!({ "pattern": "(?!x)(?:[ab]{1,60}){60}c" });
    let long = json!("a".repeat(20_000));
    let refused = input(&wide).prepare(long).unwrap_err();
    assert!(refused.violations[0].message.contains("too long to be checked"), "{refused:?}");
}

#[test]
fn versions_in_different_drafts_are_compared_by_what_they_accept() {
    let old = json!({ "$schema": DRAFT_07, "type": "object", "properties": { "p": { "items": [{ "type": "integer" }], "additionalItems": false } } });
    let same =
        json!({ "type": "object", "properties": { "p": { "prefixItems": [{ "type": "integer" }], "items": false } } });
    let more = json!({ "$schema": YEAR_2019, "type": "object", "properties": { "p": { "items": [{ "type": "number" }], "additionalItems": false }, "q": {} } });
    for direction in [SchemaDirection::Input, SchemaDirection::Output] {
        assert_eq!(compare(&old, &same, direction).verdict, CompatVerdict::Patch);
        assert_eq!(compare(&same, &old, direction).verdict, CompatVerdict::Patch);
    }
    assert_eq!(compare(&old, &more, SchemaDirection::Input).verdict, CompatVerdict::Minor);
    assert_eq!(compare(&more, &old, SchemaDirection::Input).verdict, CompatVerdict::Major);
    assert_eq!(negotiate(&old, &same).outcome, NegotiationFit::FullMatch);
    let looking = json!({ "type": "object", "properties": { "p": { "type": "string", "pattern": "^(?!a)" } } });
    let free = json!({ "type": "object", "properties": { "p": { "type": "string" } } });
    assert_eq!(compare(&looking, &free, SchemaDirection::Input).verdict, CompatVerdict::Minor);
    assert_eq!(compare(&free, &looking, SchemaDirection::Input).verdict, CompatVerdict::Major);
}
