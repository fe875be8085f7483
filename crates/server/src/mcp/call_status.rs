//! Calls that went on in the background for clients that know no tasks: what such a client is told, and where it asks later.
//!
//! The client has said how long it waits (`dev.gantry/wait_seconds`). What it reads at `gantry://calls/{id}` is what `tasks/get` says
//! of the same call, to the same callers.

use jobs::AcceptedCall;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Resource, ResourceContents};
use serde_json::json;

use super::running_call::RunSubject;
use super::tasks::VisitorTasks;

/// Where such calls are asked about.
pub(crate) const CALLS: &str = "gantry://calls/";

/// The answer to a call that goes on.
pub(crate) fn goes_on(accepted: &AcceptedCall, subject: &RunSubject) -> CallToolResult {
    let id = accepted.invocation_id;
    let uri = format!("{CALLS}{id}");
    let words = format!(
        "The call has not ended within the time that it was waited for. It goes on in the background as {id}, and has no result yet. \
         Do not call the tool again for it. Ask later: read the resource {uri} (its `status` is `completed` at the end, and `result` \
         is the result), or `gantry jobs show {id}`, or GET /v1/invocations/{id}."
    );
    let link = Resource::new(uri, "call").with_mime_type("application/json");
    let content = vec![ContentBlock::text(words), ContentBlock::ResourceLink(link)];
    // A client that was promised structure takes its absence for a fault of the protocol, unless the result says that it is not
    // what was asked for.
    let promised = matches!(subject, RunSubject::Tool(Some(tool)) if tool.wire.output_schema.is_some());
    let result = if promised { CallToolResult::error(content) } else { CallToolResult::success(content) };
    let mut meta = MetaObject::new();
    meta.0.insert("dev.gantry/invocation_id".to_owned(), json!(id));
    meta.0.insert("dev.gantry/trace_id".to_owned(), json!(accepted.trace_id));
    meta.0.insert("dev.gantry/status".to_owned(), json!("running"));
    result.with_meta(Some(meta))
}

/// Where a call stands, with its end.
pub(super) async fn call_status(tasks: VisitorTasks<'_>, uri: &str) -> Option<Result<ResourceContents, ErrorData>> {
    let id = uri.strip_prefix(CALLS)?;
    let status = tasks.task(id).await;
    Some(status.map(|status| ResourceContents::text(json!(status).to_string(), uri).with_mime_type("application/json")))
}
