//! `GET /v1/instances`: which servers and workers are there, as they say themselves. Operators of the installation only.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use jobs::membership::{MemberList, SeenMember};
use ports::clock::UnixMillis;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Get,
    path: "/v1/instances",
    id: "listInstances",
    tag: "operations",
    summary: "Which instances of this installation are there",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Nothing,
    good: &[(200, "those that have said so within the last seconds, by name")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Instances>),
    codes: &[ErrorCode::E3001, ErrorCode::E3010],
    mount: |filter| to(filter, list),
}];

/// Everybody who is there.
#[derive(Debug, Serialize, JsonSchema)]
struct Instances {
    instances: Vec<Instance>,
    /// `false`: nobody could be asked, and these are who was there at the last look.
    current: bool,
}

/// A server or a worker.
#[derive(Debug, Serialize, JsonSchema)]
struct Instance {
    /// New at every start.
    id: String,
    /// `serve` or `worker`.
    role: &'static str,
    /// Of the program.
    version: String,
    /// The kind of store and the newest shape of it that the program knows.
    schema: String,
    /// Where it listens.
    address: String,
    /// RFC 3339, UTC; by its own clock.
    started_at: String,
    last_seen_at: String,
    /// Is it the one that answers?
    #[serde(rename = "self")]
    is_self: bool,
}

impl Instance {
    fn of(seen: SeenMember) -> Self {
        let SeenMember { member, seen_at, is_self } = seen;
        Self {
            id: member.id,
            role: member.role.as_str(),
            version: member.version,
            schema: member.schema,
            address: member.address,
            started_at: UnixMillis(member.started_ms).to_string(),
            last_seen_at: seen_at.to_string(),
            is_self,
        }
    }
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().may_see_instances(who.actor()).await?;
    let membership = door.membership().ok_or_else(|| {
        Refusal::new(ErrorCode::E3010, "this server does not know of others")
            .hint("ask one that `gantry serve` started")
    })?;
    let MemberList { members, is_stale } = membership.roll().await;
    HttpAnswer::json(&Instances { instances: members.into_iter().map(Instance::of).collect(), current: !is_stale })
}
