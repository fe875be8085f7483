//! `gantry instances`: which servers and workers of the installation are there.

use clap::Args;
use serde_json::Value;

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, visible};

/// List the servers and workers that are there
#[derive(Debug, Args)]
pub(crate) struct InstancesCommand {}

impl InstancesCommand {
    pub(crate) async fn run(context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.get("/v1/instances").await?;
        context.printer.answer(&answer, |printer| table(printer, &answer));
        if answer.get("current") == Some(&Value::Bool(false)) {
            context.printer.warn("the others could not be asked; these were there at the last look");
        }
        Ok(())
    }
}

fn table(printer: &Printer, answer: &Value) -> String {
    let instances = answer.get("instances").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let rows = instances.iter().map(|instance| {
        let text =
            |member: &str| visible(instance.get(member).and_then(Value::as_str).unwrap_or_default()).into_owned();
        let own = if instance.get("self") == Some(&Value::Bool(true)) { " *" } else { "" };
        [
            text("id") + own,
            text("role"),
            text("version"),
            text("started_at"),
            text("last_seen_at"),
            text("schema"),
            text("address"),
        ]
    });
    printer.table(["ID", "ROLE", "VERSION", "SINCE", "LAST SEEN", "SCHEMA", "ADDRESS"], rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn the_one_that_answers_is_marked() {
        let answer = json!({ "current": true, "instances": [
            { "id": "i-1", "role": "serve", "version": "0.2.0", "schema": "postgres/13", "address": "http://10.0.0.1:7300",
              "started_at": "2027-01-15T08:00:00.000Z", "last_seen_at": "2027-01-15T09:00:00.000Z", "self": true },
            { "id": "i-2", "role": "worker" },
        ] });
        let text = table(&Printer::new(PrinterOptions::default()), &answer);
        assert!(text.contains("i-1 *") && text.contains("postgres/13") && text.contains("worker"), "{text}");
        assert!(!text.contains("i-2 *"), "{text}");
    }
}
