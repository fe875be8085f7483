//! Verdicts as a table: old, new, and what the change is for parameters and for results.

use serde_json::json;

use super::*;

/// Old, new, change and verdict for parameters, change and verdict for results.
fn check(old: &Value, new: &Value, direction: SchemaDirection, change: &str, verdict: CompatVerdict) {
    let found = compare(old, new, direction);
    assert_eq!(found.verdict, verdict, "{direction:?} {old} -> {new}: {found:#?}");
    let named =
        change.is_empty() || found.reasons.iter().any(|reason| reason.change == change && reason.verdict == verdict);
    assert!(named, "{direction:?} {old} -> {new}: no `{change}` in {found:#?}");
}

fn object(properties: &Value, required: &Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

#[test]
fn single_keywords_are_read_in_both_directions() {
    use CompatVerdict::{Major, Minor};
    // Each row narrows; read backwards it widens.
    for (wide, narrow, narrowed, widened) in [
        (json!({ "type": "number" }), json!({ "type": "integer" }), "type_narrowed", "type_widened"),
        (json!({ "type": ["string", "null"] }), json!({ "type": "string" }), "type_narrowed", "type_widened"),
        (json!({ "enum": ["a", "b"] }), json!({ "enum": ["a"] }), "enum_narrowed", "enum_widened"),
        (json!({ "enum": ["a", "b"] }), json!({ "const": "b" }), "enum_narrowed", "enum_widened"),
        (
            json!({ "type": "integer" }),
            json!({ "type": "integer", "maximum": 9 }),
            "maximum_tightened",
            "maximum_relaxed",
        ),
        (
            json!({ "type": "integer", "maximum": 10 }),
            json!({ "type": "integer", "maximum": 9 }),
            "maximum_tightened",
            "maximum_relaxed",
        ),
        (
            json!({ "type": "number", "minimum": 0 }),
            json!({ "type": "number", "exclusiveMinimum": 0 }),
            "exclusive_minimum_tightened",
            "exclusive_minimum_relaxed",
        ),
        (
            json!({ "type": "string", "minLength": 1 }),
            json!({ "type": "string", "minLength": 2 }),
            "min_length_tightened",
            "min_length_relaxed",
        ),
        (
            json!({ "type": "array", "maxItems": 3 }),
            json!({ "type": "array", "maxItems": 2 }),
            "max_items_tightened",
            "max_items_relaxed",
        ),
        (
            json!({ "type": "array" }),
            json!({ "type": "array", "uniqueItems": true }),
            "unique_items_tightened",
            "unique_items_relaxed",
        ),
        (
            json!({ "type": "array", "items": { "type": "number" } }),
            json!({ "type": "array", "items": { "type": "integer" } }),
            "type_narrowed",
            "type_widened",
        ),
        (
            json!({ "type": "integer", "multipleOf": 2 }),
            json!({ "type": "integer", "multipleOf": 6 }),
            "multiple_of_tightened",
            "multiple_of_relaxed",
        ),
        (
            json!({ "type": "string" }),
            json!({ "type": "string", "pattern": "^a" }),
            "pattern_added_or_changed",
            "pattern_removed_or_changed",
        ),
        (
            json!({ "type": "string" }),
            json!({ "type": "string", "format": "uuid" }),
            "format_added_or_changed",
            "format_removed_or_changed",
        ),
        (
            json!({ "type": "object", "minProperties": 1 }),
            json!({ "type": "object", "minProperties": 2 }),
            "min_properties_tightened",
            "min_properties_relaxed",
        ),
        (
            json!({ "type": "object", "additionalProperties": { "type": "number" } }),
            json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
            "undeclared_properties_refused",
            "undeclared_properties_accepted",
        ),
    ] {
        check(&wide, &narrow, SchemaDirection::Input, narrowed, Major);
        check(&narrow, &wide, SchemaDirection::Input, widened, Minor);
        check(&narrow, &wide, SchemaDirection::Output, widened, Major);
        check(&wide, &narrow, SchemaDirection::Output, narrowed, Minor);
    }
}

#[test]
fn properties_come_and_go() {
    use CompatVerdict::{Major, Minor, Patch};
    use SchemaDirection::{Input, Output};
    let string = json!({ "type": "string" });
    let one = object(&json!({ "a": string }), &json!([]));
    let two = object(&json!({ "a": string, "b": { "type": "integer" } }), &json!([]));
    let needs = object(&json!({ "a": string, "b": { "type": "integer" } }), &json!(["b"]));
    let defaulted = object(&json!({ "a": string, "b": { "type": "integer", "default": 3 } }), &json!(["b"]));
    let bad_default = object(&json!({ "a": string, "b": { "type": "integer", "default": null } }), &json!(["b"]));
    let other_default = object(&json!({ "a": string, "b": { "type": "integer", "default": 4 } }), &json!(["b"]));
    let open = json!({ "type": "object", "properties": { "a": string }, "additionalProperties": true });
    let free = json!({ "type": "object" });
    for (old, new, direction, change, verdict) in [
        (&one, &two, Input, "property_added", Minor),
        (&two, &one, Input, "property_removed", Major),
        (&two, &needs, Input, "required_added", Major),
        (&needs, &two, Input, "required_removed", Minor),
        (&one, &needs, Input, "required_added", Major),
        (&one, &defaulted, Input, "default_added", Minor),
        (&one, &bad_default, Input, "required_added", Major),
        (&defaulted, &other_default, Input, "default_changed", Major),
        (&defaulted, &needs, Input, "default_removed", Major),
        (&one, &open, Input, "undeclared_properties_accepted", Minor),
        (&open, &one, Input, "undeclared_properties_refused", Major),
        (&free, &one, Input, "", Major),
        (&open, &two, Input, "", Major),
        (&one, &two, Output, "property_added", Minor),
        (&two, &one, Output, "property_removed", Major),
        (&two, &needs, Output, "required_added", Minor),
        (&needs, &two, Output, "required_removed", Major),
        (&free, &one, Output, "property_added", Minor),
        (&defaulted, &other_default, Output, "", Patch),
    ] {
        check(old, new, direction, change, verdict);
    }
}

#[test]
fn composition_is_seen_through_where_that_is_sound() {
    use CompatVerdict::{Major, Minor, Patch};
    use SchemaDirection::{Input, Output};
    let plain = object(&json!({ "a": { "type": "string" }, "b": { "type": "integer" } }), &json!(["a"]));
    let composed = json!({
        "type": "object",
        "allOf": [{ "$ref": "#/$defs/x" }, { "properties": { "b": { "type": "integer" } } }],
        "$defs": { "x": { "properties": { "a": { "type": "string" } }, "required": ["a"] } }
    });
    let nullable = json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] });
    let listed = json!({ "type": ["integer", "null"] });
    let integer = json!({ "type": "integer" });
    let three = json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }, { "type": "boolean" }] });
    let tagged = |kinds: &[&str]| {
        let branch = |kind: &&str| json!({ "type": "object", "properties": { "kind": { "const": kind }, "v": { "type": "number" } }, "required": ["kind"] });
        json!({ "oneOf": kinds.iter().map(branch).collect::<Vec<_>>() })
    };
    let list = |value: Value| json!({ "type": "object", "properties": { "v": value, "next": { "$ref": "#" } } });
    let conditional = |more: Value| {
        let mut schema = json!({
            "type": "object",
            "properties": { "k": { "type": "string" } },
            "if": { "properties": { "k": { "const": "x" } } }, "then": { "properties": { "extra": { "type": "string" } } }
        });
        schema["properties"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    for (old, new, direction, change, verdict) in [
        (&plain, &composed, Input, "", Patch),
        (&composed, &plain, Output, "", Patch),
        (&nullable, &listed, Input, "", Patch),
        (&listed, &nullable, Input, "", Patch),
        (&integer, &nullable, Input, "", Minor),
        (&nullable, &three, Input, "", Minor),
        (&three, &nullable, Input, "", Major),
        (&nullable, &integer, Output, "", Minor),
        (&tagged(&["a", "b"]), &tagged(&["a", "b", "c"]), Input, "", Minor),
        (&tagged(&["a", "b", "c"]), &tagged(&["a", "b"]), Input, "", Major),
        (&list(json!({ "type": "integer" })), &list(json!({ "type": "number" })), Input, "type_widened", Minor),
        (&list(json!({ "type": "number" })), &list(json!({ "type": "integer" })), Input, "type_narrowed", Major),
        (&conditional(json!({})), &conditional(json!({ "new": {} })), Input, "property_added", Minor),
        (
            &json!({ "not": { "type": "null" } }),
            &json!({ "not": { "type": "string" } }),
            Input,
            "cannot_prove_compatible",
            Major,
        ),
        (
            &json!({ "type": "object", "dependentRequired": { "a": ["b"] } }),
            &json!({ "type": "object" }),
            Input,
            "",
            Minor,
        ),
        (
            &json!({ "type": "object" }),
            &json!({ "type": "object", "dependentRequired": { "a": ["b"] } }),
            Input,
            "",
            Major,
        ),
        (
            &json!({ "type": "array", "prefixItems": [{ "type": "integer" }], "items": { "type": "string" } }),
            &json!({ "type": "array", "items": { "type": ["number", "string"] } }),
            Input,
            "",
            Minor,
        ),
        (
            &json!({ "type": "array", "prefixItems": [{ "type": "integer" }], "items": { "type": "string" } }),
            &json!({ "type": "array", "items": { "type": ["number", "string"] } }),
            Output,
            "type_widened",
            Major,
        ),
    ] {
        check(old, new, direction, change, verdict);
    }
}

#[test]
fn strings_that_were_converted_must_still_be_read() {
    for (old, new, verdict) in [
        (json!({ "type": "integer" }), json!({ "type": ["integer", "string"] }), CompatVerdict::Minor),
        (
            json!({ "type": "integer" }),
            json!({ "oneOf": [{ "type": "integer" }, { "type": "null" }] }),
            CompatVerdict::Minor,
        ),
        (json!({ "type": "boolean" }), json!({ "oneOf": [{}, { "type": "string" }] }), CompatVerdict::Major),
        (
            json!({ "type": "array", "items": { "type": "integer" }, "contains": { "type": "number" } }),
            json!({ "type": "array", "items": {}, "contains": { "type": "number" } }),
            CompatVerdict::Major,
        ),
        (
            json!({ "type": "boolean" }),
            json!({ "anyOf": [{ "type": "boolean" }, { "oneOf": [{ "type": "number" }, { "type": "integer" }] }] }),
            CompatVerdict::Major,
        ),
        (json!({ "type": "integer" }), json!({ "type": ["integer", "string"], "maxLength": 1 }), CompatVerdict::Major),
        (json!({ "type": "integer", "enum": [1, 2] }), json!({ "enum": [1, 2] }), CompatVerdict::Major),
        (json!({ "type": "boolean" }), json!({ "type": ["boolean", "integer"], "minimum": 5 }), CompatVerdict::Major),
    ] {
        assert_eq!(compare(&old, &new, SchemaDirection::Input).verdict, verdict, "{old} -> {new}");
    }
}

#[test]
fn annotations_are_a_patch_and_sensitivity_is_more() {
    let old = json!({ "title": "a", "properties": { "p": { "type": "string", "description": "x" } } });
    let reworded =
        json!({ "title": "b", "properties": { "p": { "type": "string", "description": "y", "x-token-cost": 3 } } });
    let marked = json!({ "title": "a", "properties": { "p": { "type": "string", "description": "x", "x-sensitivity": "PII" } } });
    for direction in [SchemaDirection::Input, SchemaDirection::Output] {
        check(&old, &reworded, direction, "annotation_changed", CompatVerdict::Patch);
        check(&old, &marked, direction, "sensitivity_changed", CompatVerdict::Minor);
    }
    let guarded =
        json!({ "title": "a", "properties": { "p": { "type": "string", "description": "x", "x-guard": "path" } } });
    check(&old, &guarded, SchemaDirection::Input, "guard_added", CompatVerdict::Major);
    check(&guarded, &old, SchemaDirection::Input, "guard_removed", CompatVerdict::Minor);
    check(&old, &guarded, SchemaDirection::Output, "annotation_changed", CompatVerdict::Patch);
    let text = serde_json::to_value(compare(&old, &marked, SchemaDirection::Input)).unwrap();
    assert_eq!((&text["verdict"], &text["reasons"][0]["verdict"]), (&json!("minor"), &json!("minor")));
}

#[test]
fn what_cannot_be_compiled_cannot_be_proved() {
    let bad = json!({ "$ref": "https://example.com/x" });
    check(&bad, &json!({}), SchemaDirection::Input, "cannot_prove_compatible", CompatVerdict::Major);
}

#[test]
fn negotiation_tells_missing_parts_from_conflicts() {
    let string = json!({ "type": "string" });
    let wanted = object(
        &json!({ "a": string, "b": string, "o": { "type": "object", "properties": { "x": string, "y": string }, "required": ["x"] } }),
        &json!(["a"]),
    );
    for (offered, outcome, required, optional, conflicts) in [
        (wanted.clone(), "full_match", vec![], vec![], 0),
        (
            object(&json!({ "a": string, "b": string, "o": { "type": "object" }, "more": string }), &json!(["a"])),
            "full_match",
            vec![],
            vec![],
            0,
        ),
        (
            object(&json!({ "a": string, "o": { "type": "object", "properties": { "x": string } } }), &json!([])),
            "partial_match",
            vec![],
            vec!["/b", "/o/y"],
            0,
        ),
        (object(&json!({ "b": string, "o": { "type": "object" } }), &json!([])), "incompatible", vec!["/a"], vec![], 0),
        (
            object(&json!({ "a": { "type": "integer" }, "b": string, "o": { "type": "object" } }), &json!([])),
            "incompatible",
            vec![],
            vec![],
            1,
        ),
        (
            object(&json!({ "a": string, "b": string, "o": { "type": "object" }, "key": string }), &json!(["key"])),
            "incompatible",
            vec!["/key"],
            vec![],
            0,
        ),
        (
            object(
                &json!({ "a": string, "b": string, "o": { "type": "object" }, "key": { "type": "string", "default": "k" } }),
                &json!(["key"]),
            ),
            "full_match",
            vec![],
            vec![],
            0,
        ),
        (
            object(
                &json!({ "a": { "type": "string", "maxLength": 5 }, "b": string, "o": { "type": "object" } }),
                &json!([]),
            ),
            "full_match",
            vec![],
            vec![],
            0,
        ),
    ] {
        let found = negotiate(&wanted, &offered);
        let text = serde_json::to_value(&found).unwrap();
        assert_eq!(text["outcome"], json!(outcome), "{offered}: {found:?}");
        assert_eq!(
            (&found.missing_required, &found.missing_optional),
            (&required.iter().map(ToString::to_string).collect(), &optional.iter().map(ToString::to_string).collect()),
            "{offered}"
        );
        assert_eq!(found.conflicts.len(), conflicts, "{found:?}");
    }
}

// --------------------------------------------------------------------------------------------------------- effort

/// Levels of two branches each, which both refer to the next level: the ways through double with every level.
fn levels(count: usize) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..count {
        let branch = |word: &str| {
            let next = format!("#/$defs/a{}", level + 1);
            let properties = json!({ "x": { "$ref": next }, format!("{word}{level}"): { "const": level } });
            json!({ "properties": properties })
        };
        defs.insert(format!("a{level}"), json!({ "anyOf": [branch("y"), branch("z")] }));
    }
    defs.insert(format!("a{count}"), json!({ "const": count }));
    json!({ "$defs": defs, "$ref": "#/$defs/a0" })
}

/// One circle of references; two of different lengths meet in every pair of their members.
fn circle(length: usize) -> Value {
    let member = |at: usize| {
        let next = format!("#/$defs/a{}", (at + 1) % length);
        (format!("a{at}"), json!({ "properties": { "x": { "$ref": next } } }))
    };
    let defs: serde_json::Map<String, Value> = (0..length).map(member).collect();
    json!({ "$defs": defs, "$ref": "#/$defs/a0" })
}

/// The steps that asking in both directions takes.
fn steps(old: &Value, new: &Value) -> u64 {
    let (old, new) = (SchemaDocument::new(old), SchemaDocument::new(new));
    Prover::new(&old, &new, Rules { coercion: true, ..Rules::default() }).gaps();
    Prover::new(&new, &old, Rules::default()).gaps();
    old.steps() + new.steps()
}

#[test]
fn whether_tangled_schemas_are_alike_is_found_in_as_many_steps_as_they_have_pairs() {
    let alike = |old: &Value, new: &Value| {
        let (old, new) = (SchemaDocument::new(old), SchemaDocument::new(new));
        let found = super::likeness::Likeness::new(&old, &new).alike(old.root(), new.root());
        (found, old.steps() + new.steps())
    };
    let (same, few) = alike(&levels(40), &levels(40));
    assert!(same && few < 10_000, "{few}");
    let (same, few) = alike(&levels(40), &levels(41));
    assert!(!same && few < 10_000, "{few}");
    // Deeper than any stack if it were gone through by recursion.
    let (same, many) = alike(&circle(301), &circle(299));
    assert!(same && many > 301 * 299, "{many}");
}

#[test]
fn a_comparison_stops_at_its_bound_and_says_so() {
    let names: serde_json::Map<String, Value> = (0..3000).map(|n| (format!("name{n}"), json!({}))).collect();
    let patterns = |word: &str| -> serde_json::Map<String, Value> {
        (0..190).map(|n| (format!("^{word}{n}[a-z]+{}", "x?".repeat(500)), json!({ "type": "string" }))).collect()
    };
    let many = json!({ "properties": names, "patternProperties": patterns("a") });
    let other = json!({ "properties": names, "patternProperties": patterns("b") });
    let options = |text: &str| json!({ "enum": (0..6000).map(|n| format!("{text}{n}")).collect::<Vec<_>>() });
    // What would be beyond is counted and not done.
    let found = steps(&levels(90), &levels(91));
    assert!((COMPARISON_STEPS_MAX..2 * COMPARISON_STEPS_MAX).contains(&found), "{found}");
    for (old, new, direction) in [
        (levels(90), levels(91), SchemaDirection::Output),
        (many, other, SchemaDirection::Input),
        (options("a"), options("b"), SchemaDirection::Input),
    ] {
        let comparison = compare(&old, &new, direction);
        assert_eq!(comparison.verdict, CompatVerdict::Major);
        let only = comparison.reasons.first().unwrap();
        assert!(only.message.contains("to be compared in"), "{only:?}");
    }
}

#[test]
fn what_cannot_be_compared_to_its_end_is_incompatible() {
    let found = negotiate(&levels(90), &levels(91));
    assert_eq!(found.outcome, NegotiationFit::Incompatible);
    assert!(found.conflicts[0].message.contains("to be compared in"), "{found:?}");
}

#[test]
fn versions_of_large_tools_are_compared_far_below_the_bound() {
    let property = |n: usize| {
        let choice = json!({ "enum": (0..20).map(|one| format!("choice{one}")).collect::<Vec<_>>() });
        json!({ "type": "object", "properties": { "id": { "type": "string" }, "count": { "type": "integer", "default": n },
            "kind": choice }, "required": ["id"] })
    };
    let tool = |count: usize| {
        let names: serde_json::Map<String, Value> = (0..count).map(|n| (format!("part{n}"), property(n))).collect();
        let base = json!({ "properties": { "user": { "type": "string" } } });
        json!({ "type": "object", "properties": names, "allOf": [{ "$ref": "#/$defs/base" }], "$defs": { "base": base } })
    };
    let comparison = compare(&tool(250), &tool(251), SchemaDirection::Input);
    assert_eq!(comparison.verdict, CompatVerdict::Minor, "{:#?}", comparison.reasons.first());
    let found = steps(&crate::schema::strict::closed(&tool(250)), &crate::schema::strict::closed(&tool(251)));
    assert!(found < COMPARISON_STEPS_MAX / 4, "{found}");
}
