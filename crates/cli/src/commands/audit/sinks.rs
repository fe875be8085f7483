//! `gantry audit sinks`: how far each sink of the audit log has come, and what keeps it from going on.
//!
//! Read from the files beside the log, without asking a server: so it also says something when the server does not run, and
//! it needs no right but to read the data directory.

use std::path::Path;

use audit::sinks::{LogSource, RecordSource as _, SinkCursor, StatusFile};
use clap::Args;
use serde_json::{Value, json};

use crate::config::audit::sinks::SinkTable;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, visible};

/// Show where the audit log is carried to, how far, and what is wrong
#[derive(Debug, Args)]
pub(crate) struct AuditSinksCommand {}

impl AuditSinksCommand {
    pub(crate) fn run(context: &CommandContext) -> Result<(), CommandFailure> {
        let config = context.config(Vec::new())?;
        let dir = config.audit.dir(context.data_dir().path());
        let end = end_of(&dir)?;
        let sinks = config.audit.sinks.iter().map(|sink| state(&dir, sink, end)).collect::<Result<Vec<_>, _>>()?;
        let answer = json!({ "records": end, "sinks": sinks });
        context.printer.answer(&answer, |printer| shown(printer, &answer));
        Ok(())
    }
}

/// How many records there are; none where there is no log yet.
fn end_of(dir: &Path) -> Result<u64, CommandFailure> {
    match LogSource::open(dir).and_then(|source| source.end()) {
        Ok(end) => Ok(end),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(CommandFailure::new(format!("the audit log cannot be read: {error}"))
            .hint("run it as the user the server runs as; `gantry doctor` looks at the data directory")),
    }
}

fn state(dir: &Path, sink: &SinkTable, end: u64) -> Result<Value, CommandFailure> {
    let place = dir.join("sinks");
    let delivered = SinkCursor::peek(&place, &sink.name).map_err(|error| CommandFailure::new(error.to_string()))?;
    let status = StatusFile::peek(&place, &sink.name)
        .map_err(|error| CommandFailure::new(format!("the state of sink `{}` cannot be read: {error}", sink.name)))?;
    Ok(json!({
        "name": sink.name,
        "kind": sink.kind(),
        "state": status.as_ref().map_or("never_started", |status| status.state.as_str()),
        "since": status.as_ref().map(|status| &status.since),
        "delivered": delivered.unwrap_or(0),
        "lag": end.saturating_sub(delivered.unwrap_or(0)),
        "failures": status.as_ref().map_or(0, |status| status.failures),
        "reason": status.as_ref().and_then(|status| status.reason.as_ref()),
    }))
}

fn shown(printer: &Printer, answer: &Value) -> String {
    let sinks = answer.get("sinks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if sinks.is_empty() {
        return "no sinks; `[[audit.sinks]]` in the configuration names one (docs/audit-sinks.md)".to_owned();
    }
    let rows = sinks.iter().map(|sink| {
        let text = |name: &str| {
            sink.get(name).and_then(Value::as_str).map(|text| visible(text).into_owned()).unwrap_or_default()
        };
        let number = |name: &str| sink.get(name).and_then(Value::as_u64).unwrap_or_default().to_string();
        let state = text("state").replace('_', " ");
        [text("name"), text("kind"), state, number("delivered"), number("lag"), text("since"), text("reason")]
    });
    printer.table(["SINK", "KIND", "STATE", "DELIVERED", "LAG", "SINCE", "REASON"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn what_keeps_a_sink_is_shown_and_no_terminal_is_moved_by_it() {
        let printer = Printer::new(PrinterOptions::default());
        assert!(shown(&printer, &json!({ "sinks": [] })).contains("[[audit.sinks]]"));
        let answer = json!({ "sinks": [{
            "name": "siem", "kind": "http", "state": "halted", "delivered": 12, "lag": 3, "since": "2027-01-15T08:00:00.000Z",
            "reason": "the receiver answers 401\u{1b}[2J",
        }] });
        let text = shown(&printer, &answer);
        assert!(text.contains("halted") && text.contains("answers 401") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_log_that_is_not_there_yet_has_no_records() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(end_of(&dir.path().join("nowhere")).unwrap(), 0);
        let sink = &SinkTable {
            name: "a".into(),
            from_the_beginning: true,
            limits: audit::sinks::BatchLimits::default(),
            target: crate::config::audit::sinks::SinkTarget::File {
                dir: None,
                rotation: audit::sinks::file::FileRotation::default(),
            },
        };
        assert_eq!(state(dir.path(), sink, 0).unwrap()["state"], "never_started");
    }
}
