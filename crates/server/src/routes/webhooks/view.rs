//! Webhooks and deliveries as they go over the wire. No secret is in any of them but the one that was just made.

use ports::webhook_store::{
    DeliveryAttempt, DeliveryRecord, DeliveryState, DeliveryTarget, EventKind, SigningSecret, WebhookRecord,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebhookEvent")]
pub(super) enum Event {
    #[serde(rename = "invocation.completed")]
    InvocationCompleted,
    #[serde(rename = "invocation.failed")]
    InvocationFailed,
    #[serde(rename = "invocation.cancelled")]
    InvocationCancelled,
    /// Nobody can know whether its effect happened.
    #[serde(rename = "invocation.indeterminate")]
    InvocationIndeterminate,
    #[serde(rename = "workflow.completed")]
    WorkflowCompleted,
    /// A threshold was passed.
    #[serde(rename = "alert.raised")]
    AlertRaised,
    #[serde(rename = "alert.resolved")]
    AlertResolved,
    /// Something happened to a version of a tool, for example its removal.
    #[serde(rename = "tool.event")]
    OfTool,
    #[serde(rename = "webhook.test")]
    Test,
}

impl From<Event> for EventKind {
    fn from(event: Event) -> Self {
        match event {
            Event::InvocationCompleted => Self::InvocationCompleted,
            Event::InvocationFailed => Self::InvocationFailed,
            Event::InvocationCancelled => Self::InvocationCancelled,
            Event::InvocationIndeterminate => Self::InvocationIndeterminate,
            Event::WorkflowCompleted => Self::WorkflowCompleted,
            Event::AlertRaised => Self::AlertRaised,
            Event::AlertResolved => Self::AlertResolved,
            Event::OfTool => Self::ToolEvent,
            Event::Test => Self::Test,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Webhooks")]
pub(super) struct Subscriptions {
    pub(super) webhooks: Vec<WebhookView>,
}

/// A subscription.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Webhook")]
pub(super) struct WebhookView {
    id: String,
    tenant_id: String,
    url: String,
    /// Empty: everything.
    events: Vec<&'static str>,
    /// The credential that signs; null if the secret was made here.
    secret_name: Option<String>,
    /// Until when a former secret signs too.
    former_secret_until: Option<String>,
    added_at: String,
    added_by: String,
}

/// A subscription with a secret that was just made.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SubscribedWebhook")]
pub(super) struct SubscribedView {
    #[serde(flatten)]
    pub(super) webhook: WebhookView,
    /// Shown once; absent if a credential signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WebhookDeliveries")]
pub(super) struct Deliveries {
    pub(super) deliveries: Vec<DeliveryView>,
    /// What to give as `before` for the next page.
    pub(super) next: Option<u64>,
}

/// Something that was sent, or is to be.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WebhookDelivery")]
pub(super) struct DeliveryView {
    id: String,
    /// Null: the call itself has named an address.
    webhook_id: Option<String>,
    /// The address that a call has named.
    callback_url: Option<String>,
    event: &'static str,
    invocation_id: Option<String>,
    /// `pending`, `delivered` or `dead`.
    state: &'static str,
    /// `E3704` if it was given up.
    code: Option<&'static str>,
    round: u32,
    attempts: u32,
    created_at: String,
    ended_at: Option<String>,
    /// Only when one delivery is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Vec<AttemptView>>,
}

/// One try to deliver.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WebhookAttempt")]
pub(super) struct AttemptView {
    round: u32,
    number: u32,
    at: String,
    /// The status of the answer, if there was one.
    status: Option<u16>,
    took_ms: u64,
    /// Null if it was delivered; else `bad_status`, `timed_out`, `redirect`, `address_not_allowed`, …
    error: Option<String>,
}

impl WebhookView {
    pub(super) fn of(record: &WebhookRecord) -> Self {
        Self {
            id: record.id.0.to_string(),
            tenant_id: record.tenant.to_string(),
            url: record.url.clone(),
            events: record.events.iter().map(|event| event.as_str()).collect(),
            secret_name: match &record.secret {
                SigningSecret::Named(name) => Some(name.clone()),
                SigningSecret::Generated { .. } => None,
            },
            former_secret_until: record.former.as_ref().map(|former| former.until.to_string()),
            added_at: record.added_at.to_string(),
            added_by: record.added_by.to_string(),
        }
    }
}

impl DeliveryView {
    pub(super) fn of(record: &DeliveryRecord, attempts: Option<&[DeliveryAttempt]>) -> Self {
        let (webhook_id, callback_url) = match &record.target {
            DeliveryTarget::Webhook(webhook) => (Some(webhook.0.to_string()), None),
            DeliveryTarget::Callback { url, .. } => (None, Some(url.clone())),
        };
        Self {
            id: record.id.0.to_string(),
            webhook_id,
            callback_url,
            event: record.event.as_str(),
            invocation_id: record.invocation.map(|id| id.to_string()),
            state: record.state.as_str(),
            code: (record.state == DeliveryState::Dead).then(|| contract::error::ErrorCode::E3704.as_str()),
            round: record.round,
            attempts: record.attempts,
            created_at: record.created_at.to_string(),
            ended_at: record.ended_at.map(|at| at.to_string()),
            log: attempts.map(|attempts| attempts.iter().map(AttemptView::of).collect()),
        }
    }
}

impl AttemptView {
    pub(super) fn of(attempt: &DeliveryAttempt) -> Self {
        Self {
            round: attempt.round,
            number: attempt.number,
            at: attempt.at.to_string(),
            status: attempt.status,
            took_ms: attempt.took_ms,
            error: attempt.error.clone(),
        }
    }
}
