//! Calls of tools that live on servers behind Gantry (`execution.type = "mcp"`).
//!
//! Invariants
//! - UEXE-1: a call is sent a second time only if it surely was not executed, or if its tool may be executed twice. Never more
//!   often than that (DESIGN §5, §8.10).
//! - UEXE-2: a result is handed on as it came: all content blocks, known or not, and the structured content.
//! - UEXE-3: what a server asks in the middle of a call reaches the caller only as its operator allows, and in a bounded number
//!   of rounds.

use std::sync::Arc;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::cost::ReportedCost;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation, Manifest};
use contract::trace_context::TraceContext;
use fair_places::PlaceUsage;
use ports::executor::{ExecutionReach, Executor, ExecutorError, ResourceUsage, ToolCall, ToolOutput};
use ports::redactor::GivenCredentials;
use ports::tool_origin::ToolOrigin;
use ports::tool_version::ToolVersion;
use ports::upstream_spans::OutwardCall;
use serde_json::{Map, Value, json};

use crate::connection::{CallMeter, CallTraffic};
use crate::fault::{UpstreamFault, bounded_content};
use crate::observer::UpstreamEvent;
use crate::rounds::{RequestRound, RequestRounds};
use crate::server_tasks;
use crate::spec::RelayedQuestions;
use crate::supervisor::ServerUnit;
use crate::supervisor::live::LiveConnection;
use crate::upstreams::UpstreamServers;
use crate::wire::is_ours;

/// Where a server finds the idempotency key of a call: in its `_meta`, where a server of ours looks for one, too.
const IDEMPOTENCY_KEY: &str = "dev.gantry/idempotency_key";

/// Where it finds the person on whose behalf the call is made, if the caller's token names one.
const USER: &str = "dev.gantry/user";

/// Bytes of structured content, and of metadata, that a failed tool may put beside its words.
const FAILURE_MEMBER_BYTES_MAX: usize = 16 * 1024;

/// Times a call may be sent again (UEXE-1).
const REPEATS_MAX: u32 = 1;

/// Runs tools of servers behind Gantry.
#[derive(Debug, Clone)]
pub struct UpstreamExecutor {
    upstreams: Arc<UpstreamServers>,
}

impl UpstreamExecutor {
    /// For these servers.
    pub fn new(upstreams: Arc<UpstreamServers>) -> Self {
        Self { upstreams }
    }
}

#[async_trait]
impl Executor for UpstreamExecutor {
    fn kind(&self) -> &'static str {
        "mcp"
    }

    fn saves(&self, _manifest: &Manifest) -> bool {
        false
    }

    fn ready(&self, tool: &ToolVersion, binding: &Execution, demand: Isolation) -> Result<(), Refusal> {
        let Execution::Mcp { server, .. } = binding else { return Err(unbound()) };
        if demand > Isolation::Process {
            return Err(Refusal::new(
                ErrorCode::E3405,
                format!("a server behind Gantry cannot be isolated as `{}`", demand.as_str()),
            )
            .retryable(false));
        }
        self.upstreams.definition(&tool.tenant, server).map(drop)
    }

    /// Those of its server.
    fn credentials(&self, tool: &ToolVersion, tenant: &TenantId) -> Option<GivenCredentials> {
        let Some(Execution::Mcp { server, .. }) = &tool.manifest.execution else { return None };
        let definition = self.upstreams.definition(&tool.tenant, server).ok()?;
        let names: Vec<Box<str>> = definition.spec.reach.credentials().map(Into::into).collect();
        let tenant = if definition.spec.shareable { &definition.tenant } else { tenant };
        (!names.is_empty()).then(|| GivenCredentials { tenant: tenant.clone(), names })
    }

    fn places(&self) -> Vec<(&'static str, PlaceUsage)> {
        vec![("mcp_calls", self.upstreams.places()), ("mcp_programs", self.upstreams.programs())]
    }

    /// Those of its server.
    fn endpoints(&self, tool: &ToolVersion) -> Vec<String> {
        let Some(Execution::Mcp { server, .. }) = &tool.manifest.execution else { return Vec::new() };
        self.upstreams.definition(&tool.tenant, server).map(|definition| definition.endpoints()).unwrap_or_default()
    }

    /// Its server.
    fn origin(&self, tool: &ToolVersion) -> Result<Option<Arc<ToolOrigin>>, Refusal> {
        let Some(Execution::Mcp { server, .. }) = &tool.manifest.execution else { return Err(unbound()) };
        let definition = self.upstreams.definition(&tool.tenant, server)?;
        Ok(Some(Arc::clone(&definition.origin)))
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        let unsent = ExecutorError::not_sent;
        let Some(Execution::Mcp { server, tool, .. }) = &call.tool.manifest.execution else {
            return Err(unsent(unbound()));
        };
        // It may have to wait for a place, and for the server to start.
        call.dispatch.hold();
        let definition = self.upstreams.definition(&call.tool.tenant, server).map_err(unsent)?;
        let met = self.upstreams.unit_for(&definition, &call.tenant, call.endpoint, &*call.companion);
        let unit = met.await.map_err(unsent)?;
        let _turn = unit.admitted(&call.tenant, call.agent.as_str()).await.map_err(unsent)?;
        let _told = unit.teller.call();
        let traffic = Arc::new(CallTraffic::default());
        let asked = Asked { call: &call, tool, relay: definition.spec.relay, unit: &unit, traffic: &traffic };
        let safe = call.tool.manifest.side_effect_policy.is_safe_to_retry();
        let mut repeats = 0;
        loop {
            let live = unit.live().await.map_err(unsent)?;
            let counts = Counts { traffic: Arc::clone(&traffic), meter: live.connection.metered() };
            // Should the call be ended from outside.
            call.usage_at_end.leave(counts.clone().read());
            let fault = match asked.once(live.live()).await {
                Ok(result) => {
                    let ReportedCost { cost: cost_incurred, tokens } = reported(&result);
                    let usage = ResourceUsage { cost_incurred, tokens, ..counts.read().await };
                    return judged(result, server, safe)
                        .map(|value| ToolOutput { value: live.scrubber.value(value), usage })
                        .map_err(|error| refused(&unit, &live, error, safe).having_used(usage));
                }
                Err(fault) => fault,
            };
            if matches!(fault, UpstreamFault::NotSent(_)) {
                // A fault that came after an answer is another one (FAULT-4).
                call.dispatch.hold();
            }
            if fault.is_unreachable() {
                live.connection.give_up("the server cannot be reached");
            }
            // UEXE-1.
            let again = matches!(fault, UpstreamFault::NotSent(_)) || (safe && fault.ends_connection());
            if !again || repeats >= REPEATS_MAX {
                let said = fault.to_string();
                let fault_shown = call.companion.redacted(&live.scrubber.text(&said));
                tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %server, fault = %fault_shown, "a call to a server failed");
                let usage = counts.read().await;
                return Err(refused(&unit, &live, fault.failure(server, safe), safe).having_used(usage));
            }
            repeats += 1;
        }
    }
}

/// What a caller is told, with what nobody knows the outcome of counted.
fn refused(unit: &ServerUnit, live: &LiveConnection, error: ExecutorError, safe: bool) -> ExecutorError {
    if error.reach == ExecutionReach::MayHaveRun && !safe {
        unit.teller.tell(UpstreamEvent::Indeterminate);
    }
    error.map(|refusal| live.scrubber.refusal(refusal))
}

/// One call, however often it is sent.
struct Asked<'a> {
    call: &'a ToolCall,
    tool: &'a str,
    relay: RelayedQuestions,
    unit: &'a ServerUnit,
    traffic: &'a Arc<CallTraffic>,
}

impl Asked<'_> {
    /// Sends it, and again with the answers as long as the server asks back (UEXE-3).
    async fn once(&self, live: &Arc<LiveConnection>) -> Result<Value, UpstreamFault> {
        let companion = live.discreet(&self.call.companion);
        let underway = self.call.trace.begin(|| OutwardCall::Mcp {
            method: "tools/call",
            server: self.unit.name.clone(),
            tool: self.tool.to_owned(),
        });
        let mut meta = in_meta(&underway.context());
        meta.insert(IDEMPOTENCY_KEY.to_owned(), json!(&*self.call.idempotency_key));
        meta.extend(self.call.user.as_ref().map(|user| (USER.to_owned(), json!(user))));
        let mut params = json!({ "name": self.tool, "arguments": &*self.call.parameters, "_meta": meta });
        let is_task = server_tasks::is_needed(live.connection.met(), &self.call.tool.manifest);
        if let (true, Some(members)) = (is_task, params.as_object_mut()) {
            members.insert("task".to_owned(), server_tasks::wish());
        }
        let schema = Some(&self.call.tool.manifest.parameters);
        let rounds = RequestRounds { params, relay: self.relay, server: &self.unit.name };
        let send = |params, round| {
            // FAULT-4: a later round that does not leave takes nothing back.
            let dispatch = (round == RequestRound::First).then_some(&self.call.dispatch);
            live.connection.call(params, schema, &companion, (self.traffic, dispatch))
        };
        let outcome = match rounds.through(&*companion, send).await {
            Ok(begun) if is_task => server_tasks::concluded(live, begun, &companion).await,
            outcome => outcome,
        };
        // Which of its codes it becomes is decided later; that the server did not answer is what belongs here.
        underway.end(outcome.as_ref().err().map(|_| ErrorCode::E3502));
        outcome
    }
}

/// A trace as MCP carries it: in `_meta`, on every transport. (OBS-002)
fn in_meta(trace: &TraceContext) -> Map<String, Value> {
    let parent = trace.traceparent().map(|parent| ("traceparent".to_owned(), parent.into()));
    let state = trace.tracestate().map(|state| ("tracestate".to_owned(), state.into()));
    parent.into_iter().chain(state).collect()
}

/// What the server says in the metadata of a result that the call has cost (COST-004).
fn reported(result: &Value) -> ReportedCost {
    let said = result.get("_meta").and_then(|meta| meta.get(ReportedCost::META));
    said.map(ReportedCost::read).unwrap_or_default()
}

/// What counts for one call while it is on a server. (EXEC-017)
#[derive(Debug, Clone)]
struct Counts {
    traffic: Arc<CallTraffic>,
    meter: Option<Arc<CallMeter>>,
}

impl Counts {
    /// The bytes of the messages that went out and came back, and what the call used of a server that is a program of ours.
    async fn read(self) -> ResourceUsage {
        let (network_bytes_sent, network_bytes_received) = self.traffic.bytes();
        let usage = ResourceUsage { network_bytes_sent, network_bytes_received, ..ResourceUsage::default() };
        let Some(meter) = self.meter else { return usage };
        let used = meter.end().await;
        ResourceUsage {
            cpu_millicore_seconds: u64::saturating_from(used.cpu.as_millis()),
            memory_peak_mb: used.memory_peak_bytes.div_ceil(1 << 20),
            ..usage
        }
    }
}

/// UEXE-2: what a result means. One that means nothing came from a server that may have done something (FAULT-1).
fn judged(mut result: Value, server: &str, safe: bool) -> Result<Value, ExecutorError> {
    let nonsense = || UpstreamFault::Nonsense("result of a tool").failure(server, safe);
    let members = result.as_object_mut().ok_or_else(nonsense)?;
    if members.get("resultType").and_then(Value::as_str).is_some_and(|kind| kind != "complete") {
        return Err(nonsense());
    }
    let structured = members.remove("structuredContent");
    let meta = members.remove("_meta").and_then(handed_on);
    let content = match members.remove("content") {
        Some(Value::Array(blocks)) => Value::Array(blocks),
        None if structured.is_some() => json!([]),
        _ => return Err(nonsense()),
    };
    // Taken for success, a failure in other words would be one for ever.
    let has_failed = match members.get("isError") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(_) => return Err(nonsense()),
    };
    if has_failed {
        let details =
            beside(json!({ "content": bounded_content(content) }), within_bounds(structured), within_bounds(meta));
        let refusal = Refusal::new(ErrorCode::E3401, "the tool failed; what it said is in the details")
            .details(details)
            .hint(format!("read what it said; `gantry server logs {server}` shows what its server wrote besides"))
            .retryable(false);
        return Err(ExecutorError::answered(refusal));
    }
    Ok(beside(json!({ "content": content }), structured, meta))
}

/// What came with the content, if anything did.
fn beside(mut value: Value, structured: Option<Value>, meta: Option<Value>) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.extend(structured.map(|structured| ("structuredContent".to_owned(), structured)));
        members.extend(meta.map(|meta| ("_meta".to_owned(), meta)));
    }
    value
}

/// What of a result's metadata is said to us: who the server is, and which of its tasks the result is of.
const BETWEEN_US: [&str; 3] =
    [ReportedCost::META, "io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/related-task"];

/// Metadata of a result as it is handed on: without what the server has said to us, and without what only we say.
fn handed_on(meta: Value) -> Option<Value> {
    let Value::Object(mut members) = meta else { return None };
    members.retain(|name, _| !BETWEEN_US.contains(&name.as_str()) && !is_ours(name));
    (!members.is_empty()).then_some(Value::Object(members))
}

/// What stands beside the words of a failed tool must fit into a refusal.
fn within_bounds(value: Option<Value>) -> Option<Value> {
    value.filter(|value| value.to_string().len() <= FAILURE_MEMBER_BYTES_MAX)
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a server").retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_handed_on_as_they_came() {
        let hologram = json!([{ "type": "hologram", "beam": 1 }, { "type": "text", "text": "a" }]);
        for (result, expected) in [
            (json!({ "content": hologram, "_meta": {} }), Some(json!({ "content": hologram }))),
            (
                json!({ "content": [], "_meta": { "example.com/page": 2, "dev.gantry/trace_id": "forged", "gantry/usage": {},
                    "io.modelcontextprotocol/serverInfo": { "name": "x" } } }),
                Some(json!({ "content": [], "_meta": { "example.com/page": 2 } })),
            ),
            (
                json!({ "content": [], "structuredContent": { "a": 1 }, "isError": false, "resultType": "complete" }),
                Some(json!({ "content": [], "structuredContent": { "a": 1 } })),
            ),
            (json!({ "structuredContent": [1] }), Some(json!({ "content": [], "structuredContent": [1] }))),
            (json!({}), None),
            (json!({ "content": "text" }), None),
            (json!([]), None),
            (json!({ "content": [], "resultType": "task" }), None),
        ] {
            for (safe, code) in [(true, ErrorCode::E3502), (false, ErrorCode::E3413)] {
                match (judged(result.clone(), "s", safe), &expected) {
                    (Ok(value), Some(expected)) => assert_eq!(value, *expected, "{result}"),
                    (Err(error), None) => {
                        assert_eq!((error.refusal.code, error.reach), (code, ExecutionReach::MayHaveRun), "{result}");
                    }
                    (other, _) => panic!("{result}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn what_a_server_says_that_a_call_has_cost_is_heard() {
        let said = json!({ "costIncurred": "0.03", "currency": "EUR", "tokensUsed": 120 });
        let said = reported(&json!({ "content": [], "_meta": { "gantry/usage": said } }));
        let cost = said.cost.unwrap();
        assert_eq!((cost.amount.to_string(), cost.currency.as_str(), said.tokens), ("0.03".into(), "EUR", Some(120)));
        for silent in [json!({ "content": [] }), json!({ "_meta": { "gantry/usage": "much" } }), json!([])] {
            assert_eq!(reported(&silent), ReportedCost::default(), "{silent}");
        }
    }

    #[test]
    fn a_failed_tool_is_a_failed_call_with_its_own_words() {
        let content = json!([{ "type": "text", "text": "no such file" }]);
        let error = judged(json!({ "content": content, "isError": true }), "s", false).unwrap_err();
        assert!(error.refusal.hint.as_ref().unwrap().contains("`gantry server logs s`"), "{error:?}");
        assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3401, ExecutionReach::Answered));
        assert_eq!(error.refusal.details.unwrap()["content"], content);
        let more = json!({ "content": content, "structuredContent": { "a": 1 }, "_meta": { "b": 2 }, "isError": true });
        let details = judged(more, "s", false).unwrap_err().refusal.details.unwrap();
        assert_eq!(*details, json!({ "content": content, "structuredContent": { "a": 1 }, "_meta": { "b": 2 } }));
    }
}
