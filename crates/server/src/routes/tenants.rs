//! `GET` and `PUT /v1/tenants`: who shares this installation, and what each has (VIS-001, API-014).
//!
//! A PUT adds and changes the tenants it names and leaves the others alone; what it does not say about a tenant stays as
//! it is. What a GET answers can be sent back.

use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::TenantId;
use kernel::TenantWish;
use policy::{ToolPattern, VisibilityDefault};
use ports::access_store::TenantRecord;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/tenants",
        id: "listTenants",
        tag: "access",
        summary: "List the tenants this token may know",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the tenants")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Tenants>),
        codes: &[],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Put,
        path: "/v1/tenants",
        id: "putTenants",
        tag: "access",
        summary: "Add and change tenants (administrators of the installation only)",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<TenantsBody>),
        good: &[(200, "these tenants as they are now")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Tenants>),
        codes: &[ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, put),
    },
];

/// Tenants to add or change, at most 1,000 at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantsBody {
    #[schemars(length(max = 1000))]
    tenants: Vec<TenantBody>,
}

/// A tenant as it should be. What is left out stays as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantBody {
    /// Also understood as `tenant`.
    #[serde(alias = "tenant")]
    tenant_id: TenantId,
    /// For people; a new tenant is named after its id.
    #[serde(default)]
    #[schemars(length(max = 255))]
    name: Option<String>,
    /// What its agents may use without an activation; without a word about it the configuration decides.
    #[serde(default)]
    visibility: Option<VisibilityDefault>,
    /// Which shared tools it has: tool ids, `namespace.*` or `*`; a new tenant has all.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    tools: Option<Vec<ToolPattern>>,
    /// A tenant that is switched off gets nothing.
    #[serde(default)]
    enabled: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tenants {
    tenants: Vec<TenantView>,
}

/// A tenant.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
struct TenantView {
    tenant_id: TenantId,
    name: String,
    /// Null: the configuration decides.
    visibility: Option<VisibilityDefault>,
    /// Which shared tools it has; its own it has anyway.
    #[schemars(with = "Vec<String>")]
    tools: Vec<ToolPattern>,
    enabled: bool,
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    incoming.query(&[])?;
    Tenants::of(door.kernel().tenants(who.actor()).await?)
}

async fn put(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let TenantsBody { tenants } = incoming.json(&door, &who).await?.typed()?;
    let wishes: Vec<TenantWish> = tenants.into_iter().map(TenantBody::into_wish).collect();
    let kernel = door.shared_kernel();
    door.carry_to_end(async move { Tenants::of(kernel.put_tenants(who.actor(), &wishes).await?) }).await
}

impl TenantBody {
    fn into_wish(self) -> TenantWish {
        let Self { tenant_id, name, visibility, tools, enabled } = self;
        TenantWish { tenant: tenant_id, name, visibility, tools, enabled }
    }
}

impl Tenants {
    fn of(records: Vec<TenantRecord>) -> Handled {
        let view = |record: TenantRecord| {
            let TenantRecord { tenant, name, visibility, tools, enabled } = record;
            TenantView { tenant_id: tenant, name, visibility, tools, enabled }
        };
        HttpAnswer::json(&Self { tenants: records.into_iter().map(view).collect() })
    }
}
