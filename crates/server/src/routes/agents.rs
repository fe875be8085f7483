//! `GET` and `PUT /v1/agents`, `DELETE /v1/agents/{agent_id}`: the local registry of DIDs (AUTH-012).
//!
//! A PUT introduces the agents it names and leaves the others alone. Agents are introduced one after the other: if one is
//! refused, those before it are known already, and sending the list again does no harm.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use ports::access_store::AgentRecord;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::problem::RefusalResponse;

/// Most agents in one request.
const AGENTS_MAX: usize = 1000;

pub(super) const AGENT_ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "agent_id",
    about: "the agent's DID or name",
    schema: SchemaGenerator::subschema_for::<Subject>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/agents",
        id: "listAgents",
        tag: "access",
        summary: "List the agents that were introduced to a tenant",
        access: RouteAccess::Token,
        parameters: &[TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "the agents")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Agents>),
        codes: &[ErrorCode::E3004],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Put,
        path: "/v1/agents",
        id: "putAgents",
        tag: "access",
        summary: "Introduce agents, with their DID documents if they have some",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<AgentsBody>),
        good: &[(200, "these agents")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Agents>),
        codes: &[ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, put),
    },
    RouteOperation {
        verb: RouteMethod::Delete,
        path: "/v1/agents/{agent_id}",
        id: "removeAgent",
        tag: "access",
        summary: "Forget an agent: its tokens are refused from now on, unless its DID certifies itself",
        access: RouteAccess::Token,
        parameters: &[AGENT_ID, TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "it is forgotten")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<RemovedAnswer>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, remove),
    },
];

/// Agents to introduce, at most 1,000 at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentsBody {
    #[schemars(length(max = 1000))]
    agents: Vec<AgentBody>,
}

/// An agent to introduce.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentBody {
    /// Its DID, or a plain name.
    agent_id: Subject,
    /// Default: the token's own.
    #[serde(default)]
    tenant: Option<TenantId>,
    /// Its DID document; `id` must be the agent's DID.
    #[serde(default)]
    document: Option<Map<String, Value>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Agents {
    agents: Vec<AgentView>,
}

/// An agent that was introduced.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
struct AgentView {
    agent_id: Subject,
    tenant: TenantId,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Value>,
    /// RFC 3339, UTC.
    added_at: String,
    added_by: Subject,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Removed")]
struct RemovedAnswer {
    /// Always true: an agent that is not known is a refusal.
    removed: bool,
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let tenant = tenant_asked(&incoming)?;
    let records = door.kernel().agents(who.actor(), tenant.as_ref()).await?;
    HttpAnswer::json(&Agents { agents: records.into_iter().map(AgentView::of).collect() })
}

async fn put(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let AgentsBody { agents } = incoming.json(&door, &who).await?.typed()?;
    if agents.len() > AGENTS_MAX {
        let refusal = Refusal::new(ErrorCode::E3004, format!("more than {AGENTS_MAX} agents at once"));
        return Err(refusal.hint("send them in parts").into());
    }
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let mut known = Vec::with_capacity(agents.len());
        for AgentBody { agent_id, tenant, document } in agents {
            let document = document.map(|document| Value::Object(document).to_string());
            let record = kernel.introduce_agent(who.actor(), tenant.as_ref(), &agent_id, document).await?;
            known.push(AgentView::of(record));
        }
        // An empty list asks for nothing, but not everybody may ask even that.
        if known.is_empty() {
            kernel.agents(who.actor(), None).await?;
        }
        HttpAnswer::json(&Agents { agents: known })
    })
    .await
}

async fn remove(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let agent = agent_asked(&mut incoming).await?;
    let tenant = tenant_asked(&incoming)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        kernel.forget_agent(who.actor(), tenant.as_ref(), &agent).await?;
        HttpAnswer::json(&RemovedAnswer { removed: true })
    })
    .await
}

/// The agent that the path names.
pub(super) async fn agent_asked(incoming: &mut IncomingRequest) -> Result<Subject, RefusalResponse> {
    let [text] = incoming.path_values().await?;
    Ok(text.parse().map_err(|error: contract::ids::NameError| Refusal::new(ErrorCode::E3004, error.to_string()))?)
}

impl AgentView {
    fn of(record: AgentRecord) -> Self {
        let AgentRecord { tenant, agent, document, added_at, added_by } = record;
        // What is kept was JSON when it came.
        let document = document.and_then(|text| serde_json::from_str(&text).ok());
        Self { agent_id: agent, tenant, document, added_at: added_at.to_string(), added_by }
    }
}
