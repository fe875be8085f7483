//! How calls end, in the words of MCP: results, failures that a model can act on, and errors of the protocol.
//!
//! A failure of a call is a *result* with `isError`, because only results reach the model; what went wrong, where, and what
//! to do about it is in its text, and the whole error envelope in `_meta`. Only a name that means nothing is an error of
//! the protocol.
//!
//! Not here: results that are too large (`result_fit`).

use contract::envelope::InvokeResponse;
use contract::error::{ErrorCode, InputFault, Refusal, RefusalReason, ToolWords};
use contract::ids::{InvocationId, TraceId};
use kernel::FailedCall;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode as WireCode, MetaObject};
use serde_json::{Map, Value, json};

/// Members of `_meta` that are ours.
const INVOCATION_ID: &str = "dev.gantry/invocation_id";
const TRACE_ID: &str = "dev.gantry/trace_id";
const ERROR: &str = "dev.gantry/error";
const DEPRECATION: &str = "dev.gantry/deprecation";
const STALE: &str = "dev.gantry/stale";
const SOURCE: &str = "dev.gantry/source";
const PROVENANCE: &str = "dev.gantry/provenance";
const EXECUTION_METADATA: &str = "dev.gantry/execution_metadata";
const OUTPUT: &str = "dev.gantry/output";
const CHECKPOINT_REF: &str = "dev.gantry/checkpoint_ref";
/// Faults of the input that are told in words; all of them are in `_meta`.
const FAULTS_TOLD_MAX: usize = 20;

/// A result. `relayed`: it is one of an MCP server, and so has MCP's own shape.
pub(crate) fn result(response: InvokeResponse, relayed: bool) -> CallToolResult {
    let mut meta = Map::new();
    meta.insert(INVOCATION_ID.to_owned(), json!(response.invocation_id));
    meta.insert(TRACE_ID.to_owned(), json!(response.trace_id));
    meta.insert(SOURCE.to_owned(), json!(response.source));
    meta.insert(PROVENANCE.to_owned(), json!(response.provenance));
    if let Some(notice) = &response.execution_metadata.deprecation {
        meta.insert(DEPRECATION.to_owned(), json!(notice));
    }
    if let Some(notice) = &response.execution_metadata.stale {
        meta.insert(STALE.to_owned(), json!(notice));
    }
    success(response.result, meta, relayed)
}

/// The same, from the answer as a job has kept it.
pub(crate) fn kept_result(mut answer: Value, relayed: bool) -> CallToolResult {
    let mut part = |path: &str| answer.pointer_mut(path).map(Value::take).filter(|value| !value.is_null());
    let members = [
        (INVOCATION_ID, part("/invocation_id")),
        (TRACE_ID, part("/trace_id")),
        (SOURCE, part("/source")),
        (PROVENANCE, part("/provenance")),
        (DEPRECATION, part("/execution_metadata/deprecation")),
        (STALE, part("/execution_metadata/stale")),
    ];
    let meta = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    success(part("/result").unwrap_or_default(), meta, relayed)
}

fn success(value: Value, meta: Map<String, Value>, relayed: bool) -> CallToolResult {
    let (content, structured, said) = if relayed { unwrapped(value) } else { wrapped(value) };
    let mut result = CallToolResult::success(content);
    result.structured_content = structured;
    result.with_meta(Some(MetaObject(said.into_iter().chain(meta).collect())))
}

/// Our own result: structured where MCP allows it, and always as text.
fn wrapped(value: Value) -> (Vec<ContentBlock>, Option<Value>, Map<String, Value>) {
    let (text, structured) = match value {
        Value::String(text) => (text, None),
        Value::Object(_) => (value.to_string(), Some(value)),
        other => (other.to_string(), None),
    };
    (vec![ContentBlock::text(text)], structured, Map::new())
}

/// The result of an MCP server, out of the envelope in which it travelled.
fn unwrapped(mut value: Value) -> (Vec<ContentBlock>, Option<Value>, Map<String, Value>) {
    let structured = value.get_mut("structuredContent").map(Value::take);
    let blocks = value.get_mut("content").map(Value::take);
    (blocks.map(content_blocks).unwrap_or_default(), structured, said_meta(&value))
}

/// What the server has said in `_meta`.
fn said_meta(value: &Value) -> Map<String, Value> {
    value.get("_meta").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Blocks as they were; one of a kind that is not known becomes its own text.
fn content_blocks(blocks: Value) -> Vec<ContentBlock> {
    let Value::Array(blocks) = blocks else { return vec![ContentBlock::text(blocks.to_string())] };
    blocks.into_iter().map(content_block).collect()
}

/// One of them.
pub(crate) fn content_block(block: Value) -> ContentBlock {
    let text = block.to_string();
    serde_json::from_value(block).unwrap_or_else(|_| ContentBlock::text(text))
}

/// A server's word that its tool needs something of the client that the client does not have: 2026-07-28 has an error for
/// it, which clients understand.
pub(crate) fn missing_capability(refusal: &Refusal) -> Option<ErrorData> {
    let missing = WireCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
    match refusal.reason.as_deref() {
        Some(RefusalReason::UpstreamError { code }) if *code == i64::from(missing.0) => {}
        _ => return None,
    }
    let required = refusal.tool_words().upstream_data().and_then(|data| data.get("requiredCapabilities"));
    let required = required.filter(|required| required.is_object()).cloned().unwrap_or_else(|| json!({}));
    Some(ErrorData::new(missing, refusal.message.clone(), Some(json!({ "requiredCapabilities": required }))))
}

/// A failure, as a result or as an error of the protocol.
pub(crate) fn failure(failed: &FailedCall) -> Result<CallToolResult, ErrorData> {
    let metadata = failed.execution_metadata.as_ref().map(|metadata| json!(metadata));
    let result = refused(&failed.refusal, failed.trace_id, Some(failed.invocation_id));
    let mut result = result.map(|result| with_run(result, metadata, failed.checkpoint_ref.as_deref()))?;
    let output = failed.output.as_ref().map(|output| (OUTPUT.to_owned(), json!(output)));
    result.meta.get_or_insert_default().0.extend(output);
    Ok(result)
}

/// A failure with the times and usage of its call, and what can be gone on from. (LIFE-014)
pub(crate) fn with_run(
    mut result: CallToolResult,
    metadata: Option<Value>,
    checkpoint: Option<&str>,
) -> CallToolResult {
    let members = &mut result.meta.get_or_insert_default().0;
    members.extend(metadata.map(|metadata| (EXECUTION_METADATA.to_owned(), metadata)));
    members.extend(checkpoint.map(|checkpoint| (CHECKPOINT_REF.to_owned(), json!(checkpoint))));
    result
}

/// A refusal, as a result or as an error of the protocol.
pub(crate) fn refused(
    refusal: &Refusal,
    trace_id: TraceId,
    invocation_id: Option<InvocationId>,
) -> Result<CallToolResult, ErrorData> {
    let envelope = json!(refusal.envelope(trace_id, invocation_id));
    if refusal.code == ErrorCode::E3101 {
        return Err(ErrorData::invalid_params(told(refusal), Some(json!({ "error": envelope }))));
    }
    // What the tool itself said about its failure comes first: it is what the model asked for.
    let said = Some(refusal.tool_words()).filter(|_| refusal.code == ErrorCode::E3401);
    let mut meta = said.and_then(ToolWords::meta).and_then(Value::as_object).cloned().unwrap_or_default();
    meta.insert(TRACE_ID.to_owned(), json!(trace_id));
    meta.insert(ERROR.to_owned(), envelope);
    let mut content = said.and_then(ToolWords::content).cloned().map(content_blocks).unwrap_or_default();
    if content.is_empty() {
        content.push(ContentBlock::text(told(refusal)));
        // An error of the protocol has words, too, which a client without Gantry would have read.
        let words = Some(refusal.tool_words()).filter(|_| is_protocol_error(refusal)).and_then(ToolWords::content);
        content.extend(words.cloned().map(content_blocks).unwrap_or_default());
    }
    let mut result = CallToolResult::error(content).with_meta(Some(MetaObject(meta)));
    result.structured_content = said.and_then(ToolWords::structured).cloned();
    Ok(result)
}

/// Did an MCP server answer with an error of the protocol, and not with a result that says it failed?
pub(crate) fn is_protocol_error(refusal: &Refusal) -> bool {
    refusal.reason.as_ref().is_some_and(|reason| reason.upstream_code().is_some())
}

/// An error of the protocol with our code in it.
pub(crate) fn error(refusal: &Refusal, trace_id: TraceId) -> ErrorData {
    let data = json!({ "error": refusal.envelope(trace_id, None) });
    let message = told(refusal);
    match refusal.code.http() {
        404 => ErrorData::resource_not_found(message, Some(data)),
        400..500 => ErrorData::invalid_params(message, Some(data)),
        _ => ErrorData::internal_error(message, Some(data)),
    }
}

/// The error of a resource that is not there says which.
pub(crate) fn unread(mut error: ErrorData, uri: &str) -> ErrorData {
    if error.code == WireCode::RESOURCE_NOT_FOUND
        && let Some(members) = error.data.get_or_insert_with(|| json!({})).as_object_mut()
    {
        members.insert("uri".to_owned(), json!(uri));
    }
    error
}

/// What happened, what exactly is wrong with the input, and what to do.
pub(crate) fn told(refusal: &Refusal) -> String {
    let mut text = format!("{}: {}", refusal.code, refusal.message);
    for InputFault { path, message, reason } in refusal.input_faults().take(FAULTS_TOLD_MAX) {
        let place = if path.is_empty() { "the parameters" } else { &path };
        text += &format!("\n- {place}: {message}{reason}");
    }
    text += &format!("\n{}", refusal.resolution());
    if let Some(pause_ms) = refusal.retry_after_ms {
        text += &format!(" (after {pause_ms} ms)");
    }
    text
}

#[cfg(test)]
mod tests {
    use contract::error::KeptError;

    use super::*;

    #[test]
    fn faults_of_the_input_are_told_one_by_one_with_what_to_do() {
        let refusal = Refusal::new(ErrorCode::E3301, "the parameters do not fit `a.b` 1.0.0").details(json!({
            "errors": [{ "path": "/dasy", "message": "`dasy` is not declared; did you mean `days`?" },
                       { "path": "", "message": "`city` is required" }]
        }));
        let result = refused(&refusal, TraceId::from_bytes([1; 16]), None).unwrap();
        assert_eq!(result.is_error, Some(true));
        let text = serde_json::to_value(&result).unwrap();
        let words = text["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            words,
            "E3301: the parameters do not fit `a.b` 1.0.0\n- /dasy: `dasy` is not declared; did you mean `days`?\n\
             - the parameters: `city` is required\nFix parameters to match schema"
        );
        assert_eq!(text["_meta"][ERROR]["code"], "E3301");
        assert!(text.get("structuredContent").is_none(), "it would not fit the tool's output schema");
    }

    #[test]
    fn what_a_tool_of_an_mcp_server_gives_comes_out_as_it_went_in() {
        let inside = json!({
            "content": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }, { "type": "odd", "x": 1 }],
            "structuredContent": { "n": 1 },
            "_meta": { "example.com/area": "files" }
        });
        let (content, structured, meta) = unwrapped(inside);
        let content = serde_json::to_value(content).unwrap();
        assert_eq!(content[0], json!({ "type": "image", "data": "AA==", "mimeType": "image/png" }));
        assert_eq!(content[1]["text"], r#"{"type":"odd","x":1}"#);
        assert_eq!(structured, Some(json!({ "n": 1 })));
        assert_eq!(Value::Object(meta), json!({ "example.com/area": "files" }));
        let failed = Refusal::new(ErrorCode::E3401, "the tool failed")
            .details(json!({ "content": [{ "type": "text", "text": "no such file" }] }));
        let shown = refused(&failed, TraceId::from_bytes([1; 16]), None).unwrap();
        assert_eq!(
            serde_json::to_value(shown).unwrap()["content"],
            json!([{ "type": "text", "text": "no such file" }])
        );
    }

    #[test]
    fn the_words_of_a_server_that_answers_with_an_error_stand_behind_ours() {
        let said = json!({ "upstream_code": -32603, "content": [{ "type": "text", "text": "Bad credentials" }] });
        for details in [said.clone(), json!({ "code": "E3502", "cause": "failed", "details": said })] {
            let kept = json!({ "code": "E3413", "message": "the server `s` could not do it", "details": details });
            let refusal = KeptError::read(&kept).refusal;
            let shown = serde_json::to_value(refused(&refusal, TraceId::from_bytes([1; 16]), None).unwrap()).unwrap();
            assert!(shown["content"][0]["text"].as_str().unwrap().starts_with("E3413: the server `s`"), "{shown}");
            assert_eq!(shown["content"][1]["text"], "Bad credentials");
            assert!(is_protocol_error(&refusal));
        }
        let bare = KeptError::read(&json!({ "code": "E3413", "details": { "details": null } }));
        assert!(!is_protocol_error(&bare.refusal));
    }

    #[test]
    fn a_tool_nobody_has_is_an_error_of_the_protocol() {
        let refusal = Refusal::new(ErrorCode::E3101, "there is no tool `x`").hint("did you mean `y`?");
        let error = refused(&refusal, TraceId::from_bytes([1; 16]), None).unwrap_err();
        assert_eq!((error.code.0, error.data.unwrap()["error"]["code"].as_str()), (-32602, Some("E3101")));
    }
}
