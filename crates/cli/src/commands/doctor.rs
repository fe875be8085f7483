//! `gantry doctor`: what is in force, where it came from, and whether it can work. (OPS-003)
//!
//! Looks and reads, never mends; a key that lives for a second is all it writes, to see that Redis takes it. Every check is a function from what it looks at to one [`Finding`]; exit code 1 if one
//! of them failed. What is missing but optional is said by name, never silently.
//!
//! Invariant: whatever is worth a warning says what to do about it; a [`Finding`] without a fix cannot be made.

use clap::Args;
use serde_json::json;

use super::CommandOutcome;
use crate::config::GantryConfig;
use crate::config::key::ConfigKey;
use crate::config::settings::all_keys;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, TextStyle};

mod checks;
mod isolation;
mod shared_state;
mod tls;

/// Check the configuration, the data directory and the server
#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// Also every setting in force, and where it comes from
    #[arg(long)]
    settings: bool,
}

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
    /// What to do about it.
    fix: Option<String>,
}

impl Finding {
    /// Nothing to do.
    fn well(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, health: Health::Well, detail: detail.into(), fix: None }
    }

    /// Not there, and nobody needs it.
    fn absent(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, health: Health::Absent, detail: detail.into(), fix: None }
    }

    fn warning(what: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::at(Health::Notable, what, detail, fix)
    }

    fn failed(what: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::at(Health::Bad, what, detail, fix)
    }

    /// Where it depends on who relies on it how bad that is.
    fn at(health: Health, what: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, health, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// `otherwise`: what to do if the failure does not say it.
    fn of_failure(what: &'static str, failure: CommandFailure, otherwise: &str) -> Self {
        let detail = if failure.reasons.is_empty() {
            failure.message
        } else {
            format!("{}: {}", failure.message, failure.reasons.join("; "))
        };
        Self::failed(what, detail, failure.hint.unwrap_or_else(|| otherwise.to_owned()))
    }
}

impl DoctorCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let config = context.config(Vec::new());
        let mut findings = checks::data_dir(&context.data_dir());
        match &config {
            Ok(config) => {
                findings.insert(0, Finding::well("configuration", "can be used"));
                findings.extend(checks::configured(context, config).await);
            }
            Err(failure) => findings.insert(
                0,
                Finding::of_failure("configuration", failure.clone(), "docs/configuration.md explains every key"),
            ),
        }
        findings.push(checks::server(context).await);
        let healthy = findings.iter().all(|finding| finding.health != Health::Bad);
        let settings = config.as_ref().map(values).unwrap_or_default();
        let document = json!({
            "healthy": healthy,
            "version": env!("CARGO_PKG_VERSION"),
            "configuration": settings.iter().map(|[key, value, origin]| json!({ "key": key, "value": value, "from": origin })).collect::<Vec<_>>(),
            "checks": findings.iter().map(|f| json!({
                "check": f.what, "status": f.health.word(), "detail": f.detail, "fix": f.fix,
            })).collect::<Vec<_>>(),
        });
        context.printer.answer(&document, |printer| {
            let mut text = format!("Gantry {}\n\n", env!("CARGO_PKG_VERSION"));
            text.push_str(&report(printer, &findings));
            if self.settings && !settings.is_empty() {
                text.push_str("\n\n");
                text.push_str(&printer.table(["SETTING", "VALUE", "FROM"], settings.iter().cloned()));
            } else {
                text.push_str("\n\nevery setting and where it comes from: gantry doctor --settings");
            }
            text
        });
        Ok(if healthy { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }
}

/// Every key with its value in force and its source; secrets hidden by their type.
fn values(config: &GantryConfig) -> Vec<[String; 3]> {
    let line = |key: &'static ConfigKey| match config.settings.get(key) {
        Some((value, origin)) => [key.title(), value.to_string(), origin.to_string()],
        None => [key.title(), format!("(unset: {})", key.unset), "default".to_owned()],
    };
    all_keys().map(line).collect()
}

fn report(printer: &Printer, findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or_default();
    let lines = findings.iter().map(|finding| {
        let (mark, style) = match finding.health {
            Health::Well => ("✓", TextStyle::Green),
            Health::Notable => ("!", TextStyle::Yellow),
            Health::Absent => ("–", TextStyle::Dim),
            Health::Bad => ("✗", TextStyle::Red),
        };
        let mut line = format!("{} {:width$}  {}", printer.style(mark, style), finding.what, finding.detail);
        if let Some(fix) = &finding.fix {
            line.push_str(&format!("\n  {:width$}  {} {fix}", "", printer.style("fix:", TextStyle::Cyan)));
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}
