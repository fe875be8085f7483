//! `gantry audit verify`: a log, an export or a proof, held against a public key.

use std::path::{Path, PathBuf};

use audit::{InclusionProof, NoteKey, VerifyReport, VerifyTrust};
use clap::Args;
use serde_json::json;

use super::super::CommandOutcome;
use super::{dir, unreadable};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::plain_file;
use crate::printer::{TextStyle, visible};

/// Check that no record was changed, removed, added or moved; exit code 1 if one was
///
/// gantry audit verify --key "$(cat audit.pub)" --checkpoint /mnt/witness/checkpoints
///
/// Needs no server and only reads. Without --key the log is checked against the key it names itself, which finds damage
/// but not somebody who has made everything anew.
#[derive(Debug, Args)]
pub(crate) struct AuditVerifyCommand {
    /// The directory of the log [default: that of the configuration]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// An export instead
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    export: Option<PathBuf>,
    /// The proof of one record instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "export", "checkpoints"], requires = "keys")]
    proof: Option<PathBuf>,
    /// A public key from a safe place (repeatable)
    #[arg(long = "key", value_name = "VKEY")]
    keys: Vec<String>,
    /// A file with checkpoints that somebody else has kept, for example a witness file (repeatable)
    #[arg(long = "checkpoint", value_name = "FILE")]
    checkpoints: Vec<PathBuf>,
    /// The log of another instance, a directory or an export, which has written down how far this one had come (repeatable)
    #[arg(long, value_name = "DIR|FILE", conflicts_with = "proof")]
    against: Vec<PathBuf>,
}

impl AuditVerifyCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let keys = self.keys.iter().map(|key| {
            key.parse::<NoteKey>().map_err(|error| {
                CommandFailure::usage(format!("--key: {error}"))
                    .hint("`GET /v1/audit/checkpoint` and `log.json` show it")
            })
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        if let Some(proof) = &self.proof {
            return prove(context, proof, &keys);
        }
        let mut witnessed = Vec::new();
        for path in &self.checkpoints {
            let text = text_of(path)?;
            let notes = audit::notes_in(&text);
            if notes.is_empty() {
                return Err(CommandFailure::new(format!("there is no checkpoint in `{}`", path.display())));
            }
            witnessed.extend(notes);
        }
        let dir = self.export.is_none().then(|| dir(context, self.dir)).transpose()?;
        if !self.against.is_empty() {
            witnessed.extend(borne_out(context, self.export.as_deref(), dir.as_deref(), &self.against)?);
        }
        let trust = VerifyTrust { keys, witnessed };
        let report = match (&self.export, dir) {
            (Some(path), _) => {
                let file = plain_file::open(path).map_err(|error| unreadable(path, &error))?;
                audit::verify_export(file, &trust).map_err(|error| unreadable(path, &error))?
            }
            (None, Some(dir)) => audit::verify_dir(&dir, &trust).map_err(|error| unreadable(&dir, &error))?,
            (None, None) => return Err(CommandFailure::usage("there is neither a directory nor an export to check")),
        };
        show(context, &report)?;
        Ok(if report.whole { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }
}

/// What logs of other instances say of this one.
fn borne_out(
    context: &CommandContext,
    export: Option<&Path>,
    dir: Option<&Path>,
    others: &[PathBuf],
) -> Result<Vec<String>, CommandFailure> {
    let origin = match (export, dir) {
        (Some(path), _) => {
            not_waited_for(path)?;
            audit::log_of_export(path).map_err(|error| unreadable(path, &error))?
        }
        (None, Some(dir)) => audit::log_of_dir(dir).map_err(|error| unreadable(dir, &error))?,
        (None, None) => None,
    };
    let origin =
        origin.ok_or_else(|| CommandFailure::new("it does not say which log it is, so no other can speak for it"))?;
    let mut notes = Vec::new();
    for other in others {
        if !other.is_dir() {
            not_waited_for(other)?;
        }
        let found = audit::heads_of(&origin, other).map_err(|error| unreadable(other, &error))?;
        if found.is_empty() {
            context.printer.warn(&format!("`{}` says nothing of this log", other.display()));
        }
        notes.extend(found);
    }
    Ok(notes)
}

/// A pipe that nobody writes to would be waited for.
fn not_waited_for(path: &Path) -> Result<(), CommandFailure> {
    plain_file::open(path).map(|_| ()).map_err(|error| unreadable(path, &error))
}

fn text_of(path: &Path) -> Result<String, CommandFailure> {
    plain_file::open(path).and_then(std::io::read_to_string).map_err(|error| unreadable(path, &error))
}

/// So many of something, in words.
fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn show(context: &CommandContext, report: &VerifyReport) -> Result<(), CommandFailure> {
    let document = serde_json::to_value(report).map_err(|error| CommandFailure::new(error.to_string()))?;
    context.printer.answer(&document, |printer| {
        let mut lines = vec![if report.whole {
            let at = report.covered_at.as_deref().map(|at| format!(", signed {at}")).unwrap_or_default();
            let text =
                format!("whole: {}, {}", counted(report.records, "record"), counted(report.checkpoints, "checkpoint"));
            format!("{} (the newest covers {}{})", printer.style(&text, TextStyle::Green), report.covered, visible(&at))
        } else {
            printer.style(&format!("NOT whole: {}", counted(report.records, "record")), TextStyle::Red)
        }];
        if report.whole && report.unsigned > 0 {
            lines.push(format!(
                "  {} after the newest checkpoint: nothing signed speaks for what came last, until the server signs again",
                counted(report.unsigned, "record")
            ));
        }
        lines.extend(report.recovered.iter().map(|range| {
            let (first, last, by) = (range.first, range.last, range.told_by);
            let which = if first == last { format!("record {first} was") } else { format!("records {first} to {last} were") };
            format!("  recovered: {which} signed only after a crash, as record {by} tells")
        }));
        lines.extend(report.faults.iter().map(|fault| format!("  {}", visible(&fault.to_string()))));
        lines.extend(report.notes.iter().map(|note| format!("  note: {}", visible(note))));
        lines.push(format!("root {}", report.root));
        lines.join("\n")
    });
    if !report.key_given {
        context
            .printer
            .warn("checked against the key that the log names itself; --key with a key from a safe place proves more");
    }
    Ok(())
}

fn prove(context: &CommandContext, path: &Path, keys: &[NoteKey]) -> Result<CommandOutcome, CommandFailure> {
    let text = text_of(path)?;
    let proof = InclusionProof::parse(&text).map_err(|error| CommandFailure::new(error.to_string()))?;
    let mut last = None;
    for key in keys {
        match proof.verify(key) {
            Ok(checkpoint) => {
                let document = json!({
                    "proven": true, "index": proof.index, "size": checkpoint.size, "time": checkpoint.time,
                    "record": serde_json::from_str::<serde_json::Value>(&proof.record).unwrap_or_default(),
                });
                let time = checkpoint.time.as_deref().unwrap_or("an unknown time");
                context.printer.answer(&document, |_| {
                    let said = format!(
                        "proven: record {} was in the log of {} records signed at {time}",
                        proof.index, checkpoint.size
                    );
                    visible(&said).into_owned()
                });
                return Ok(CommandOutcome::Done);
            }
            Err(error) => last = Some(error),
        }
    }
    let why = last.map(|error| error.to_string()).unwrap_or_default();
    context.printer.answer(&json!({ "proven": false, "why": why }), |_| format!("NOT proven: {why}"));
    Ok(CommandOutcome::Unfit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_as_one() {
        let told = [0, 1, 2].map(|count| counted(count, "checkpoint"));
        assert_eq!(told, ["0 checkpoints", "1 checkpoint", "2 checkpoints"]);
    }
}
