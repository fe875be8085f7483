//! What `prepare` and `check` promise, as tables of schema, value and outcome.

use serde_json::json;

use super::*;

fn input(schema: &Value) -> CompiledSchema {
    CompiledSchema::input(schema, &SchemaLimits::default(), Coercion::Lossless).unwrap()
}

fn messages(schema: &Value, value: Value) -> Vec<String> {
    let refused = input(schema).prepare(value).unwrap_err();
    refused.violations.into_iter().map(|one| format!("{}: {}", one.path, one.message)).collect()
}

#[test]
fn the_example_of_the_requirement_is_converted_and_reported() {
    let schema = json!({ "type": "object", "properties": {
        "count": { "type": "integer" }, "price": { "type": "number" }, "active": { "type": "boolean" } } });
    let prepared = input(&schema).prepare(json!({ "count": "42", "price": "19.99", "active": "true" })).unwrap();
    assert_eq!(prepared.value, json!({ "count": 42, "price": 19.99, "active": true }));
    let mut notes: Vec<String> = prepared.coercions.iter().map(|n| format!("{} {} {}", n.path, n.from, n.to)).collect();
    notes.sort();
    assert_eq!(notes, ["/active string boolean", "/count string integer", "/price string number"]);
}

#[test]
fn strings_are_converted_wherever_they_are_and_only_where_refused() {
    for (schema, value, expected) in [
        (json!({ "items": { "type": "integer" } }), json!(["1", 2, "3"]), json!([1, 2, 3])),
        (
            json!({ "properties": { "a": { "anyOf": [{ "type": "integer" }, { "type": "null" }] } } }),
            json!({ "a": "5" }),
            json!({ "a": 5 }),
        ),
        (json!({ "properties": { "a": { "type": ["integer", "string"] } } }), json!({ "a": "5" }), json!({ "a": "5" })),
        (
            json!({ "properties": { "a": { "type": ["integer", "null"], "enum": [1, 5, null] } } }),
            json!({ "a": "5" }),
            json!({ "a": 5 }),
        ),
        (
            json!({ "oneOf": [{ "properties": { "k": { "const": "a" }, "n": { "type": "integer" } } }, { "properties": { "k": { "const": "b" }, "n": { "type": "boolean" } } }] }),
            json!({ "k": "b", "n": "yes" }),
            json!({ "k": "b", "n": true }),
        ),
        (
            json!({ "anyOf": [{ "anyOf": [{ "type": "string" }, { "properties": { "b": { "type": "number" } } }] }, { "type": "null" }], "type": ["object", "null"] }),
            json!({ "b": "0" }),
            json!({ "b": 0 }),
        ),
        (json!({ "anyOf": [{ "type": "boolean" }, { "type": "integer" }] }), json!("1"), json!(1)),
        (
            json!({ "allOf": [{ "$ref": "#/$defs/n" }], "$defs": { "n": { "type": "number" } } }),
            json!("2.5"),
            json!(2.5),
        ),
        (
            json!({ "properties": { "d": { "type": "string", "format": "date-time" } } }),
            json!({ "d": "2026-01-02T03:04:05Z" }),
            json!({ "d": "2026-01-02T03:04:05Z" }),
        ),
    ] {
        let compiled = input(&schema);
        let prepared =
            compiled.prepare(value.clone()).unwrap_or_else(|refused| panic!("{schema} {value}: {refused:?}"));
        assert_eq!(prepared.value, expected, "{schema}");
        let strict = CompiledSchema::input(&schema, &SchemaLimits::default(), Coercion::Off).unwrap();
        assert_eq!(strict.prepare(value.clone()).is_ok(), value == expected, "{schema} with coercion off");
    }
}

#[test]
fn a_string_that_is_no_number_is_a_failed_coercion() {
    let schema = json!({ "properties": { "n": { "type": "integer" }, "s": { "type": "string" } } });
    for (value, expected) in [
        (json!({ "n": "many" }), true),
        (json!({ "n": "1.5" }), true),
        (json!({ "n": "many", "s": 1 }), false),
        (json!({ "n": [] }), false),
        (json!({ "x": 1 }), false),
    ] {
        assert_eq!(input(&schema).prepare(value.clone()).unwrap_err().coercion_failed, expected, "{value}");
    }
}

#[test]
fn absent_defaults_are_filled_in_and_present_values_stay() {
    let nested = json!({
        "properties": {
            "a": { "type": "integer", "default": 1 },
            "o": { "type": "object", "properties": { "b": { "default": "x" } } },
            "filled": { "type": "object", "default": {}, "properties": { "c": { "default": [] } } },
            "list": { "items": { "$ref": "#/$defs/item" } }
        },
        "allOf": [{ "properties": { "z": { "type": "boolean", "default": false } } }],
        "anyOf": [{ "properties": { "branch": { "default": 1 } } }, true],
        "$defs": { "item": { "properties": { "n": { "default": 0 } } } }
    });
    let nullish = json!({ "properties": { "s": { "type": "string", "default": null }, "n": { "type": ["null", "string"], "default": "d" } } });
    let exclusive = json!({
        "properties": { "a": { "default": 1 }, "b": {} },
        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }]
    });
    for (schema, value, expected) in [
        (&nested, json!({}), json!({ "a": 1, "filled": { "c": [] }, "z": false })),
        (
            &nested,
            json!({ "o": {}, "list": [{}, { "n": 5 }], "a": 7 }),
            json!({ "a": 7, "o": { "b": "x" }, "list": [{ "n": 0 }, { "n": 5 }], "filled": { "c": [] }, "z": false }),
        ),
        (&nullish, json!({ "n": null }), json!({ "n": null })),
        (&nullish, json!({}), json!({ "n": "d" })),
        (&exclusive, json!({ "b": 1 }), json!({ "b": 1 })),
        (&exclusive, json!({}), json!({ "a": 1 })),
    ] {
        let prepared = input(schema).prepare(value.clone()).unwrap();
        assert_eq!(prepared.value, expected, "{value}");
        let again = input(schema).prepare(prepared.value.clone()).unwrap();
        assert_eq!((again.value, again.defaults_filled), (prepared.value, Vec::new()));
    }
}

#[test]
fn a_default_that_its_own_schema_refuses_is_named() {
    let schema = json!({
        "properties": {
            "text": { "type": "string", "default": 7 },
            "null": { "type": "string", "default": null },
            "fits": { "type": "integer", "default": 1 },
            "named": { "$ref": "#/$defs/few", "default": 9 },
            "both": { "allOf": [{ "maximum": 3 }], "type": "integer", "default": 5 },
            "list": { "items": { "properties": { "n/m": { "enum": ["a"], "default": "b" } } } },
            "branch": { "anyOf": [{ "properties": { "x": { "type": "string", "default": 1 } } }, true] },
            "unknown": { "type": "object", "properties": {}, "default": { "undeclared": 1 } },
            "unless": { "type": ["string", "null"], "default": null }
        },
        "$defs": { "few": { "type": "integer", "maximum": 3 } }
    });
    let compiled = input(&schema);
    let unfit = [
        "/properties/both/default",
        "/properties/list/items/properties/n~1m/default",
        "/properties/named/default",
        "/properties/null/default",
        "/properties/text/default",
        "/properties/unknown/default",
    ];
    assert_eq!(compiled.unfit_defaults().collect::<Vec<_>>(), unfit);
    assert_eq!(compiled.unchecked().iter().map(|part| part.path.as_str()).collect::<Vec<_>>(), unfit);
    assert_eq!(compiled.prepare(json!({})).unwrap().value, json!({ "fits": 1, "unless": null }));
}

#[test]
fn refusals_say_what_is_expected() {
    let schema = json!({
        "properties": {
            "city": { "type": "string", "description": "the city to look up", "maxLength": 10 },
            "unit": { "enum": ["metric", "imperial"] },
            "days": { "type": "integer", "minimum": 1, "maximum": 14 },
            "when": { "type": "string", "format": "date" },
            "value": { "anyOf": [{ "type": "integer" }, { "type": "null" }] }
        },
        "required": ["city"]
    });
    for (value, expected) in [
        (json!({}), vec![": `city` is required (string: the city to look up)"]),
        (json!({ "city": "Oslo", "dasy": 3 }), vec!["/dasy: `dasy` is not declared; did you mean `days`?"]),
        (
            json!({ "city": "Oslo", "unit": "kelvin" }),
            vec!["/unit: expected one of `\"metric\"`, `\"imperial\"`, found `\"kelvin\"`"],
        ),
        (json!({ "city": "Oslo", "days": 99 }), vec!["/days: must be at most 14, found `99`"]),
        (json!({ "city": "Oslo", "days": "99" }), vec!["/days: must be at most 14, found `99`"]),
        (json!({ "city": "Oslo", "when": "tomorrow" }), vec!["/when: must be a valid date, found `\"tomorrow\"`"]),
        (json!({ "city": "x".repeat(200) }), vec!["/city: must have at most 10 characters, has 200"]),
        (json!({ "city": "Oslo", "value": [1] }), vec!["/value: expected integer or null, found an array"]),
    ] {
        assert_eq!(messages(&schema, value), expected);
    }
}

#[test]
fn sensitive_and_long_values_are_never_quoted() {
    let schema = json!({ "properties": {
        "pin": { "type": "string", "pattern": "^[0-9]{4}$", "x-sensitivity": "secret" },
        "deep": { "x-sensitivity": "PII", "properties": { "n": { "type": "string", "enum": ["a"] } } },
        "text": { "enum": ["a"] }
    } });
    let long = "y".repeat(100);
    let found = messages(&schema, json!({ "pin": "hunter2", "deep": { "n": "hunter2" }, "text": long })).join("\n");
    assert!(!found.contains("hunter2") && !found.contains("yyyy"), "{found}");
    let compiled =
        CompiledSchema::output(&json!({ "properties": { "a": { "type": "integer" } } }), &SchemaLimits::default())
            .unwrap();
    let refused = compiled.check(&json!({ "a": "hunter2", "more": 1 })).unwrap_err();
    assert_eq!(refused, [SchemaViolation { path: "/a".into(), message: "expected integer, found a string".into() }]);
}

#[test]
fn violations_are_counted_beyond_the_first_fifty() {
    let schema = json!({ "items": { "type": "integer" } });
    let refused = input(&schema).prepare(Value::Array(vec![json!({}); 80])).unwrap_err();
    assert_eq!((refused.violations.len(), refused.omitted), (50, 30));
    let output = CompiledSchema::output(&schema, &SchemaLimits::default()).unwrap();
    let last = output.check(&Value::Array(vec![json!({}); 80])).unwrap_err().pop().unwrap();
    assert_eq!(last.message, "and 30 more");
}

#[test]
fn formats_are_asserted_for_tools_and_not_for_plain_schemas() {
    for (format, good, bad) in [
        ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
        ("date", "2026-01-02", "02.01.2026"),
        ("time", "03:04:05Z", "3 pm"),
        ("uri", "https://example.com/a", "not a uri"),
        ("email", "a@example.com", "a at example"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("hostname", "example.com", "-x-"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", "::g"),
    ] {
        let schema = json!({ "format": format });
        assert!(input(&schema).prepare(json!(good)).is_ok(), "{format}");
        assert!(input(&schema).prepare(json!(bad)).is_err(), "{format}");
        let output = CompiledSchema::output(&schema, &SchemaLimits::default()).unwrap();
        assert!(output.check(&json!(good)).is_ok() && output.check(&json!(bad)).is_err(), "{format}");
        let plain = CompiledSchema::plain(&schema, &SchemaLimits::default(), &[]).unwrap();
        assert!(plain.check(&json!(bad)).is_ok(), "{format}");
    }
    assert!(input(&json!({ "format": "duration" })).prepare(json!("whenever")).is_ok());
}

#[test]
fn every_reason_against_a_schema_is_given_at_once() {
    let schema = json!({ "properties": { "a": { "$ref": "https://example.com/a" }, "b": { "pattern": "(?=x" } } });
    let refused = CompiledSchema::input(&schema, &SchemaLimits::default(), Coercion::Off).unwrap_err();
    let mut paths: Vec<&str> = refused.0.iter().map(|one| one.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/properties/a/$ref", "/properties/b/pattern"]);
}

#[test]
fn a_schema_whose_faults_multiply_is_still_answered_at_once() {
    let part = json!({ "properties": { "a": { "$ref": "#/$defs/n" } } });
    let schema = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "type": "object", "allOf": [part, part] } } });
    let compiled = input(&schema);
    for (levels, expected) in [
        (3, "expected object, found `5`"),
        (60, "does not match the schema, and is nested too deeply for this schema to say where"),
    ] {
        let value = (0..levels).fold(json!(5), |inner, _| json!({ "a": inner }));
        assert_eq!(compiled.prepare(value).unwrap_err().violations[0].message, expected);
        let fine = (0..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(compiled.prepare(fine).is_ok());
    }
}
