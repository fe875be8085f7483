//! `gantry webhook …`: who is called back when something has ended, what was sent, and what came of it. (ASYNC-007)

use clap::{Args, Subcommand};
use contract::ids::TenantId;
use serde_json::{Value, json};

use super::CommandOutcome;
use super::import::server_intake::in_tenant;
use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, visible};

/// Look after webhooks: who is called back, and what was sent
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    Add(WebhookAddCommand),
    List(WebhookListCommand),
    Remove(WebhookRemoveCommand),
    /// Replace the secret; the former one signs too for a while
    Rotate(WebhookRotateCommand),
    /// Send a test event once, now
    Test(WebhookRemoveCommand),
    Deliveries(WebhookDeliveriesCommand),
    /// Send a delivery again that was given up
    Resend(WebhookRemoveCommand),
}

/// Subscribe an address to the ends of calls
#[derive(Debug, Args)]
pub(crate) struct WebhookAddCommand {
    /// An https address
    url: String,
    /// What it is told: invocation.completed, invocation.failed, … (repeatable) [default: everything]
    #[arg(long = "event", value_name = "EVENT")]
    events: Vec<String>,
    /// A credential of the tenant that signs [default: a secret is made and shown once]
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// For whom [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// List who is called back
#[derive(Debug, Args)]
pub(crate) struct WebhookListCommand {
    /// For whom [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// End a subscription
#[derive(Debug, Args)]
pub(crate) struct WebhookRemoveCommand {
    /// Its id
    id: String,
    /// For whom [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookRotateCommand {
    /// The webhook's id
    id: String,
    /// A credential of the tenant that signs from now on [default: a secret is made and shown once]
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// For how many hours the former secret signs too
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=720))]
    overlap_hours: u32,
    /// For whom [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// List what was sent, newest first; with an id, every attempt of one delivery
#[derive(Debug, Args)]
pub(crate) struct WebhookDeliveriesCommand {
    /// One delivery
    id: Option<String>,
    /// Only those to this webhook
    #[arg(long, value_name = "ID")]
    webhook: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = ["pending", "delivered", "dead"])]
    state: Option<String>,
    /// How many
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Older than the page before, which has said from where
    #[arg(long, value_name = "MARK")]
    before: Option<u64>,
    /// For whom [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl WebhookCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Add(command) => command.run(context).await?,
            Self::List(command) => command.run(context).await?,
            Self::Remove(command) => command.remove(context).await?,
            Self::Rotate(command) => command.run(context).await?,
            Self::Test(command) => return command.test(context).await,
            Self::Deliveries(command) => command.run(context).await?,
            Self::Resend(command) => command.resend(context).await?,
        }
        Ok(CommandOutcome::Done)
    }
}

impl WebhookAddCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut body = json!({ "url": self.url, "events": self.events });
        if let (Some(name), Some(members)) = (self.secret, body.as_object_mut()) {
            members.insert("secret".to_owned(), json!(name));
        }
        let answer = context.client()?.post(&path("", "", self.tenant.as_ref()), &body).await?;
        context.printer.answer(&answer, |_| subscribed(&answer));
        Ok(())
    }
}

impl WebhookListCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.get(&path("", "", self.tenant.as_ref())).await?;
        context.printer.answer(&answer, |printer| subscriptions(printer, &answer));
        Ok(())
    }
}

impl WebhookRotateCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut body = json!({ "overlap_seconds": u64::from(self.overlap_hours) * 3600 });
        if let (Some(name), Some(members)) = (self.secret, body.as_object_mut()) {
            members.insert("secret".to_owned(), json!(name));
        }
        let answer = context.client()?.post(&path(&self.id, "/rotate", self.tenant.as_ref()), &body).await?;
        context.printer.answer(&answer, |_| {
            let until = text(&answer, "former_secret_until");
            format!("{}\nthe former secret signs too until {until}", subscribed(&answer))
        });
        Ok(())
    }
}

impl WebhookRemoveCommand {
    async fn remove(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.delete(&path(&self.id, "", self.tenant.as_ref())).await?;
        context.printer.answer(&answer, |_| format!("{} gets nothing more", visible(&self.id)));
        Ok(())
    }

    async fn test(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let answer = context.client()?.post(&path(&self.id, "/test", self.tenant.as_ref()), &json!({})).await?;
        context.printer.answer(&answer, |_| tried(&answer));
        let delivered = answer.get("delivered").and_then(Value::as_bool).unwrap_or_default();
        Ok(if delivered { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }

    async fn resend(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let path = format!("/v1/webhooks/deliveries/{}/resend{}", segment(&self.id), in_tenant(self.tenant.as_ref()));
        let answer = context.client()?.post(&path, &json!({})).await?;
        context.printer.answer(&answer, |_| format!("{} is sent again", text(&answer, "id")));
        Ok(())
    }
}

impl WebhookDeliveriesCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let tenant = in_tenant(self.tenant.as_ref());
        if let Some(id) = &self.id {
            let answer = context.client()?.get(&format!("/v1/webhooks/deliveries/{}{tenant}", segment(id))).await?;
            context.printer.answer(&answer, |printer| attempts(printer, &answer));
            return Ok(());
        }
        let mut path = format!("/v1/webhooks/deliveries{tenant}");
        let before = self.before.map(|mark| mark.to_string());
        let limit = Some(self.limit.to_string());
        for (name, value) in [("webhook", self.webhook), ("state", self.state), ("before", before), ("limit", limit)] {
            if let Some(value) = value {
                path.push(if path.contains('?') { '&' } else { '?' });
                path.push_str(&format!("{name}={}", segment(&value)));
            }
        }
        let answer = context.client()?.get(&path).await?;
        context.printer.answer(&answer, |printer| sent(printer, &answer));
        Ok(())
    }
}

/// The path of something about webhooks.
fn path(id: &str, rest: &str, tenant: Option<&TenantId>) -> String {
    let id = if id.is_empty() { String::new() } else { format!("/{}", segment(id)) };
    format!("/v1/webhooks{id}{rest}{}", in_tenant(tenant))
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(|text| visible(text).into_owned()).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn subscribed(answer: &Value) -> String {
    let id = text(answer, "id");
    match answer.get("secret").and_then(Value::as_str) {
        Some(secret) => format!("{id}\nsecret {secret}\nkeep it now: it is not shown again"),
        None => format!("{id}\nsigned with the credential `{}`", text(answer, "secret_name")),
    }
}

fn subscriptions(printer: &Printer, answer: &Value) -> String {
    let webhooks = list(answer, "webhooks");
    if webhooks.is_empty() {
        return "no webhooks; `gantry webhook add URL` subscribes one".to_owned();
    }
    let rows = webhooks.iter().map(|webhook| {
        let events: Vec<_> = list(webhook, "events").iter().filter_map(Value::as_str).collect();
        let events = if events.is_empty() { "everything".to_owned() } else { events.join(", ") };
        let secret = match webhook.get("secret_name").and_then(Value::as_str) {
            Some(name) => visible(name).into_owned(),
            None => "made here".to_owned(),
        };
        [text(webhook, "id"), text(webhook, "url"), events, secret]
    });
    printer.table(["WEBHOOK", "URL", "TOLD", "SECRET"], rows)
}

fn tried(answer: &Value) -> String {
    let attempt = answer.get("attempt").cloned().unwrap_or_default();
    let took = attempt.get("took_ms").and_then(Value::as_u64).unwrap_or_default();
    match (attempt.get("status").and_then(Value::as_u64), attempt.get("error").and_then(Value::as_str)) {
        (Some(status), None) => format!("delivered: {status} in {took} ms"),
        (Some(status), Some(_)) => format!("not delivered: the receiver answered {status} in {took} ms"),
        (None, error) => format!("not delivered: {}", error.unwrap_or("no answer").replace('_', " ")),
    }
}

fn sent(printer: &Printer, answer: &Value) -> String {
    let deliveries = list(answer, "deliveries");
    if deliveries.is_empty() {
        return "nothing was sent".to_owned();
    }
    let rows = deliveries.iter().map(|delivery| {
        let to = match text(delivery, "webhook_id") {
            id if id.is_empty() => text(delivery, "callback_url"),
            id => id,
        };
        let tries = delivery.get("attempts").and_then(Value::as_u64).unwrap_or_default().to_string();
        [
            text(delivery, "id"),
            text(delivery, "event"),
            text(delivery, "state"),
            tries,
            text(delivery, "created_at"),
            to,
        ]
    });
    let mut table = printer.table(["DELIVERY", "EVENT", "STATE", "TRIES", "SINCE", "TO"], rows);
    if let Some(next) = answer.get("next").and_then(Value::as_u64) {
        table.push_str(&format!("\nthere are more: --before {next}"));
    }
    table
}

fn attempts(printer: &Printer, answer: &Value) -> String {
    let rows = list(answer, "log").iter().map(|attempt| {
        let number = |name: &str| attempt.get(name).and_then(Value::as_u64).map(|n| n.to_string()).unwrap_or_default();
        let outcome = match text(attempt, "error") {
            error if error.is_empty() => "delivered".to_owned(),
            error => error,
        };
        [number("round"), number("number"), text(attempt, "at"), number("status"), number("took_ms"), outcome]
    });
    let head = format!("{} {} is {}", text(answer, "event"), text(answer, "id"), text(answer, "state"));
    format!("{head}\n{}", printer.table(["ROUND", "TRY", "AT", "STATUS", "MS", "OUTCOME"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn what_people_read_says_what_came_of_it() {
        let printer = Printer::new(PrinterOptions::default());
        let made = json!({ "id": "a", "secret": "whsec_1" });
        assert!(subscribed(&made).contains("whsec_1") && subscribed(&made).contains("not shown again"));
        assert!(subscriptions(&printer, &json!({ "webhooks": [] })).contains("gantry webhook add"));
        for (attempt, expected) in [
            (json!({ "status": 204, "took_ms": 3 }), "delivered: 204 in 3 ms"),
            (
                json!({ "status": 500, "took_ms": 3, "error": "bad_status" }),
                "not delivered: the receiver answered 500 in 3 ms",
            ),
            (json!({ "status": null, "error": "timed_out" }), "not delivered: timed out"),
        ] {
            assert_eq!(tried(&json!({ "attempt": attempt })), expected);
        }
        let page =
            json!({ "deliveries": [{ "id": "d", "state": "dead", "callback_url": "https://c.example" }], "next": 7 });
        let shown = sent(&printer, &page);
        assert!(shown.contains("https://c.example") && shown.contains("--before 7"), "{shown}");
    }

    #[test]
    fn ids_cannot_leave_their_place_in_a_path() {
        assert_eq!(path("a/b", "/test", None), "/v1/webhooks/a%2Fb/test");
        assert_eq!(path("", "", Some(&"acme".parse().unwrap())), "/v1/webhooks?tenant=acme");
    }
}
