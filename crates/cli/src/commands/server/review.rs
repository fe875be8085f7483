//! `gantry server review | accept | reject`: what a server says about its tools now, against what was accepted, and the
//! decision about it.
//!
//! `accept` sends the digest of what it has seen, so that a server cannot change its word between the look and the yes.

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Value, json};

use super::path;
use crate::client::{ServerClient, segment};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, TextStyle, visible};

/// Show what a server says about its tools that was not accepted
#[derive(Debug, Args)]
pub(crate) struct ServerReviewCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Only this tool, as its server or as Gantry calls it
    tool: Option<String>,
    /// Also the tools about which nothing is to be decided
    #[arg(long)]
    all: bool,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Accept what a server says about a tool now: a new version is published
#[derive(Debug, Args)]
pub(crate) struct ServerAcceptCommand {
    #[command(flatten)]
    which: Which,
}

/// Refuse it: the tool stays away until the server says again what was accepted
#[derive(Debug, Args)]
pub(crate) struct ServerRejectCommand {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
struct Which {
    /// The server
    #[arg(value_name = "SERVER")]
    name: String,
    /// The tool, as its server or as Gantry calls it (repeatable)
    #[arg(value_name = "TOOL", required_unless_present = "all")]
    tools: Vec<String>,
    /// Every tool that waits for a decision
    #[arg(long, conflicts_with = "tools")]
    all: bool,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl ServerReviewCommand {
    pub(super) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let tools = known(&context.client()?, &self.name, self.tenant.as_ref()).await?;
        let findings = tools.iter().filter(|tool| !is_open(tool)).map(findings).sum::<usize>();
        let shown: Vec<Value> = tools
            .into_iter()
            .filter(|tool| match &self.tool {
                Some(named) => is_called(tool, named),
                None => self.all || is_open(tool),
            })
            .collect();
        if let (Some(named), true) = (&self.tool, shown.is_empty()) {
            return Err(CommandFailure::new(format!("the server `{}` has no tool `{named}`", self.name))
                .hint(format!("gantry server review {} --all", self.name)));
        }
        context.printer.answer(&json!({ "tools": shown }), |printer| page(printer, &self.name, &shown));
        if findings > 0 && !self.all && self.tool.is_none() {
            context.printer.note(&format!(
                "{findings} findings in what was accepted: `gantry server review {} --all` shows them",
                self.name
            ));
        }
        Ok(())
    }
}

impl ServerAcceptCommand {
    pub(super) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        self.which.decide(context, "accept").await
    }
}

impl ServerRejectCommand {
    pub(super) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        self.which.decide(context, "reject").await
    }
}

impl Which {
    async fn decide(self, context: &CommandContext, act: &str) -> Result<(), CommandFailure> {
        let client = context.client()?;
        let known = known(&client, &self.name, self.tenant.as_ref()).await?;
        let tools = self.chosen(&known);
        let mut decided = Vec::new();
        for (tool, digest) in tools {
            let rest = format!("/tools/{}/{act}", segment(&tool));
            let body = if act == "accept" { json!({ "digest": digest }) } else { json!({}) };
            decided.push(client.post(&path(&self.name, &rest, self.tenant.as_ref()), &body).await?);
        }
        context.printer.answer(&json!({ "tools": decided }), |printer| {
            if decided.is_empty() { "nothing waits for a decision".to_owned() } else { states(printer, &decided) }
        });
        Ok(())
    }

    /// The tools and what each of them proposes.
    fn chosen(&self, known: &[Value]) -> Vec<(String, Option<String>)> {
        let digest = |tool: &Value| tool.pointer("/proposed/digest").and_then(Value::as_str).map(str::to_owned);
        if self.all {
            let open = known.iter().filter(|tool| text(tool, "state") == "quarantined");
            return open.map(|tool| (text(tool, "upstream_tool").to_owned(), digest(tool))).collect();
        }
        // One that is not known is asked for all the same: the server says what there is instead.
        let digest_of = |named: &String| known.iter().find(|tool| is_called(tool, named)).and_then(digest);
        self.tools.iter().map(|named| (named.clone(), digest_of(named))).collect()
    }
}

pub(super) async fn known(
    client: &ServerClient,
    name: &str,
    tenant: Option<&TenantId>,
) -> Result<Vec<Value>, CommandFailure> {
    let mut answer = client.get(&path(name, "/tools", tenant)).await?;
    match answer.get_mut("tools").map(Value::take) {
        Some(Value::Array(tools)) => Ok(tools),
        _ => Ok(Vec::new()),
    }
}

pub(super) fn text<'a>(tool: &'a Value, member: &str) -> &'a str {
    tool.get(member).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is_called(tool: &Value, named: &str) -> bool {
    let id = text(tool, "tool_id");
    text(tool, "upstream_tool") == named || id == named || id.split_once('.').is_some_and(|(_, local)| local == named)
}

fn findings(tool: &Value) -> usize {
    tool.get("findings").and_then(Value::as_array).map_or(0, Vec::len)
}

pub(super) fn is_open(tool: &Value) -> bool {
    matches!(text(tool, "state"), "quarantined" | "rejected")
}

fn page(printer: &Printer, server: &str, tools: &[Value]) -> String {
    if tools.is_empty() {
        return "the server says about every tool what was accepted".to_owned();
    }
    let mut lines = Vec::new();
    for tool in tools {
        let head = format!("{} ({})", text(tool, "tool_id"), text(tool, "state"));
        lines.push(printer.style(&head, TextStyle::Bold));
        let own = text(tool, "upstream_tool");
        if !text(tool, "tool_id").ends_with(own) {
            lines.push(format!("  its server calls it {}", visible(own)));
        }
        match (text(tool, "compatibility"), tool.get("accepted")) {
            ("", None) => lines.push("  nothing of it was accepted yet".to_owned()),
            ("", Some(_)) => {}
            ("major", _) => lines.push("  accepting breaks callers of it (a new major version)".to_owned()),
            (step, _) => lines.push(format!("  accepting is a new {step} version")),
        }
        for finding in tool.get("findings").and_then(Value::as_array).into_iter().flatten() {
            let found =
                format!("  {}: {} at {}", text(finding, "severity"), text(finding, "reason"), text(finding, "place"));
            lines.push(printer.style(&visible(&found), TextStyle::Yellow));
        }
        for line in tool.get("difference").and_then(Value::as_array).into_iter().flatten() {
            let drawn = format!("  {}{}", text(line, "mark"), visible(text(line, "text")));
            lines.push(match text(line, "mark") {
                "-" => printer.style(&drawn, TextStyle::Red),
                "+" => printer.style(&drawn, TextStyle::Green),
                _ => drawn,
            });
        }
        lines.push(String::new());
    }
    if tools.iter().any(is_open) {
        lines.push(format!("gantry server accept {server} TOOL, or reject"));
    }
    lines.join("\n")
}

fn states(printer: &Printer, tools: &[Value]) -> String {
    let row = |tool: &Value| ["tool_id", "state", "version"].map(|member| text(tool, member).to_owned());
    printer.table(["TOOL", "STATE", "VERSION"], tools.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;

    fn tool(state: &str) -> Value {
        json!({ "tool_id": "files.read_file", "upstream_tool": "readFile", "state": state, "compatibility": "patch",
            "accepted": {}, "proposed": { "digest": "sha256:x" },
            "findings": [{ "severity": "high", "reason": "orders to the model", "place": "/description" }],
            "difference": [{ "mark": "-", "text": "description: Reads." }, { "mark": "+", "text": "description: evil\u{1b}[2J" }] })
    }

    #[test]
    fn a_review_shows_the_change_the_findings_and_the_way_on_and_nothing_reaches_the_terminal() {
        let page = page(&Printer::new(PrinterOptions::default()), "files", &[tool("quarantined")]);
        assert_eq!(
            page,
            "files.read_file (quarantined)\n  its server calls it readFile\n  accepting is a new patch version\n  \
             high: orders to the model at /description\n  -description: Reads.\n  +description: evil\u{fffd}[2J\n\n\
             gantry server accept files TOOL, or reject"
        );
    }

    #[test]
    fn only_what_was_seen_is_accepted() {
        let which = |tools: &[&str], all| Which {
            name: "files".into(),
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            all,
            tenant: None,
        };
        let known =
            [tool("quarantined"), json!({ "tool_id": "files.write", "upstream_tool": "write", "state": "accepted" })];
        let seen = Some("sha256:x".to_owned());
        assert_eq!(which(&[], true).chosen(&known), [("readFile".to_owned(), seen.clone())]);
        for name in ["readFile", "read_file", "files.read_file"] {
            assert_eq!(which(&[name], false).chosen(&known), [(name.to_owned(), seen.clone())]);
        }
        assert_eq!(which(&["other"], false).chosen(&known), [("other".to_owned(), None)]);
    }
}
