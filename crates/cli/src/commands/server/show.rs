//! `gantry server show`: one server, with what it runs, from which package, and what it may touch.

use clap::Args;
use contract::ids::TenantId;
use serde_json::Value;
use upstreams::plain_secrets::shown_args;
use upstreams::spec::{ServerReach, ServerSetting, ServerSpec};

use super::edit::{found, spec_of};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Show what a server runs, from which package, and what it may touch
#[derive(Debug, Args)]
pub(crate) struct ServerShowCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl ServerShowCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let server = found(context, &self.name, self.tenant.as_ref()).await?;
        let spec = spec_of(&self.name, &server)?;
        context.printer.answer(&server, |_| text(&server, &spec));
        Ok(())
    }
}

fn text(server: &Value, spec: &ServerSpec) -> String {
    let word = |pointer: &str| server.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let count = |pointer: &str| server.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let mut lines = vec![format!("server    {}", word("/name"))];
    let error = server.pointer("/status/last_error").and_then(Value::as_str);
    let error = error.map(|error| format!(": {}", visible(error))).unwrap_or_default();
    lines.push(format!("state     {}{error}", word("/status/state")));
    let hint = server.pointer("/status/last_hint").and_then(Value::as_str);
    lines.extend(hint.map(|hint| format!("help      {}", visible(hint))));
    lines.push(format!("tools     {} of {}", count("/tools/available"), count("/tools/known")));
    match &spec.reach {
        ServerReach::Stdio { command, args, cwd, env, permissions, package } => {
            if let Some(pin) = package {
                lines.push(format!("package   {} → {}", visible(&pin.written.join(" ")), pin.sentence()));
            }
            let words: Vec<String> = std::iter::once(command.clone()).chain(shown_args(args)).collect();
            lines.push(format!("runs      {}", visible(&words.join(" "))));
            lines.extend(cwd.as_ref().map(|cwd| format!("in        {}", visible(cwd))));
            settings(&mut lines, "variable", env);
            for (index, permission) in permissions.iter().enumerate() {
                let word = if index == 0 { "may touch" } else { "         " };
                lines.push(format!("{word} {}", visible(permission)));
            }
        }
        ServerReach::Http { url, headers, .. } | ServerReach::Sse { url, headers, .. } => {
            lines.push(format!("is at     {}", visible(url)));
            settings(&mut lines, "header", headers);
        }
    }
    lines.join("\n")
}

/// Names and values; of a credential its name.
fn settings(lines: &mut Vec<String>, word: &str, settings: &std::collections::BTreeMap<String, ServerSetting>) {
    for (name, setting) in settings {
        let value = match setting {
            ServerSetting::Plain(value) => visible(value).into_owned(),
            ServerSetting::Secret { secret } => format!("the credential `{secret}`"),
        };
        lines.push(format!("{word:<9} {}={value}", visible(name)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_package_is_shown_with_the_words_that_named_it_and_what_they_came_to() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let reach = json!({ "type": "stdio", "command": "/tool/node_modules/.bin/x",
            "args": ["/srv", "--api-key", "hunter2", "--password=hunter2"],
            "env": { "KEY": { "secret": "x_key" } }, "permissions": ["filesystem:read:/srv"],
            "package": { "registry": "npm", "name": "@a/x", "version": "1.2.3", "digest": digest, "written": ["npx", "-y", "@a/x"] } });
        let server = json!({ "name": "x", "status": { "state": "ready" }, "tools": { "available": 2, "known": 3 },
            "spec": { "reach": reach } });
        let shown = text(&server, &spec_of("x", &server).unwrap());
        for part in [
            "package   npx -y @a/x → @a/x 1.2.3 (pinned, sha256:abababababab)",
            "runs      /tool/node_modules/.bin/x /srv --api-key (hidden) (hidden)",
            "tools     2 of 3",
            "variable  KEY=the credential `x_key`",
            "may touch filesystem:read:/srv",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
