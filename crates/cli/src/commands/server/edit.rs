//! `gantry server edit` and `gantry server grant`: changes of a server that is there. What is not named stays as it is, and so
//! does everything that was accepted of its tools.

use clap::Args;
use contract::ids::TenantId;
use contract::nearest::nearest;
use serde_json::{Map, Value, json};
use upstreams::import::{self, ImportedFile, ImportedServer};
use upstreams::spec::{ServerReach, ServerSetting, ServerSpec};

use super::add::pair;
use super::options::{Grants, Keeping};
use crate::client::segment;
use crate::commands::CommandOutcome;
use crate::commands::import::ThisMachine;
use crate::commands::import::server_intake::{
    ImportManner, ImportOutcome, START_PATIENCE, ServerOffer, bring_in, conclude, in_tenant, works,
};
use crate::commands::import::trial::TrialResult;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Change a server: what is not named stays as it is
///
/// gantry server edit search --env BRAVE_API_KEY=… --start-timeout 120
/// gantry server edit files --disable
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ServerEditCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    #[command(flatten)]
    grants: Grants,
    /// A permission to take away, in the words that `gantry server list --json` shows (repeatable)
    #[arg(long = "revoke", value_name = "WORD")]
    revoked: Vec<String>,
    /// A variable of the program, or a header for an address; what looks like a secret is kept as one (repeatable)
    #[arg(long = "env", alias = "header", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// A variable or header whose value is a credential of the secrets folder (repeatable)
    #[arg(long = "secret", value_name = "NAME=CREDENTIAL", value_parser = pair)]
    secrets: Vec<(String, String)>,
    /// A variable or header to take away (repeatable)
    #[arg(long = "unset", value_name = "NAME")]
    unset: Vec<String>,
    #[command(flatten)]
    keeping: Keeping,
    /// What it offers besides tools, for callers who may use it (repeatable)
    #[arg(long = "offer", value_name = "WHAT")]
    offers: Vec<ServerOffer>,
    /// Switch it on
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Switch it off: it is kept and not started, and none of its tools can be called
    #[arg(long)]
    disable: bool,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Let a server touch one thing more
///
/// gantry server grant files --allow-write /srv/notes
/// gantry server grant fetch --allow-host api.example.com
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ServerGrantCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    #[command(flatten)]
    grants: Grants,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl ServerGrantCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        if self.grants.is_empty() {
            return Err(CommandFailure::usage("nothing to grant was named")
                .hint("add --allow-read PATH, --allow-write PATH or --allow-host HOST"));
        }
        let before = found(context, &self.name, self.tenant.as_ref()).await?;
        let mut spec = spec_of(&self.name, &before)?;
        self.grants.apply(&mut spec)?;
        put(context, changed(self.name, spec, Vec::new()), self.tenant.as_ref(), &before).await
    }
}

impl ServerEditCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        self.keeping.check()?;
        let listed = found(context, &self.name, self.tenant.as_ref()).await?;
        let before = spec_of(&self.name, &listed)?;
        let mut spec = before.clone();
        let machine = ThisMachine { environment: context.environment(), file: None, keeps_packages: false };
        let secrets = self.apply(&mut spec, &machine)?;
        if spec == before && secrets.is_empty() {
            return Err(CommandFailure::usage("nothing would be changed by that")
                .hint("`gantry server edit --help` names what can be"));
        }
        put(context, changed(self.name, spec, secrets), self.tenant.as_ref(), &listed).await
    }

    /// Changes what was named. Answers the secrets to be kept.
    fn apply(
        &self,
        spec: &mut ServerSpec,
        machine: &ThisMachine<'_>,
    ) -> Result<Vec<import::ImportedSecret>, CommandFailure> {
        self.grants.apply(spec)?;
        self.revoke(spec)?;
        self.keeping.apply(spec);
        for what in &self.offers {
            match what {
                ServerOffer::Resources => spec.resources = true,
                ServerOffer::Prompts => spec.prompts = true,
            }
        }
        spec.disabled = self.disable || (spec.disabled && !self.enable);
        let (given, secrets) = self.given(spec, machine)?;
        let (ServerReach::Stdio { env: settings, .. }
        | ServerReach::Http { headers: settings, .. }
        | ServerReach::Sse { headers: settings, .. }) = &mut spec.reach;
        for name in &self.unset {
            if settings.remove(name).is_none() {
                return Err(CommandFailure::usage(format!("--unset: it has no `{name}`")));
            }
        }
        settings.extend(given);
        Ok(secrets)
    }

    fn revoke(&self, spec: &mut ServerSpec) -> Result<(), CommandFailure> {
        let mut none = Vec::new();
        let permissions = match &mut spec.reach {
            ServerReach::Stdio { permissions, .. } => permissions,
            ServerReach::Http { .. } | ServerReach::Sse { .. } => &mut none,
        };
        for word in &self.revoked {
            let Some(at) = permissions.iter().position(|known| known == word) else {
                let failure = CommandFailure::usage(format!("--revoke: it does not have `{word}`"));
                return Err(match permissions.as_slice() {
                    [] => failure.hint("it has no permissions"),
                    known => failure.hint(format!("it has {}", known.join(", "))),
                });
            };
            permissions.remove(at);
        }
        Ok(())
    }

    /// The variables or headers that were named, secrets told apart as an import does it.
    fn given(&self, spec: &ServerSpec, machine: &ThisMachine<'_>) -> Result<GivenSettings, CommandFailure> {
        let named =
            self.secrets.iter().map(|(name, secret)| (name.clone(), ServerSetting::Secret { secret: secret.clone() }));
        if self.settings.is_empty() {
            return Ok((named.collect(), Vec::new()));
        }
        let settings: Map<String, Value> =
            self.settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let entry = match &spec.reach {
            ServerReach::Stdio { .. } => json!({ "command": "/bin/sh", "env": settings }),
            ServerReach::Http { url, .. } | ServerReach::Sse { url, .. } => json!({ "url": url, "headers": settings }),
        };
        let mut block = Map::new();
        block.insert(self.name.clone(), entry);
        let ImportedFile { mut servers, problems, .. } =
            import::read(&json!({ "mcpServers": block }).to_string(), machine);
        let Some(read) = servers.pop().filter(|_| problems.is_empty()) else {
            let reasons = problems.into_iter().map(|problem| problem.message).collect();
            return Err(CommandFailure::usage("the server cannot be changed like that").reasons(reasons));
        };
        let (ServerReach::Stdio { env: given, .. }
        | ServerReach::Http { headers: given, .. }
        | ServerReach::Sse { headers: given, .. }) = read.spec.reach;
        let wanted = given.into_iter().filter(|(name, _)| self.settings.iter().any(|(own, _)| own == name));
        Ok((wanted.chain(named).collect(), read.secrets))
    }
}

/// Variables or headers by name, and the secrets among them that are kept elsewhere.
type GivenSettings = (Vec<(String, ServerSetting)>, Vec<import::ImportedSecret>);

/// What is known of a server now.
pub(super) async fn current(
    context: &CommandContext,
    name: &str,
    tenant: Option<&TenantId>,
) -> Result<ServerSpec, CommandFailure> {
    spec_of(name, &found(context, name, tenant).await?)
}

/// The server, as it is listed.
pub(super) async fn found(
    context: &CommandContext,
    name: &str,
    tenant: Option<&TenantId>,
) -> Result<Value, CommandFailure> {
    let answer = context.client()?.get(&format!("/v1/servers{}", in_tenant(tenant))).await?;
    let servers = answer.get("servers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let named = |server: &&Value| server.get("name").and_then(Value::as_str) == Some(name);
    let Some(server) = servers.iter().find(named) else {
        let names = servers.iter().filter_map(|server| server.get("name")?.as_str());
        let failure = CommandFailure::new(format!("there is no server `{name}`"));
        return Err(match nearest(name, names) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint("`gantry server list` shows those there are"),
        });
    };
    Ok(server.clone())
}

/// Its description.
pub(super) fn spec_of(name: &str, server: &Value) -> Result<ServerSpec, CommandFailure> {
    let spec = server.get("spec").cloned().unwrap_or_default();
    serde_json::from_value(spec).map_err(|_| {
        CommandFailure::new(format!("what is kept of `{name}` cannot be read by this release"))
            .hint("use the release that has added it, or add it again: `gantry server add --replace`")
    })
}

pub(super) fn changed(name: String, spec: ServerSpec, secrets: Vec<import::ImportedSecret>) -> ImportedServer {
    let (runs, grants, warnings) = (String::new(), Vec::new(), Vec::new());
    let closed = Vec::new();
    ImportedServer { name, spec, runs, grants, warnings, closed, secrets, switched_off: None, package: None }
}

/// Puts the changed server in the place of the former. One that worked is put back if the changed one does not: what runs on
/// until the next start of Gantry only hides that it would not start again.
async fn put(
    context: &CommandContext,
    server: ImportedServer,
    tenant: Option<&TenantId>,
    before: &Value,
) -> Result<CommandOutcome, CommandFailure> {
    // A credential that was written over cannot be had back, and may be what was wrong with the former.
    let can_go_back = server.secrets.is_empty() && worked(before);
    let name = server.name.clone();
    let mut brought = bring_in(context, vec![server], ImportManner { tenant, tried: true, scripts: false }).await?;
    let has_failed = brought.iter().any(|one| one.outcome.is_ok() && one.trial.result == TrialResult::Fails);
    if has_failed && can_go_back {
        let former = before.get("spec").cloned().unwrap_or_default();
        let path = format!("/v1/servers/{}{}", segment(&name), in_tenant(tenant));
        context.client()?.put_patiently(&path, &former, START_PATIENCE).await?;
        brought = brought
            .into_iter()
            .map(|one| ImportOutcome { trial: one.trial.taken_back(), outcome: Ok(before.clone()), ..one })
            .collect();
    }
    Ok(conclude(context, &brought, json!({})))
}

/// Did it work, as it is listed?
fn worked(server: &Value) -> bool {
    let is_off = server.pointer("/spec/disabled").and_then(Value::as_bool).unwrap_or_default();
    !is_off && works(server)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn edit() -> ServerEditCommand {
        ServerEditCommand {
            name: "files".into(),
            grants: Grants::default(),
            revoked: Vec::new(),
            settings: Vec::new(),
            secrets: Vec::new(),
            unset: Vec::new(),
            keeping: Keeping::default(),
            offers: Vec::new(),
            enable: false,
            disable: false,
            tenant: None,
        }
    }

    fn spec() -> ServerSpec {
        serde_json::from_value(json!({ "reach": { "type": "stdio", "command": "x", "env": { "A": "1", "B": "2" },
            "permissions": ["filesystem:read:/srv", "network:https://x.example"] }, "disabled": true }))
        .unwrap()
    }

    fn applied(edit: &ServerEditCommand) -> Result<(Value, usize), CommandFailure> {
        let nothing = BTreeMap::new();
        let mut spec = spec();
        let secrets =
            edit.apply(&mut spec, &ThisMachine { environment: &nothing, file: None, keeps_packages: false })?;
        Ok((json!(spec), secrets.len()))
    }

    #[test]
    fn only_what_is_named_changes() {
        assert_eq!(applied(&edit()).unwrap(), (json!(spec()), 0));
        let many = ServerEditCommand {
            revoked: vec!["filesystem:read:/srv".into()],
            settings: vec![("API_TOKEN".into(), "hunter2".into()), ("B".into(), "3".into())],
            secrets: vec![("C".into(), "kept".into())],
            unset: vec!["A".into()],
            offers: vec![ServerOffer::Prompts],
            enable: true,
            ..edit()
        };
        let (changed, secrets) = applied(&many).unwrap();
        let expected = json!({ "reach": { "type": "stdio", "command": "x", "permissions": ["network:https://x.example"],
            "env": { "API_TOKEN": { "secret": "files_api_token" }, "B": "3", "C": { "secret": "kept" } } }, "prompts": true });
        assert_eq!((changed, secrets), (expected, 1));
        let off = ServerEditCommand { disable: true, ..edit() };
        assert_eq!(applied(&off).unwrap().0.get("disabled"), Some(&json!(true)));
    }

    #[test]
    fn what_is_not_there_cannot_be_taken_away() {
        let revoke = applied(&ServerEditCommand { revoked: vec!["filesystem:read:/".into()], ..edit() }).unwrap_err();
        assert!(revoke.hint.unwrap().contains("filesystem:read:/srv"));
        let unset = applied(&ServerEditCommand { unset: vec!["Z".into()], ..edit() }).unwrap_err();
        assert!(unset.message.contains("`Z`"));
    }
}
