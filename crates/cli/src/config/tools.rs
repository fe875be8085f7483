//! `[tools]`: folders with tools. How tools are shown to models is said here, too, and is for the MCP door (`mcp`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use contract::ids::TenantId;
use schemars::JsonSchema;
use serde::Deserialize;
use server::{McpConfig, ToolExposure};

use super::paths::{ControlPath, NamedControlPath};
use super::problems::SectionProblems;
use super::section::ConfigSection;

/// Folders with tools, and how tools are shown to models.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct ToolsKeys {
    /// Folders to load tools from and to watch: each is a tool folder itself or contains tool folders. In the environment
    /// separated by commas. Flag: `--tools` (repeatable; replaces this list).
    pub(super) dirs: Vec<ControlPath>,
    /// Which tenants may run process, WASM and OCI tools of their own, and from where: `acme=/srv/acme/tools` loads and
    /// watches this folder as `dirs` are, and what is in it are tools of tenant `acme`, which nobody else sees. A tenant
    /// may stand several times. What is not listed here does not run: a manifest that a tenant registers brings no code,
    /// and a folder whose version was published with another manifest than its own is not taken. What the manifests in the
    /// folder declare (paths, hosts, credentials) is given as to any tool: put nobody else's manifests there. In the
    /// environment separated by commas.
    pub(super) tenants: Vec<NamedControlPath>,
    /// How MCP clients see tools: `all` lists each of them, `lazy` lists three that search, describe and call the others,
    /// `auto` is `all` until the list is too long (`[mcp] auto_tools_max`, `auto_tokens_max`).
    pub(super) exposure: ToolExposure,
}

impl Default for ToolsKeys {
    fn default() -> Self {
        Self { dirs: Vec::new(), tenants: Vec::new(), exposure: McpConfig::default().exposure }
    }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct ToolsSection {
    pub(crate) dirs: Vec<PathBuf>,
    /// Folders with tools of tenants.
    pub(crate) tenants: BTreeMap<TenantId, Vec<PathBuf>>,
    /// For the MCP door.
    pub(super) exposure: ToolExposure,
}

impl ConfigSection for ToolsKeys {
    const NAME: &'static str = "tools";
    type Checked = ToolsSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> ToolsSection {
        let mut tenants: BTreeMap<TenantId, Vec<PathBuf>> = BTreeMap::new();
        for (tenant, dir) in problems.each_with("tenants", &self.tenants, tenant_folder) {
            tenants.entry(tenant).or_default().push(dir);
        }
        ToolsSection { dirs: self.dirs.into_iter().map(Into::into).collect(), tenants, exposure: self.exposure }
    }
}

fn tenant_folder(text: &str) -> Result<(TenantId, PathBuf), String> {
    let Some((tenant, dir)) = text.split_once('=').filter(|(_, dir)| !dir.is_empty()) else {
        return Err("write `TENANT=DIR`, for example `acme=/srv/acme/tools`".to_owned());
    };
    let tenant: TenantId = tenant.trim().parse().map_err(|error| format!("{error}"))?;
    if tenant.is_home() {
        return Err("tools of the home tenant are the shared catalogue: put the folder into `dirs`".to_owned());
    }
    Ok((tenant, PathBuf::from(dir.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_folder_is_a_tenant_and_a_folder() {
        assert_eq!(tenant_folder("acme=/srv/a=b"), Ok(("acme".parse().unwrap(), PathBuf::from("/srv/a=b"))));
        for (text, word) in
            [("acme", "TENANT=DIR"), ("acme=", "TENANT=DIR"), ("local=/x", "`dirs`"), ("=/x", "must be")]
        {
            assert!(tenant_folder(text).unwrap_err().contains(word), "{text}");
        }
    }
}
