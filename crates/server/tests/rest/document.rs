//! The OpenAPI document: the same as the golden copy, complete, and true.

use std::collections::BTreeSet;

use gantry_server::openapi;
use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/openapi.json");

/// Method, path and description of every operation.
pub(crate) fn operations() -> Vec<(String, String, Value)> {
    let document = openapi();
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &Value)| {
        let item = item.as_object().unwrap().clone();
        let path = path.clone();
        item.into_iter().map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation))
    };
    paths.iter().flat_map(methods).collect()
}

/// Build the tests with `UPDATE_GOLDEN=1` to write the file anew.
#[test]
fn the_document_is_the_golden_copy() {
    let mut made = serde_json::to_string_pretty(&openapi()).unwrap();
    made.push('\n');
    if option_env!("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &made).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert!(made == golden, "schemas/openapi.json is stale: build the tests with UPDATE_GOLDEN=1 to write it anew");
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = openapi();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let operations = operations();
    let names: BTreeSet<&str> = operations.iter().map(|(_, _, op)| op["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.len(), operations.len());
}

#[tokio::test]
async fn every_operation_of_the_document_is_served_and_its_placeholders_are_described() {
    let stage = Stage::new().await;
    for (method, path, operation) in operations() {
        for placeholder in path.split(['{', '}']).skip(1).step_by(2) {
            let parameters = operation["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|p| p["name"] == placeholder && p["in"] == "path"), "{path}");
        }
        let path = path.replace("{id}", "demo.echo_tool").replace("{version}", "1.0.0");
        let path = path.replace("{agent_id}", "did:web:nobody").replace("{tenant_id}", "local");
        let body = ["POST", "PUT"].contains(&&*method).then(|| json!({ "nonsense": true }));
        let reply = stage.ask(&method, &path, Some(ADMIN), body).await;
        assert!(!["E3007", "E3008"].contains(&reply.code().as_str()), "{method} {path}: {}", reply.code());
    }
    let served = stage.admin("GET", "/openapi.json", None).await;
    assert_eq!(served.json(), openapi());
}
