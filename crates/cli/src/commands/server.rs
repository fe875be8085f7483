//! `gantry server …`: the MCP servers behind Gantry, and what is decided about what they offer. (MCP-005, REG-023)

use clap::{Args, Subcommand};
use contract::ids::TenantId;
use serde_json::{Value, json};

use super::CommandOutcome;
use super::import::server_intake::in_tenant;
use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, visible};

mod add;
pub(crate) mod classify;
mod edit;
mod options;
mod packages;
mod review;
mod show;
mod update;

/// Look after the MCP servers behind Gantry
#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    List(ServerListCommand),
    Show(show::ServerShowCommand),
    Add(Box<add::ServerAddCommand>),
    Edit(Box<edit::ServerEditCommand>),
    Grant(edit::ServerGrantCommand),
    Update(update::ServerUpdateCommand),
    Packages(packages::ServerPackagesCommand),
    Remove(ServerRemoveCommand),
    Restart(ServerRestartCommand),
    Logs(ServerLogsCommand),
    Review(review::ServerReviewCommand),
    Accept(review::ServerAcceptCommand),
    Reject(review::ServerRejectCommand),
    Classify(classify::ServerClassifyCommand),
}

/// List the servers, how they fare, and how many tools each has
#[derive(Debug, Args)]
pub(crate) struct ServerListCommand {
    /// Whose servers [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Take a server away: none of its tools can be called any more
#[derive(Debug, Args)]
pub(crate) struct ServerRemoveCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Start a server anew and look at its tools again; calls under way finish first
#[derive(Debug, Args)]
pub(crate) struct ServerRestartCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Show what a server has written to its log
#[derive(Debug, Args)]
pub(crate) struct ServerLogsCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// How many lines
    #[arg(long, short = 'n', default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    lines: u16,
}

impl ServerCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::List(command) => command.run(context).await?,
            Self::Add(command) => return command.run(context).await,
            Self::Edit(command) => return command.run(context).await,
            Self::Grant(command) => return command.run(context).await,
            Self::Update(command) => return command.run(context).await,
            Self::Packages(command) => command.run(context).await?,
            Self::Show(command) => command.run(context).await?,
            Self::Remove(command) => command.run(context).await?,
            Self::Restart(command) => command.run(context).await?,
            Self::Logs(command) => command.run(context).await?,
            Self::Review(command) => command.run(context).await?,
            Self::Accept(command) => command.run(context).await?,
            Self::Reject(command) => command.run(context).await?,
            Self::Classify(command) => command.run(context).await?,
        }
        Ok(CommandOutcome::Done)
    }
}

impl ServerListCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.get(&format!("/v1/servers{}", in_tenant(self.tenant.as_ref()))).await?;
        context.printer.answer(&answer, |printer| table(printer, &answer));
        Ok(())
    }
}

impl ServerRemoveCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        // A name that nothing has is said first: nobody should have to repeat a command to learn that.
        let server = edit::found(context, &self.name, self.tenant.as_ref()).await?;
        if !self.yes {
            let name = &self.name;
            if !context.printer.can_ask() {
                return Err(CommandFailure::usage(format!(
                    "removing `{name}` also forgets what was accepted of its tools"
                ))
                .hint("add --yes if you mean it"));
            }
            let question = format!("Remove `{name}` and forget what was accepted of its tools?");
            if !context.printer.confirm(&question) {
                return Err(CommandFailure::new("nothing was removed"));
            }
        }
        let answer = context.client()?.delete(&path(&self.name, "", self.tenant.as_ref())).await?;
        context.printer.answer(&answer, |_| format!("{} is gone", self.name));
        let credentials = credentials(&server);
        if !credentials.is_empty() {
            context.printer.note(&format!(
                "its credentials stay in the secrets folder, for others may use them: {}; delete the files that nothing needs",
                credentials.join(", ")
            ));
        }
        Ok(())
    }
}

/// Names of the credentials that a server was given, as it is listed.
fn credentials(server: &Value) -> Vec<String> {
    let settings = ["/spec/reach/env", "/spec/reach/headers"].into_iter();
    let settings =
        settings.filter_map(|place| server.pointer(place)?.as_object()).flat_map(|settings| settings.values());
    settings.filter_map(|setting| setting.get("secret")?.as_str()).map(|name| visible(name).to_string()).collect()
}

impl ServerRestartCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let path = path(&self.name, "/restart", self.tenant.as_ref());
        let answer = context.client()?.post(&path, &json!({})).await?;
        context.printer.answer(&answer, |printer| table(printer, &json!({ "servers": [answer] })));
        Ok(())
    }
}

impl ServerLogsCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut path = path(&self.name, "/logs", self.tenant.as_ref());
        path.push_str(&format!("{}lines={}", if path.contains('?') { '&' } else { '?' }, self.lines));
        let answer = context.client()?.get(&path).await?;
        context.printer.answer(&answer, |_| {
            let lines = answer.get("lines").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let lines: Vec<_> = lines.map(|name| visible(name).to_string()).collect();
            if lines.is_empty() { "it has written nothing".to_owned() } else { lines.join("\n") }
        });
        Ok(())
    }
}

/// The path of something about a server.
fn path(name: &str, rest: &str, tenant: Option<&TenantId>) -> String {
    format!("/v1/servers/{}{rest}{}", segment(name), in_tenant(tenant))
}

fn table(printer: &Printer, answer: &Value) -> String {
    let servers = answer.get("servers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if servers.is_empty() {
        return "no servers; `gantry import mcp FILE` brings in those you have".to_owned();
    }
    let rows = servers.iter().map(|server| {
        let text = |pointer: &str| server.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let count = |pointer: &str| server.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
        let waiting = count("/tools/quarantined");
        let tools = format!("{} of {}", count("/tools/available"), count("/tools/known"));
        let problems = server.get("problems").and_then(Value::as_array).into_iter().flatten();
        let first = problems.filter_map(|problem| problem.get("message")?.as_str()).next();
        let error = server.pointer("/status/last_error").and_then(Value::as_str);
        let note = match waiting {
            0 => visible(first.or(error).unwrap_or_default()).into_owned(),
            1 => format!("1 tool waits: gantry server review {}", text("/name")),
            many => format!("{many} tools wait: gantry server review {}", text("/name")),
        };
        [text("/name"), text("/status/state"), tools, reach(server), note]
    });
    printer.table(["SERVER", "STATE", "TOOLS", "REACHED BY", "NOTE"], rows)
}

fn reach(server: &Value) -> String {
    let text = |pointer: &str| server.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let package = text("/spec/reach/package/name").zip(text("/spec/reach/package/version"));
    let package = package.map(|(name, version)| {
        format!("{} {name} {version}", text("/spec/reach/package/written/0").unwrap_or_default())
            .trim_start()
            .to_owned()
    });
    package.or_else(|| text("/spec/reach/command")).or_else(|| text("/spec/reach/url")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn a_list_says_what_waits_for_a_decision_and_how_to_get_there() {
        let answer = json!({ "servers": [
            { "name": "files", "status": { "state": "ready" }, "tools": { "available": 2, "quarantined": 1, "known": 3 },
              "spec": { "reach": { "type": "stdio", "command": "npx" } }, "problems": [] },
            { "name": "far", "status": { "state": "unavailable" }, "tools": { "available": 0, "quarantined": 0, "known": 0 },
              "spec": { "reach": { "type": "http", "url": "https://x.example" } },
              "problems": [{ "tool": "", "code": "NO_ANSWER", "message": "it does not answer" }] },
            { "name": "kept", "status": { "state": "ready", "last_error": "the successor died" }, "tools": {}, "spec": {},
              "problems": [] },
        ] });
        let printer = Printer::new(PrinterOptions::default());
        let text = table(&printer, &answer);
        assert!(text.contains("2 of 3") && text.contains("gantry server review files"), "{text}");
        assert!(text.contains("the successor died"), "{text}");
        assert!(text.contains("it does not answer") && text.contains("https://x.example"), "{text}");
        assert!(table(&printer, &json!({ "servers": [] })).contains("gantry import mcp"));
    }

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(path("a/b", "/logs", None), "/v1/servers/a%2Fb/logs");
        assert_eq!(path("a", "", Some(&"acme".parse().unwrap())), "/v1/servers/a?tenant=acme");
    }
}
