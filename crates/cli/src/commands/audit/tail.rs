//! `gantry audit tail`: the last records, and those that come.

use std::path::PathBuf;
use std::time::Duration;

use audit::LogReader;
use clap::Args;
use serde_json::Value;

use super::{dir, unreadable};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer;

/// How often to look for more.
const PAUSE: Duration = Duration::from_millis(300);
/// Records read at once.
const AT_ONCE: usize = 500;
/// How far back one looks for records that fit.
const BACK_MAX: u64 = 50_000;

/// Show the last records of the audit log, and with -f those that come
#[derive(Debug, Args)]
pub(crate) struct AuditTailCommand {
    /// Go on with new records until interrupted
    #[arg(short, long)]
    follow: bool,
    /// How many of the last records
    #[arg(short = 'n', long, default_value_t = 20)]
    lines: usize,
    /// Only about this tool
    #[arg(long)]
    tool: Option<String>,
    /// Only of this agent, person or service
    #[arg(long)]
    subject: Option<String>,
    /// The directory of the log [default: that of the configuration]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl AuditTailCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let dir = dir(context, self.dir.clone())?;
        let failed = |error: std::io::Error| unreadable(&dir, &error);
        let reader = LogReader::open(&dir).map_err(failed)?;
        let end = audit::records_in(&dir).map_err(failed)?;
        let mut next = end.saturating_sub(BACK_MAX);
        let mut last = std::collections::VecDeque::new();
        while next < end {
            let entries = reader.read(next, AT_ONCE).map_err(failed)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                next = entry.seq + 1;
                if let Some(record) = self.wanted(&entry.line) {
                    last.push_back((entry.line, record));
                    if last.len() > self.lines {
                        last.pop_front();
                    }
                }
            }
        }
        for (line, record) in &last {
            show(context, line, record);
        }
        if !self.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            for entry in reader.read(next, AT_ONCE).map_err(failed)? {
                next = entry.seq + 1;
                if let Some(record) = self.wanted(&entry.line) {
                    show(context, &entry.line, &record);
                }
            }
        }
    }

    fn wanted(&self, line: &str) -> Option<Value> {
        let record: Value = serde_json::from_str(line).ok()?;
        let is = |name: &str, wish: Option<&String>| {
            wish.is_none_or(|wish| record.get(name).and_then(Value::as_str) == Some(wish))
        };
        (is("tool_id", self.tool.as_ref()) && is("subject", self.subject.as_ref())).then_some(record)
    }
}

/// One line per record: as it is for programs, and in words for people. Whatever a caller has put into it is shown and
/// never obeyed.
fn show(context: &CommandContext, line: &str, record: &Value) {
    if context.printer.is_json() { printer::line(line) } else { printer::line(&in_words(record)) }
}

fn in_words(record: &Value) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut words = vec![text("at").to_owned(), text("id").to_owned(), text("action").to_owned()];
    let who = [text("tenant"), text("subject")].join("/");
    words.extend((who != "/").then_some(who));
    let tool = [text("tool_id"), text("tool_version")];
    words.extend((!text("tool_id").is_empty()).then(|| tool.join(" ").trim_end().to_owned()));
    words.extend(["status", "code"].into_iter().map(text).filter(|word| !word.is_empty()).map(str::to_owned));
    words.extend(record.get("duration_ms").map(|ms| format!("{ms} ms")));
    words.extend((!text("note").is_empty()).then(|| format!("({})", text("note"))));
    escaped(&words.join("  "))
}

/// Control characters and those that change the direction of writing are shown by their numbers.
fn escaped(text: &str) -> String {
    let is_harmful = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_harmful(letter) { shown.extend(letter.escape_unicode()) } else { shown.push(letter) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hostile_strings_are_shown_and_not_obeyed() {
        let record = json!({
            "at": "2027-01-15T08:00:00.000Z", "id": "ab-7", "action": "invocation_finished", "tenant": "acme",
            "subject": "did:x\u{1b}[2J", "tool_id": "calc", "status": "error", "code": "E3301", "duration_ms": 3,
            "note": "one\ntwo\r\u{202e}\u{0}",
        });
        assert_eq!(
            in_words(&record),
            "2027-01-15T08:00:00.000Z  ab-7  invocation_finished  acme/did:x\\u{1b}[2J  calc  error  E3301  3 ms  \
             (one\\u{a}two\\u{d}\\u{202e}\\u{0})"
        );
    }
}
