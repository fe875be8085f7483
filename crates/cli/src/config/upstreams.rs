//! `[upstreams]`: what tenants' administrators may put behind Gantry as MCP servers. (EXEC-011, decision 0045)
//!
//! Everything here gives: without a table, a tenant may name servers at public hosts by https on port 443. What operators of
//! the installation add themselves needs no table.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ::upstreams::{TenantList, TenantLists};
use contract::ids::TenantId;
use outbound::OpenedNetworks;
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::{AbsoluteBoundPath, ControlPath};
use super::problems::SectionProblems;
use super::section::ConfigSection;
use super::tables::ConfigTables;

/// Tables at most.
const TABLES_MAX: usize = 1_000;
/// Every tenant without a table of its own.
const OTHERS: &str = "*";

/// What tenants' administrators may put behind Gantry as MCP servers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.3"))]
pub(crate) struct UpstreamsKeys {
    /// What administrators of a tenant may add as MCP servers besides servers at public hosts by https on port 443:
    /// `[[upstreams.tenants]]` with a `tenant` (`*` is every one without a table of its own) and any of `commands`,
    /// programs with the first of their arguments (`npx -y files@1.2.3`), and what these may be given: `variables` of the
    /// environment by name, `paths`, `hosts`. `hosts` also opens addresses of servers, in the words of `[webhooks] allow`:
    /// `mcp.example.com:8443`, `10.0.0.7:8443`, `http://127.0.0.1:9000`, `10.1.0.0/16`. What is not listed is refused:
    /// E3206, for addresses E3406. More in [upstream-servers.md](upstream-servers.md#what-a-tenant-may-add).
    #[schemars(extend("x-since" = "0.2"))]
    pub(super) tenants: ConfigTables<TenantTable>,
    /// Seconds after which a server that shares its store reads MCP servers and what was accepted of them again without
    /// having heard of a change. Word of a change comes at once; this is for words that were lost.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) reread_seconds: u64,
    /// Folder of the packages of npm and PyPI that MCP servers are started from, each installed once when its server is
    /// added. Instances on several machines need the same packages: a folder that all of them see, or `gantry server
    /// update` on each.
    #[schemars(extend("x-unset" = "`packages` in the data directory"))]
    // ['What is in it runs as a server.']
    pub(super) packages_dir: Option<ControlPath>,
}

impl Default for UpstreamsKeys {
    fn default() -> Self {
        Self { tenants: ConfigTables::default(), reread_seconds: 30, packages_dir: None }
    }
}

/// One table of a tenant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantTable {
    /// The tenant; `*` is every one without a table of its own.
    tenant: String,
    /// Programs with the first of their arguments: `npx -y files@1.2.3`.
    // Compared word by word with what a tenant asks for; the programs are the machine's.
    #[serde(default)]
    commands: Vec<String>,
    /// Variables of the environment that programs may be given, by name.
    #[serde(default)]
    variables: Vec<String>,
    /// Paths that programs may be given.
    #[serde(default)]
    paths: Vec<AbsoluteBoundPath>,
    /// Hosts that programs may be given, and addresses of servers, in the words of `[webhooks] allow`.
    #[serde(default)]
    hosts: Vec<String>,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct UpstreamsSection {
    /// What tenants may put behind this server.
    pub(crate) lists: TenantLists,
    /// How often what other instances have changed is read without a word of them.
    pub(crate) reread: Duration,
    packages_dir: Option<PathBuf>,
}

impl ConfigSection for UpstreamsKeys {
    const NAME: &'static str = "upstreams";
    type Checked = UpstreamsSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> UpstreamsSection {
        const PLACE: &str = "[[upstreams.tenants]]";
        let mut lists = TenantLists::default();
        let mut others = false;
        for (number, (tenant, list)) in self.tenants.each(PLACE, TABLES_MAX, problems, one) {
            let is_second = match tenant {
                None => {
                    lists.others = list;
                    std::mem::replace(&mut others, true)
                }
                Some(tenant) => lists.by_tenant.insert(tenant, list).is_some(),
            };
            if is_second {
                let message = "there is another table for the same tenant";
                problems.at_place(format!("{PLACE} number {number}"), message);
            }
        }
        UpstreamsSection {
            lists,
            reread: Duration::from_secs(self.reread_seconds),
            packages_dir: self.packages_dir.map(Into::into),
        }
    }
}

impl UpstreamsSection {
    /// Where packages are installed that MCP servers are started from.
    pub(crate) fn packages_dir(&self, data_dir: &Path) -> PathBuf {
        self.packages_dir.clone().unwrap_or_else(|| data_dir.join("packages"))
    }
}

fn one(table: TenantTable) -> Result<(Option<TenantId>, TenantList), String> {
    let tenant = match table.tenant.as_str() {
        OTHERS => None,
        name => Some(name.parse::<TenantId>().map_err(|error| format!("`{name}`: {error}"))?),
    };
    if tenant.as_ref().is_some_and(TenantId::is_home) {
        return Err("the home tenant is the operator's own and needs no table".to_owned());
    }
    let climbs = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    let paths: Vec<PathBuf> = table.paths.into_iter().map(Into::into).collect();
    if let Some(path) = paths.iter().find(|path| path.is_relative() || climbs(path)) {
        return Err(format!("`{}` must begin with `/` and not contain `..`", path.display()));
    }
    let words = |command: &String| command.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let commands: Vec<Vec<String>> = table.commands.iter().map(words).collect();
    if commands.iter().any(Vec::is_empty) {
        return Err("a command must name a program".to_owned());
    }
    let hosts = OpenedNetworks::read(table.hosts.iter().map(String::as_str))
        .map_err(|(text, error)| format!("`{text}`: {error}"))?;
    Ok((tenant, TenantList { commands, variables: table.variables, paths, hosts }))
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_file;
    use super::*;

    fn lists(text: &str) -> (TenantLists, Vec<String>) {
        let (section, problems) = of_file::<UpstreamsKeys>(text);
        (section.lists, problems)
    }

    #[test]
    fn without_a_table_nothing_is_given() {
        assert_eq!(lists(""), (TenantLists::default(), Vec::new()));
    }

    #[test]
    fn each_tenant_has_its_own_table() {
        let text = "[[upstreams.tenants]]\ntenant = 'acme'\ncommands = ['npx  -y files@1']\nvariables = ['LOG']\n\
                    paths = ['/srv/acme']\nhosts = ['http://127.0.0.1:9000']\n[[upstreams.tenants]]\ntenant = '*'\n";
        let (lists, problems) = lists(text);
        assert!(problems.is_empty(), "{problems:?}");
        let acme = &lists.by_tenant[&"acme".parse().unwrap()];
        assert_eq!(acme.commands, [["npx", "-y", "files@1"]]);
        assert_eq!((acme.variables.len(), acme.paths.len(), acme.hosts.rules().len()), (1, 1, 1));
        assert_eq!(lists.others, TenantList::default());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (table, word) in [
            ("commands = ['x']", "missing field `tenant`"),
            ("tenant = 'local'", "the home tenant"),
            ("tenant = 'acme'\npaths = ['srv']", "must begin with `/`"),
            ("tenant = 'acme'\npaths = ['/srv/../etc']", "not contain `..`"),
            ("tenant = 'acme'\ncommands = [' ']", "must name a program"),
            ("tenant = 'acme'\nhosts = ['host:0']", "`host:0`: the port"),
            ("tenant = 'acme'\ncomands = ['x']", "unknown field `comands`"),
            ("tenant = 'acme'\n[[upstreams.tenants]]\ntenant = 'acme'", "another table"),
        ] {
            let (_, problems) = lists(&format!("[[upstreams.tenants]]\n{table}"));
            assert!(problems.len() == 1 && problems[0].contains(word), "{table}: {problems:?}");
        }
    }
}
