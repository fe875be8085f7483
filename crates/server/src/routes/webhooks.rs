//! `/v1/webhooks`: who is called back when something has ended, what was sent, and what came of it. (ASYNC-007)
//!
//! ```text
//! GET, POST /v1/webhooks                       DELETE /v1/webhooks/{id}
//! POST      /v1/webhooks/{id}/rotate | test    GET    /v1/webhooks/deliveries?webhook=&state=&before=&limit=
//! GET       /v1/webhooks/deliveries/{id}       POST   /v1/webhooks/deliveries/{id}/resend
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::routing::{MethodFilter, MethodRouter};
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use http::StatusCode;
use jobs::webhooks::{OVERLAP_DEFAULT, OVERLAP_MAX, WebhookWish, Webhooks};
use ports::webhook_store::{DELIVERIES_PAGE_MAX, DeliveryId, DeliveryState, EventKind, WebhookId};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::members::typed;
use crate::problem::RefusalResponse;

mod view;

use view::{AttemptView, Deliveries, DeliveryView, Event, SubscribedView, Subscriptions, WebhookView};

/// Deliveries of a page unless more are asked for.
const PAGE_DEFAULT: usize = 50;

const ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "the id",
    schema: SchemaGenerator::subschema_for::<String>,
};
const WEBHOOK: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "webhook",
    about: "only those to this subscription",
    schema: SchemaGenerator::subschema_for::<String>,
};
const STATE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "state",
    about: "only those that are `pending`, `delivered` or `dead`",
    schema: SchemaGenerator::subschema_for::<String>,
};
const BEFORE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "before",
    about: "`next` of the page before",
    schema: SchemaGenerator::subschema_for::<u64>,
};
const LIMIT: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "limit",
    about: "how many, at most 200; default 50",
    schema: SchemaGenerator::subschema_for::<usize>,
};
/// What any of them can answer.
const CODES: &[ErrorCode] =
    &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010, ErrorCode::E3702, ErrorCode::E3801, ErrorCode::E3803];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        parameters: &[TENANT],
        good: &[(200, "the subscriptions, oldest first")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Subscriptions>),
        ..about(RouteMethod::Get, "/v1/webhooks", "listWebhooks", "List who is called back", |filter| to(filter, list))
    },
    RouteOperation {
        parameters: &[TENANT],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<SubscribeBody>),
        good: &[(201, "the subscription, and the secret if one was made: it is not shown again")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<SubscribedView>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3004,
            ErrorCode::E3010,
            ErrorCode::E3407,
            ErrorCode::E3601,
            ErrorCode::E3602,
            ErrorCode::E3801,
            ErrorCode::E3803,
        ],
        ..about(RouteMethod::Post, "/v1/webhooks", "addWebhook", "Subscribe to the ends of calls", |filter| {
            to(filter, add)
        })
    },
    RouteOperation {
        good: &[(200, "it gets nothing more")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<RemovedWebhook>),
        ..about(RouteMethod::Delete, "/v1/webhooks/{id}", "removeWebhook", "End a subscription", |filter| {
            to(filter, remove)
        })
    },
    RouteOperation {
        asks: RequestBody::JsonIfAny(SchemaGenerator::subschema_for::<RotateBody>),
        good: &[(200, "the subscription; its former secret signs beside the new one for a while")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<SubscribedView>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3004,
            ErrorCode::E3010,
            ErrorCode::E3103,
            ErrorCode::E3601,
            ErrorCode::E3602,
            ErrorCode::E3702,
            ErrorCode::E3801,
            ErrorCode::E3803,
        ],
        ..about(
            RouteMethod::Post,
            "/v1/webhooks/{id}/rotate",
            "rotateWebhookSecret",
            "Replace the secret of a subscription",
            |filter| to(filter, rotate),
        )
    },
    RouteOperation {
        good: &[(200, "what came of it, good or bad")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<TriedView>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3004,
            ErrorCode::E3010,
            ErrorCode::E3601,
            ErrorCode::E3602,
            ErrorCode::E3702,
            ErrorCode::E3801,
            ErrorCode::E3803,
        ],
        ..about(
            RouteMethod::Post,
            "/v1/webhooks/{id}/test",
            "testWebhook",
            "Send a `webhook.test` event once, now",
            |filter| to(filter, test),
        )
    },
    RouteOperation {
        parameters: &[TENANT, WEBHOOK, STATE, BEFORE, LIMIT],
        good: &[(200, "a page of deliveries, newest first")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Deliveries>),
        ..about(RouteMethod::Get, "/v1/webhooks/deliveries", "listDeliveries", "List what was sent", |filter| {
            to(filter, deliveries)
        })
    },
    RouteOperation {
        good: &[(200, "the delivery and its attempts")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<DeliveryView>),
        ..about(
            RouteMethod::Get,
            "/v1/webhooks/deliveries/{id}",
            "getDelivery",
            "One delivery with every attempt that was made",
            |filter| to(filter, delivery),
        )
    },
    RouteOperation {
        good: &[(200, "the delivery, which is sent again")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<DeliveryView>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3004,
            ErrorCode::E3010,
            ErrorCode::E3408,
            ErrorCode::E3701,
            ErrorCode::E3702,
            ErrorCode::E3801,
            ErrorCode::E3803,
        ],
        ..about(
            RouteMethod::Post,
            "/v1/webhooks/deliveries/{id}/resend",
            "resendDelivery",
            "Send a delivery again that was given up",
            |filter| to(filter, resend),
        )
    },
];

const fn about(
    verb: RouteMethod,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    mount: fn(MethodFilter) -> MethodRouter<Arc<Door>>,
) -> RouteOperation {
    RouteOperation {
        verb,
        path,
        id,
        tag: "webhooks",
        summary,
        access: RouteAccess::Token,
        parameters: &[ID, TENANT],
        asks: RequestBody::Nothing,
        good: &[],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<WebhookView>),
        codes: CODES,
        mount,
    }
}

/// Who is to be called back, for what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubscribeBody {
    /// An https address.
    #[schemars(length(max = 2048))]
    url: String,
    /// What it is told; without a word about it, everything.
    #[serde(default)]
    events: Vec<Event>,
    /// The name of a credential of the tenant that signs; without one, a secret is made.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    secret: Option<String>,
}

/// What the secret is replaced by.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RotateBody {
    /// The name of a credential; without one, a new secret is made.
    #[schemars(length(min = 1, max = 255))]
    secret: Option<String>,
    /// For how long the former secret signs too; default a day, at most 30.
    #[schemars(range(max = 2_592_000))]
    overlap_seconds: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RemovedWebhook {
    /// Always true: one that is not known is a refusal.
    removed: bool,
}

/// What came of trying an address.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WebhookTest")]
struct TriedView {
    delivery_id: String,
    delivered: bool,
    attempt: AttemptView,
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let tenant = tenant_asked(&incoming)?;
    let found = hooks(&door)?.list(door.kernel(), who.actor(), tenant.as_ref()).await?;
    HttpAnswer::json(&Subscriptions { webhooks: found.iter().map(WebhookView::of).collect() })
}

async fn add(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let SubscribeBody { url, events, secret } = typed(value, "", || body.again())?;
    let tenant = tenant_asked(&incoming)?;
    let wish = WebhookWish { url, events: events.into_iter().map(EventKind::from).collect(), secret };
    let (hooks, kernel) = (hooks(&door)?, door.shared_kernel());
    door.carry_to_end(async move {
        let (record, secret) = hooks.add(&kernel, who.actor(), tenant.as_ref(), wish).await?;
        HttpAnswer::json_with(StatusCode::CREATED, &SubscribedView { webhook: WebhookView::of(&record), secret })
    })
    .await
}

async fn remove(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let (id, tenant) = asked(&mut incoming).await?;
    let (hooks, kernel) = (hooks(&door)?, door.shared_kernel());
    door.carry_to_end(async move {
        hooks.remove(&kernel, who.actor(), tenant.as_ref(), WebhookId(id)).await?;
        HttpAnswer::json(&RemovedWebhook { removed: true })
    })
    .await
}

async fn rotate(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let RotateBody { secret, overlap_seconds } = match incoming.json_if_any(&door, &who).await? {
        None => RotateBody::default(),
        Some(mut body) => {
            let value = body.value.take();
            typed(value, "", || body.again())?
        }
    };
    let overlap = overlap_seconds.map_or(OVERLAP_DEFAULT, Duration::from_secs);
    if overlap > OVERLAP_MAX {
        let text = format!("`overlap_seconds` is at most {}", OVERLAP_MAX.as_secs());
        return Err(Refusal::new(ErrorCode::E3004, text).into());
    }
    door.kernel().recognise(who.actor()).await?;
    let (id, tenant) = asked(&mut incoming).await?;
    let (hooks, kernel) = (hooks(&door)?, door.shared_kernel());
    door.carry_to_end(async move {
        let rotated = hooks.rotate(&kernel, who.actor(), tenant.as_ref(), WebhookId(id), secret, overlap).await?;
        HttpAnswer::json(&SubscribedView { webhook: WebhookView::of(&rotated.0), secret: rotated.1 })
    })
    .await
}

async fn test(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let (id, tenant) = asked(&mut incoming).await?;
    let (hooks, kernel) = (hooks(&door)?, door.shared_kernel());
    door.carry_to_end(async move {
        let tried = hooks.test(&kernel, who.actor(), tenant.as_ref(), WebhookId(id)).await?;
        let attempt = AttemptView::of(&tried.attempt);
        HttpAnswer::json(&TriedView {
            delivery_id: tried.delivery.0.to_string(),
            delivered: tried.attempt.error.is_none(),
            attempt,
        })
    })
    .await
}

async fn deliveries(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["tenant", "webhook", "state", "before", "limit"])?;
    let most = query.number("limit", 1..=DELIVERIES_PAGE_MAX, PAGE_DEFAULT)?;
    let before = match query.one("before")? {
        Some(_) => Some(query.number("before", 0..=u64::MAX, 0)?),
        None => None,
    };
    let states = DeliveryState::ALL.map(|state| (state.as_str(), state));
    let state = query.word("state", &states)?;
    let webhook = query.one("webhook")?.map(|text| id_of(text).map(WebhookId)).transpose()?;
    let tenant = query.one("tenant")?.map(str::parse::<TenantId>).transpose();
    let tenant = tenant.map_err(|error| Refusal::new(ErrorCode::E3004, error.to_string()))?;
    let filter = (webhook, state);
    let page = hooks(&door)?.deliveries(door.kernel(), who.actor(), tenant.as_ref(), filter, (before, most)).await?;
    HttpAnswer::json(&Deliveries {
        deliveries: page.deliveries.iter().map(|record| DeliveryView::of(record, None)).collect(),
        next: page.next,
    })
}

async fn delivery(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let (id, tenant) = asked(&mut incoming).await?;
    let report = hooks(&door)?.delivery(door.kernel(), who.actor(), tenant.as_ref(), DeliveryId(id)).await?;
    HttpAnswer::json(&DeliveryView::of(&report.record, Some(&report.attempts)))
}

async fn resend(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let (id, tenant) = asked(&mut incoming).await?;
    let (hooks, kernel) = (hooks(&door)?, door.shared_kernel());
    door.carry_to_end(async move {
        let resent = hooks.resend(&kernel, who.actor(), tenant.as_ref(), DeliveryId(id)).await?;
        HttpAnswer::json(&DeliveryView::of(&resent.record, None))
    })
    .await
}

/// The id and the tenant that a request names.
async fn asked(incoming: &mut IncomingRequest) -> Result<(uuid::Uuid, Option<TenantId>), RefusalResponse> {
    let tenant = tenant_asked(incoming)?;
    let [id] = incoming.path_values().await?;
    Ok((id_of(&id)?, tenant))
}

/// What is no id names nothing.
fn id_of(text: &str) -> Result<uuid::Uuid, RefusalResponse> {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    let unknown = || Refusal::new(ErrorCode::E3702, format!("there is nothing with the id `{shown}`"));
    Ok(uuid::Uuid::try_parse(text).map_err(|_| unknown())?)
}

fn hooks(door: &Door) -> Result<Arc<Webhooks>, RefusalResponse> {
    let none = || Refusal::new(ErrorCode::E3010, "this server has no webhooks").hint("use another one");
    Ok(door.webhooks().ok_or_else(none)?)
}
