//! One attempt to deliver: sign, call, write down what came of it, and say what is next. (WHK-2, WHK-3)
//!
//! The attempt is written down after the call, so a server that dies in between calls again. The other order would lose
//! what a receiver never got. Every attempt is a job of its own, delayed by its pause: a day between two attempts is no
//! matter of how patient the queue is with jobs that fail.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::error::Refusal;
use contract::ids::TenantId;
use ports::call_out::CallOut;
use ports::job_entrance::EnteringJob;
use ports::secret_source::SecretValue;
use ports::webhook_store::{
    DeliveryAttempt, DeliveryDetail, DeliveryId, DeliveryRecord, DeliveryState, DeliveryTarget, EventKind, NoteOutcome,
};
use serde_json::{Value, json};

use super::Webhooks;
use super::schedule::pause_after;
use super::signature::{SIGNATURE_HEADER, sign};

/// The kind of job that delivers.
pub const DELIVERY_JOB: &str = "webhook";
/// How often one attempt may be begun when this server's own store fails.
const STARTS_MAX: u32 = 20;
/// For how long a turn is put into the queue once: longer than the longest pause between two.
const TURN_WINDOW: Duration = Duration::from_secs(48 * 3600);

/// Which attempt of which delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryTurn {
    pub delivery: DeliveryId,
    pub round: u32,
    /// 1 is the first of its round.
    pub number: u32,
    /// The agent whose call named the callback: it is one of that agent's turns.
    pub agent: Option<String>,
}

impl DeliveryTurn {
    /// The first of a round.
    pub(super) fn first(delivery: DeliveryId, round: u32) -> Self {
        Self { delivery, round, number: 1, agent: None }
    }

    /// As the payload of a job.
    fn payload(&self) -> Value {
        let delivery = self.delivery.0.to_string();
        let mut payload = json!({ "delivery": delivery, "round": self.round, "number": self.number });
        if let (Some(members), Some(agent)) = (payload.as_object_mut(), &self.agent) {
            members.insert("agent".into(), agent.as_str().into());
        }
        payload
    }

    /// From the payload of a job.
    pub fn of_payload(payload: &Value) -> Option<Self> {
        let number = |name: &str| payload.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
        let delivery = payload.get("delivery")?.as_str()?.parse().ok()?;
        let agent = payload.get("agent").and_then(Value::as_str).map(str::to_owned);
        Some(Self { delivery: DeliveryId(delivery), round: number("round")?, number: number("number")?, agent })
    }
}

/// What is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver has it.
    Done,
    /// Not yet; after this pause once more.
    Again { after: Duration, error: String },
    /// Given up (E3704).
    Dead { error: String },
    /// Somebody else has done it, or it is not wanted any more.
    Nothing,
}

/// What came of a call.
pub(super) struct Outcome {
    pub(super) status: Option<u16>,
    pub(super) took: Duration,
    /// A word, unless it was delivered.
    pub(super) error: Option<String>,
    /// Another try would fail in the same way.
    pub(super) is_final: bool,
}

impl Outcome {
    fn refused(word: &str, is_final: bool) -> Self {
        Self { status: None, took: Duration::ZERO, error: Some(word.to_owned()), is_final }
    }
}

impl Webhooks {
    /// Makes one attempt, and puts the next into the queue if there is to be one. An error means that nothing could be read
    /// or written down: try again.
    pub async fn deliver(&self, tenant: &TenantId, turn: DeliveryTurn) -> Result<DeliveryOutcome, Refusal> {
        let DeliveryTurn { delivery: id, round, number, .. } = turn;
        let found = self.parts.store.delivery(tenant, id).await.map_err(|error| error.refusal())?;
        let Some(DeliveryDetail { record, body }) = found else { return Ok(DeliveryOutcome::Nothing) };
        if record.state != DeliveryState::Pending || record.round != round {
            return Ok(DeliveryOutcome::Nothing);
        }
        if record.attempts >= number {
            // It was made, and whoever made it died before the next was in the queue.
            return self.again(tenant, turn, &record.target, "interrupted".to_owned()).await;
        }
        let at = self.parts.clock.now();
        let outcome = match &body {
            Some(body) => self.attempt(&record, body, number).await?,
            // What was to be said cannot be read any more, and will not be at the next attempt.
            None => Outcome::refused("unreadable_body", true),
        };
        let given_up = outcome.is_final || number >= self.parts.settings.attempts_max;
        let (state, next) = match outcome.error.clone() {
            None => (DeliveryState::Delivered, DeliveryOutcome::Done),
            Some(error) if given_up => (DeliveryState::Dead, DeliveryOutcome::Dead { error }),
            Some(error) => (DeliveryState::Pending, DeliveryOutcome::Again { after: Duration::ZERO, error }),
        };
        let attempt = attempt_of(&outcome, round, number, at);
        match self.parts.store.note_attempt(tenant, id, &attempt, state).await.map_err(|error| error.refusal())? {
            NoteOutcome::Stale => Ok(DeliveryOutcome::Nothing),
            NoteOutcome::Kept => match next {
                DeliveryOutcome::Again { error, .. } => self.again(tenant, turn, &record.target, error).await,
                end => Ok(end),
            },
        }
    }

    async fn again(
        &self,
        tenant: &TenantId,
        turn: DeliveryTurn,
        target: &DeliveryTarget,
        error: String,
    ) -> Result<DeliveryOutcome, Refusal> {
        let after = self.pause(turn.number);
        self.enqueue(tenant, DeliveryTurn { number: turn.number.saturating_add(1), ..turn }, target, after).await?;
        Ok(DeliveryOutcome::Again { after, error })
    }

    /// Has a turn taken after `delay`. A second time for the same turn changes nothing.
    pub(super) async fn enqueue(
        &self,
        tenant: &TenantId,
        turn: DeliveryTurn,
        target: &DeliveryTarget,
        delay: Duration,
    ) -> Result<(), Refusal> {
        let job = EnteringJob {
            kind: DELIVERY_JOB,
            tenant: tenant.clone(),
            label: turn.delivery.0.to_string(),
            flow: flow_of(target, turn.agent.as_deref()),
            payload: turn.payload(),
            delay,
            attempts_max: STARTS_MAX,
            key: format!("{} {} {}", turn.delivery.0, turn.round, turn.number),
            window: TURN_WINDOW,
            is_follow_up: true,
        };
        self.parts.queue.enter(job).await.map(drop)
    }

    async fn attempt(&self, record: &DeliveryRecord, body: &str, number: u32) -> Result<Outcome, Refusal> {
        let now = self.parts.clock.now();
        let (url, secrets) = match &record.target {
            DeliveryTarget::Webhook(webhook) => {
                let found =
                    self.parts.store.webhook(&record.tenant, *webhook).await.map_err(|error| error.refusal())?;
                let Some(found) = found else { return Ok(Outcome::refused("webhook_removed", true)) };
                let secrets = self.secrets_of(&found, now).await;
                (found.url, secrets)
            }
            DeliveryTarget::Callback { url, secret } => {
                (url.clone(), self.named(&record.tenant, secret).await.map(|secret| vec![secret]))
            }
        };
        // A body nobody can check is not sent. Somebody may provision the credential meanwhile.
        let Ok(secrets) = secrets else { return Ok(Outcome::refused("no_secret", false)) };
        Ok(self.send(&url, &secrets, (record.event, record.id), body, number).await)
    }

    /// Sends a signed body once.
    pub(super) async fn send(
        &self,
        url: &str,
        secrets: &[SecretValue],
        (event, id): (EventKind, DeliveryId),
        body: &str,
        number: u32,
    ) -> Outcome {
        let headers = [
            (SIGNATURE_HEADER, sign(secrets, self.parts.clock.now(), body.as_bytes())),
            ("gantry-event", event.as_str().to_owned()),
            ("gantry-delivery-id", id.0.to_string()),
            ("gantry-attempt", number.to_string()),
        ];
        match self.parts.calls.post(CallOut { url, headers: &headers, body: body.as_bytes() }).await {
            Ok(answer) if (200..300).contains(&answer.status) => {
                Outcome { status: Some(answer.status), took: answer.took, error: None, is_final: false }
            }
            Ok(answer) => Outcome {
                status: Some(answer.status),
                took: answer.took,
                error: Some("bad_status".to_owned()),
                // 410: the receiver says that nobody will ever be there again.
                is_final: answer.status == 410,
            },
            Err(error) => Outcome::refused(error.word(), error.is_final()),
        }
    }

    fn pause(&self, failed: u32) -> Duration {
        let mut draw = [0; 2];
        self.parts.entropy.fill(&mut draw);
        pause_after(failed, u16::from_be_bytes(draw))
    }
}

/// Whose turns a delivery takes. Those of one subscription take turns with those of others, so that a receiver that never
/// answers holds up its own only. A callback takes the turns, and the room, of the agent whose call named it, whatever
/// address it names: addresses are the caller's to vary.
fn flow_of(target: &DeliveryTarget, agent: Option<&str>) -> String {
    match (target, agent) {
        (DeliveryTarget::Webhook(id), _) => format!("webhook {}", id.0),
        (DeliveryTarget::Callback { .. }, Some(agent)) => agent.to_owned(),
        // One that somebody has sent again.
        (DeliveryTarget::Callback { .. }, None) => "callback".to_owned(),
    }
}

pub(super) fn attempt_of(outcome: &Outcome, round: u32, number: u32, at: ports::clock::UnixMillis) -> DeliveryAttempt {
    DeliveryAttempt {
        round,
        number,
        at,
        status: outcome.status,
        took_ms: u64::saturating_from(outcome.took.as_millis()),
        error: outcome.error.clone(),
    }
}
