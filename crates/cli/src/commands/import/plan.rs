//! What an import will do, for a person who is asked whether that is wanted, and as JSON.

use serde_json::{Value, json};
use upstreams::import::{ImportProblem, ImportedServer, SwitchedOff};
use upstreams::plain_secrets;

use super::existing_servers::ServerStanding;
use crate::printer::{Printer, TextStyle, visible};

/// A server, and how it stands to the one of its name; whether that is replaced if it is another one.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) server: ImportedServer,
    pub(super) standing: ServerStanding,
    pub(super) is_replaced: bool,
}

impl Planned {
    /// Does it change anything?
    pub(super) fn is_brought_in(&self) -> bool {
        match self.standing {
            ServerStanding::New => true,
            ServerStanding::Same(_) => false,
            ServerStanding::Other { .. } => self.is_replaced,
        }
    }

    /// How that is said: to people, and in JSON.
    fn words(&self) -> (Option<String>, &'static str) {
        match &self.standing {
            ServerStanding::New => (None, "added"),
            ServerStanding::Same(_) => (Some("  is there  already, just so: unchanged".to_owned()), "unchanged"),
            ServerStanding::Other { in_what, .. } if self.is_replaced => (
                Some(format!("  replaces  the server of that name, which differs in {}", in_what.join(", "))),
                "replaced",
            ),
            ServerStanding::Other { in_what, .. } => {
                let differs = in_what.join(", ");
                let line = format!("  is there  already and differs in {differs}: not replaced without --replace");
                (Some(line), "not_replaced")
            }
        }
    }
}

/// The plan for people: what will run, what it may touch and why, what is kept as a secret, what to know.
pub(super) fn text(printer: &Printer, planned: &[Planned]) -> String {
    let mut lines = Vec::new();
    for one in planned {
        let server = &one.server;
        lines.push(printer.on_stderr(&server.name, TextStyle::Bold));
        lines.extend(one.words().0);
        // Nothing of it happens.
        if matches!(one.standing, ServerStanding::Same(_)) {
            continue;
        }
        lines.push(format!("  runs      {}", visible(&server.runs)));
        if let Some(request) = &server.package {
            let (packages, registry) = (request.packages.join(", "), request.registry.as_str());
            let newest = if request.has_version() { "" } else { " in its newest version of now" };
            lines.push(format!("  package   {} is installed{newest}, from {registry}, and pinned", visible(&packages)));
        }
        if server.grants.is_empty() {
            lines.push("  may touch nothing of this machine".to_owned());
        }
        for (index, grant) in server.grants.iter().enumerate() {
            let word = if index == 0 { "may touch" } else { "         " };
            lines.push(format!("  {word} {} – {}", visible(&grant.permission), visible(&grant.why)));
        }
        let offered: Vec<&str> = [("resources", server.spec.resources), ("prompts", server.spec.prompts)]
            .into_iter()
            .filter_map(|(what, is_offered)| is_offered.then_some(what))
            .collect();
        if !offered.is_empty() {
            lines.push(format!("  offers    its {} too", offered.join(" and ")));
        }
        for secret in &server.secrets {
            let state = if secret.value.is_some() { "" } else { " (you have to provide it)" };
            lines.push(format!(
                "  secret    {} becomes the credential `{}`{state}",
                visible(&secret.place),
                secret.name
            ));
        }
        if let Some(SwitchedOff { why, .. }) = &server.switched_off {
            lines.push(format!("  is kept   and not started: {}", visible(why)));
        }
        for closed in &server.closed {
            let helps = closed.command.as_ref().map(|command| format!("; `{command}` lets it")).unwrap_or_default();
            let line = format!("{}{helps}", closed.why);
            lines.push(format!("  {}   {}", printer.on_stderr("warning", TextStyle::Yellow), visible(&line)));
        }
        for warning in &server.warnings {
            lines.push(format!("  {}   {}", printer.on_stderr("warning", TextStyle::Yellow), visible(warning)));
        }
    }
    lines.join("\n")
}

/// The same as JSON. Secrets are named, not told.
pub(super) fn document(planned: &Planned) -> Value {
    let server = &planned.server;
    let mut spec = json!(server.spec);
    plain_secrets::take_out(&mut spec);
    json!({
        "name": server.name,
        "change": planned.words().1,
        "runs": server.runs,
        "spec": spec,
        "permissions": server.grants.iter().map(|grant| json!({ "permission": grant.permission, "why": grant.why })).collect::<Vec<_>>(),
        "secrets": server.secrets.iter().map(|secret| json!({
            "credential": secret.name, "place": secret.place, "provided": secret.value.is_some(),
        })).collect::<Vec<_>>(),
        "warnings": server.warnings,
        "closed": server.closed.iter().map(|closed| json!({ "why": closed.why, "command": closed.command })).collect::<Vec<_>>(),
        "package": server.package.as_ref().map(|request| json!({
            "registry": request.registry, "packages": request.packages, "has_version": request.has_version(),
        })),
        "switched_off": server.switched_off.as_ref().map(|off| &off.why),
    })
}

/// Problems of a file, one line each.
pub(super) fn problem_line(problem: &ImportProblem) -> String {
    if problem.path.is_empty() { problem.message.clone() } else { format!("{}: {}", problem.path, problem.message) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use upstreams::import::read;

    use super::*;
    use crate::commands::import::ThisMachine;
    use crate::printer::PrinterOptions;

    #[test]
    fn a_plan_says_what_runs_and_why_it_may_touch_what_it_may_and_tells_no_secret() {
        let file = r#"{ "mcpServers": {
            "brave": { "command": "/bin/sh", "args": ["-c", "true", "--api-key=hunter2", "--password", "hunter2"], "env": { "BRAVE_API_KEY": "hunter2", "BASE": "https://api.example" } },
            "far": { "url": "https://mcp.example/mcp", "headers": { "Authorization": "Bearer ${NOT_SET_ANYWHERE}" } }
        } }"#;
        let import = read(file, &ThisMachine { environment: &BTreeMap::new(), file: None, keeps_packages: false });
        assert_eq!(import.problems, []);
        let new = |server| Planned { server, standing: ServerStanding::New, is_replaced: false };
        let mut planned: Vec<Planned> = import.servers.into_iter().map(new).collect();
        let text = text(&Printer::new(PrinterOptions::default()), &planned);
        for part in [
            "runs      /bin/sh -c true (hidden) --password (hidden)",
            "may touch network:https://api.example – named in `BASE`",
            "secret    env BRAVE_API_KEY becomes the credential `brave_brave_api_key`",
            "header Authorization becomes the credential `far_authorization` (you have to provide it)",
            "may touch nothing of this machine",
            "runs      https://mcp.example/mcp",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let documents: Vec<Value> = planned.iter().map(document).collect();
        assert!(!text.contains("hunter2") && !format!("{documents:?}").contains("hunter2"));
        let other = || ServerStanding::Other { listed: Box::new(json!({})), in_what: vec!["the arguments"] };
        for (standing, is_replaced, change, words) in [
            (ServerStanding::Same(Box::new(json!({}))), true, "unchanged", "already, just so: unchanged"),
            (other(), false, "not_replaced", "differs in the arguments: not replaced without --replace"),
            (other(), true, "replaced", "replaces  the server of that name"),
        ] {
            let first = planned.first_mut().unwrap();
            (first.standing, first.is_replaced) = (standing, is_replaced);
            assert_eq!(first.is_brought_in(), change == "replaced");
            assert_eq!(document(first).get("change"), Some(&json!(change)));
            let text = super::text(&Printer::new(PrinterOptions::default()), &planned);
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }
}
