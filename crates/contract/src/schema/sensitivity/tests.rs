//! Marks of schemas of every draft, and the validator as the judge of which of them count.

use proptest::prelude::*;

use super::*;
use crate::schema::{Coercion, CompiledSchema};

fn part<'m>(marks: &'m SchemaMarks, path: &[&str]) -> PartMarks<'m> {
    path.iter().fold(marks.whole(), |part, token| part.step(token))
}

#[test]
fn a_mark_counts_whichever_way_leads_to_it() {
    let secret = json!({ "x-sensitivity": "secret" });
    let chain: Map<String, Value> = (0..50)
        .map(|step| (format!("c{step}"), json!({ "$ref": format!("#/$defs/c{}", step + 1) })))
        .chain([("c50".to_owned(), secret.clone())])
        .collect();
    let many: Vec<Value> = (0..500).map(|number| json!({ "const": number })).chain([secret.clone()]).collect();
    for (schema, hidden, shown) in [
        (
            json!({ "properties": { "a": { "$ref": "#p" } }, "$defs": { "p": { "$anchor": "p", "x-sensitivity": "secret" } } }),
            vec!["a"],
            vec!["b"],
        ),
        (
            json!({ "properties": { "a": { "$dynamicRef": "#d" } }, "$defs": { "d": { "$dynamicAnchor": "d", "x-sensitivity": true } } }),
            vec!["a"],
            vec![],
        ),
        (
            json!({ "properties": { "a": { "$ref": "#/$defs/x%20y" } }, "$defs": { "x y": secret } }),
            vec!["a"],
            vec!["b"],
        ),
        (
            json!({ "$id": "https://example.com/s.json", "properties": { "a": { "$ref": "s.json#/$defs/p" } }, "$defs": { "p": secret } }),
            vec!["a"],
            vec!["b"],
        ),
        (json!({ "properties": { "a": { "$ref": "#/$defs/c0" } }, "$defs": chain }), vec!["a"], vec!["b"]),
        (json!({ "properties": { "a": { "anyOf": many } } }), vec!["a"], vec!["b"]),
        (json!({ "properties": { "x-a": {} }, "patternProperties": { "^x-": secret } }), vec!["x-a", "x-b"], vec!["a"]),
        (
            json!({ "properties": { "b": {} }, "patternProperties": { "^x-": {} }, "additionalProperties": secret }),
            vec!["a"],
            vec!["b", "x-a"],
        ),
        (json!({ "dependentSchemas": { "b": { "properties": { "a": secret } } } }), vec!["a"], vec!["b"]),
        (
            json!({ "if": { "properties": { "a": secret } }, "then": { "properties": { "c": secret } } }),
            vec!["a", "c"],
            vec!["b"],
        ),
        (json!({ "properties": { "b": {} }, "unevaluatedProperties": secret }), vec!["a"], vec!["b"]),
        (
            json!({ "$ref": "#/$defs/p", "unevaluatedProperties": secret, "$defs": { "p": { "properties": { "b": {} } } } }),
            vec!["a"],
            vec!["b"],
        ),
        (json!({ "anyOf": [{ "properties": { "a": {} } }, {}], "unevaluatedProperties": secret }), vec!["a"], vec![]),
        (json!({ "prefixItems": [{}, secret], "items": {} }), vec!["1"], vec!["0", "2"]),
        (json!({ "prefixItems": [{}], "items": secret }), vec!["1", "9"], vec!["0"]),
        (json!({ "prefixItems": [{}], "unevaluatedItems": secret }), vec!["1"], vec!["0"]),
        (json!({ "contains": secret }), vec!["0", "7"], vec!["a"]),
        (json!({ "not": { "properties": { "a": secret } }, "properties": { "b": secret } }), vec!["b"], vec!["a"]),
        (json!({ "properties": { "next": { "$ref": "#" }, "a": secret } }), vec!["a"], vec!["next"]),
    ] {
        let marks = SchemaMarks::of(&schema).unwrap();
        for name in hidden {
            assert_eq!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
        }
        for name in shown {
            assert_ne!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
        }
    }
    let nested = json!({ "properties": { "next": { "$ref": "#" }, "a": secret } });
    let marks = SchemaMarks::of(&nested).unwrap();
    assert_eq!(part(&marks, &["next", "next", "next", "a"]).says(), Sensitivity::Sensitive);
}

#[test]
fn schemas_of_older_drafts_mark_what_they_mean_and_what_they_ignore() {
    let secret = json!({ "x-sensitivity": "secret" });
    let (four, seven) = ("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#");
    let nineteen = "https://json-schema.org/draft/2019-09/schema";
    for (schema, hidden, shown) in [
        (json!({ "items": [{}, secret], "additionalItems": {} }), vec!["1"], vec!["0", "2"]),
        (json!({ "$schema": seven, "items": [{}], "additionalItems": secret }), vec!["1", "2"], vec!["0"]),
        (
            json!({ "$schema": seven, "dependencies": { "b": { "properties": { "a": secret } }, "c": ["b"] } }),
            vec!["a"],
            vec!["b", "c"],
        ),
        (
            json!({ "$schema": seven, "properties": { "a": { "$ref": "#p" }, "b": { "$ref": "#q" } },
                "definitions": { "p": { "$id": "#p", "x-sensitivity": "secret" }, "q": { "$id": "#q" } } }),
            vec!["a"],
            vec!["b"],
        ),
        (
            json!({ "$schema": four, "properties": { "a": { "$ref": "#/dependencies/x/properties/y" }, "b": {} },
                "dependencies": { "x": { "properties": { "y": secret } } } }),
            vec!["a", "y"],
            vec!["b", "x"],
        ),
        (
            json!({ "$schema": nineteen, "properties": { "again": { "$recursiveRef": "#" }, "a": secret } }),
            vec!["a"],
            vec!["again"],
        ),
        (json!({ "$schema": nineteen, "contains": secret, "unevaluatedItems": {} }), vec!["0", "7"], vec!["a"]),
        (
            json!({ "$schema": nineteen, "contains": secret, "unevaluatedItems": {}, "not": { "maxItems": 0 } }),
            vec!["0", "7"],
            vec!["a"],
        ),
        // Ignored by their drafts.
        (
            json!({ "$schema": seven, "$ref": "#/definitions/p", "properties": { "a": secret },
                "definitions": { "p": { "$id": "#p", "properties": { "b": {}, "c": { "$ref": "#p" } } } } }),
            vec!["a"],
            vec!["b", "c"],
        ),
        (json!({ "$schema": four, "if": {}, "then": { "properties": { "a": secret } } }), vec!["a"], vec!["b"]),
    ] {
        // As it was written, and as it is kept if it comes from a server.
        for schema in [schema.clone(), modern(&schema).into_owned()] {
            let marks = SchemaMarks::of(&schema).unwrap_or_else(|| panic!("no marks: {schema}"));
            for name in &hidden {
                assert_eq!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
            }
            for name in &shown {
                assert_ne!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
            }
        }
    }
}

#[test]
fn a_refusal_quotes_nothing_marked_even_under_a_pattern_that_is_not_checked() {
    let schema = json!({ "type": "object", "properties": { "pin": { "type": "integer" }, "note": { "type": "integer" } },
        "patternProperties": { "^(?!note)": { "x-sensitivity": "secret" } } });
    let compiled = CompiledSchema::input(&schema, &SchemaLimits::default(), Coercion::Off).unwrap();
    assert_eq!(compiled.unchecked().len(), 1);
    let refused = |value: Value| compiled.prepare(value).unwrap_err().violations.remove(0).message;
    assert!(!refused(json!({ "pin": "tail9" })).contains("tail9"));
    assert!(refused(json!({ "note": "tail9" })).contains("tail9"));
}

#[test]
fn no_bound_and_no_broken_reference_lets_a_part_pass() {
    let wide: Vec<Value> =
        (0..=PLACES_MAX).map(|_| json!({ "properties": { "b": { "x-sensitivity": "none" } } })).collect();
    let marks = SchemaMarks::of(&json!({ "anyOf": wide })).unwrap();
    assert_eq!(marks.whole().says(), Sensitivity::Sensitive);
    assert_eq!(part(&marks, &["b", "c"]).says(), Sensitivity::Sensitive);
    let broken = json!({ "properties": { "a": { "$ref": "#/nowhere" }, "b": { "x-sensitivity": "none" } } });
    let marks = SchemaMarks::of(&broken).unwrap();
    assert_eq!(part(&marks, &["a"]).says(), Sensitivity::Sensitive);
    assert_eq!(part(&marks, &["b"]).says(), Sensitivity::Open);
}

#[test]
fn a_schema_without_marks_that_count_has_none() {
    for schema in [
        json!({ "properties": { "a": {} } }),
        json!({ "$defs": { "p": { "x-sensitivity": "secret" } } }),
        json!({ "default": { "x-sensitivity": "secret" } }),
        json!(true),
    ] {
        assert!(SchemaMarks::of(&schema).is_none(), "{schema}");
    }
}

/// Schemas of a few keywords, with marks here and there.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({ "x-sensitivity": "secret" })),
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "string", "x-sensitivity": "pii" })),
        Just(json!({ "$ref": "#/$defs/p" })),
        Just(json!({ "$ref": "#q" })),
        Just(json!({ "$dynamicRef": "#r" })),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        let named = prop::collection::hash_map("[abx]", inner.clone(), 1..3);
        prop_oneof![
            named.clone().prop_map(|named| json!({ "properties": named })),
            (named.clone(), inner.clone(), inner.clone()).prop_map(|(named, pattern, other)| {
                json!({ "properties": named, "patternProperties": { "^[ax]": pattern }, "additionalProperties": other })
            }),
            (list.clone(), inner.clone())
                .prop_map(|(list, rest)| json!({ "anyOf": list, "unevaluatedProperties": rest })),
            (list.clone(), named.clone(), inner.clone()).prop_map(|(list, named, rest)| {
                json!({ "allOf": list, "properties": named, "unevaluatedProperties": rest })
            }),
            list.clone().prop_map(|list| json!({ "allOf": list })),
            list.clone().prop_map(|list| json!({ "oneOf": list })),
            (list, inner.clone(), inner.clone())
                .prop_map(|(list, items, one)| { json!({ "prefixItems": list, "items": items, "contains": one }) }),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| json!({ "if": a, "then": b, "else": c })),
            (named, inner).prop_map(|(named, items)| json!({ "dependentSchemas": named, "unevaluatedItems": items })),
        ]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!("word")), Just(json!(7))];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::hash_map("[abx]", inner.clone(), 0..4).prop_map(|members| json!(members)),
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

/// The places of sub-schemas with a mark that a value satisfies, by the validator's own account of what it went through.
fn annotated(schema: &Value, value: &Value) -> Vec<String> {
    let validator = place_validator(schema, &SchemaLimits::default()).unwrap();
    if !validator.is_valid(value) {
        return Vec::new();
    }
    let evaluation = validator.evaluate(value);
    let all = evaluation.iter_annotations();
    let marked = all.filter(|entry| entry.annotations.value().get(MARK).is_some());
    marked.map(|entry| entry.instance_location.as_str().to_owned()).collect()
}

#[test]
fn the_validator_tells_which_marks_it_met() {
    let schema = json!({ "properties": { "a": { "$ref": "#/$defs/p" }, "b": { "anyOf": [{ "type": "string", "x-sensitivity": 1 }, {}] } },
        "$defs": { "p": { "x-sensitivity": "secret" } } });
    assert_eq!(annotated(&schema, &json!({ "a": 1, "b": 2 })), ["/a"]);
    assert_eq!(annotated(&schema, &json!({ "b": "word" })), ["/b"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_part_the_validator_annotates_with_a_mark_is_marked(p in schemas(), q in schemas(), schema in schemas(), value in values()) {
        let mut schema = schema;
        let anchored = |schema: &Value, keyword: &str, name: &str| {
            let mut schema = schema.clone();
            schema[keyword] = json!(name);
            schema
        };
        schema["$defs"] = json!({ "p": p, "q": anchored(&q, "$anchor", "q"),
            "r": { "$dynamicAnchor": "r", "x-sensitivity": "secret" } });
        // References back to themselves are refused.
        if CompiledSchema::output(&schema, &SchemaLimits::default()).is_err() {
            return Ok(());
        }
        let marks = SchemaMarks::of(&schema);
        for path in annotated(&schema, &value) {
            let tokens: Vec<&str> = path.split('/').skip(1).collect();
            let mut parts = (0..=tokens.len()).map(|end| part(marks.as_ref().unwrap(), &tokens[..end]));
            prop_assert!(parts.any(|part| part.says() == Sensitivity::Sensitive), "{path} of {value} by {schema}");
        }
    }
}
