//! `GET` and `PUT /v1/policies`, `GET /v1/policies/versions/{version}`: what the embedded engine decides by, and what it
//! decided by before. Policies of the home tenant are the platform's and apply to everybody.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use kernel::PoliciesView;
use ports::access_store::PolicyRecord;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/policies",
        id: "getPolicies",
        tag: "access",
        summary: "Show the policies in force and their history",
        access: RouteAccess::Token,
        parameters: &[TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "the policies")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<PoliciesAnswer>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004],
        mount: |filter| to(filter, show),
    },
    RouteOperation {
        verb: RouteMethod::Put,
        path: "/v1/policies",
        id: "putPolicies",
        tag: "access",
        summary: "Put policies in force for the next call; text that cannot be used changes nothing",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<PoliciesBody>),
        good: &[(200, "in force")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<VersionAnswer>),
        codes: &[ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, put),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/policies/versions/{version}",
        id: "getPolicyVersion",
        tag: "access",
        summary: "Show one version of the policies, with its text",
        access: RouteAccess::Token,
        parameters: &[
            RouteParameter {
                place: ParameterPlace::Path,
                name: "version",
                about: "from 1",
                schema: SchemaGenerator::subschema_for::<u64>,
            },
            TENANT,
        ],
        asks: RequestBody::Nothing,
        good: &[(200, "the version")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<TextAnswer>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3008],
        mount: |filter| to(filter, show_version),
    },
];

/// New policies.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoliciesBody {
    /// Cedar text. It takes the place of all that was there.
    policies: String,
    /// Default: the token's own.
    #[serde(default)]
    tenant: Option<TenantId>,
}

/// The policies of a tenant, or of the platform.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Policies")]
struct PoliciesAnswer {
    /// Null: those of the platform, which apply to everybody.
    tenant: Option<TenantId>,
    /// Cedar text. Null: nobody has written any, so none are asked.
    policies: Option<String>,
    version: Option<u64>,
    /// The names of the policies in force.
    names: Vec<String>,
    /// False: what is stored cannot be used, and every call it applies to is refused.
    usable: bool,
    /// The newest first, at most 100.
    history: Vec<VersionAnswer>,
}

/// One version, without its text.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PolicyVersion")]
struct VersionAnswer {
    version: u64,
    /// RFC 3339, UTC.
    added_at: String,
    added_by: Subject,
}

/// One version with its text.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PolicyText")]
struct TextAnswer {
    /// Null: of the platform.
    tenant: Option<TenantId>,
    policies: String,
    #[serde(flatten)]
    version: VersionAnswer,
}

async fn show(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let tenant = tenant_asked(&incoming)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        HttpAnswer::json(&PoliciesAnswer::of(kernel.policies(who.actor(), tenant.as_ref()).await?))
    })
    .await
}

async fn put(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let PoliciesBody { policies, tenant } = incoming.json(&door, &who).await?.typed()?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let record = kernel.put_policies(who.actor(), tenant.as_ref(), policies).await?;
        HttpAnswer::json(&VersionAnswer::of(&record))
    })
    .await
}

async fn show_version(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [version] = incoming.path_values().await?;
    let version: u64 = version.parse().map_err(|_| {
        Refusal::new(ErrorCode::E3004, "the version of policies is a whole number").hint("count from 1")
    })?;
    let tenant = tenant_asked(&incoming)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let record = kernel.policy_version(who.actor(), tenant.as_ref(), version).await?;
        let version = VersionAnswer::of(&record);
        HttpAnswer::json(&TextAnswer { tenant: record.tenant, policies: record.text, version })
    })
    .await
}

impl VersionAnswer {
    fn of(record: &PolicyRecord) -> Self {
        let added_by = record.added_by.clone();
        Self { version: record.version, added_at: record.added_at.to_string(), added_by }
    }
}

impl PoliciesAnswer {
    fn of(view: PoliciesView) -> Self {
        let PoliciesView { tenant, current, names, usable, history } = view;
        let history = history.into_iter().map(|one| VersionAnswer {
            version: one.version,
            added_at: one.added_at.to_string(),
            added_by: one.added_by,
        });
        Self {
            tenant,
            version: current.as_ref().map(|record| record.version),
            policies: current.map(|record| record.text),
            names,
            usable,
            history: history.collect(),
        }
    }
}
