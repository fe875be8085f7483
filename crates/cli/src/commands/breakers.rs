//! `gantry breakers …`: how the services behind tools fare, and what is done about it by hand. (RES-001)

use clap::{Args, Subcommand};
use contract::ids::TenantId;
use serde_json::{Value, json};

use super::import::server_intake::in_tenant;
use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, visible};

/// Look at circuit breakers, and open or close them by hand
#[derive(Debug, Subcommand)]
pub(crate) enum BreakersCommand {
    List(BreakerListCommand),
    History(BreakerHistoryCommand),
    Open(BreakerOpenCommand),
    Close(BreakerCloseCommand),
    Reset(BreakerResetCommand),
}

/// List the breakers that were used, and how they stand
#[derive(Debug, Args)]
pub(crate) struct BreakerListCommand {
    /// Whose breakers [default: the token's own tenant; for the admin token, all]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Show what became of breakers, the newest change first
#[derive(Debug, Args)]
pub(crate) struct BreakerHistoryCommand {
    /// Of which one: `service`, `service@endpoint` or `tenant/service@endpoint` [default: all]
    breaker: Option<String>,
    /// Whose breakers [default: the token's own tenant; for the admin token, all]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// How many changes, at most 1000
    #[arg(long, default_value_t = 50)]
    limit: u16,
}

/// Stop all calls to a service
#[derive(Debug, Args)]
pub(crate) struct BreakerOpenCommand {
    /// Which one: `service`, `service@endpoint` or `tenant/service@endpoint`
    breaker: String,
    /// Try the service again after so many seconds [default: stay open until closed by hand]
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// Let calls to a service through again
#[derive(Debug, Args)]
pub(crate) struct BreakerCloseCommand {
    /// Which one: `service`, `service@endpoint` or `tenant/service@endpoint`
    breaker: String,
}

/// Close a breaker and forget what it has counted
#[derive(Debug, Args)]
pub(crate) struct BreakerResetCommand {
    /// Which one: `service`, `service@endpoint` or `tenant/service@endpoint`
    breaker: String,
}

impl BreakersCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            Self::List(command) => {
                let path = format!("/v1/breakers{}", in_tenant(command.tenant.as_ref()));
                let answer = context.client()?.get(&path).await?;
                context.printer.answer(&answer, |printer| table(printer, &answer));
                if answer.get("current") == Some(&Value::Bool(false)) {
                    context.printer.warn(
                        "the state that servers share cannot be reached; this is what is in force on the server that answered",
                    );
                }
                Ok(())
            }
            Self::History(command) => {
                let tenant = command.tenant.map_or_else(String::new, |tenant| format!("&tenant={tenant}"));
                let of = command.breaker.map_or_else(String::new, |of| format!("&breaker={}", segment(&of)));
                let path = format!("/v1/breakers/history?limit={}{tenant}{of}", command.limit);
                let answer = context.client()?.get(&path).await?;
                context.printer.answer(&answer, |printer| past(printer, &answer));
                Ok(())
            }
            Self::Open(command) => {
                let mut body = json!({ "to": "open" });
                if let (Some(members), Some(seconds)) = (body.as_object_mut(), command.seconds) {
                    members.insert("seconds".to_owned(), seconds.into());
                }
                shift(context, &command.breaker, &body).await
            }
            Self::Close(command) => shift(context, &command.breaker, &json!({ "to": "closed" })).await,
            Self::Reset(command) => shift(context, &command.breaker, &json!({ "to": "reset" })).await,
        }
    }
}

async fn shift(context: &CommandContext, breaker: &str, body: &Value) -> Result<(), CommandFailure> {
    let path = format!("/v1/breakers/{}/move", segment(breaker));
    let answer = context.client()?.post(&path, body).await?;
    context.printer.answer(&answer, |printer| table(printer, &json!({ "breakers": [answer] })));
    Ok(())
}

fn table(printer: &Printer, answer: &Value) -> String {
    let breakers = answer.get("breakers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if breakers.is_empty() {
        return "no breaker was used; tools have one by `external_service` in their manifest".to_owned();
    }
    let rows = breakers.iter().map(|breaker| {
        let text = |member: &str| visible(breaker.get(member).and_then(Value::as_str).unwrap_or_default()).into_owned();
        let count = |member: &str| breaker.get(member).and_then(Value::as_u64).unwrap_or_default();
        let note = match (text("opened_by"), text("open_until")) {
            (why, until) if until.is_empty() => why,
            (why, until) => format!("{why}; until {until}"),
        };
        let failures = format!("{} of {}", count("failures"), count("calls"));
        [text("breaker"), text("state"), text("since"), failures, count("refused").to_string(), note]
    });
    printer.table(["BREAKER", "STATE", "SINCE", "FAILURES", "REFUSED", "NOTE"], rows)
}

fn past(printer: &Printer, answer: &Value) -> String {
    let changes = answer.get("transitions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if changes.is_empty() {
        return "no breaker has changed its state as far back as is kept".to_owned();
    }
    let rows = changes.iter().map(|change| {
        let text = |member: &str| visible(change.get(member).and_then(Value::as_str).unwrap_or_default()).into_owned();
        [text("at"), text("breaker"), text("from"), text("to"), text("reason")]
    });
    printer.table(["AT", "BREAKER", "FROM", "TO", "REASON"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn a_list_says_why_a_breaker_is_open_and_for_how_long() {
        let answer = json!({ "breakers": [{
            "breaker": "mail@api.example.com", "state": "open", "since": "2027-01-15T08:00:00.000Z", "calls": 9,
            "failures": 5, "refused": 3, "opened_by": "5 failures", "open_until": "2027-01-15T08:01:00.000Z",
        }] });
        let printer = Printer::new(PrinterOptions::default());
        let text = table(&printer, &answer);
        for part in ["mail@api.example.com", "5 of 9", "5 failures; until 2027-01-15T08:01:00.000Z"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(table(&printer, &json!({ "breakers": [] })).contains("external_service"));
    }

    #[test]
    fn a_history_says_what_changed_and_why() {
        let answer = json!({ "transitions": [{
            "breaker": "mail", "at": "2027-01-15T08:00:00.000Z", "from": "closed", "to": "open", "reason": "5 failures",
        }] });
        let printer = Printer::new(PrinterOptions::default());
        let text = past(&printer, &answer);
        for part in ["mail", "closed", "open", "5 failures", "2027-01-15T08:00:00.000Z"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(past(&printer, &json!({ "transitions": [] })).contains("no breaker"));
    }
}
