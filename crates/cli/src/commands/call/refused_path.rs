//! A tool of an MCP server that was refused a path in the middle of its call: what opens it, for whoever looks after the server.
//!
//! The server that was asked tells its permissions to those who may change them and to nobody else; others hear what the tool said,
//! and nothing more.

use std::path::Path;

use contract::error::ErrorCode;
use serde_json::Value;
use upstreams::diagnosis::{StartRemedy, refused_path};
use upstreams::import::{ClosedPath, ImportMachine as _};
use upstreams::spec::{ServerReach, ServerSpec};

use crate::client::{ServerClient, segment};
use crate::commands::import::ThisMachine;
use crate::commands::import::package_step::is_here;
use crate::commands::import::trial;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// The failure with the command that helps, if there is one.
pub(super) async fn explained(
    context: &CommandContext,
    client: &ServerClient,
    tool: &str,
    failure: CommandFailure,
) -> CommandFailure {
    if !failure.has_code(ErrorCode::E3401.as_str()) || !is_here(context) {
        return failure;
    }
    let Some(path) = failure.tool_words().iter().find_map(|line| refused_path(line)) else { return failure };
    let Some((server, spec)) = server_of(client, tool).await else { return failure };
    let machine = ThisMachine { environment: context.environment(), file: None, keeps_packages: false };
    match what_helps(&machine, &server, &spec, Path::new(&path)) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The server behind a tool and what is kept of it, if the caller may know.
async fn server_of(client: &ServerClient, tool: &str) -> Option<(String, ServerSpec)> {
    let described = client.get(&format!("/v1/tools/{}", segment(tool))).await.ok()?;
    let name = described.pointer("/manifest/execution/server")?.as_str()?.to_owned();
    let listed = client.get("/v1/servers").await.ok()?;
    let servers = listed.get("servers")?.as_array()?;
    let server = servers.iter().find(|server| server.get("name").and_then(Value::as_str) == Some(&name))?;
    let spec = serde_json::from_value(server.get("spec")?.clone()).ok()?;
    Some((name, spec))
}

fn what_helps(machine: &ThisMachine<'_>, server: &str, spec: &ServerSpec, path: &Path) -> Option<String> {
    let ServerReach::Stdio { permissions, .. } = &spec.reach else { return None };
    let granted = |mode: &str| {
        let words = permissions.iter().filter_map(|word| word.strip_prefix("filesystem:")?.strip_prefix(mode));
        words.map(|place| place.replace("%20", " ")).find(|place| path.starts_with(place))
    };
    if let Some(place) = granted("write:") {
        let ClosedPath { why, command } = machine.closed(Path::new(&place), true)?;
        return Some(command.map_or_else(|| why.clone(), |command| format!("{why}: {command}")));
    }
    // Nor is what opens other things: the words are the server's own.
    if trial::is_secret_place(path) {
        return None;
    }
    // What is not there, or is the system's, is nothing to give.
    let folder = if path.is_dir() { path } else { path.parent()? };
    let is_given = granted("read:").is_some();
    if !folder.is_dir() || folder.parent().is_none() || (!is_given && machine.is_systems(folder)) {
        return None;
    }
    let what = if is_given { "may only read there" } else { "may not go there" };
    let command = trial::command(&StartRemedy::Write(folder.display().to_string()), server);
    Some(format!("`{server}` {what}: {command}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_only_to_be_read_can_be_granted_and_what_is_not_there_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let notes = place.join("my notes");
        std::fs::create_dir(&notes).unwrap();
        let word = format!("filesystem:read:{}", notes.display().to_string().replace(' ', "%20"));
        let spec: ServerSpec =
            serde_json::from_value(json!({ "reach": { "type": "stdio", "command": "x", "permissions": [word] } }))
                .unwrap();
        let environment = BTreeMap::new();
        let machine = ThisMachine { environment: &environment, file: None, keeps_packages: false };
        let helps = |path: &Path| what_helps(&machine, "files", &spec, path);
        let told = helps(&notes.join("new.md")).unwrap();
        let expected = format!("may only read there: gantry server grant files --allow-write '{}'", notes.display());
        assert!(told.ends_with(&expected), "{told}");
        assert!(helps(&place).unwrap().contains("may not go there"));
        for nothing in ["/usr/lib/x", "/", "/nowhere/at/all/x"] {
            assert_eq!(helps(Path::new(nothing)), None, "{nothing}");
        }
    }
}
