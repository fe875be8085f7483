//! `gantry import mcp`: the servers an MCP client is configured with, put behind Gantry.

use std::io::Read as _;
use std::path::PathBuf;

use base::SaturatingFrom as _;
use clap::Args;
use contract::ids::TenantId;
use contract::nearest::nearest;
use serde_json::{Value, json};
use upstreams::import::{self, FILE_BYTES_MAX, ImportProblem, ImportedFile, ImportedServer};
use upstreams::spec::ServerSpec;

use super::existing_servers::{ExistingServers, ServerStanding};
use super::machine::ThisMachine;
use super::package_step::{PackageFlags, is_here};
use super::plan::{self, Planned};
use super::server_intake::{ImportManner, ImportOutcome, ServerOffer, bring_in, conclude, offer, unchanged, works};
use super::trial::ServerTrial;
use crate::commands::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Put the servers of an MCP client's configuration behind Gantry
///
/// Reads the `mcpServers` of Claude, Cursor, Windsurf and Cline, the `servers` of VS
/// Code and the `context_servers` of Zed. Shows what will run, what it may touch and
/// why, moves secrets into the secrets folder, then tries each server: one that does
/// not work is shown with what is missing and the command that gives it. A server
/// that is there already just so stays as it is; one that differs, too, unless
/// --replace is given.
///
/// gantry import mcp ~/.cursor/mcp.json
/// gantry import mcp .vscode/mcp.json --only github --yes
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ImportMcp {
    /// The file; `-` reads stdin
    file: PathBuf,
    /// Only this server (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// What the servers offer besides tools, for callers who may use it (repeatable)
    #[arg(long = "offer", value_name = "WHAT")]
    offers: Vec<ServerOffer>,
    #[command(flatten)]
    packages: PackageFlags,
    /// Replace servers of the same names that differ
    #[arg(long)]
    replace: bool,
    /// Whose servers they become [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not start the servers, and do not list their tools
    #[arg(long)]
    no_try: bool,
    /// Import the servers that are in order, although others are not
    #[arg(long)]
    keep_going: bool,
}

impl ImportMcp {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let text = self.text()?;
        let file = (self.file.as_os_str() != "-").then(|| self.file.canonicalize().ok()).flatten();
        let keeps_packages = !self.packages.no_package && is_here(context);
        let machine = ThisMachine { environment: context.environment(), file, keeps_packages };
        let ImportedFile { servers, problems, of_gantry } = import::read(&text, &machine);
        for name in of_gantry.iter().filter(|name| self.only.is_empty() || self.only.contains(name)) {
            context.printer.note(&format!("{}: left out, this is Gantry itself", visible(name)));
        }
        let problems = about(&self.only, problems);
        let lines: Vec<String> = problems.iter().map(plan::problem_line).collect();
        if servers.is_empty() || !(lines.is_empty() || self.keep_going || self.dry_run) {
            if lines.is_empty() && !of_gantry.is_empty() {
                return Err(CommandFailure::new("the only server in the file is Gantry itself")
                    .hint("it is in front of the servers already: import a file that names others"));
            }
            return Err(not_in_order(lines, !servers.is_empty()));
        }
        let mut servers = chosen(servers, &self.only)?;
        servers.iter_mut().for_each(|server| offer(server, &self.offers));
        for line in &lines {
            context.printer.warn(line);
        }
        let told = json!({ "file_problems": problems.iter().map(|problem| json!({
            "path": problem.path, "message": problem.message })).collect::<Vec<Value>>(), "left_out": of_gantry });
        let client = context.client();
        let existing = match &client {
            Ok(client) => ExistingServers::of(context, client, self.tenant.as_ref()).await,
            Err(failure) => Err(failure.clone()),
        };
        // To look at a file, no server has to run.
        let existing = if self.dry_run { existing.unwrap_or_default() } else { existing? };
        let planned = |server| {
            let standing = existing.standing(&server);
            Planned { server, standing, is_replaced: self.replace }
        };
        let planned: Vec<Planned> = servers.into_iter().map(planned).collect();
        if self.dry_run {
            return Ok(show(context, &planned, &told));
        }
        context.printer.note(&plan::text(&context.printer, &planned));
        self.is_wanted(context, planned.iter().filter(|one| one.is_brought_in()).count())?;
        let brought = self.brought(context, planned).await?;
        let outcome = conclude(context, &brought, told);
        Ok(if lines.is_empty() { outcome } else { CommandOutcome::Unfit })
    }

    /// Brings in what is new or replaced, and says of the others how they are, in the order of the file.
    async fn brought(
        &self,
        context: &CommandContext,
        planned: Vec<Planned>,
    ) -> Result<Vec<ImportOutcome>, CommandFailure> {
        let names: Vec<String> = planned.iter().map(|one| one.server.name.clone()).collect();
        let (mut wanted, mut tried_again, mut brought) = (Vec::new(), Vec::new(), Vec::new());
        for one in planned {
            let is_brought_in = one.is_brought_in();
            let Planned { mut server, standing, .. } = one;
            match standing {
                ServerStanding::Same(listed) => match known(&server, &listed) {
                    // It does not work, and whoever imports it once more wants to know whether it does by now.
                    Some(spec) if !self.no_try => {
                        (server.spec, server.package) = (spec, None);
                        server.secrets.clear();
                        tried_again.push(server.name.clone());
                        wanted.push(server);
                    }
                    _ => brought.push(unchanged(&server, *listed)),
                },
                ServerStanding::Other { listed, in_what } if !is_brought_in => {
                    let trial = ServerTrial::not_replaced(&in_what, self.replacing(&server.name));
                    brought.push(ImportOutcome {
                        name: server.name,
                        notes: server.warnings,
                        outcome: Ok(*listed),
                        trial,
                    });
                }
                ServerStanding::New | ServerStanding::Other { .. } => wanted.push(server),
            }
        }
        let scripts = self.packages.allow_install_scripts;
        let manner = ImportManner { tenant: self.tenant.as_ref(), tried: !self.no_try, scripts };
        for one in bring_in(context, wanted, manner).await? {
            let is_same = tried_again.contains(&one.name);
            brought.push(if is_same { ImportOutcome { trial: one.trial.unchanged(), ..one } } else { one });
        }
        brought.sort_by_key(|one| names.iter().position(|name| *name == one.name));
        Ok(brought)
    }

    /// The command that replaces one server by that of the file.
    fn replacing(&self, name: &str) -> String {
        let file = crate::shell_word::quoted(&self.file.display().to_string());
        let tenant = self.tenant.as_ref().map(|tenant| format!(" --tenant {tenant}")).unwrap_or_default();
        format!("gantry import mcp {file} --only {name} --replace{tenant}")
    }

    fn is_wanted(&self, context: &CommandContext, count: usize) -> Result<(), CommandFailure> {
        if self.yes || count == 0 {
            return Ok(());
        }
        if !context.printer.can_ask() {
            return Err(CommandFailure::usage(
                "starting other people's programs has to be confirmed, and nobody can be asked",
            )
            .hint("look at it with --dry-run, then add --yes"));
        }
        let question = format!(
            "Put {} behind Gantry?",
            if count == 1 { "this server".into() } else { format!("these {count} servers") }
        );
        if context.printer.confirm(&question) { Ok(()) } else { Err(CommandFailure::new("nothing was imported")) }
    }

    fn text(&self) -> Result<String, CommandFailure> {
        let name = self.file.display().to_string();
        let unreadable = |error: std::io::Error| {
            CommandFailure::new(format!("`{name}` cannot be read: {error}"))
                .hint("Claude has claude_desktop_config.json, Cursor ~/.cursor/mcp.json, VS Code .vscode/mcp.json")
        };
        let (mut bytes, bytes_max) = (Vec::new(), u64::saturating_from(FILE_BYTES_MAX));
        if name == "-" {
            std::io::stdin().lock().take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
        } else {
            let file = crate::plain_file::open(&self.file).map_err(unreadable)?;
            file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
        }
        if bytes.len() > FILE_BYTES_MAX {
            return Err(CommandFailure::new(format!(
                "`{name}` has more than {FILE_BYTES_MAX} bytes, which is no configuration"
            )));
        }
        String::from_utf8(bytes).map_err(|_| CommandFailure::new(format!("`{name}` is not text in UTF-8")))
    }
}

/// Prints what would be done.
fn show(context: &CommandContext, planned: &[Planned], told: &Value) -> CommandOutcome {
    let mut document = json!({ "dry_run": true, "servers": planned.iter().map(plan::document).collect::<Vec<_>>() });
    if let (Some(members), Some(told)) = (document.as_object_mut(), told.as_object()) {
        members.extend(told.clone());
    }
    context.printer.answer(&document, |printer| plan::text(printer, planned));
    let clean = told.get("file_problems").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if clean { CommandOutcome::Done } else { CommandOutcome::Unfit }
}

/// What is kept of a server that is there and to be started, and does not work.
fn known(server: &ImportedServer, listed: &Value) -> Option<ServerSpec> {
    let spec = (!server.spec.disabled && !works(listed)).then(|| listed.get("spec")).flatten()?;
    serde_json::from_value(spec.clone()).ok()
}

/// The problems of the servers that were chosen, and those of the file.
fn about(only: &[String], problems: Vec<ImportProblem>) -> Vec<ImportProblem> {
    let concerns = |problem: &ImportProblem| {
        only.is_empty()
            || problem.path.matches('/').count() < 2
            || problem.path.split('/').any(|part| only.iter().any(|name| name == part))
    };
    problems.into_iter().filter(concerns).collect()
}

fn chosen(servers: Vec<ImportedServer>, only: &[String]) -> Result<Vec<ImportedServer>, CommandFailure> {
    if only.is_empty() {
        return Ok(servers);
    }
    let names: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
    if let Some(missing) = only.iter().find(|name| !names.contains(name)) {
        let failure = CommandFailure::usage(format!("--only: the file has no server `{missing}` that is in order"));
        return Err(match nearest(missing, names.iter().map(String::as_str)) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint(format!("it has {}", names.join(", "))),
        });
    }
    Ok(servers.into_iter().filter(|server| only.contains(&server.name)).collect())
}

fn not_in_order(lines: Vec<String>, others: bool) -> CommandFailure {
    let failure = match lines.len() {
        0 => CommandFailure::new("there are no servers in the file"),
        1 => CommandFailure::new("something in the file is not in order"),
        count => CommandFailure::new(format!("{count} things in the file are not in order")),
    };
    failure.reasons(lines).hint(if others {
        "nothing was imported; mend them, or import the others with --keep-going"
    } else {
        "nothing was imported; mend the file"
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn file() -> ImportedFile {
        import::read(
            r#"{ "mcpServers": { "files": { "command": "/bin/true" }, "mail": { "command": "/bin/true" }, "bad": {} } }"#,
            &ThisMachine { environment: &BTreeMap::new(), file: None, keeps_packages: false },
        )
    }

    #[test]
    fn problems_of_servers_that_nobody_asked_for_do_not_matter() {
        assert_eq!(about(&[], file().problems).len(), 1);
        assert_eq!(about(&["files".into()], file().problems).len(), 0);
        assert_eq!(about(&["bad".into()], file().problems).len(), 1);
        assert_eq!(
            about(
                &["files".into()],
                import::read("{", &ThisMachine { environment: &BTreeMap::new(), file: None, keeps_packages: false })
                    .problems
            )
            .len(),
            1
        );
    }

    #[test]
    fn a_misspelt_server_is_met_with_the_right_name() {
        assert_eq!(chosen(file().servers, &["mail".into()]).unwrap().len(), 1);
        let failure = chosen(file().servers, &["flies".into()]).unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("did you mean `files`?"));
    }

    #[test]
    fn what_is_not_in_order_is_listed_in_full_and_the_way_on_is_named() {
        let lines: Vec<String> = file().problems.iter().map(plan::problem_line).collect();
        let failure = not_in_order(lines, true);
        assert_eq!(failure.message, "something in the file is not in order");
        assert_eq!(failure.reasons, ["/mcpServers/bad: has neither a `command` nor a `url`"]);
        assert!(failure.hint.unwrap().contains("--keep-going"));
    }
}
