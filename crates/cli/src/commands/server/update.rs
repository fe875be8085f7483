//! `gantry server update`: the package of a server anew, in the newest version of its own words or in another one. What the
//! server says about its tools then is compared with what was accepted, as at every start.

use clap::Args;
use contract::ids::TenantId;
use serde_json::json;
use upstreams::import::package_request::{self, PackageRequest};
use upstreams::import::registry_permissions;
use upstreams::spec::{ServerReach, ServerSpec};

use super::edit::{changed, current};
use crate::commands::CommandOutcome;
use crate::commands::import::package_step::is_here;
use crate::commands::import::server_intake::{ImportManner, bring_in, conclude};
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Install the package of a server anew, and start it from that
///
/// Without a version it is the newest one that its words allow: `npx -y name` gets
/// what is newest now. A server that fetches its package at each start gets one that
/// is installed.
///
/// gantry server update files
/// gantry server update files --to 2026.8.31
/// gantry server update weather --with 'mcp<2'
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ServerUpdateCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Another version; `latest` is the newest
    #[arg(long = "to", value_name = "VERSION")]
    version: Option<String>,
    /// A package of PyPI beside it, by which a version of something that it needs can be chosen: `mcp<2` (repeatable)
    #[arg(long = "with", value_name = "PACKAGE")]
    beside: Vec<String>,
    /// Let the package run its install scripts, and be built, as you and outside of every sandbox
    #[arg(long)]
    allow_install_scripts: bool,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl ServerUpdateCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        if !is_here(context) {
            return Err(CommandFailure::new(
                "packages are installed where Gantry runs, and this one runs on another data directory",
            )
            .hint("run this where that Gantry runs, with its --data-dir"));
        }
        let mut spec = current(context, &self.name, self.tenant.as_ref()).await?;
        let request = self.request(&spec)?;
        if let ServerReach::Stdio { args, permissions, package: None, .. } = &mut spec.reach {
            self.name_in(args, &request);
            // Nothing is fetched any more when it starts.
            let registry = registry_permissions(request.registry);
            permissions.retain(|word| !registry.contains(word));
        }
        let mut server = changed(self.name, spec, Vec::new());
        server.package = Some(request);
        let manner = ImportManner { tenant: self.tenant.as_ref(), tried: true, scripts: self.allow_install_scripts };
        let brought = bring_in(context, vec![server], manner).await?;
        Ok(conclude(context, &brought, json!({})))
    }

    /// Puts the words of the request in place of those that a server has which is started by its runner.
    fn name_in(&self, args: &mut Vec<String>, request: &PackageRequest) {
        let words = request.written.get(1..).unwrap_or_default();
        // Each `--with` is two words more.
        let former = words.len().saturating_sub(2 * self.beside.len()).min(args.len());
        args.splice(..former, words.iter().cloned());
    }

    /// What is to be installed.
    fn request(&self, spec: &ServerSpec) -> Result<PackageRequest, CommandFailure> {
        let none = || {
            CommandFailure::new(format!("`{}` is not started from a package of npm or PyPI", self.name))
                .hint("`gantry server show` says what it runs")
        };
        let ServerReach::Stdio { command, args, package, .. } = &spec.reach else { return Err(none()) };
        let read = match package {
            Some(pin) => {
                let (runner, words) = pin.written.split_first().ok_or_else(none)?;
                package_request::read(runner, words)
            }
            None => package_request::read(command, args),
        };
        let request = read.ok_or_else(none)?.map_err(CommandFailure::new)?;
        let with = |request: PackageRequest, package: &String| {
            request.with_package(package).map_err(|why| CommandFailure::usage(format!("--with: {why}")))
        };
        let request = self.beside.iter().try_fold(request, with)?;
        let Some(version) = &self.version else { return Ok(request) };
        request.with_version(version).ok_or_else(|| {
            CommandFailure::usage(format!("--to: `{version}` is no version, or the package is a file of this machine"))
                .hint("write a version such as `1.2.3`, or `latest`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(version: Option<&str>) -> ServerUpdateCommand {
        let version = version.map(str::to_owned);
        ServerUpdateCommand {
            name: "x".into(),
            version,
            beside: Vec::new(),
            allow_install_scripts: false,
            tenant: None,
        }
    }

    fn spec(reach: &serde_json::Value) -> ServerSpec {
        serde_json::from_value(json!({ "reach": reach })).unwrap()
    }

    #[test]
    fn what_is_installed_follows_from_the_words_that_named_the_package() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let pinned = spec(&json!({ "type": "stdio", "command": "/tool/node_modules/.bin/x", "package":
            { "registry": "npm", "name": "x", "version": "1.0.0", "digest": digest, "written": ["npx", "-y", "x@^1"] } }));
        let fetched = spec(&json!({ "type": "stdio", "command": "/usr/bin/uvx", "args": ["y", "--flag"] }));
        assert_eq!(update(None).request(&pinned).unwrap().packages, ["x@^1"]);
        let newer = update(Some("2.0.0")).request(&pinned).unwrap();
        assert_eq!((newer.packages.join(" "), newer.written.join(" ")), ("x@2.0.0".into(), "npx -y x@2.0.0".into()));
        assert_eq!(update(None).request(&fetched).unwrap().packages, ["y"]);
        assert!(update(Some("a b")).request(&pinned).is_err());
        let beside = |package: &str| ServerUpdateCommand { beside: vec![package.into()], ..update(None) };
        let older = beside("mcp>=1.2,<2").request(&fetched).unwrap();
        assert_eq!(older.packages, ["y", "mcp>=1.2,<2"]);
        assert_eq!(older.written.join(" "), "uvx --with mcp>=1.2,<2 y");
        let mut args = ["y", "--flag"].map(str::to_owned).to_vec();
        beside("mcp>=1.2,<2").name_in(&mut args, &older);
        assert_eq!(args, ["--with", "mcp>=1.2,<2", "y", "--flag"], "the server's own stay behind them");
        assert!(beside("mcp<2").request(&pinned).unwrap_err().message.contains("only packages of PyPI"));
        assert!(beside("../x").request(&fetched).unwrap_err().message.starts_with("--with: "));
        let plain = spec(&json!({ "type": "stdio", "command": "/usr/bin/node", "args": ["x.js"] }));
        let far = spec(&json!({ "type": "http", "url": "https://x.example" }));
        for other in [plain, far] {
            assert!(update(None).request(&other).unwrap_err().message.contains("not started from a package"));
        }
    }
}
