//! `/v1/audit`: what was done, by whom and on whose behalf; and what proves it to somebody else. (AUD-014)
//!
//! ```text
//! GET /v1/audit?scope=&tool=&subject=&trace_id=&action=&from=&to=&before=&limit=
//! GET /v1/audit/checkpoint        GET /v1/audit/proof/{id}        POST /v1/audit/rotate-key
//! ```

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use kernel::{AuditNext, AuditScope};
use ports::audit_log::{AUDIT_PAGE_MAX, AuditQuery};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_in, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// Records of a page unless more are asked for.
const PAGE_DEFAULT: usize = 50;

const TOOL: RouteParameter = filter("tool", "only about this tool");
const SUBJECT: RouteParameter = filter("subject", "only of this agent, person or service");
const TRACE: RouteParameter = filter("trace_id", "only of this trace");
const ACTION: RouteParameter = filter("action", "only of this kind, for example `invocation_finished`");
const FROM: RouteParameter = filter("from", "not before this time, `2027-01-15T08:00:00.000Z` or a beginning of it");
const TO: RouteParameter = filter("to", "before this time");
const SCOPE: RouteParameter = filter(
    "scope",
    "`instance`: only the log of the instance that answers; `all`: the archive of all instances. Default: the archive, if the \
     store is PostgreSQL",
);
const BEFORE: RouteParameter = filter("before", "`next` of the page before, with the same `scope`");
const LIMIT: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "limit",
    about: "how many, at most 500; default 50",
    schema: SchemaGenerator::subschema_for::<usize>,
};
const ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "the record's id",
    schema: SchemaGenerator::subschema_for::<String>,
};

const fn filter(name: &'static str, about: &'static str) -> RouteParameter {
    RouteParameter { place: ParameterPlace::Query, name, about, schema: SchemaGenerator::subschema_for::<String> }
}

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/audit",
        id: "searchAudit",
        tag: "audit",
        summary: "Search the audit log, newest records first; a question looks at a bounded number of records",
        access: RouteAccess::Token,
        parameters: &[TENANT, SCOPE, TOOL, SUBJECT, TRACE, ACTION, FROM, TO, BEFORE, LIMIT],
        asks: RequestBody::Nothing,
        good: &[(200, "a page of records; go on with `next` while there is one")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Page>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, search),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/audit/checkpoint",
        id: "auditCheckpoint",
        tag: "audit",
        summary: "The signed tree head over every record so far (C2SP tlog-checkpoint)",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the signed note and the public key")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Head>),
        codes: &[ErrorCode::E3001, ErrorCode::E3010, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, checkpoint),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/audit/proof/{id}",
        id: "auditProof",
        tag: "audit",
        summary: "A record with the proof that it is in the log: `gantry audit verify --proof` checks it offline",
        access: RouteAccess::Token,
        parameters: &[ID],
        asks: RequestBody::Nothing,
        good: &[(200, "the proof")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Value>),
        codes: &[ErrorCode::E3001, ErrorCode::E3010, ErrorCode::E3702, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, proof),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/audit/rotate-key",
        id: "rotateAuditKey",
        tag: "audit",
        summary: "Sign checkpoints with a new key from now on; the log names it in a record that the former key has signed",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the public half of the new key")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Rotated>),
        codes: &[ErrorCode::E3001, ErrorCode::E3010, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, rotate),
    },
];

/// A page of records.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditPage")]
struct Page {
    /// As the log has them; those of the archive with `log`, the name of the log they are from.
    records: Vec<Value>,
    /// Where to go on: a number in the log of this instance, a text in the archive.
    next: Option<Next>,
}

/// Where a page ends.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditNext")]
#[serde(untagged)]
enum Next {
    Number(u64),
    Place(String),
}

/// A signed tree head.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditCheckpoint")]
struct Head {
    /// A signed note: origin, number of records, root, time.
    checkpoint: String,
    /// The public key, as `gantry audit verify --key` takes it. For proof, have it from elsewhere.
    key: String,
}

/// The key that signs from now on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditKeyRotated")]
struct Rotated {
    /// The public key, as `gantry audit verify --key` takes it.
    key: String,
}

async fn rotate(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move { HttpAnswer::json(&Rotated { key: kernel.rotate_audit_key(who.actor()).await? }) })
        .await
}

async fn search(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let query = incoming
        .query(&["tenant", "scope", "tool", "subject", "trace_id", "action", "from", "to", "before", "limit"])?;
    let text = |name: &str| query.one(name).map(|value| value.map(str::to_owned));
    let scope = query.one("scope")?.map(str::parse::<AuditScope>).transpose();
    let scope = scope.map_err(|error| Refusal::new(ErrorCode::E3004, format!("`scope`: {error}")))?;
    let asked = AuditQuery {
        tenant: tenant_in(&query)?,
        tool: text("tool")?,
        subject: text("subject")?,
        trace_id: text("trace_id")?,
        action: text("action")?,
        from: text("from")?,
        to: text("to")?,
        before: None,
        limit: query.number("limit", 1..=AUDIT_PAGE_MAX, PAGE_DEFAULT)?,
    };
    let page = door.kernel().search_audit(who.actor(), asked, scope, query.one("before")?).await?;
    let next = page.next.map(|next| match next {
        AuditNext::Number(number) => Next::Number(number),
        AuditNext::Place(place) => Next::Place(place.to_string()),
    });
    HttpAnswer::json(&Page { records: page.records, next })
}

async fn checkpoint(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let head = door.kernel().audit_checkpoint(who.actor()).await?;
    HttpAnswer::json(&Head { checkpoint: head.note, key: head.key })
}

async fn proof(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let [id] = incoming.path_values().await?;
    HttpAnswer::json(&door.kernel().audit_proof(who.actor(), &id).await?.document)
}
