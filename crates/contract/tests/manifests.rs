//! Manifests as authors write them: three syntaxes, every rule with a manifest that breaks it, all reasons at once.

#![expect(clippy::unwrap_used, reason = "test crate")]

use gantry_contract::manifest::{Manifest, ManifestError, ManifestFormat, manifest_schema};
use serde_json::{Value, json};

const SMALLEST: &str = r#"
tool_id = "word_stats"
namespace = "demo"
version = "1.0.0"
name = "Word statistics"
description = "Counts words and characters of a text."
provider = "Demo"
protocol = "native"
side_effect_policy = "pure"
timeout_class = "standard"
required_permissions = []
parameters = { type = "object", properties = { text = { type = "string", description = "the text" } }, required = ["text"] }
result_schema = { type = "object", properties = { words = { type = "integer" } }, required = ["words"] }
[execution]
type = "process"
command = ["python3", "main.py"]
isolation = "process"
"#;

fn smallest() -> Value {
    serde_json::to_value(Manifest::read(SMALLEST, ManifestFormat::Toml).unwrap()).unwrap()
}

fn paths(error: &ManifestError) -> Vec<&str> {
    error.findings().iter().map(|finding| finding.path.as_str()).collect()
}

#[test]
fn the_smallest_process_tool_is_admitted_in_all_three_syntaxes_with_one_digest() {
    let toml = Manifest::read(SMALLEST, ManifestFormat::Toml).unwrap();
    let json = Manifest::read(&smallest().to_string(), ManifestFormat::Json).unwrap();
    let yaml = Manifest::read(&serde_yaml_ng::to_string(&smallest()).unwrap(), ManifestFormat::Yaml).unwrap();
    assert_eq!(toml, json);
    assert_eq!(toml.digest(), json.digest());
    assert_eq!(toml.digest(), yaml.digest());
    assert_eq!(toml.id().unwrap().as_str(), "demo.word_stats");
}

#[test]
fn the_send_email_example_validates_and_round_trips() {
    let text = include_str!("../../../examples/manifests/send_email.json");
    let manifest = Manifest::read(text, ManifestFormat::Json).unwrap();
    assert_eq!(serde_json::to_value(&manifest).unwrap()["tags"], json!(["communication", "email", "notifications"]));
    let again = Manifest::from_value(serde_json::to_value(&manifest).unwrap()).unwrap();
    assert_eq!(manifest.digest(), again.digest());
    assert!(manifest.needs_approval());
    // X-09: thirty seconds are asked for, the class allows five.
    assert_eq!(manifest.timeout_default_ms(), 5_000);
}

#[test]
fn what_is_left_out_of_a_table_stays_out_when_it_is_written() {
    // Tool folders are read, written and published: a `null` that nobody has written would be refused on that way.
    for (table, value) in [
        ("checkpoint_config", json!({ "enabled": true })),
        ("network_policy", json!({ "allowed_domains": ["example.com"] })),
        ("retry_policy", json!({})),
        ("circuit_breaker_config", json!({})),
        ("resource_limits", json!({})),
        ("rate_limit", json!({ "max_per_minute": 5 })),
    ] {
        let mut document = smallest();
        document[table] = value;
        let manifest = Manifest::from_value(document).unwrap_or_else(|error| panic!("{table}: {error}"));
        let again = Manifest::from_value(serde_json::to_value(&manifest).unwrap());
        assert_eq!(again.unwrap_or_else(|error| panic!("{table}: {error}")), manifest);
    }
}

#[test]
fn each_rule_refuses_the_manifest_that_breaks_it_and_names_the_member() {
    let cases: &[(&str, Value)] = &[
        ("/tool_id", json!({ "tool_id": "Word-Stats" })),
        ("/tool_id", json!({ "tool_id": "ab" })),
        ("/tool_id", json!({ "tool_id": "a".repeat(256) })),
        ("/tool_id", json!({ "tool_id": "search", "namespace": null })),
        ("/namespace", json!({ "namespace": "Demo" })),
        ("/version", json!({ "version": "1.0" })),
        ("/version", json!({ "version": "01.0.0" })),
        ("/name", json!({ "name": "x" })),
        ("/description", json!({ "description": "short" })),
        ("/description", json!({ "description": "x".repeat(2001) })),
        ("/description", json!({ "description": "bell \u{7} inside the text" })),
        ("/description", json!({ "description": "reads \u{202e}sdrawkcab on a terminal" })),
        ("/provider", json!({ "provider": "" })),
        ("/protocol", json!({ "protocol": "smoke_signals" })),
        ("/parameters", json!({ "parameters": "object" })),
        ("/parameters/type", json!({ "parameters": { "type": "array" } })),
        ("/parameters", json!({ "parameters": { "type": "object", "properties": { "a": { "type": "strin" } } } })),
        (
            "/parameters",
            json!({ "parameters": { "type": "object", "properties": { "a": { "$ref": "https://example.com/s.json" } } } }),
        ),
        (
            "/parameters",
            json!({ "parameters": { "type": "object", "properties": { "a": { "type": "string", "pattern": "(?=a" } } } }),
        ),
        (
            "/parameters",
            json!({ "parameters": { "type": "object", "properties": { "a": { "type": "string", "pattern": "(a{1000}){1000}" } } } }),
        ),
        ("/result_schema", json!({ "result_schema": { "$ref": "file:///etc/passwd" } })),
        ("/required_permissions", json!({ "required_permissions": ["no colon"] })),
        ("/side_effect_policy", json!({ "side_effect_policy": "harmless" })),
        ("/side_effects", json!({ "side_effect_policy": "idempotent", "idempotency": { "key_fields": [] } })),
        (
            "/idempotency",
            json!({ "side_effect_policy": "idempotent", "side_effects": [{ "resource": "r", "op": "CREATE", "scope": "s" }] }),
        ),
        ("/side_effects", json!({ "side_effects": [{ "resource": "r", "op": "CREATE", "scope": "s" }] })),
        (
            "/compensation_tool_id",
            json!({ "side_effect_policy": "compensatable", "side_effects": [{ "resource": "r", "op": "UPDATE", "scope": "s" }], "idempotency": {} }),
        ),
        ("/compensation_tool_id", json!({ "compensation_tool_id": "undo_it" })),
        ("/idempotency/key_fields/0", json!({ "idempotency": { "key_fields": ["nowhere"] } })),
        (
            "/cost_config/per_unit/input_field",
            json!({ "cost_config": { "per_unit": { "unit": "record", "cost_per_unit": "1", "input_field": "nowhere" } } }),
        ),
        ("/timeout_class", json!({ "timeout_class": "soon" })),
        ("/timeout_default", json!({ "timeout_default": 0 })),
        ("/timeout_default", json!({ "timeout_default": 60 })),
        ("/timeout_max", json!({ "timeout_max": 900 })),
        ("/timeout_default", json!({ "timeout_class": "long_running", "timeout_default": 20, "timeout_max": 10 })),
        ("/retry_policy/max_attempts", json!({ "retry_policy": { "max_attempts": 11 } })),
        ("/circuit_breaker_config/failure_threshold", json!({ "circuit_breaker_config": { "failure_threshold": 0 } })),
        ("/resource_limits/memory", json!({ "resource_limits": { "memory": "512MB" } })),
        ("/resource_limits/cpu", json!({ "resource_limits": { "cpu": "0" } })),
        ("/network_policy/allowed_ports", json!({ "network_policy": { "allowed_ports": [443] } })),
        (
            "/network_policy/allowed_ports",
            json!({ "required_permissions": ["network:db.example"], "network_policy": { "allowed_ports": [5432] } }),
        ),
        (
            "/network_policy/allowed_ports",
            json!({ "network_policy": { "allowed_domains": ["a.example"], "allowed_ports": [] } }),
        ),
        (
            "/circuit_breaker_config/canary_step_percent",
            json!({ "circuit_breaker_config": { "canary_step_percent": 5 } }),
        ),
        ("/cost_config/currency", json!({ "cost_config": { "currency": "EUR" } })),
        ("/rate_limit", json!({ "rate_limit": {} })),
        ("/network_policy/allowed_ports/0", json!({ "network_policy": { "allowed_ports": [0] } })),
        ("/checkpoint_config/micro_interval_seconds", json!({ "checkpoint_config": { "micro_interval_seconds": 5 } })),
        ("/priority", json!({ "priority": 11 })),
        (
            "/cache_ttl_seconds",
            json!({ "cache_ttl_seconds": 60, "side_effect_policy": "idempotent", "side_effects": [{ "resource": "r", "op": "CREATE", "scope": "s" }], "idempotency": {} }),
        ),
        ("/cache_ttl_seconds", json!({ "cache_ttl_seconds": 60 })),
        ("/confirmation_prompt", json!({ "requires_confirmation": true, "confirmation_prompt": "Really?" })),
        ("/behaviour", json!({ "behaviour": { "deterministic": true } })),
        (
            "/document_dependencies",
            json!({ "document_dependencies": [{ "document_pattern": "a", "access_mode": "read" }] }),
        ),
        (
            "/resource_limits",
            json!({ "execution": { "type": "builtin", "handler": "x" }, "resource_limits": { "memory": "64Mi" } }),
        ),
        (
            "/resource_limits/ephemeral_storage",
            json!({ "execution": { "type": "wasm", "component": "a.wasm" }, "resource_limits": { "ephemeral_storage": "8Mi" } }),
        ),
        ("/errors/0/code", json!({ "errors": [{ "code": "E3201", "description": "Never." }] })),
        (
            "/errors/1/code",
            json!({ "errors": [{ "code": "E3401", "description": "One." }, { "code": "E3401", "description": "Two." }] }),
        ),
        ("/license", json!({ "license": "Apache 2" })),
        ("/sunset_date", json!({ "deprecation_date": "2030-02-01", "sunset_date": "2030-01-01" })),
        ("/migration_guide_url", json!({ "migration_guide_url": "https://example.com" })),
        ("/lifecycle_state", json!({ "lifecycle_state": "removed" })),
        ("/replacement_tool_id", json!({ "replacement_tool_id": "Not An Id" })),
        ("/execution", json!({ "execution": { "type": "process", "command": [] } })),
        ("/execution", json!({ "execution": { "type": "teleport" } })),
        ("/execution/warm", json!({ "execution": { "type": "process", "command": ["a"], "warm": true } })),
        ("/execution", json!({ "execution": { "type": "process", "command": ["a"], "isolation": "builtin" } })),
        ("/execution/env", json!({ "execution": { "type": "wasm", "component": "a.wasm", "env": { "A=B": "c" } } })),
        ("/execution/component", json!({ "execution": { "type": "wasm", "component": "../a.wasm" } })),
        ("/execution/component", json!({ "execution": { "type": "wasm", "component": "/a.wasm" } })),
        ("/execution/image", json!({ "execution": { "type": "oci", "image": "a/../../b" } })),
        ("/execution/command", json!({ "execution": { "type": "oci", "image": "rootfs", "command": ["a\u{0}"] } })),
        ("/examples/0", json!({ "examples": [{ "text": 5 }] })),
        ("/colour", json!({ "colour": "red" })),
    ];
    for (path, change) in cases {
        let mut document = smallest();
        for (member, value) in change.as_object().unwrap() {
            document[member] = value.clone();
        }
        match Manifest::from_value(document) {
            Ok(_) => panic!("{change} was admitted"),
            Err(error) => {
                assert!(paths(&error).iter().any(|found| found.starts_with(path)), "{change}: {path} not in {error}");
            }
        }
    }
}

#[test]
fn members_of_a_later_release_that_are_left_out_do_not_change_what_was_published() {
    let written = |execution: Value| {
        let mut document = smallest();
        document["execution"] = execution;
        serde_json::to_value(Manifest::from_value(document).unwrap()).unwrap()["execution"].clone()
    };
    let process = json!({ "type": "process", "command": ["a"], "isolation": "process", "protocol": "gantry/1" });
    assert_eq!(written(process.clone()), process);
    let wasm = json!({ "type": "wasm", "component": "a.wasm" });
    assert_eq!(written(wasm.clone()), wasm);
    let oci = json!({ "type": "oci", "image": "rootfs", "isolation": "gvisor" });
    assert_eq!(written(oci.clone()), oci);
    let mut warm = process;
    warm["warm"] = json!(true);
    assert_eq!(written(warm.clone()), warm);
}

#[test]
fn limits_of_a_component_that_were_written_out_are_read_again() {
    let mut document = smallest();
    document["execution"] = json!({ "type": "wasm", "component": "a.wasm" });
    document["resource_limits"] = json!({ "cpu": "1", "memory": "64Mi" });
    let manifest = Manifest::from_value(document).unwrap();
    let written = serde_json::to_value(&manifest).unwrap();
    assert_eq!(Manifest::from_value(written).unwrap(), manifest);
}

#[test]
fn every_mandatory_member_is_missed_by_name() {
    for member in [
        "tool_id",
        "version",
        "name",
        "description",
        "provider",
        "protocol",
        "parameters",
        "result_schema",
        "side_effect_policy",
        "timeout_class",
    ] {
        let mut document = smallest();
        document.as_object_mut().unwrap().remove(member);
        let error = Manifest::from_value(document).unwrap_err();
        assert!(error.to_string().contains(member), "{member}: {error}");
    }
}

#[test]
fn all_reasons_are_told_at_once_and_a_slip_gets_a_suggestion() {
    let mut document = smallest();
    document["version"] = json!("one");
    document["name"] = json!("x");
    document["parameters"]["properties"]["bad"] = json!({ "type": "strin" });
    document["descripton"] = json!("a slip");
    let error = Manifest::from_value(document).unwrap_err();
    let text = error.to_string();
    for part in ["/version", "/name", "/parameters", "descripton", "did you mean `description`"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}

#[test]
fn names_of_other_systems_are_taken_for_ours_but_not_both() {
    let mut document = smallest();
    let parameters = document.as_object_mut().unwrap().remove("parameters").unwrap();
    document["inputSchema"] = parameters.clone();
    assert!(Manifest::from_value(document.clone()).is_ok());
    document["parameters"] = parameters;
    assert_eq!(paths(&Manifest::from_value(document).unwrap_err()), ["/inputSchema"]);

    let mut document = smallest();
    document["rateLimit"] = json!({ "maxPerHour": 10, "maxPerDay": 50 });
    let limit = Manifest::from_value(document.clone()).unwrap().rate_limit.unwrap();
    assert_eq!((limit.max_per_minute, limit.max_per_hour, limit.max_per_day), (None, Some(10), Some(50)));
    document["rateLimit"]["max_per_hour"] = json!(10);
    assert_eq!(paths(&Manifest::from_value(document).unwrap_err()), ["/rate_limit/maxPerHour"]);
}

#[test]
fn what_is_not_an_object_or_not_the_syntax_it_says_is_refused_kindly() {
    assert!(Manifest::from_value(json!([])).unwrap_err().to_string().contains("object"));
    for (text, format) in [
        ("tool_id = ", ManifestFormat::Toml),
        ("{\"a\":1,\"a\":2}", ManifestFormat::Json),
        ("a: [", ManifestFormat::Yaml),
    ] {
        let error = Manifest::read(text, format).unwrap_err().to_string();
        assert!(error.contains("not valid"), "{error}");
    }
}

#[test]
fn the_published_schema_has_the_members_of_the_contract() {
    let schema = manifest_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for member in ["tool_id", "version", "name", "description", "provider", "protocol", "parameters"] {
        assert!(schema["required"].as_array().unwrap().contains(&json!(member)), "{member}");
    }
    assert_eq!(schema["properties"]["tool_id"]["pattern"], "^[a-z][a-z0-9_]*$");
    assert_eq!(schema["properties"]["description"]["maxLength"], 2000);
}
