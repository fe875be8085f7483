//! `gantry policy test`: do the policies decide as their author expects? Never needs a server.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use policy::{CaseOutcome, PolicyExpectations};
use serde_json::{Value, json};

use crate::commands::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::policy_files::PolicyText;
use crate::printer::{Printer, TextStyle, visible};

/// A table of cases is a page or a few.
const BYTES_MAX: u64 = 8 << 20;

/// Ask policies the questions of a table, and compare the decisions with those expected
///
/// The table is TOML: `policies = "policies.cedar"`, then a `[[case]]` with name, agent, tool, arguments and
/// `expect = "allow"` or "deny" for each question. Exit code 1 if a case fails.
#[derive(Debug, Args)]
pub(crate) struct PolicyTestCommand {
    /// The table of expectations
    expectations: PathBuf,
    /// Ask these instead of the policies the table names: a .cedar file or a folder of them (repeatable)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    policies: Vec<PathBuf>,
}

impl PolicyTestCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let expectations = read(&self.expectations)?;
        let text = PolicyText::read(&self.policy_files(&expectations)?)?;
        let policies = text.compile().map_err(|problems| {
            CommandFailure::new("the policies cannot be used, so nothing was asked")
                .reasons(problems.iter().map(ToString::to_string).collect())
                .hint("mend them; `gantry policy check` looks at them alone")
        })?;
        let outcomes = expectations.run(&policies);
        let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
        let document = json!({
            "passed": outcomes.len() - failed, "failed": failed,
            "cases": outcomes.iter().map(case).collect::<Vec<Value>>(),
        });
        context.printer.answer(&document, |printer| report(printer, &outcomes, failed));
        Ok(if failed == 0 { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }

    /// Paths in the table are relative to the table.
    fn policy_files(&self, expectations: &PolicyExpectations) -> Result<Vec<PathBuf>, CommandFailure> {
        if !self.policies.is_empty() {
            return Ok(self.policies.clone());
        }
        if expectations.policies.is_empty() {
            return Err(CommandFailure::usage(format!(
                "`{}` does not say which policies to ask",
                self.expectations.display()
            ))
            .hint("write `policies = \"policies.cedar\"` at its top, or give --policies FILE"));
        }
        let folder = self.expectations.parent().unwrap_or_else(|| Path::new(""));
        Ok(expectations.policies.iter().map(|path| folder.join(path)).collect())
    }
}

fn read(path: &Path) -> Result<PolicyExpectations, CommandFailure> {
    let mut text = String::new();
    crate::plain_file::open(path)
        .and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| CommandFailure::new(format!("`{}` cannot be read: {error}", path.display())))?;
    PolicyExpectations::parse(&text).map_err(|problems| {
        let place = |problem: &policy::ExpectationProblem| {
            let case = problem.case.as_ref().map(|case| format!("case `{case}`: ")).unwrap_or_default();
            let (line, column) = (problem.position.line, problem.position.column);
            format!("{}:{line}:{column}: {case}{}", path.display(), problem.message)
        };
        CommandFailure::new("the table of expectations cannot be read").reasons(problems.iter().map(place).collect())
    })
}

fn word(allowed: bool) -> &'static str {
    if allowed { "allow" } else { "deny" }
}

fn case(outcome: &CaseOutcome) -> Value {
    let verdict = &outcome.verdict;
    json!({
        "name": outcome.name, "passed": outcome.passed, "expected": word(outcome.expected.allowed),
        "decision": word(verdict.allowed), "reason": verdict.reason, "policies": verdict.determining,
        "obligations": verdict.obligations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "differences": outcome.differences,
    })
}

fn report(printer: &Printer, outcomes: &[CaseOutcome], failed: usize) -> String {
    let rows = outcomes.iter().map(|outcome| {
        let mark = if outcome.passed { "✓" } else { "✗" };
        let obligations: Vec<String> = outcome.verdict.obligations.iter().map(ToString::to_string).collect();
        [
            mark.to_owned(),
            outcome.name.clone(),
            word(outcome.verdict.allowed).to_owned(),
            outcome.verdict.reason.clone(),
            obligations.join(", "),
        ]
    });
    let mut text = printer.table(["", "CASE", "DECISION", "REASON", "OBLIGATIONS"], rows);
    text.push('\n');
    for outcome in outcomes.iter().filter(|outcome| !outcome.passed) {
        for difference in &outcome.differences {
            let mark = printer.style("✗", TextStyle::Red);
            text.push_str(&format!("\n{mark} {}: {}", visible(&outcome.name), visible(difference)));
        }
    }
    let summary = format!("{} of {} cases as expected", outcomes.len() - failed, outcomes.len());
    let style = if failed == 0 { TextStyle::Green } else { TextStyle::Red };
    format!("{text}\n{}", printer.style(&summary, style))
}
