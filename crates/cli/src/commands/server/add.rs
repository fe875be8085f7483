//! `gantry server add`: one server, by hand. Goes the way of an import, so that the same is inferred and the same is kept
//! secret.

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Map, Value, json};
use upstreams::import::{self, ImportedFile, ImportedServer};
use upstreams::spec::{ServerReach, ServerSetting};

use super::options::{Grants, Keeping};
use crate::commands::CommandOutcome;
use crate::commands::import::ThisMachine;
use crate::commands::import::existing_servers::{ExistingServers, runs};
use crate::commands::import::package_step::{PackageFlags, is_here};
use crate::commands::import::server_intake::{ImportManner, ServerOffer, bring_in, conclude, offer};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Put an MCP server behind Gantry
///
/// A program comes after `--`; a server elsewhere is named by its `--url`. One that is
/// there is changed by `gantry server edit`, or replaced by --replace.
///
/// gantry server add files -- npx -y @modelcontextprotocol/server-filesystem@2025.8.21 /srv/notes
/// gantry server add search --env BRAVE_API_KEY=… -- npx -y @modelcontextprotocol/server-brave-search@0.6.2
/// gantry server add linear --url https://mcp.example.com/mcp --secret Authorization=linear_key
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "gantry server add [OPTIONS] <SERVER> -- <COMMAND> [ARGUMENT]...\n       \
                      gantry server add [OPTIONS] <SERVER> --url <URL>"
)]
pub(crate) struct ServerAddCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    command: Vec<String>,
    /// The address of a server that is reached by HTTP
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// A further address of the same server, asked when the others do not answer; at most two (repeatable)
    #[arg(long = "fallback", value_name = "URL", requires = "url")]
    fallbacks: Vec<String>,
    /// The address speaks the older HTTP+SSE
    #[arg(long, requires = "url", conflicts_with = "command")]
    sse: bool,
    /// A variable of the program, or a header for an address; what looks like a secret is kept as one (repeatable)
    #[arg(long = "env", alias = "header", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// A variable or header whose value is a credential of the secrets folder (repeatable)
    #[arg(long = "secret", value_name = "NAME=CREDENTIAL", value_parser = pair)]
    secrets: Vec<(String, String)>,
    #[command(flatten)]
    grants: Grants,
    /// Give it the named permissions only, and infer none
    #[arg(long, conflicts_with = "url")]
    no_inference: bool,
    #[command(flatten)]
    packages: PackageFlags,
    /// Where its tools stand in the registry [default: its name]
    #[arg(long)]
    namespace: Option<String>,
    #[command(flatten)]
    keeping: Keeping,
    /// One process for all tenants: only for servers that keep nothing between calls
    #[arg(long)]
    shareable: bool,
    /// What it offers besides tools, for callers who may use it (repeatable)
    #[arg(long = "offer", value_name = "WHAT")]
    offers: Vec<ServerOffer>,
    /// Do not start it, and do not list its tools
    #[arg(long)]
    no_try: bool,
    /// Put it in the place of the server of that name, if there is one
    #[arg(long)]
    replace: bool,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl ServerAddCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        self.keeping.check()?;
        if self.url.is_some() {
            self.packages.refuse_for_address()?;
        }
        // Relative paths begin where the command is given.
        let file = std::env::current_dir().ok().map(|folder| folder.join("-"));
        let keeps_packages = !self.packages.no_package && is_here(context);
        let server = self.server(&ThisMachine { environment: context.environment(), file, keeps_packages })?;
        let existing = ExistingServers::of(context, &context.client()?, self.tenant.as_ref()).await?;
        if let Some(listed) = existing.named(&server.name).filter(|_| !self.replace) {
            return Err(is_there(&server.name, listed));
        }
        for warning in &server.warnings {
            context.printer.warn(warning);
        }
        for grant in &server.grants {
            context.printer.note(&format!("may touch {} – {}", grant.permission, grant.why));
        }
        let scripts = self.packages.allow_install_scripts;
        let manner = ImportManner { tenant: self.tenant.as_ref(), tried: !self.no_try, scripts };
        let brought = bring_in(context, vec![server], manner).await?;
        Ok(conclude(context, &brought, json!({})))
    }

    fn server(&self, machine: &ThisMachine<'_>) -> Result<ImportedServer, CommandFailure> {
        let ImportedFile { mut servers, problems, of_gantry } = import::read(&self.block().to_string(), machine);
        if !of_gantry.is_empty() {
            return Err(CommandFailure::usage("this is Gantry itself, which cannot be behind itself")
                .hint("add the servers that it is to be in front of; `gantry mcp install` is for clients"));
        }
        let Some(mut server) = servers.pop().filter(|_| problems.is_empty()) else {
            let reasons = problems.into_iter().map(|problem| problem.message).collect();
            return Err(CommandFailure::usage("the server cannot be added like that").reasons(reasons));
        };
        // A file is made to fit; whoever types a name chooses it, and no other.
        if server.name != self.name {
            return Err(CommandFailure::usage(format!("`{}` is no name for a server", self.name)).hint(format!(
                "letters, digits, `-`, `_` and `.`, beginning with a letter or digit: `{}` would be one",
                server.name
            )));
        }
        server.spec.namespace.clone_from(&self.namespace);
        server.spec.shareable = self.shareable;
        server.spec.fallbacks.clone_from(&self.fallbacks);
        offer(&mut server, &self.offers);
        let named =
            self.secrets.iter().map(|(name, secret)| (name.clone(), ServerSetting::Secret { secret: secret.clone() }));
        match &mut server.spec.reach {
            ServerReach::Stdio { env, permissions, .. } => {
                if self.no_inference {
                    permissions.clear();
                    server.grants.clear();
                }
                env.extend(named);
            }
            ServerReach::Http { headers, .. } | ServerReach::Sse { headers, .. } => headers.extend(named),
        }
        self.grants.apply(&mut server.spec)?;
        self.keeping.apply(&mut server.spec);
        Ok(server)
    }

    /// The block that an MCP client would have for it.
    fn block(&self) -> Value {
        let settings: Map<String, Value> =
            self.settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let entry = match (&self.url, self.command.split_first()) {
            (Some(url), _) => json!({ "url": url, "type": if self.sse { "sse" } else { "http" }, "headers": settings }),
            (None, Some((command, args))) => json!({ "command": command, "args": args, "env": settings }),
            (None, None) => json!({}),
        };
        let mut block = Map::new();
        block.insert(self.name.clone(), entry);
        json!({ "mcpServers": block })
    }
}

/// There is a server of that name.
fn is_there(name: &str, listed: &Value) -> CommandFailure {
    CommandFailure::new(format!("there is a server `{name}` already: {}", visible(&runs(listed)))).hint(format!(
        "`gantry server edit {name}` changes it, and `gantry server grant {name}` lets it touch more; --replace puts this one in its \
         place"
    ))
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| "write NAME=VALUE".to_owned())?;
    if name.is_empty() { Err("write NAME=VALUE".to_owned()) } else { Ok((name.to_owned(), value.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn nowhere() -> ThisMachine<'static> {
        static NOTHING: BTreeMap<String, String> = BTreeMap::new();
        ThisMachine { environment: &NOTHING, file: None, keeps_packages: false }
    }

    fn add() -> ServerAddCommand {
        ServerAddCommand {
            name: "files".into(),
            command: ["/bin/sh", "server.sh"].map(str::to_owned).to_vec(),
            url: None,
            fallbacks: Vec::new(),
            sse: false,
            settings: vec![("API_TOKEN".into(), "hunter2".into()), ("MODE".into(), "fast".into())],
            secrets: vec![("OTHER".into(), "other_credential".into())],
            grants: Grants { words: vec!["filesystem:read:/srv".into()], ..Grants::default() },
            no_inference: false,
            packages: PackageFlags::default(),
            namespace: Some("docs".into()),
            keeping: Keeping::default(),
            no_try: false,
            replace: false,
            shareable: false,
            offers: vec![ServerOffer::Prompts],
            tenant: None,
        }
    }

    #[test]
    fn a_server_by_hand_is_like_one_from_a_file() {
        let server = add().server(&nowhere()).unwrap();
        assert_eq!(server.spec.namespace.as_deref(), Some("docs"));
        assert!(server.spec.prompts && !server.spec.resources, "nothing is offered that was not named");
        let ServerReach::Stdio { env, permissions, .. } = &server.spec.reach else { panic!("a program") };
        assert_eq!(env.get("API_TOKEN"), Some(&ServerSetting::Secret { secret: "files_api_token".into() }));
        assert_eq!(env.get("OTHER"), Some(&ServerSetting::Secret { secret: "other_credential".into() }));
        assert_eq!(env.get("MODE"), Some(&ServerSetting::Plain("fast".into())));
        assert!(permissions.contains(&"filesystem:read:/srv".to_owned()));
        assert_eq!(server.secrets.len(), 1);
    }

    #[test]
    fn an_address_has_headers_and_no_permissions() {
        let far = || ServerAddCommand { url: Some("https://x.example/mcp".into()), command: Vec::new(), ..add() };
        assert!(far().server(&nowhere()).is_err());
        let server = ServerAddCommand { grants: Grants::default(), ..far() }.server(&nowhere()).unwrap();
        assert!(matches!(&server.spec.reach, ServerReach::Http { headers, .. } if headers.len() == 3));
        let wrong = ServerAddCommand { url: Some("nowhere".into()), grants: Grants::default(), ..far() };
        assert!(wrong.server(&nowhere()).unwrap_err().reasons.first().unwrap().contains("https://"));
        assert!(pair("x").is_err() && pair("=x").is_err());
    }
}
