//! `[tools]`: folders with tools. How tools are shown to models is read with the rest of the MCP door (`mcp`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use contract::ids::TenantId;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

/// Where tools are.
pub(crate) const DIRS: ConfigKey = ConfigKey {
    section: "tools",
    name: "dirs",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Folders to load tools from and to watch: each is a tool folder itself or contains tool folders. In the \
          environment separated by commas. Flag: `--tools` (repeatable; replaces this list).",
    since: "0.1",
};

/// Which tenants may run tools of their own.
const TENANTS: ConfigKey = ConfigKey {
    section: "tools",
    name: "tenants",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Which tenants may run process, WASM and OCI tools of their own, and from where: `acme=/srv/acme/tools` loads and \
          watches this folder as `dirs` are, and what is in it are tools of tenant `acme`, which nobody else sees. A tenant \
          may stand several times. What is not listed here does not run: a manifest that a tenant registers brings no code, and \
          a folder whose version was published with another manifest than its own is not taken. What the manifests in the \
          folder declare (paths, hosts, credentials) is given as to any tool: put nobody else's manifests there. In the environment separated by commas.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&DIRS, &TENANTS, &super::mcp::EXPOSURE];

/// The section's values.
#[derive(Debug)]
pub(crate) struct ToolsSection {
    pub(crate) dirs: Vec<PathBuf>,
    /// Folders with tools of tenants.
    pub(crate) tenants: BTreeMap<TenantId, Vec<PathBuf>>,
}

impl ToolsSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        let mut tenants: BTreeMap<TenantId, Vec<PathBuf>> = BTreeMap::new();
        for text in settings.list(&TENANTS) {
            match tenant_folder(text) {
                Ok((tenant, dir)) => tenants.entry(tenant).or_default().push(dir),
                Err(wrong) => problems.push(ConfigProblem::new(TENANTS.title(), format!("`{text}`: {wrong}"))),
            }
        }
        Self { dirs: settings.list(&DIRS).iter().map(PathBuf::from).collect(), tenants }
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
