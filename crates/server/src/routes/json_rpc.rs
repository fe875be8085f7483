//! `POST /rpc`: JSON-RPC 2.0 for `tool.invoke`, `tool.list`, `tool.status` and `tool.cancel` (API-005…008, ERR-007).
//!
//! A message is read here and answered by the same functions that answer its REST twin, so an outcome does not depend on the
//! door. What HTTP itself refuses (no token, too large, no JSON announced) is refused as everywhere; everything that came so
//! far as to be a message, or should have been one, is answered by JSON-RPC under status 200. A refusal carries the error
//! envelope in `error.data`, and the number of its class as `error.code`.
//!
//! Messages of a batch run one after the other, in their order. A notification is done like a request and not answered.
//!
//! Not here: the protocol of MCP, which has the same frames and other methods (`mcp`).

use std::sync::Arc;

use contract::envelope::{AgentContext, ErrorResponse};
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use contract::json;
use kernel::Principal;
use kernel::registry::{ListFilter, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::invoke::{CODES, Preference, invoke_request, performed};
use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, invocations, to, tools};
use crate::answer::{Handled, HttpAnswer};
use crate::body::not_json;
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::members::typed;
use crate::problem::RefusalResponse;

/// Most messages of one batch.
const BATCH_MAX: usize = 10;
/// The methods there are.
const METHODS: [&str; 4] = ["tool.invoke", "tool.list", "tool.status", "tool.cancel"];
/// Members of a message.
const MEMBERS: [&str; 4] = ["jsonrpc", "method", "params", "id"];

/// JSON-RPC 2.0 §5.1.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: "/rpc",
    id: "jsonRpc",
    tag: "invocation",
    summary: "JSON-RPC 2.0: tool.invoke, tool.list, tool.status, tool.cancel; one message, or a batch of up to ten",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Json(messages),
    good: &[
        (200, "one answer per message that has an id, in their order; errors carry the envelope in `error.data`"),
        (204, "there were only notifications"),
    ],
    gives: ResponseBody::Json(answers),
    codes: CODES,
    mount: |filter| to(filter, rpc),
}];

/// One message (JSON-RPC 2.0 §4).
#[derive(Debug, JsonSchema)]
#[schemars(rename = "JsonRpcMessage", deny_unknown_fields)]
#[expect(dead_code, reason = "exists only for its schema; messages are read member by member")]
struct MessageBody {
    /// `2.0`.
    jsonrpc: String,
    method: MethodName,
    /// By name. Of `tool.invoke` the body of `POST /v1/tools/invoke`.
    #[schemars(with = "Option<Map<String, Value>>")]
    params: Option<Value>,
    /// A string, a whole number or null; without one it is a notification.
    #[schemars(with = "Option<Value>")]
    id: Option<Value>,
}

#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "exists only for its schema")]
enum MethodName {
    #[schemars(rename = "tool.invoke")]
    Invoke,
    #[schemars(rename = "tool.list")]
    List,
    #[schemars(rename = "tool.status")]
    Status,
    #[schemars(rename = "tool.cancel")]
    Cancel,
}

/// One answer (JSON-RPC 2.0 §5): `result` or `error`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "JsonRpcAnswer")]
struct RpcAnswer {
    jsonrpc: &'static str,
    id: Value,
    #[serde(flatten)]
    outcome: RpcOutcome,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RpcOutcome {
    Result(Value),
    Error(RpcError),
}

/// Why there is no result.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "JsonRpcError")]
struct RpcError {
    /// -32700, -32600, -32601, or the number of the class in `data.kind`.
    code: i32,
    message: String,
    /// The error envelope, and what REST says beside it.
    data: Value,
}

/// The parameters of `tool.list` (API-006).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ListParams {
    agent_context: AgentContext,
    category: Option<String>,
    capability_query: Option<String>,
    tags: Vec<String>,
    page: Option<usize>,
    page_size: Option<usize>,
}

/// The parameters of `tool.status` (API-007).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusParams {
    invocation_id: InvocationId,
    #[serde(default)]
    agent_context: AgentContext,
}

/// The parameters of `tool.cancel` (API-008).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelParams {
    invocation_id: InvocationId,
    #[serde(default)]
    agent_context: AgentContext,
    #[serde(default)]
    reason: Option<String>,
}

fn messages(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<MessageBody>();
    schemars::json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": BATCH_MAX }] })
}

fn answers(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<RpcAnswer>();
    schemars::json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

async fn rpc(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let text = incoming.json_text(&door, &who).await?;
    let caller = incoming.caller(&door, &who).await?;
    let desk =
        RpcContext { preference: Preference::of(&incoming.parts.headers), base: incoming.base(), door, who, caller };
    let value = match json::read(&text, &desk.door.json_limits()) {
        Ok(value) => value,
        Err(error) => return HttpAnswer::json(&desk.refused(Value::Null, PARSE_ERROR, not_json(&error))),
    };
    let Value::Array(batch) = value else {
        return match desk.answer(value).await {
            Some(answer) => HttpAnswer::json(&answer),
            None => Ok(HttpAnswer::nothing()),
        };
    };
    if batch.is_empty() || batch.len() > BATCH_MAX {
        let refusal = malformed(format!("the batch has {} messages", batch.len()))
            .hint(format!("send 1 to {BATCH_MAX} messages, and more of them in further batches"));
        return HttpAnswer::json(&desk.refused(Value::Null, INVALID_REQUEST, refusal));
    }
    let mut answers = Vec::with_capacity(batch.len());
    for message in batch {
        answers.extend(desk.answer(message).await);
    }
    if answers.is_empty() { Ok(HttpAnswer::nothing()) } else { HttpAnswer::json(&answers) }
}

/// What answering a message needs.
struct RpcContext {
    door: Arc<Door>,
    who: CallerCredential,
    caller: Arc<Principal>,
    base: crate::base_url::BaseUrl,
    preference: Preference,
}

impl RpcContext {
    /// The answer to one message; none to a notification.
    async fn answer(&self, message: Value) -> Option<RpcAnswer> {
        let (id, method, params) = match read(message) {
            Ok(message) => message,
            Err(wrong) => {
                let (id, refusal) = *wrong;
                return Some(self.refused(id, INVALID_REQUEST, refusal));
            }
        };
        if !METHODS.contains(&method.as_str()) {
            let shown: String = method.chars().filter(|c| !c.is_control()).take(60).collect();
            let refusal = Refusal::new(ErrorCode::E3008, format!("there is no method `{shown}`"))
                .hint(format!("use one of: {}", METHODS.join(", ")));
            return id.map(|id| self.refused(id, METHOD_NOT_FOUND, refusal));
        }
        let outcome = self.done(&method, params).await;
        let id = id?;
        Some(match outcome {
            Ok(result) => RpcAnswer { jsonrpc: "2.0", id, outcome: RpcOutcome::Result(result) },
            Err(refused) => {
                let code = refused.code().row().kind.json_rpc_code();
                self.refused(id, code, refused)
            }
        })
    }

    /// Does what a message asks for, as the REST twin of its method does.
    async fn done(&self, method: &str, params: Value) -> Result<Value, RefusalResponse> {
        let door = &self.door;
        if method == "tool.invoke" {
            let again = params.clone();
            let request = invoke_request(params, "params", || again)?;
            let by = (self.caller.caller(), &self.who);
            return written(&Box::pin(performed(door, by, &self.base, request, self.preference)).await?);
        }
        let who = &door.placed(&self.who).await?;
        match method {
            "tool.list" => {
                let params: ListParams = read_params(params)?;
                self.is_about(&params.agent_context).await?;
                written(&self.listed(who, params).await?)
            }
            "tool.status" => {
                let params: StatusParams = read_params(params)?;
                self.is_about(&params.agent_context).await?;
                written(&invocations::stand(door, who, None, params.invocation_id).await?)
            }
            _ => {
                let params: CancelParams = read_params(params)?;
                self.is_about(&params.agent_context).await?;
                written(&invocations::cancelled(door, who, None, params.invocation_id, params.reason).await?)
            }
        }
    }

    async fn listed(
        &self,
        who: &CallerCredential,
        params: ListParams,
    ) -> Result<crate::tool_view::ToolList, RefusalResponse> {
        let ListParams { category, capability_query, tags, page, page_size, .. } = params;
        let filter = ListFilter {
            category,
            tags,
            text: None,
            lifecycle: None,
            page: within("page", page, tools::PAGE_MAX, 1)?,
            page_size: within("page_size", page_size, PAGE_SIZE_MAX, PAGE_SIZE_DEFAULT)?,
        };
        match capability_query.filter(|query| !query.trim().is_empty()) {
            None => tools::listed(&self.door, who, &filter, None).await,
            Some(query) => tools::listed_by_capability(&self.door, who, filter, query).await,
        }
    }

    /// Whoever says who it is says what its token says.
    async fn is_about(&self, context: &AgentContext) -> Result<(), RefusalResponse> {
        Ok(self.door.kernel().agrees_with_token(self.who.actor(), context).await?)
    }

    fn refused(&self, id: impl Into<Option<Value>>, code: i32, refused: impl Into<RefusalResponse>) -> RpcAnswer {
        let body = refused.into().body(self.who.trace_id);
        let message = body.detail.clone();
        let error = RpcError { code, message, data: data_of(&body) };
        RpcAnswer { jsonrpc: "2.0", id: id.into().unwrap_or_default(), outcome: RpcOutcome::Error(error) }
    }
}

/// A message that can be answered: its id if it has one, its method and its parameters.
type Message = (Option<Value>, String, Value);

/// Reads a message. What is none is answered under its id, if that is one.
fn read(message: Value) -> Result<Message, Box<(Value, Refusal)>> {
    let Value::Object(mut members) = message else {
        return Err(Box::new((Value::Null, malformed("a message is an object"))));
    };
    let id = match members.remove("id") {
        None => None,
        Some(id) if id.is_null() || id.is_string() || id.is_u64() || id.is_i64() => Some(id),
        Some(_) => return Err(Box::new((Value::Null, malformed("`id` must be a string, a whole number or null")))),
    };
    let refused = |why: String| Err(Box::new((id.clone().unwrap_or_default(), malformed(why))));
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return refused("`jsonrpc` must be `2.0`".to_owned());
    }
    if let Some(other) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        let shown: String = other.chars().filter(|c| !c.is_control()).take(60).collect();
        return refused(format!("there is no member `{shown}` in a message"));
    }
    let Some(Value::String(method)) = members.remove("method") else {
        return refused("`method` must be a string".to_owned());
    };
    match members.remove("params") {
        None => Ok((id, method, Value::Object(Map::new()))),
        // Parameters by position are left to the method, which knows none.
        Some(params) if params.is_object() || params.is_array() => Ok((id, method, params)),
        Some(_) => refused("`params` must be an object".to_owned()),
    }
}

fn read_params<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    let again = params.clone();
    typed(params, "params", || again)
}

fn within(name: &str, given: Option<usize>, most: usize, default: usize) -> Result<usize, Refusal> {
    match given {
        None => Ok(default),
        Some(number) if (1..=most).contains(&number) => Ok(number),
        Some(_) => {
            Err(malformed(format!("`params.{name}` is out of range"))
                .hint(format!("use a whole number from 1 to {most}")))
        }
    }
}

fn written(answer: &impl Serialize) -> Result<Value, RefusalResponse> {
    serde_json::to_value(answer).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an answer could not be written as JSON");
        Refusal::new(ErrorCode::E3000, "the answer could not be written").caused_by(error).into()
    })
}

/// The envelope, with what else a refused call is told at the REST door; the members of the problem that only HTTP has a use
/// for are left out.
fn data_of(body: &ErrorResponse) -> Value {
    let Ok(Value::Object(mut members)) = serde_json::to_value(body) else { return Value::Null };
    let Some(Value::Object(mut data)) = members.remove("error") else { return Value::Null };
    for (name, value) in members {
        if !["type", "title", "detail"].contains(&name.as_str()) {
            data.entry(name).or_insert(value);
        }
    }
    Value::Object(data)
}

fn malformed(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3004, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_read_as_the_standard_has_them() {
        let (id, method, params) =
            read(json!({ "jsonrpc": "2.0", "id": "a", "method": "tool.list", "params": { "page": 1 } })).unwrap();
        assert_eq!((id, method.as_str(), params), (Some(json!("a")), "tool.list", json!({ "page": 1 })));
        assert_eq!(read(json!({ "jsonrpc": "2.0", "method": "x" })).unwrap().0, None, "a notification");
        assert_eq!(read(json!({ "jsonrpc": "2.0", "method": "x", "id": null })).unwrap().0, Some(Value::Null));
    }

    #[test]
    fn what_is_no_message_is_refused_under_its_id_if_it_has_one() {
        for (message, id, says) in [
            (json!(7), Value::Null, "object"),
            (json!([]), Value::Null, "object"),
            (json!({ "method": "x", "id": 7 }), json!(7), "`jsonrpc`"),
            (json!({ "jsonrpc": "1.0", "method": "x", "id": 7 }), json!(7), "`jsonrpc`"),
            (json!({ "jsonrpc": "2.0", "id": 7 }), json!(7), "`method`"),
            (json!({ "jsonrpc": "2.0", "method": 1, "id": "a" }), json!("a"), "`method`"),
            (json!({ "jsonrpc": "2.0", "method": "x", "id": 1.5 }), Value::Null, "`id`"),
            (json!({ "jsonrpc": "2.0", "method": "x", "id": {} }), Value::Null, "`id`"),
            (json!({ "jsonrpc": "2.0", "method": "x", "id": 1, "params": 7 }), json!(1), "`params`"),
            (json!({ "jsonrpc": "2.0", "method": "x", "id": 1, "parms": {} }), json!(1), "`parms`"),
        ] {
            let (answered, refusal) = *read(message.clone()).unwrap_err();
            assert_eq!(answered, id, "{message}");
            assert!(refusal.message.contains(says), "{message}: {}", refusal.message);
        }
    }
}
