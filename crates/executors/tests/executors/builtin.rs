//! Built-ins: every example of every manifest runs, and its result satisfies the manifest.

use std::sync::Arc;

use contract::error::ErrorCode;
use contract::manifest::Isolation;
use gantry_executors::BuiltinExecutor;
use gantry_executors::builtin::manifests;
use ports::executor::{Executor, ExecutorError, ToolOutput};
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use crate::calls::{StillClock, call, version_of};

fn tool(id: &str) -> Arc<ToolVersion> {
    version_of(manifests().unwrap().into_iter().find(|m| m.tool_id == id).unwrap())
}

fn executor() -> BuiltinExecutor {
    BuiltinExecutor::new(Arc::new(StillClock), None)
}

async fn run(id: &str, parameters: Value) -> ToolOutput {
    executor().execute(call(&tool(id), parameters)).await.unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[tokio::test]
async fn every_example_that_needs_no_model_gives_a_result_of_the_declared_shape() {
    for manifest in manifests().unwrap() {
        let tool = version_of(manifest);
        for example in tool.manifest.examples.clone() {
            let prepared = tool.parameters_schema().unwrap().prepare(example.clone()).unwrap();
            match executor().execute(call(&tool, prepared.value)).await {
                Ok(output) => {
                    let checked = tool.result_schema().unwrap().check(&output.value);
                    assert_eq!(checked, Ok(()), "{} {example}: {}", tool.id, output.value);
                }
                Err(ExecutorError { refusal, .. }) => {
                    assert_eq!(refusal.code, ErrorCode::E3408, "{} {example}: {refusal}", tool.id);
                    let declared = tool.manifest.errors.iter().any(|e| e.code == refusal.code);
                    assert!(declared, "{} answers {} without declaring it", tool.id, refusal.code);
                }
            }
        }
    }
}

#[tokio::test]
async fn the_documented_calls_have_the_documented_results() {
    let sum = run("calculator", json!({ "expression": "sqrt(16) + 2^3" })).await.value;
    assert_eq!(sum, json!({ "expression": "sqrt(16) + 2^3", "result": 12, "resultType": "integer" }));
    let now = run("datetime", json!({ "operation": "now" })).await.value;
    assert_eq!(now["iso"], "2026-03-01T12:30:45.678Z");
    let parsed = run("json_parser", json!({ "text": "x {\"a\": 1} y" })).await.value;
    assert_eq!(parsed, json!({ "success": true, "data": { "a": 1 }, "method": "regex_extraction" }));
    let counted = run("text_transform", json!({ "text": "a b. c", "operation": "word_count" })).await.value;
    assert_eq!(counted, json!({ "characters": 6, "words": 3, "sentences": 2, "paragraphs": 1 }));
}

#[tokio::test]
async fn large_texts_are_worked_on_aside_and_give_the_same_answers() {
    let long = "The quick brown fox jumps over the lazy dog. ".repeat(2000);
    let counted = run("text_transform", json!({ "text": long, "operation": "word_count" })).await.value;
    assert_eq!(counted["words"], 18_000);
    let text = format!("{long} {{\"found\": true}}");
    assert_eq!(run("json_parser", json!({ "text": text })).await.value["data"], json!({ "found": true }));
}

#[tokio::test]
async fn without_a_model_the_operations_that_need_one_name_the_setting() {
    let reasoning = tool("deep_reasoning");
    let binding = reasoning.manifest.execution.clone().unwrap();
    let refused = [
        executor().ready(&reasoning, &binding, Isolation::Builtin).unwrap_err(),
        executor().execute(call(&reasoning, json!({ "problem": "why" }))).await.unwrap_err().refusal,
        executor()
            .execute(call(
                &tool("text_transform"),
                json!({ "text": "hi", "operation": "translate", "options": { "targetLanguage": "French" } }),
            ))
            .await
            .unwrap_err()
            .refusal,
    ];
    for refusal in refused {
        assert_eq!(refusal.code, ErrorCode::E3408);
        assert!(refusal.resolution().contains("`[model] base_url`"), "{}", refusal.resolution());
        assert!(refusal.resolution().contains("GANTRY_MODEL__BASE_URL"), "{}", refusal.resolution());
    }
    let schema = json!({ "type": "object" });
    let parsed = run("json_parser", json!({ "text": "no json", "schema": schema })).await.value;
    assert_eq!(parsed, json!({ "success": false, "error": "Could not parse JSON from text" }));
}

#[tokio::test]
async fn a_tool_bound_to_an_unknown_handler_is_not_ready() {
    let mut manifest = manifests().unwrap().remove(0);
    manifest.execution = Some(contract::manifest::Execution::Builtin { handler: "calculater".into() });
    let tool = version_of(manifest);
    let refusal = executor().ready(&tool, tool.manifest.execution.as_ref().unwrap(), Isolation::Builtin).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3108);
    assert!(refusal.resolution().contains("calculator, "), "{}", refusal.resolution());
}
