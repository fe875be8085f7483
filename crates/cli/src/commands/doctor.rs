//! `gantry doctor`: what is in force, where it came from, and whether it can work. (OPS-003)
//!
//! Looks and reads, never mends; a key that lives for a second is all it writes, to see that Redis takes it. Every check is a function from what it looks at to one [`Finding`]; exit code 1 if one
//! of them failed. What is missing but optional is said by name, never silently.

use clap::Args;
use serde_json::json;

use super::Outcome;
use crate::config::Config;
use crate::config::settings::all_keys;
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{Printer, Style};

mod checks;
mod isolation;
mod shared_state;
mod tls;

/// Check the configuration, the data directory and the server
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    /// Works, but somebody should know.
    Notable,
    /// Not there, and nobody needs it.
    Absent,
    Bad,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Notable => "warning",
            Self::Absent => "absent",
            Self::Bad => "failed",
        }
    }
}

/// What one check found.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    health: Health,
    detail: String,
    hint: Option<String>,
}

impl Finding {
    fn new(what: &'static str, health: Health, detail: impl Into<String>) -> Self {
        Self { what, health, detail: detail.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn of_failure(what: &'static str, failure: Failure) -> Self {
        let detail = if failure.reasons.is_empty() {
            failure.message
        } else {
            format!("{}: {}", failure.message, failure.reasons.join("; "))
        };
        Self { what, health: Health::Bad, detail, hint: failure.hint }
    }
}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<Outcome, Failure> {
        let config = context.config(Vec::new());
        let mut findings = checks::data_dir(&context.data_dir());
        match &config {
            Ok(config) => {
                findings.insert(0, Finding::new("configuration", Health::Well, "can be used"));
                findings.extend(checks::configured(context, config).await);
            }
            Err(failure) => findings.insert(0, Finding::of_failure("configuration", failure.clone())),
        }
        findings.push(checks::server(context).await);
        let healthy = findings.iter().all(|finding| finding.health != Health::Bad);
        let settings = config.as_ref().map(values).unwrap_or_default();
        let document = json!({
            "healthy": healthy,
            "version": env!("CARGO_PKG_VERSION"),
            "configuration": settings.iter().map(|[key, value, origin]| json!({ "key": key, "value": value, "from": origin })).collect::<Vec<_>>(),
            "checks": findings.iter().map(|f| json!({
                "check": f.what, "status": f.health.word(), "detail": f.detail, "hint": f.hint,
            })).collect::<Vec<_>>(),
        });
        context.printer.answer(&document, |printer| {
            let mut text = format!("Gantry {}\n\n", env!("CARGO_PKG_VERSION"));
            if !settings.is_empty() {
                text.push_str(&printer.table(["SETTING", "VALUE", "FROM"], settings.iter().cloned()));
                text.push_str("\n\n");
            }
            text.push_str(&report(printer, &findings));
            text
        });
        Ok(if healthy { Outcome::Done } else { Outcome::Unfit })
    }
}

/// Every key with its value in force and its source; secrets hidden by their type.
fn values(config: &Config) -> Vec<[String; 3]> {
    let line = |key: &'static crate::config::key::Key| match config.settings.get(key) {
        Some((value, origin)) => [key.title(), value.to_string(), origin.to_string()],
        None => [key.title(), format!("(unset: {})", key.unset), "default".to_owned()],
    };
    all_keys().map(line).collect()
}

fn report(printer: &Printer, findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or_default();
    let lines = findings.iter().map(|finding| {
        let (mark, style) = match finding.health {
            Health::Well => ("✓", Style::Green),
            Health::Notable => ("!", Style::Yellow),
            Health::Absent => ("–", Style::Dim),
            Health::Bad => ("✗", Style::Red),
        };
        let mut line = format!("{} {:width$}  {}", printer.style(mark, style), finding.what, finding.detail);
        if let Some(hint) = &finding.hint {
            line.push_str(&format!("\n  {:width$}  {} {hint}", "", printer.style("hint:", Style::Cyan)));
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}
