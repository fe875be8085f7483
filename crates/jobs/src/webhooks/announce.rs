//! From something that has ended to the deliveries that tell of it. (WHK-1)
//!
//! The body is made once, when it is announced, so that every attempt sends the same bytes. A result that is too long for
//! it is left out, and the receiver is told so: it can ask for it.

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::envelope::{Callback, InvocationStatus};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::event_announcer::{AlertNotice, EventAnnouncer, VersionEvent};
use ports::webhook_store::{DeliveryId, DeliveryTarget, EventKind, NewDelivery, WebhookId};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::Webhooks;
use super::deliver::DeliveryTurn;

/// Longest body. A longer result is left out of it.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub struct CompletedCall<'a> {
    pub tenant: &'a TenantId,
    pub invocation: InvocationId,
    pub tool: &'a str,
    pub tool_version: Option<&'a str>,
    pub status: InvocationStatus,
    /// There if it came to a result.
    pub result: Option<&'a Value>,
    /// There if it did not.
    pub error: Option<&'a Value>,
    /// Whom the call itself wants told.
    pub callback: Option<&'a Callback>,
    /// Whose call it was: the root of its delegation chain.
    pub agent: &'a str,
}

/// What an event is about: its name, and the call if it is one.
#[derive(Debug, Clone, Copy)]
struct About {
    id: Uuid,
    invocation: Option<InvocationId>,
}

impl About {
    fn invocation(id: InvocationId) -> Self {
        Self { id: id.0, invocation: Some(id) }
    }
}

impl CompletedCall<'_> {
    fn event(&self) -> Option<EventKind> {
        match self.status {
            InvocationStatus::Success => Some(EventKind::InvocationCompleted),
            InvocationStatus::Error | InvocationStatus::Timeout | InvocationStatus::PermissionDenied => {
                Some(EventKind::InvocationFailed)
            }
            InvocationStatus::Cancelled => Some(EventKind::InvocationCancelled),
            InvocationStatus::Indeterminate => Some(EventKind::InvocationIndeterminate),
            // It has not ended.
            InvocationStatus::Pending | InvocationStatus::Running | InvocationStatus::PendingApproval => None,
        }
    }

    fn data(&self) -> Map<String, Value> {
        let mut data = Map::new();
        data.insert("invocation_id".into(), json!(self.invocation));
        data.insert("tool_id".into(), json!(self.tool));
        data.insert("tool_version".into(), json!(self.tool_version));
        data.insert("status".into(), json!(self.status));
        data.insert("result".into(), self.result.cloned().unwrap_or_default());
        data.insert("error".into(), self.error.cloned().unwrap_or_default());
        data
    }
}

impl Webhooks {
    /// Tells everybody who wants to know that a call has ended; says how many. Durable before it answers, and may be
    /// repeated: what was announced before is not announced again.
    pub async fn announce(&self, completion: CompletedCall<'_>) -> Result<usize, Refusal> {
        let Some(event) = completion.event() else { return Ok(0) };
        let about = About::invocation(completion.invocation);
        self.tell(completion.tenant, event, about, completion.data(), Some(completion)).await
    }

    /// The same for a workflow outside.
    pub async fn announce_workflow(
        &self,
        tenant: &TenantId,
        run: InvocationId,
        data: Map<String, Value>,
    ) -> Result<usize, Refusal> {
        self.tell(tenant, EventKind::WorkflowCompleted, About::invocation(run), data, None).await
    }

    async fn tell(
        &self,
        tenant: &TenantId,
        event: EventKind,
        about: About,
        data: Map<String, Value>,
        completion: Option<CompletedCall<'_>>,
    ) -> Result<usize, Refusal> {
        let subscriptions = self.parts.store.webhooks(tenant).await.map_err(|error| error.refusal())?;
        let mut targets: Vec<DeliveryTarget> = subscriptions
            .iter()
            .filter(|webhook| webhook.events.is_empty() || webhook.events.contains(&event))
            .map(|webhook| DeliveryTarget::Webhook(webhook.id))
            .collect();
        let callback = completion.and_then(|completion| completion.callback);
        if let Some(target) = callback.map(target_of).transpose()?
            && !targets.contains(&target)
        {
            targets.push(target);
        }
        if targets.is_empty() {
            return Ok(0);
        }
        let event_id = named(&[event.as_str().as_bytes(), about.id.as_bytes()]);
        let body = body(event_id, event, tenant, self.parts.clock.now(), data)?;
        for target in &targets {
            let mark = match target {
                DeliveryTarget::Webhook(WebhookId(id)) => id.to_string(),
                DeliveryTarget::Callback { url, secret } => format!("{secret} {url}"),
            };
            let id = DeliveryId(named(&[event_id.as_bytes(), mark.as_bytes()]));
            let invocation = about.invocation;
            let delivery = NewDelivery {
                tenant: tenant.clone(),
                id,
                target: target.clone(),
                event,
                invocation,
                body: body.clone(),
            };
            self.parts.store.add_delivery(&delivery).await.map_err(|error| error.refusal())?;
            // Also if it was there: whoever kept it may have died before this.
            let agent = completion.map(|completion| completion.agent.to_owned());
            self.enqueue(tenant, DeliveryTurn { agent, ..DeliveryTurn::first(id, 1) }, target, Duration::ZERO).await?;
        }
        Ok(targets.len())
    }
}

#[async_trait]
impl EventAnnouncer for Webhooks {
    async fn announce_alert(&self, alert: &AlertNotice) -> Result<usize, Refusal> {
        let event = if alert.resolved_at.is_some() { EventKind::AlertResolved } else { EventKind::AlertRaised };
        let (tool, version) =
            alert.tool.as_ref().map(|(tool, version)| (tool.as_str(), version.to_string())).unwrap_or_default();
        let raised_at = alert.raised_at.0.to_be_bytes();
        let id = named(&[alert.rule.as_str().as_bytes(), tool.as_bytes(), version.as_bytes(), &raised_at]);
        self.tell(&alert.tenant, event, About { id, invocation: None }, alert.data.clone(), None).await
    }

    async fn announce_version_event(&self, event: &VersionEvent) -> Result<usize, Refusal> {
        let VersionEvent { name, tenant, tool, version, at, .. } = event;
        let (version, at) = (version.to_string(), at.0.to_be_bytes());
        let id = named(&[name.as_str().as_bytes(), tool.as_str().as_bytes(), version.as_bytes(), &at]);
        self.tell(tenant, EventKind::ToolEvent, About { id, invocation: None }, event.members(), None).await
    }
}

/// Where a call wants to be called back.
fn target_of(callback: &Callback) -> Result<DeliveryTarget, Refusal> {
    match (&callback.webhook_id, &callback.url, &callback.secret) {
        (Some(id), None, None) => {
            Uuid::try_parse(id).map(|id| DeliveryTarget::Webhook(WebhookId(id))).map_err(|_| unclear())
        }
        (None, Some(url), Some(secret)) => Ok(DeliveryTarget::Callback { url: url.clone(), secret: secret.clone() }),
        _ => Err(unclear()),
    }
}

fn unclear() -> Refusal {
    Refusal::new(
        ErrorCode::E3004,
        "`execution_options.callback` names either a `webhook_id`, or a `url` and a `secret`",
    )
    .hint("subscribe with `gantry webhook add` and name its id, or give an address and the name of a credential")
}

impl Webhooks {
    /// Can this callback be honoured? To be asked before the call runs: afterwards nobody is there to be told.
    pub async fn check_callback(&self, tenant: &TenantId, callback: &Callback) -> Result<(), Refusal> {
        match target_of(callback)? {
            DeliveryTarget::Webhook(id) => {
                let found = self.parts.store.webhook(tenant, id).await.map_err(|error| error.refusal())?;
                found.map(drop).ok_or_else(|| super::administration::unknown("webhook", id.0))
            }
            DeliveryTarget::Callback { url, secret } => {
                self.parts.calls.check(&url).map_err(|error| super::administration::not_callable(&error))?;
                self.named(tenant, &secret).await.map(drop)
            }
        }
    }
}

/// What receivers get. The members are fixed; `data` depends on the event.
pub(super) fn body(
    id: Uuid,
    event: EventKind,
    tenant: &TenantId,
    now: UnixMillis,
    mut data: Map<String, Value>,
) -> Result<String, Refusal> {
    let write = |data: &Map<String, Value>| {
        let event = json!({
            "id": id.to_string(),
            "type": event.as_str(),
            "created_at": now.to_string(),
            "tenant_id": tenant,
            "data": data,
        });
        event.to_string()
    };
    let whole = write(&data);
    if whole.len() <= EVENT_BYTES_MAX {
        return Ok(whole);
    }
    for long in ["result", "output", "error"] {
        if data.contains_key(long) {
            data.insert(long.into(), Value::Null);
        }
    }
    data.insert("omitted".into(), json!("the result is longer than a webhook carries; ask for it by its id"));
    let short = write(&data);
    if short.len() <= EVENT_BYTES_MAX {
        return Ok(short);
    }
    Err(Refusal::new(ErrorCode::E3407, format!("the event is longer than {EVENT_BYTES_MAX} bytes")))
}

/// An id that is the same for the same parts, and only for them.
fn named(parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::saturating_from(part.len()).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    for (byte, made) in bytes.iter_mut().zip(hash.finalize()) {
        *byte = made;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_is_too_long_is_left_out_and_the_receiver_is_told() {
        let tenant = TenantId::home();
        let data = |result: String| {
            let mut data = Map::new();
            data.insert("invocation_id".into(), json!("x"));
            data.insert("result".into(), json!(result));
            data
        };
        let event = EventKind::InvocationCompleted;
        let short = body(Uuid::nil(), event, &tenant, UnixMillis(0), data("r".into())).unwrap();
        assert!(short.contains("\"result\":\"r\"") && !short.contains("omitted"), "{short}");
        let long = body(Uuid::nil(), event, &tenant, UnixMillis(0), data("r".repeat(EVENT_BYTES_MAX))).unwrap();
        assert!(long.len() < 1000 && long.contains("\"result\":null") && long.contains("omitted"), "{long}");
    }

    #[test]
    fn ids_are_made_of_their_parts_and_of_where_they_end() {
        assert_eq!(named(&[b"a", b"b"]), named(&[b"a", b"b"]));
        assert_ne!(named(&[b"a", b"b"]), named(&[b"ab", b""]));
        assert_ne!(named(&[b"a", b"b"]), named(&[b"b", b"a"]));
    }

    #[test]
    fn a_callback_is_a_subscription_or_an_address_and_not_both() {
        let of = |id: Option<&str>, url: Option<&str>, secret: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            target_of(&Callback { webhook_id: text(id), url: text(url), secret: text(secret) })
        };
        let id = Uuid::nil().to_string();
        assert!(of(Some(&id), None, None).is_ok() && of(None, Some("https://a.example"), Some("hook")).is_ok());
        for wrong in [
            of(None, None, None),
            of(Some("7"), None, None),
            of(Some(&id), Some("u"), Some("s")),
            of(None, Some("u"), None),
        ] {
            assert_eq!(wrong.unwrap_err().code, ErrorCode::E3004);
        }
    }
}
