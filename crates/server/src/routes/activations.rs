//! `GET` and `PUT /v1/activations`: which agent may use which tools, and how strictly (VIS-003…005, API-014).
//!
//! A PUT adds and replaces the activations it names, each by its tenant, agent and tool, and leaves the others alone. What
//! a GET answers can be sent back; with its `id` and times in it, it replaces only what nobody has changed since.

use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::{Subject, TenantId};
use kernel::{ActivationWish, ReplacedActivation};
use policy::{PolicyOverrides, ToolPattern};
use ports::access_store::Activation;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, TENANT, tenant_asked, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// Every agent of the tenant.
const EVERY_AGENT: &str = "*";

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/activations",
        id: "listActivations",
        tag: "access",
        summary: "List activations; without a tenant, administrators of the installation see those of all",
        access: RouteAccess::Token,
        parameters: &[TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "the activations")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Activations>),
        codes: &[ErrorCode::E3004],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Put,
        path: "/v1/activations",
        id: "putActivations",
        tag: "access",
        summary: "Enable and disable tools for agents; the most specific activation decides",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<ActivationsBody>),
        good: &[(200, "these activations; they are in force for the next call")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Activations>),
        codes: &[ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, put),
    },
];

/// Activations to add or replace, at most 1,000 at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ActivationsBody {
    #[schemars(length(max = 1000))]
    activations: Vec<ActivationBody>,
}

/// One activation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ActivationBody {
    /// Default: the token's own.
    #[serde(default)]
    tenant: Option<TenantId>,
    /// Absent or `*`: every agent of the tenant.
    #[serde(default)]
    agent_id: Option<Subject>,
    /// A tool id, `namespace.*` or `*`.
    #[schemars(with = "String")]
    tool_id: ToolPattern,
    /// Default true.
    #[serde(default = "yes")]
    enabled: bool,
    /// How the tool is used; only ever stricter than its manifest.
    #[serde(default)]
    policy_overrides: PolicyOverrides,
    /// If this or one of the two times is given, the activation is replaced only if it still has it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    id: Option<Uuid>,
    #[serde(default)]
    created_at: Option<String>,
    #[serde(default)]
    updated_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Activations {
    activations: Vec<ActivationView>,
}

/// What an agent may use, and how.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Activation")]
struct ActivationView {
    #[schemars(with = "String")]
    id: Uuid,
    tenant: TenantId,
    /// `*`: every agent of the tenant.
    agent_id: Subject,
    #[schemars(with = "String")]
    tool_id: ToolPattern,
    enabled: bool,
    policy_overrides: PolicyOverrides,
    /// When it was put for the first time, and last. RFC 3339, UTC.
    created_at: String,
    updated_at: String,
}

fn yes() -> bool {
    true
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let tenant = tenant_asked(&incoming)?;
    Activations::of(door.kernel().activations(who.actor(), tenant.as_ref()).await?)
}

async fn put(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let ActivationsBody { activations } = incoming.json(&door, &who).await?.typed()?;
    let wishes: Vec<ActivationWish> = activations.into_iter().map(ActivationBody::into_wish).collect();
    let kernel = door.shared_kernel();
    door.carry_to_end(async move { Activations::of(kernel.put_activations(who.actor(), wishes).await?) }).await
}

impl ActivationBody {
    fn into_wish(self) -> ActivationWish {
        ActivationWish {
            tenant: self.tenant,
            agent: self.agent_id.filter(|agent| agent.as_str() != EVERY_AGENT),
            tool: self.tool_id,
            enabled: self.enabled,
            overrides: self.policy_overrides,
            replaces: ReplacedActivation { id: self.id, created_at: self.created_at, updated_at: self.updated_at },
        }
    }
}

impl Activations {
    fn of(records: Vec<Activation>) -> Handled {
        let view = |record: Activation| {
            let Activation { id, tenant, agent, tool, enabled, overrides, created_at, updated_at } = record;
            ActivationView {
                id,
                tenant,
                agent_id: agent,
                tool_id: tool,
                enabled,
                policy_overrides: overrides,
                created_at: created_at.to_string(),
                updated_at: updated_at.to_string(),
            }
        };
        HttpAnswer::json(&Self { activations: records.into_iter().map(view).collect() })
    }
}
