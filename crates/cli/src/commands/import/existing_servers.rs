//! Servers that are there already by the names of those that are brought in: what is the same stays as it is, and what differs is
//! replaced only by somebody who says so. What people have given a server since (a host, a variable) makes no other one of it.
//!
//! Not here: refusing by the door. A `PUT` of a server stays one, the same as often as it comes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contract::ids::TenantId;
use serde_json::{Value, json};
use upstreams::import::{ImportedSecret, ImportedServer};
use upstreams::plain_secrets;
use upstreams::spec::{ServerReach, ServerSetting, ServerSpec};

use super::package_step::is_here;
use super::server_intake::in_tenant;
use crate::client::ServerClient;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::secret_file;

/// How a server stands to the one of its name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServerStanding {
    /// There is none.
    New,
    /// There is the same.
    Same(Box<Value>),
    /// There is one that differs in these.
    Other { listed: Box<Value>, in_what: Vec<&'static str> },
}

/// The servers of a tenant.
#[derive(Debug, Default)]
pub(crate) struct ExistingServers {
    by_name: BTreeMap<String, Value>,
    /// Where the values of its credentials are, if they are on this machine.
    secrets: Option<PathBuf>,
}

impl ExistingServers {
    pub(crate) async fn of(
        context: &CommandContext,
        client: &ServerClient,
        tenant: Option<&TenantId>,
    ) -> Result<Self, CommandFailure> {
        let answer = client.get(&format!("/v1/servers{}", in_tenant(tenant))).await?;
        let listed = answer.get("servers").and_then(Value::as_array).into_iter().flatten();
        let by_name = listed.filter_map(|one| Some((one.get("name")?.as_str()?.to_owned(), one.clone()))).collect();
        let secrets = if is_here(context) {
            let home = TenantId::home();
            let folder = context.config(Vec::new())?.secrets.dir(context.data_dir().path());
            Some(folder.join(tenant.unwrap_or(&home).as_str()))
        } else {
            None
        };
        Ok(Self { by_name, secrets })
    }

    /// The server of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Value> {
        self.by_name.get(name)
    }

    /// How this server stands to the one of its name.
    pub(crate) fn standing(&self, server: &ImportedServer) -> ServerStanding {
        let Some(listed) = self.named(&server.name) else { return ServerStanding::New };
        let spec: Option<ServerSpec> = listed.get("spec").and_then(|spec| serde_json::from_value(spec.clone()).ok());
        let mut in_what = match &spec {
            Some(known) => differences(known, server),
            None => vec!["a description that this release cannot read"],
        };
        if server.secrets.iter().any(|secret| self.is_other_value(secret)) {
            in_what.push("the value of a secret");
        }
        let listed = Box::new(listed.clone());
        if in_what.is_empty() { ServerStanding::Same(listed) } else { ServerStanding::Other { listed, in_what } }
    }

    /// Is another value kept for this credential? What cannot be read is one.
    fn is_other_value(&self, secret: &ImportedSecret) -> bool {
        let (Some(folder), Some(value)) = (&self.secrets, &secret.value) else { return false };
        let kept = secret_file::read(&folder.join(&secret.name)).ok().flatten();
        kept.is_none_or(|kept| kept.text.trim_end_matches(['\r', '\n']) != value.trim_end_matches(['\r', '\n']))
    }
}

/// What runs or is reached, of a server as it is listed, without what looks like a secret.
pub(crate) fn runs(listed: &Value) -> String {
    let mut listed = json!({ "spec": listed.get("spec") });
    if let Some(spec) = listed.get_mut("spec") {
        plain_secrets::take_out(spec);
    }
    let texts = |pointer: &str| {
        let words = listed.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let text = |pointer: &str| listed.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (written, args) = (texts("/spec/reach/package/written"), texts("/spec/reach/args"));
    let words: Vec<String> = if written.is_empty() {
        let program = text("/spec/reach/command").or_else(|| text("/spec/reach/url"));
        program.into_iter().chain(args).collect()
    } else {
        // A package of PyPI is started by its script, which stands before the server's own arguments.
        let leading = usize::from(text("/spec/reach/package/registry").as_deref() == Some("pypi"));
        written.into_iter().chain(args.into_iter().skip(leading)).collect()
    };
    words.join(" ")
}

/// In what the server that is wanted differs from the known one. What the known one has besides does not count.
fn differences(known: &ServerSpec, server: &ImportedServer) -> Vec<&'static str> {
    let wanted = &server.spec;
    let mut found = Vec::new();
    match (&known.reach, &wanted.reach) {
        (
            ServerReach::Stdio { command, args, cwd, env, permissions, package },
            ServerReach::Stdio {
                command: its_command,
                args: its_args,
                cwd: its_cwd,
                env: its_env,
                permissions: its_permissions,
                package: _,
            },
        ) => {
            let is_package = package.is_some() || server.package.is_some();
            let (is_program, is_args) = match (package, &server.package) {
                (Some(pin), Some(request)) => {
                    let own = args.get(pin.registry.leading_args()..).unwrap_or_default();
                    let its_own = its_args.get(request.written.len().saturating_sub(1)..).unwrap_or_default();
                    (pin.registry == request.registry && pin.written == request.written, own == its_own)
                }
                (None, None) => (command == its_command, args == its_args),
                _ => (false, true),
            };
            found.extend((!is_program).then_some(if is_package { "the package" } else { "the program" }));
            found.extend((!is_args).then_some("the arguments"));
            found.extend((cwd != its_cwd).then_some("the folder it starts in"));
            // Where a package is installed, its own path is inferred.
            let is_inferred = |name: &str| is_package && name == "PATH";
            let has_all = its_env.iter().all(|(name, setting)| is_inferred(name) || env.get(name) == Some(setting));
            found.extend((!has_all).then_some("the variables"));
            let is_granted = its_permissions.iter().all(|word| permissions.contains(word));
            found.extend((!is_granted).then_some("what it may touch"));
        }
        (ServerReach::Http { url, headers, .. }, ServerReach::Http { url: its_url, headers: its_headers, .. })
        | (ServerReach::Sse { url, headers, .. }, ServerReach::Sse { url: its_url, headers: its_headers, .. }) => {
            found.extend((url != its_url).then_some("the address"));
            let has_all = |(name, setting): (&String, &ServerSetting)| headers.get(name) == Some(setting);
            found.extend((!its_headers.iter().all(has_all)).then_some("the headers"));
        }
        _ => found.push("how it is reached"),
    }
    found.extend((known.disabled != wanted.disabled).then_some("whether it is switched off"));
    let offers_less = (wanted.resources && !known.resources) || (wanted.prompts && !known.prompts);
    found.extend(offers_less.then_some("what it offers"));
    found
}

#[cfg(test)]
mod tests {
    use upstreams::import::{ImportedFile, read};

    use super::*;
    use crate::commands::import::ThisMachine;

    fn wanted(entry: &Value, keeps_packages: bool) -> ImportedServer {
        let file = json!({ "mcpServers": { "a": entry } }).to_string();
        let nothing = BTreeMap::new();
        let ImportedFile { mut servers, problems, .. } =
            read(&file, &ThisMachine { environment: &nothing, file: None, keeps_packages });
        assert_eq!(problems, []);
        servers.pop().unwrap()
    }

    fn existing(spec: &Value) -> ExistingServers {
        let by_name = BTreeMap::from([("a".to_owned(), json!({ "name": "a", "spec": spec }))]);
        ExistingServers { by_name, secrets: None }
    }

    fn differs(existing: &ExistingServers, entry: &Value) -> Vec<&'static str> {
        match existing.standing(&wanted(entry, true)) {
            ServerStanding::Other { in_what, .. } => in_what,
            ServerStanding::Same(_) => Vec::new(),
            ServerStanding::New => panic!("it is there"),
        }
    }

    #[test]
    fn what_was_given_to_a_server_since_makes_no_other_one_of_it() {
        let entry = json!({ "command": "/bin/sh", "args": ["x.sh"], "env": { "MODE": "fast" } });
        let mut spec = json!(wanted(&entry, true).spec);
        assert_eq!(differs(&existing(&spec), &entry), [""; 0]);
        spec["reach"]["env"]["API_TOKEN"] = json!({ "secret": "a_api_token" });
        spec["reach"]["permissions"] = json!(["network:https://x.example"]);
        spec["upkeep"] = json!({ "start_timeout_seconds": 600 });
        let given = existing(&spec);
        assert_eq!(differs(&given, &entry), [""; 0]);
        let other = json!({ "command": "/bin/sh", "args": ["y.sh"], "env": { "MODE": "slow" }, "disabled": true });
        assert_eq!(differs(&given, &other), ["the arguments", "the variables", "whether it is switched off"]);
        assert_eq!(differs(&given, &json!({ "url": "https://x.example/mcp" })), ["how it is reached"]);
        assert_eq!(ExistingServers::default().standing(&wanted(&entry, true)), ServerStanding::New);
    }

    #[test]
    fn a_package_is_the_same_by_the_words_that_named_it() {
        let pin = |words: &[&str]| {
            json!({ "registry": "pypi", "name": "x", "version": "1.0", "digest": format!("sha256:{}", "ab".repeat(32)),
            "written": words })
        };
        let installed = existing(
            &json!({ "reach": { "type": "stdio", "command": "/tool/bin/python", "args": ["/tool/bin/x", "--flag"],
            "env": { "PATH": "/tool/bin:/bin" }, "permissions": ["filesystem:read:/opt/python"], "package": pin(&["uvx", "x"]) } }),
        );
        assert_eq!(differs(&installed, &json!({ "command": "uvx", "args": ["x", "--flag"] })), [""; 0]);
        assert_eq!(differs(&installed, &json!({ "command": "uvx", "args": ["x", "--other"] })), ["the arguments"]);
        assert_eq!(differs(&installed, &json!({ "command": "uvx", "args": ["x==2", "--flag"] })), ["the package"]);
        assert_eq!(runs(installed.named("a").unwrap()), "uvx x --flag");
    }

    #[test]
    fn another_value_of_a_secret_is_another_server() {
        let dir = tempfile::tempdir().unwrap();
        let entry = json!({ "command": "/bin/sh", "env": { "API_TOKEN": "hunter2" } });
        let spec = json!(wanted(&entry, true).spec);
        let here = ExistingServers { secrets: Some(dir.path().to_owned()), ..existing(&spec) };
        assert_eq!(differs(&here, &entry), ["the value of a secret"], "none is kept");
        secret_file::write(&dir.path().join("a_api_token"), "hunter2").unwrap();
        assert_eq!(differs(&here, &entry), [""; 0]);
        secret_file::write(&dir.path().join("a_api_token"), "hunter3").unwrap();
        assert_eq!(differs(&here, &entry), ["the value of a secret"]);
    }
}
