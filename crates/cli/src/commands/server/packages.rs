//! `gantry server packages`: what is installed for servers, how much room it takes, who uses it; and taking away what nobody does.

use std::collections::BTreeMap;

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Value, json};

use crate::commands::import::package_step::{cache, is_here};
use crate::commands::import::server_intake::in_tenant;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::package_cache::CachedPackage;
use crate::printer::Printer;

/// List the packages that servers are started from, or take away those that none is
#[derive(Debug, Args)]
pub(crate) struct ServerPackagesCommand {
    /// Take away what no server of any tenant uses
    #[arg(long)]
    prune: bool,
}

impl ServerPackagesCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        if !is_here(context) {
            return Err(CommandFailure::new(
                "packages are where Gantry runs, and this one runs on another data directory",
            )
            .hint("run this where that Gantry runs, with its --data-dir"));
        }
        let cache = cache(context)?;
        let guard = if self.prune { Some(cache.alone()?) } else { None };
        if matches!(guard, Some(None)) {
            return Err(CommandFailure::new("a server is being added, whose package nobody uses yet")
                .hint("do this again when it is done"));
        }
        let users = users(context).await?;
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        for package in cache.list()? {
            let servers = users.get(&key(&package)).cloned().unwrap_or_default();
            if self.prune && servers.is_empty() {
                cache.remove(&package)?;
                removed.push(package);
            } else {
                kept.push((package, servers));
            }
        }
        let freed: u64 = removed.iter().map(|package| package.bytes).sum();
        let document = json!({
            "packages": kept.iter().map(|(package, servers)| document(package, servers)).collect::<Vec<_>>(),
            "removed": removed.iter().map(|package| document(package, &[])).collect::<Vec<_>>(),
        });
        context.printer.answer(&document, |printer| table(printer, &kept));
        if self.prune {
            context.printer.note(&format!("{} taken away, {}", removed.len(), size(freed)));
        }
        Ok(())
    }
}

/// What tells one installed package from every other.
type PackageKey = (String, String, String);

fn key(package: &CachedPackage) -> PackageKey {
    (package.name.clone(), package.version.clone(), package.digest.clone())
}

/// Which servers use which package. All tenants are asked: what one of them cannot answer for is no reason to take it away.
async fn users(context: &CommandContext) -> Result<BTreeMap<PackageKey, Vec<String>>, CommandFailure> {
    let client = context.client()?;
    let answer = client.get("/v1/tenants").await?;
    let listed = answer.get("tenants").and_then(Value::as_array).into_iter().flatten();
    let mut tenants: Vec<TenantId> = Vec::new();
    for tenant in listed {
        let id = tenant.get("tenant_id").and_then(Value::as_str).and_then(|id| id.parse().ok());
        tenants.push(id.ok_or_else(|| CommandFailure::new("the list of tenants cannot be read by this release"))?);
    }
    if !tenants.iter().any(TenantId::is_home) {
        tenants.push(TenantId::home());
    }
    let mut users: BTreeMap<PackageKey, Vec<String>> = BTreeMap::new();
    for tenant in tenants {
        let answer = client.get(&format!("/v1/servers{}", in_tenant(Some(&tenant)))).await?;
        for server in answer.get("servers").and_then(Value::as_array).into_iter().flatten() {
            let text = |pointer: &str| server.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let package = ["name", "version", "digest"].map(|member| text(&format!("/spec/reach/package/{member}")));
            let ([Some(package), Some(version), Some(digest)], Some(name)) = (package, text("/name")) else { continue };
            let name = if tenant.is_home() { name } else { format!("{tenant}/{name}") };
            users.entry((package, version, digest)).or_default().push(name);
        }
    }
    Ok(users)
}

fn document(package: &CachedPackage, servers: &[String]) -> Value {
    json!({ "registry": package.registry, "name": package.name, "version": package.version, "digest": package.digest,
        "bytes": package.bytes, "install_scripts": package.scripts, "servers": servers })
}

fn table(printer: &Printer, packages: &[(CachedPackage, Vec<String>)]) -> String {
    if packages.is_empty() {
        return "no packages; `gantry server add NAME -- npx -y PACKAGE` installs one".to_owned();
    }
    let rows = packages.iter().map(|(package, servers)| {
        let used = if servers.is_empty() { "none: --prune takes it away".to_owned() } else { servers.join(", ") };
        let (registry, name) = (package.registry.as_str().to_owned(), package.name.clone());
        [registry, name, package.version.clone(), size(package.bytes), used]
    });
    printer.table(["REGISTRY", "PACKAGE", "VERSION", "SIZE", "USED BY"], rows)
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}
