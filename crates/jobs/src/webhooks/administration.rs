//! What people do with webhooks: subscribe, look, rotate, try, send again. Each act recognises its caller, checks role and
//! tenant, and is recorded.

use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use kernel::Kernel;
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::call_out::CallOutError;
use ports::entropy::new_invocation_id;
use ports::webhook_store::{
    AddOutcome, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryPage, DeliveryRecord,
    DeliveryState, DeliveryTarget, EventKind, NewDelivery, SigningSecret, WebhookId, WebhookRecord,
};
use serde_json::{Map, json};
use uuid::Uuid;

use super::announce::body;
use super::deliver::{DeliveryTurn, attempt_of};
use super::{OVERLAP_MAX, WEBHOOKS_PER_TENANT_MAX, Webhooks};

/// Longest address.
const URL_CHARS_MAX: usize = 2_048;
/// Longest name of a credential.
const SECRET_NAME_CHARS_MAX: usize = 255;

/// A subscription as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookWish {
    pub url: String,
    /// Empty means everything.
    pub events: Vec<EventKind>,
    /// A credential of the tenant that signs; without one, a secret is made and shown once.
    pub secret: Option<String>,
}

/// What came of trying an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedAddress {
    pub delivery: DeliveryId,
    pub attempt: DeliveryAttempt,
}

/// A delivery with its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    pub record: DeliveryRecord,
    pub attempts: Vec<DeliveryAttempt>,
}

/// A delivery that is being sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResentDelivery {
    pub record: DeliveryRecord,
}

impl Webhooks {
    /// The subscriptions of a tenant.
    pub async fn list(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<WebhookRecord>, Refusal> {
        let caller = kernel.permitted(actor, Action::SeeWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        self.parts.store.webhooks(&tenant).await.map_err(|error| error.refusal())
    }

    /// Subscribes. The text is the secret if one was made; it is never shown again.
    pub async fn add(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        wish: WebhookWish,
    ) -> Result<(WebhookRecord, Option<String>), Refusal> {
        let caller = kernel.permitted(actor, Action::ManageWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        if wish.url.len() > URL_CHARS_MAX {
            return Err(Refusal::new(ErrorCode::E3004, format!("`url` is longer than {URL_CHARS_MAX} characters")));
        }
        self.parts.calls.check(&wish.url).map_err(|error| not_callable(&error))?;
        let secret = self.wished(&tenant, wish.secret, 1).await?;
        let slot = kernel.record_slot().await?;
        let (now, entropy) = (self.parts.clock.now(), &*self.parts.entropy);
        let mut events = wish.events;
        events.sort_unstable();
        events.dedup();
        let record = WebhookRecord {
            tenant,
            id: WebhookId(new_invocation_id(entropy, now).0),
            url: wish.url,
            events,
            secret,
            former: None,
            added_at: now,
            added_by: caller.subject().clone(),
        };
        match self.parts.store.add_webhook(&record, WEBHOOKS_PER_TENANT_MAX).await.map_err(|error| error.refusal())? {
            AddOutcome::Kept => {}
            AddOutcome::TooMany => {
                return Err(Refusal::new(
                    ErrorCode::E3407,
                    format!("a tenant has at most {WEBHOOKS_PER_TENANT_MAX} webhooks"),
                )
                .hint("remove one with `gantry webhook remove`"));
            }
        }
        let note = format!("added {}", record.id.0);
        slot.record_durably(kernel.act(actor, &caller, AuditAction::WebhooksChanged, None, Some(note))).await?;
        let shown = self.shown(&record);
        Ok((record, shown))
    }

    /// Ends a subscription.
    pub async fn remove(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: WebhookId,
    ) -> Result<(), Refusal> {
        let caller = kernel.permitted(actor, Action::ManageWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        let slot = kernel.record_slot().await?;
        if !self.parts.store.remove_webhook(&tenant, id).await.map_err(|error| error.refusal())? {
            return Err(unknown("webhook", id.0));
        }
        slot.record_durably(kernel.act(
            actor,
            &caller,
            AuditAction::WebhooksChanged,
            None,
            Some(format!("removed {}", id.0)),
        ))
        .await?;
        Ok(())
    }

    /// Replaces the secret by a new one, or by another credential. Both sign until `overlap` is over.
    pub async fn rotate(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: WebhookId,
        secret: Option<String>,
        overlap: Duration,
    ) -> Result<(WebhookRecord, Option<String>), Refusal> {
        let caller = kernel.permitted(actor, Action::ManageWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        let overlap = overlap.min(OVERLAP_MAX);
        let former = self.known(&tenant, id).await?;
        let generation = match (&former.secret, former.former.as_ref().map(|former| &former.secret)) {
            (SigningSecret::Generated { generation }, _) | (_, Some(SigningSecret::Generated { generation })) => {
                generation.saturating_add(1)
            }
            // Generations that were replaced by a credential are not known any more, so they are not counted but drawn.
            (SigningSecret::Named(_), _) => self.drawn_generation(),
        };
        let to = self.wished(&tenant, secret, generation).await?;
        let slot = kernel.record_slot().await?;
        let rotated = self.parts.store.rotate_secret(&tenant, id, &former.secret, &to, overlap).await;
        let Some(record) = rotated.map_err(|error| error.refusal())? else {
            return Err(Refusal::new(ErrorCode::E3103, "somebody else has changed this webhook meanwhile")
                .hint("look at it with `gantry webhook list`, then decide anew"));
        };
        let note = format!("rotated the secret of {}", id.0);
        slot.record_durably(kernel.act(actor, &caller, AuditAction::WebhooksChanged, None, Some(note))).await?;
        let shown = self.shown(&record);
        Ok((record, shown))
    }

    /// Sends a `webhook.test` event, once, and says what came of it.
    pub async fn test(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: WebhookId,
    ) -> Result<TriedAddress, Refusal> {
        let caller = kernel.permitted(actor, Action::ManageWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        let webhook = self.known(&tenant, id).await?;
        let slot = kernel.record_slot().await?;
        let now = self.parts.clock.now();
        let secrets = self.secrets_of(&webhook, now).await?;
        let delivery = DeliveryId(new_invocation_id(&*self.parts.entropy, now).0);
        let mut data = Map::new();
        data.insert("webhook_id".into(), json!(id.0.to_string()));
        let body = body(delivery.0, EventKind::Test, &tenant, now, data)?;
        let kept = NewDelivery {
            tenant: tenant.clone(),
            id: delivery,
            target: DeliveryTarget::Webhook(id),
            event: EventKind::Test,
            invocation: None,
            body: body.clone(),
        };
        self.parts.store.add_delivery(&kept).await.map_err(|error| error.refusal())?;
        let outcome = self.send(&webhook.url, &secrets, (EventKind::Test, delivery), &body, 1).await;
        let state = if outcome.error.is_none() { DeliveryState::Delivered } else { DeliveryState::Dead };
        let attempt = attempt_of(&outcome, 1, 1, now);
        self.parts.store.note_attempt(&tenant, delivery, &attempt, state).await.map_err(|error| error.refusal())?;
        let note = format!("tested {}: {}", id.0, attempt.error.as_deref().unwrap_or("delivered"));
        slot.record_durably(kernel.act(actor, &caller, AuditAction::WebhooksChanged, None, Some(note))).await?;
        Ok(TriedAddress { delivery, attempt })
    }

    /// What was sent, newest first.
    pub async fn deliveries(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        (webhook, state): (Option<WebhookId>, Option<DeliveryState>),
        (before, most): (Option<u64>, usize),
    ) -> Result<DeliveryPage, Refusal> {
        let caller = kernel.permitted(actor, Action::SeeWebhooks).await?;
        let filter = DeliveryFilter { tenant: kernel.tenant_for(actor, &caller, tenant).await?, webhook, state };
        self.parts.store.deliveries(&filter, before, most).await.map_err(|error| error.refusal())
    }

    /// One delivery and its attempts.
    pub async fn delivery(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> Result<DeliveryReport, Refusal> {
        let caller = kernel.permitted(actor, Action::SeeWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        let DeliveryDetail { record, .. } = self.sent(&tenant, id).await?;
        let attempts = self.parts.store.attempts(&tenant, id).await.map_err(|error| error.refusal())?;
        Ok(DeliveryReport { record, attempts })
    }

    /// Sends a delivery again that was given up.
    pub async fn resend(
        &self,
        kernel: &Kernel,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> Result<ResentDelivery, Refusal> {
        let caller = kernel.permitted(actor, Action::ManageWebhooks).await?;
        let tenant = kernel.tenant_for(actor, &caller, tenant).await?;
        let slot = kernel.record_slot().await?;
        let record = match self.parts.store.reopen(&tenant, id).await.map_err(|error| error.refusal())? {
            Some(record) => record,
            None => {
                let record = self.sent(&tenant, id).await?.record;
                if record.state == DeliveryState::Delivered {
                    return Err(Refusal::new(ErrorCode::E3408, "this delivery has arrived")
                        .hint("only deliveries that were given up are sent again"));
                }
                // It waits already; perhaps whoever reopened it died before it was queued.
                record
            }
        };
        let turn = DeliveryTurn { number: record.attempts.saturating_add(1), ..DeliveryTurn::first(id, record.round) };
        self.enqueue(&tenant, turn, &record.target, Duration::ZERO).await?;
        let note = format!("sent {} again", id.0);
        slot.record_durably(kernel.act(actor, &caller, AuditAction::WebhooksChanged, None, Some(note))).await?;
        Ok(ResentDelivery { record })
    }

    async fn known(&self, tenant: &TenantId, id: WebhookId) -> Result<WebhookRecord, Refusal> {
        let found = self.parts.store.webhook(tenant, id).await.map_err(|error| error.refusal())?;
        found.ok_or_else(|| unknown("webhook", id.0))
    }

    async fn sent(&self, tenant: &TenantId, id: DeliveryId) -> Result<DeliveryDetail, Refusal> {
        let found = self.parts.store.delivery(tenant, id).await.map_err(|error| error.refusal())?;
        found.ok_or_else(|| unknown("delivery", id.0))
    }

    /// The secret somebody wants: a credential that is there, or a new one.
    async fn wished(&self, tenant: &TenantId, name: Option<String>, generation: u32) -> Result<SigningSecret, Refusal> {
        let Some(name) = name else { return Ok(SigningSecret::Generated { generation }) };
        if name.is_empty() || name.len() > SECRET_NAME_CHARS_MAX {
            let text = format!("the name of a credential has 1 to {SECRET_NAME_CHARS_MAX} characters");
            return Err(Refusal::new(ErrorCode::E3004, text));
        }
        self.named(tenant, &name).await?;
        Ok(SigningSecret::Named(name))
    }

    /// A generation nobody has had: the first million are for counting.
    fn drawn_generation(&self) -> u32 {
        let mut draw = [0; 4];
        self.parts.entropy.fill(&mut draw);
        u32::from_be_bytes(draw) | 1 << 31
    }

    /// The secret of a subscription, if it was made here.
    fn shown(&self, record: &WebhookRecord) -> Option<String> {
        let SigningSecret::Generated { generation } = record.secret else { return None };
        Some(super::secrets::derived(&self.parts.root, &record.tenant, record.id, generation))
    }
}

pub(super) fn unknown(what: &str, id: Uuid) -> Refusal {
    Refusal::new(ErrorCode::E3702, format!("there is no {what} `{id}`")).hint(format!(
        "`gantry webhook {}` shows those there are",
        if what == "webhook" { "list" } else { "deliveries" }
    ))
}

/// An address that cannot be called, said before anybody relies on it.
pub(super) fn not_callable(error: &CallOutError) -> Refusal {
    Refusal::new(ErrorCode::E3004, format!("`url`: {error}"))
        .hint("give an https address on port 443, or let the operator open it with `[webhooks] allow`")
}
