//! `gantry jobs …`: what is done in the background, for people at a terminal. (ASYNC-003…005)

use std::time::Duration;

use base::backoff::GrowingPause;
use clap::{ArgGroup, Args, Subcommand};
use contract::ids::{InvocationId, TenantId};
use serde_json::{Value, json};

use super::agent::in_tenant;
use crate::client::{ServerClient, segment};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, pretty, visible};

mod watch;

/// Pauses between two looks at a job: the first, how they grow, and the longest (ASYNC-003).
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_GROWTH_PERCENT: u32 = 150;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Nobody waits longer at a terminal.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// See, watch, cancel and repeat what is done in the background
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    List(JobListCommand),
    Show(JobShowCommand),
    Watch(watch::JobWatchCommand),
    Cancel(JobCancelCommand),
    Retry(JobRetryCommand),
    Unknown(JobUnknownCommand),
    Resolve(JobResolveCommand),
}

/// List jobs, newest first
#[derive(Debug, Args)]
pub(crate) struct JobListCommand {
    /// Whose jobs [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Only these: delayed, queued, running, done, failed, dead or cancelled
    #[arg(long)]
    state: Option<String>,
    /// Only these, for example tool_call
    #[arg(long)]
    kind: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u16,
    /// The `next` of the page before
    #[arg(long)]
    before: Option<u64>,
}

/// Show where a job stands, and its result once there is one
#[derive(Debug, Args)]
pub(crate) struct JobShowCommand {
    /// The invocation id
    id: InvocationId,
    /// Whose job [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Cancel a job: one that waits never starts, a running tool is told and then ended
#[derive(Debug, Args)]
pub(crate) struct JobCancelCommand {
    #[command(flatten)]
    job: JobShowCommand,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

/// Begin a job that failed, died or was cancelled again, under a new id
#[derive(Debug, Args)]
pub(crate) struct JobRetryCommand {
    #[command(flatten)]
    job: JobShowCommand,
}

/// List calls of which nobody knows whether they had their effect
#[derive(Debug, Args)]
pub(crate) struct JobUnknownCommand {
    /// Whose calls [default: the token's own tenant, or all for administrators of the installation]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u16,
}

/// Say what became of a call whose effect nobody could know of
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("outcome").required(true))]
pub(crate) struct JobResolveCommand {
    #[command(flatten)]
    job: JobShowCommand,
    /// The effect happened
    #[arg(long, group = "outcome")]
    happened: bool,
    /// It did not
    #[arg(long, group = "outcome")]
    did_not_happen: bool,
    /// What repeated calls are answered with, as JSON that fits the tool's result_schema [default: null]
    #[arg(long, value_name = "JSON", conflicts_with = "did_not_happen", value_parser = parsed)]
    result: Option<Value>,
    /// How that is known
    #[arg(long)]
    note: Option<String>,
}

impl JobsCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Show(command) => command.show(context).await,
            Self::Watch(command) => command.run(context).await,
            Self::Cancel(command) => command.run(context).await,
            Self::Retry(command) => command.run(context).await,
            Self::Unknown(command) => command.run(context).await,
            Self::Resolve(command) => command.run(context).await,
        }
    }
}

impl JobListCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let given = [
            ("tenant", self.tenant.map(|tenant| tenant.to_string())),
            ("state", self.state),
            ("kind", self.kind),
            ("before", self.before.map(|mark| mark.to_string())),
        ];
        let mut path = format!("/v1/invocations?limit={}", self.limit);
        for (name, value) in given {
            path.extend(value.map(|value| format!("&{name}={}", segment(&value))));
        }
        let answer = context.client()?.get(&path).await?;
        context.printer.answer(&answer, |printer| table(printer, &answer));
        Ok(())
    }
}

impl JobShowCommand {
    /// The path of the job, or of something about it.
    fn path(&self, end: &str) -> String {
        format!("/v1/invocations/{}{end}{}", self.id, in_tenant(self.tenant.as_ref()))
    }

    async fn show(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.get(&self.path("")).await?;
        context.printer.answer(&answer, |_| visible(&told(&answer)).into_owned());
        Ok(())
    }
}

impl JobCancelCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let body = self.reason.as_ref().map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
        let answer = context.client()?.post(&self.job.path("/cancel"), &body).await?;
        context.printer.answer(&answer, |_| text(&answer, "message"));
        Ok(())
    }
}

impl JobRetryCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.post(&self.job.path("/retry"), &json!({})).await?;
        context.printer.answer(&answer, |_| format!("begun again as {}", text(&answer, "invocation_id")));
        Ok(())
    }
}

impl JobUnknownCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let tenant = self.tenant.map(|tenant| format!("&tenant={}", segment(tenant.as_str()))).unwrap_or_default();
        let client = context.client()?;
        let mut answer = client.get(&format!("/v1/ledger?state=unknown&limit={}{tenant}", self.limit)).await?;
        let in_no_ledger = unknown_jobs(&client, &tenant, &answer).await?;
        if let Some(calls) = answer.get_mut("calls").and_then(Value::as_array_mut) {
            let room = usize::from(self.limit).saturating_sub(calls.len());
            calls.extend(in_no_ledger.into_iter().take(room));
            let is_full = calls.len() >= usize::from(self.limit);
            if let Some(members) = answer.as_object_mut() {
                members.insert("has_more".to_owned(), is_full.into());
            }
            if is_full {
                context.printer.note(&format!("the newest {} are shown, there may be more: --limit", self.limit));
            }
        }
        context.printer.answer(&answer, |printer| {
            let rows = answer.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if rows.is_empty() {
                return "none: the outcome of every call is known".to_owned();
            }
            let row = |call: &Value| {
                let cause = call.pointer("/cause/cause").and_then(Value::as_str).unwrap_or_default().to_owned();
                [
                    text(call, "invocation_id"),
                    text(call, "tool_id"),
                    text(call, "idempotency_key"),
                    cause,
                    text(call, "begun_at"),
                ]
            };
            printer.table(["ID", "TOOL", "KEY", "CAUSE", "BEGUN"], rows.iter().map(row))
        });
        Ok(())
    }
}

impl JobResolveCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let outcome = if self.happened { "happened" } else { "did_not_happen" };
        let mut body = json!({ "outcome": outcome });
        if let Some(members) = body.as_object_mut() {
            let said = [("note", self.note.map(Value::String)), ("result", self.result)];
            members.extend(said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
        let answer = context.client()?.post(&self.job.path("/resolve"), &body).await?;
        context.printer.answer(&answer, |_| format!("{} is settled: {outcome}", self.job.id));
        Ok(())
    }
}

/// Jobs that are in no ledger and of which nobody knows whether they were done: workflows that other queues asked for, and what
/// waited in a backup. Of those that failed the newest are looked at; `in_ledger` are the calls that are listed anyway.
async fn unknown_jobs(client: &ServerClient, tenant: &str, in_ledger: &Value) -> Result<Vec<Value>, CommandFailure> {
    const LOOKED_AT_MAX: u16 = 200;
    let calls = in_ledger.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_listed = |id: &str| calls.iter().any(|call| text(call, "invocation_id") == id);
    let path = format!("/v1/invocations?state=failed&limit={LOOKED_AT_MAX}{tenant}");
    let answer = client.get(&path).await?;
    let listed = answer.get("invocations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    for job in listed.iter().filter(|job| text(job, "status") == "indeterminate") {
        let id = text(job, "invocation_id");
        if is_listed(&id) {
            continue;
        }
        let shown = client.get(&format!("/v1/invocations/{}{}", segment(&id), tenant.replacen('&', "?", 1))).await?;
        let first = shown.pointer("/error/details/invocation_id").and_then(Value::as_str);
        if first.is_some_and(is_listed) {
            continue;
        }
        found.push(json!({
            "invocation_id": id,
            "tool_id": text(job, "label"),
            "cause": shown.pointer("/error/details").cloned().unwrap_or_default(),
            "begun_at": text(job, "created_at"),
        }));
    }
    Ok(found)
}

fn parsed(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

/// Says that a call was submitted.
pub(super) fn submitted(printer: &Printer, answer: &Value, id: &str) {
    printer.answer(answer, |_| id.to_owned());
    printer.note(&format!("{}; `gantry jobs show {id}` says where it stands", text(answer, "status")));
}

/// Has it ended, as far as the answer to its submission says?
pub(super) fn has_ended(answer: &Value) -> bool {
    !matches!(text(answer, "status").as_str(), "pending" | "running")
}

/// Looks at a job, less and less often, until it has ended. A job that failed is a failure here too.
pub(super) async fn wait_for_end(client: &ServerClient, id: &str) -> Result<Value, CommandFailure> {
    let waiting = async {
        let mut pause = GrowingPause::growing(FIRST_PAUSE, PAUSE_GROWTH_PERCENT, LONGEST_PAUSE);
        loop {
            let answer = client.get(&format!("/v1/invocations/{}", segment(id))).await?;
            match text(&answer, "status").as_str() {
                _ if !has_ended(&answer) => {}
                "success" => return Ok(as_a_call(answer)),
                _ => {
                    return Err(CommandFailure::from_problem(answer)
                        .unwrap_or_else(|| CommandFailure::new("the job did not succeed")));
                }
            }
            tokio::time::sleep(pause.next_pause()).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, waiting).await.unwrap_or_else(|_| {
        Err(CommandFailure::new("the job did not end in time").hint(format!("`gantry jobs show {id}`")))
    })
}

/// The status of a job that is done, as the answer of a call.
fn as_a_call(mut answer: Value) -> Value {
    let took = answer.pointer("/execution_metadata/duration_ms").cloned().unwrap_or_default();
    let tool = answer.get("label").cloned().unwrap_or_default();
    if let Some(members) = answer.as_object_mut() {
        members.insert("execution_time_ms".to_owned(), took);
        members.insert("tool_id".to_owned(), tool);
    }
    answer
}

fn table(printer: &Printer, answer: &Value) -> String {
    let rows = answer.get("invocations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    let row = |job: &Value| {
        let number = |name: &str| job.get(name).and_then(Value::as_u64).unwrap_or_default();
        let percent = job.get("progress_percent").and_then(Value::as_f64);
        [
            text(job, "invocation_id"),
            text(job, "status"),
            text(job, "label"),
            percent.map(|percent| format!("{percent:.0} %")).unwrap_or_default(),
            tries(number("attempts"), number("attempts_max"), number("interruptions")),
            text(job, "error_code"),
            text(job, "created_at"),
        ]
    };
    printer.table(["ID", "STATUS", "WHAT", "DONE", "TRIES", "ERROR", "SINCE"], rows.iter().map(row))
}

/// Tries that failed or run, of those it has, and beside them what was interrupted, which costs no try.
fn tries(attempts: u64, most: u64, interruptions: u64) -> String {
    match interruptions {
        0 => format!("{attempts}/{most}"),
        some => format!("{attempts}/{most}, {some} interrupted"),
    }
}

/// A job in lines.
fn told(job: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let names = [
        "invocation_id",
        "status",
        "label",
        "progress_percent",
        "current_phase",
        "attempts",
        "created_at",
        "started_at",
        "completed_at",
        "next_attempt_at",
    ];
    let mut lines: Vec<String> = names
        .into_iter()
        .filter_map(|name| Some((name, job.get(name).filter(|value| !value.is_null())?)))
        .map(|(name, value)| format!("{name:<17} {}", plain(value)))
        .collect();
    for name in ["error", "result"] {
        lines.extend(job.get(name).filter(|value| !value.is_null()).map(|value| format!("{name}\n{}", pretty(value))));
    }
    lines.join("\n")
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        resolve: JobResolveCommand,
    }

    const ID: &str = "018f0000-0000-7000-8000-000000000001";

    fn refused(rest: &[&str]) -> String {
        Line::try_parse_from(["resolve", ID].iter().chain(rest)).unwrap_err().to_string()
    }

    #[test]
    fn what_a_person_found_out_is_said_in_one_of_two_ways_and_only_what_happened_has_a_result() {
        let none = refused(&[]);
        assert!(none.contains("--happened") && none.contains("--did-not-happen"), "{none}");
        assert!(refused(&["--happened", "--did-not-happen"]).contains("cannot be used with"));
        let both = refused(&["--did-not-happen", "--result", "1"]);
        assert!(both.contains("cannot be used with"), "{both}");
        assert!(refused(&["--result", "1"]).contains("--happened"));
        let fine = Line::try_parse_from(["resolve", ID, "--happened", "--result", "{}"]).unwrap().resolve;
        assert_eq!((fine.happened, fine.result), (true, Some(json!({}))));
    }

    #[test]
    fn interruptions_are_not_counted_as_tries() {
        for (attempts, most, interruptions, expected) in
            [(0, 3, 0, "0/3"), (2, 3, 0, "2/3"), (1, 3, 2, "1/3, 2 interrupted"), (0, 1, 1, "0/1, 1 interrupted")]
        {
            assert_eq!(tries(attempts, most, interruptions), expected);
        }
    }
}
