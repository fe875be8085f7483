//! Putting servers behind Gantry: their secrets into the secrets folder, their descriptions to the server, and what came
//! of it into a table. Shared by `gantry import mcp` and `gantry server add`.
//!
//! Secrets never travel: they are files of the machine the server runs on, so a server elsewhere is told nothing that
//! needs one.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contract::ids::TenantId;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use upstreams::import::{ClosedPath, ImportMachine as _, ImportedSecret, ImportedServer};
use upstreams::spec::ServerReach;

use super::machine::ThisMachine;
use super::package_step::{PackageStep, is_here};
use super::trial::{ServerTrial, TrialResult};
use crate::client::{ServerClient, segment};
use crate::commands::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::Printer;
use crate::secret_file;

/// A server may have to be fetched before it starts.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(300);

/// Servers that are tried at the same time: each may fetch a package and start an interpreter.
const TRIED_AT_ONCE: usize = 4;
/// Lines of a log in which the reason is looked for.
const LOG_LINES: usize = 60;

/// What a server may offer besides tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerOffer {
    Resources,
    Prompts,
}

/// Switches on what was named. What was not named stays as it is.
pub(crate) fn offer(server: &mut ImportedServer, offers: &[ServerOffer]) {
    for offer in offers {
        match offer {
            ServerOffer::Resources => server.spec.resources = true,
            ServerOffer::Prompts => server.spec.prompts = true,
        }
    }
}

/// What came of one server.
#[derive(Debug)]
pub(crate) struct ImportOutcome {
    pub(crate) name: String,
    /// What its entry says and Gantry does not do, or does otherwise.
    pub(crate) notes: Vec<String>,
    /// What the server answered, with the findings of its tools counted; or why not.
    pub(crate) outcome: Result<Value, CommandFailure>,
    pub(crate) trial: ServerTrial,
}

/// How the servers are brought in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImportManner<'a> {
    pub(crate) tenant: Option<&'a TenantId>,
    /// Whether each is started, and its tools are listed.
    pub(crate) tried: bool,
    /// Whether packages may run their install scripts.
    pub(crate) scripts: bool,
}

/// Brings all of them in, a few at a time; one that fails does not stop the others.
pub(crate) async fn bring_in(
    context: &CommandContext,
    servers: Vec<ImportedServer>,
    manner: ImportManner<'_>,
) -> Result<Vec<ImportOutcome>, CommandFailure> {
    let client = context.client()?;
    // Nothing is written anywhere before it is clear that somebody listens.
    client.health().await?;
    let packages = PackageStep::new(context, &servers, manner.scripts)?;
    let (client, packages) = (&client, packages.as_ref());
    let all = stream::iter(servers).map(|mut server| async move {
        if let Some(packages) = packages
            && let Err(failure) = packages.install(&mut server).await
        {
            let trial = ServerTrial::refused(&failure);
            return ImportOutcome { name: server.name, notes: server.warnings, outcome: Err(failure), trial };
        }
        let server = &server;
        if manner.tried && !server.spec.disabled {
            context.printer.note(&format!("trying {} …", server.name));
        }
        let outcome = one(context, client, server, manner).await;
        let trial = trial(client, server, manner, &outcome).await.but_closed(&closed(context, server));
        ImportOutcome { name: server.name.clone(), notes: server.warnings.clone(), outcome, trial }
    });
    Ok(all.buffered(TRIED_AT_ONCE).collect().await)
}

/// What the server is given and could not use as the one it runs as. Paths of another machine are not looked at.
fn closed(context: &CommandContext, server: &ImportedServer) -> Vec<ClosedPath> {
    let ServerReach::Stdio { permissions, .. } = &server.spec.reach else { return Vec::new() };
    if !is_here(context) {
        return Vec::new();
    }
    let machine = ThisMachine { environment: context.environment(), file: None, keeps_packages: false };
    let paths = |mode: &str| {
        let words = permissions.iter().filter_map(|word| word.strip_prefix("filesystem:")?.strip_prefix(mode));
        words.map(|path| PathBuf::from(path.replace("%20", " "))).collect::<Vec<_>>()
    };
    let (read, written) = (paths("read:"), paths("write:"));
    let read = read.iter().filter(|path| !written.contains(path)).map(|path| (path, false));
    let all = written.iter().map(|path| (path, true)).chain(read);
    all.filter_map(|(path, write)| machine.closed(path, write)).collect()
}

async fn one(
    context: &CommandContext,
    client: &ServerClient,
    server: &ImportedServer,
    manner: ImportManner<'_>,
) -> Result<Value, CommandFailure> {
    let tenant = manner.tenant;
    let known: Vec<&ImportedSecret> = server.secrets.iter().filter(|secret| secret.value.is_some()).collect();
    if !known.is_empty() {
        is_ours(context)?;
        let folder = context.config(Vec::new())?.secrets.dir(context.data_dir().path());
        let home = TenantId::home();
        keep(&folder, tenant.unwrap_or(&home), &known)?;
    }
    let query = in_tenant(tenant);
    let path = format!("/v1/servers/{}", segment(&server.name));
    let mut put = format!("{path}{query}");
    if !manner.tried {
        put.push_str(if query.is_empty() { "?start=false" } else { "&start=false" });
    }
    let mut answer = client.put_patiently(&put, &json!(server.spec), START_PATIENCE).await?;
    let tools = client.get(&format!("{path}/tools{query}")).await?;
    let findings: usize = tools
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.get("findings")?.as_array())
        .map(Vec::len)
        .sum();
    if let Some(members) = answer.as_object_mut() {
        members.insert("findings".into(), json!(findings));
    }
    Ok(answer)
}

/// What came of the trial, with a look at the log of a server that does not work.
async fn trial(
    client: &ServerClient,
    server: &ImportedServer,
    manner: ImportManner<'_>,
    outcome: &Result<Value, CommandFailure>,
) -> ServerTrial {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(failure) => return ServerTrial::refused(failure),
    };
    if server.spec.disabled {
        return ServerTrial::off(&server.name, server.switched_off.as_ref());
    }
    if !manner.tried {
        return ServerTrial::untried(&server.name);
    }
    if works(answer) {
        return ServerTrial::works(count(answer, "/tools/available"), count(answer, "/tools/known"));
    }
    let lines = format!("/v1/servers/{}/logs{}", segment(&server.name), in_tenant(manner.tenant));
    let lines = format!("{lines}{}lines={LOG_LINES}", if lines.contains('?') { '&' } else { '?' });
    // The log only explains the failure, which is told without it too.
    let log = client.get(&lines).await.ok();
    let log = log.as_ref().and_then(|log| log.get("lines")?.as_array());
    let log: Vec<String> = log.into_iter().flatten().filter_map(|line| line.as_str().map(str::to_owned)).collect();
    ServerTrial::fails(&server.name, answer, &log)
}

/// A server that was there before just as it is wanted, as it is listed.
pub(super) fn unchanged(server: &ImportedServer, listed: Value) -> ImportOutcome {
    let trial = if server.spec.disabled {
        ServerTrial::off(&server.name, server.switched_off.as_ref())
    } else {
        ServerTrial::works(count(&listed, "/tools/available"), count(&listed, "/tools/known"))
    };
    let notes = server.warnings.clone();
    ImportOutcome { name: server.name.clone(), notes, outcome: Ok(listed), trial: trial.unchanged() }
}

/// Is the server the one of this data directory, so that its secrets folder is ours to write to?
fn is_ours(context: &CommandContext) -> Result<(), CommandFailure> {
    let running = context.data_dir().running_server().map(|running| running.url.trim_end_matches('/').to_owned());
    if running.as_deref() == Some(context.server_url().as_str()) {
        return Ok(());
    }
    Err(CommandFailure::new("this server has secrets, and the Gantry it goes to runs on another data directory")
        .hint("run this where that Gantry runs, with its --data-dir; or provision the credentials there and import without them"))
}

/// `<folder>/<tenant>/<name>`, for the owner only.
fn keep(folder: &Path, tenant: &TenantId, secrets: &[&ImportedSecret]) -> Result<(), CommandFailure> {
    let folder = folder.join(tenant.as_str());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| CommandFailure::new(format!("the folder `{}` cannot be made: {error}", folder.display())))?;
    for secret in secrets {
        let Some(value) = &secret.value else { continue };
        secret_file::write(&folder.join(&secret.name), value)
            .map_err(|error| CommandFailure::new(error.to_string()).hint(error.remedy()))?;
    }
    Ok(())
}

/// The query for a tenant that was named.
pub(crate) fn in_tenant(tenant: Option<&TenantId>) -> String {
    tenant.map(|tenant| format!("?tenant={}", segment(tenant.as_str()))).unwrap_or_default()
}

/// Prints what came of it.
pub(crate) fn conclude(context: &CommandContext, brought: &[ImportOutcome], more: Value) -> CommandOutcome {
    let mut document = json!({ "servers": brought.iter().map(ImportOutcome::document).collect::<Vec<_>>() });
    if let (Some(members), Value::Object(more)) = (document.as_object_mut(), more) {
        members.extend(more);
    }
    context.printer.answer(&document, |printer| table(printer, brought));
    for one in brought {
        for line in one.warnings() {
            context.printer.warn(&crate::printer::visible(&line));
        }
    }
    for line in brought.iter().filter_map(ImportOutcome::next_step) {
        context.printer.note(&line);
    }
    if brought.iter().any(|one| one.trial.result == TrialResult::Fails) {
        context.printer.note(
            "what does not work is kept and tried again: `gantry server logs NAME` shows what it wrote, \
             `gantry server remove NAME` takes it away",
        );
    }
    if brought.iter().all(ImportOutcome::is_fine) { CommandOutcome::Done } else { CommandOutcome::Unfit }
}

impl ImportOutcome {
    /// Nothing about it went wrong.
    fn is_fine(&self) -> bool {
        let result = self.trial.result;
        self.outcome.is_ok()
            && !matches!(
                result,
                TrialResult::Fails | TrialResult::Refused | TrialResult::NotReplaced | TrialResult::TakenBack
            )
    }

    /// What went wrong with single tools, or with a change of a server that was there before.
    fn warnings(&self) -> Vec<String> {
        let name = &self.name;
        let answer = match &self.outcome {
            Ok(answer) => answer,
            Err(failure) => {
                let hint = failure.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                return vec![format!("{name}: {}{hint}", failure.message)];
            }
        };
        // What is wrong with the server itself stands in the table.
        let problems = answer.get("problems").and_then(Value::as_array).into_iter().flatten();
        let of_tool =
            |problem: &&Value| problem.get("tool").and_then(Value::as_str).is_some_and(|tool| !tool.is_empty());
        let has_problems = answer.get("problems").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        let problems = problems.filter(of_tool);
        let mut lines: Vec<String> = problems
            .map(|problem| {
                let text = |member: &str| problem.get(member).and_then(Value::as_str).unwrap_or_default();
                let tool = Some(text("tool")).filter(|tool| !tool.is_empty()).map(|tool| format!(" {tool}"));
                format!("{name}{}: {} ({})", tool.unwrap_or_default(), text("message"), text("code"))
            })
            .collect();
        let is_as_wanted = self.trial.result != TrialResult::NotReplaced;
        if let (true, Some(why)) = (!has_problems && is_as_wanted, last_error(answer)) {
            lines.push(format!(
                "{name}: it did not start like this, and the one that was there before serves on: {why}"
            ));
        }
        lines
    }

    /// What somebody may want to do next.
    fn next_step(&self) -> Option<String> {
        let answer = self.outcome.as_ref().ok()?;
        let (name, count) = (&self.name, |pointer: &str| count(answer, pointer));
        match (count("/tools/quarantined"), count("/findings")) {
            (0, 0) => None,
            (0, findings) => {
                Some(format!("{name}: {findings} findings; look at them with `gantry server review {name} --all`"))
            }
            (waiting, _) => Some(format!("{name}: {waiting} tools wait for a decision: `gantry server review {name}`")),
        }
    }

    fn document(&self) -> Value {
        let mut document = match &self.outcome {
            Ok(answer) => answer.clone(),
            Err(failure) => json!({ "name": self.name, "error": failure.to_json().get("error") }),
        };
        if let Some(members) = document.as_object_mut() {
            members.insert("trial".into(), self.trial.document());
            members.insert("warnings".into(), json!(self.notes));
        }
        document
    }
}

/// It is there, has tools, and is the one that was asked for.
pub(crate) fn works(answer: &Value) -> bool {
    count(answer, "/tools/known") > 0 && last_error(answer).is_none()
}

/// Why the last start failed, if it did.
pub(super) fn last_error(answer: &Value) -> Option<&str> {
    answer.pointer("/status/last_error").and_then(Value::as_str)
}

fn count(answer: &Value, pointer: &str) -> u64 {
    answer.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

fn table(printer: &Printer, brought: &[ImportOutcome]) -> String {
    let rows = brought.iter().map(|ImportOutcome { name, trial, .. }| {
        [name.clone(), trial.sentence(), trial.command.clone().unwrap_or_default()]
    });
    printer.table(["SERVER", "RESULT", "WHAT HELPS"], rows)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn secrets_are_kept_for_their_tenant_and_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("secrets");
        let secret = ImportedSecret { name: "a_key".into(), value: Some("hunter2".into()), place: "env KEY".into() };
        keep(&folder, &TenantId::home(), &[&secret]).unwrap();
        let file = folder.join("local/a_key");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "hunter2");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(folder.join("local")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    fn brought(outcome: Result<Value, CommandFailure>, trial: ServerTrial) -> ImportOutcome {
        ImportOutcome { name: "files".into(), notes: Vec::new(), outcome, trial }
    }

    #[test]
    fn the_table_has_a_line_for_each_server_also_for_one_that_failed() {
        let fine = json!({ "name": "files", "tools": { "available": 11, "quarantined": 1, "known": 12 }, "findings": 2,
            "problems": [{ "tool": "x", "code": "INVALID_TOOL_SCHEMA", "message": "y" }] });
        let failure = CommandFailure::new("it does not start");
        let refused = ServerTrial::refused(&failure);
        let brought = [
            brought(Ok(fine), ServerTrial::works(11, 12)),
            ImportOutcome { name: "mail".into(), ..brought(Err(failure), refused) },
            ImportOutcome { name: "off".into(), ..brought(Ok(json!({})), ServerTrial::off("off", None)) },
        ];
        let text = table(&Printer::new(PrinterOptions::default()), &brought);
        assert!(brought.first().unwrap().warnings().join("").contains("files x: y"));
        for part in ["works (11 of 12 tools)", "it does not start", "switched off", "gantry server edit off --enable"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let document = brought.first().unwrap().document();
        assert_eq!(document.pointer("/trial/result"), Some(&json!("works")), "{document}");
        assert_eq!(brought.iter().map(ImportOutcome::is_fine).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_server_that_did_not_come_to_life_is_not_called_fine() {
        let answer = |known: u64, quarantined: u64, findings: u64, last_error: Value, problems: Value| {
            let answer = json!({ "tools": { "known": known, "available": known, "quarantined": quarantined },
                "findings": findings, "status": { "last_error": last_error }, "problems": problems });
            let trial = if works(&answer) {
                ServerTrial::works(known, known)
            } else {
                ServerTrial::fails("files", &answer, &[])
            };
            brought(Ok(answer), trial)
        };
        let mute = json!([{ "tool": "", "code": "NO_ANSWER", "message": "it is mute" }]);
        let refused = CommandFailure::new("no").hint("do it so");
        let trial = ServerTrial::refused(&refused);
        for (brought, fine, warning, next) in [
            (answer(3, 0, 0, Value::Null, json!([])), true, None, None),
            (answer(3, 0, 2, Value::Null, json!([])), true, None, Some("2 findings")),
            (answer(3, 1, 2, Value::Null, json!([])), true, None, Some("1 tools wait")),
            (answer(0, 0, 0, json!("it died"), mute), false, None, None),
            (answer(3, 0, 0, json!("it died"), json!([])), false, Some("before serves on: it died"), None),
            (brought(Err(refused), trial), false, Some("files: no (do it so)"), None),
        ] {
            assert_eq!(brought.is_fine(), fine, "{brought:?}");
            let (warnings, step) = (brought.warnings().join("\n"), brought.next_step().unwrap_or_default());
            assert!(warning.map_or(warnings.is_empty(), |word| warnings.contains(word)), "{warnings}");
            assert!(next.map_or(step.is_empty(), |word| step.contains(word)), "{step}");
        }
    }
}
