//! `[upstreams]`: what tenants' administrators may put behind Gantry as MCP servers. (EXEC-011, decision 0045)
//!
//! Everything here gives: without a table, a tenant may name servers at public hosts by https on port 443. What operators of
//! the installation add themselves needs no table.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ::upstreams::{TenantList, TenantLists};
use contract::ids::TenantId;
use outbound::OpenedNetworks;
use serde::Deserialize;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

/// Tables at most.
const TABLES_MAX: usize = 1_000;
/// Every tenant without a table of its own.
const OTHERS: &str = "*";

const TENANTS: ConfigKey = ConfigKey {
    section: "upstreams",
    name: "tenants",
    kind: KeyKind::Tables,
    default: Some(""),
    unset: "",
    doc: "What administrators of a tenant may add as MCP servers besides servers at public hosts by https on port 443: \
          `[[upstreams.tenants]]` with a `tenant` (`*` is every one without a table of its own) and any of `commands`, programs \
          with the first of their arguments (`npx -y files@1.2.3`), and what these may be given: `variables` of the environment \
          by name, `paths`, `hosts`. `hosts` also opens addresses of servers, in the words of `[webhooks] allow`: \
          `mcp.example.com:8443`, `10.0.0.7:8443`, `http://127.0.0.1:9000`, `10.1.0.0/16`. What is not listed is refused: E3206, \
          for addresses E3406. More in [upstream-servers.md](upstream-servers.md#what-a-tenant-may-add).",
    since: "0.2",
};

const REREAD_SECONDS: ConfigKey = ConfigKey {
    section: "upstreams",
    name: "reread_seconds",
    kind: KeyKind::Integer(1..=86_400),
    default: Some("30"),
    unset: "",
    doc: "Seconds after which a server that shares its store reads MCP servers and what was accepted of them again without having \
          heard of a change. Word of a change comes at once; this is for words that were lost.",
    since: "0.3",
};

const PACKAGES_DIR: ConfigKey = ConfigKey {
    section: "upstreams",
    name: "packages_dir",
    kind: KeyKind::Text,
    default: None,
    unset: "`packages` in the data directory",
    doc: "Folder of the packages of npm and PyPI that MCP servers are started from, each installed once when its server is added. \
          Instances on several machines need the same packages: a folder that all of them see, or `gantry server update` on each.",
    since: "0.3",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&TENANTS, &REREAD_SECONDS, &PACKAGES_DIR];

/// Where packages are, if that is said.
pub(super) fn packages_dir(settings: &EffectiveSettings) -> Option<PathBuf> {
    settings.text(&PACKAGES_DIR).map(PathBuf::from)
}

/// How often what other instances have changed is read without a word of them.
pub(super) fn reread(settings: &EffectiveSettings) -> Duration {
    Duration::from_secs(settings.integer(&REREAD_SECONDS))
}

/// One table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    tenant: String,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    variables: Vec<String>,
    #[serde(default)]
    paths: Vec<PathBuf>,
    #[serde(default)]
    hosts: Vec<String>,
}

/// The section's values. Everything wrong is a problem, and a table with one is left out.
pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> TenantLists {
    let tables = settings.list(&TENANTS);
    if tables.len() > TABLES_MAX {
        problems.push(ConfigProblem::new("[[upstreams.tenants]]", format!("there are more than {TABLES_MAX}")));
    }
    let mut lists = TenantLists::default();
    let mut others = false;
    for (index, text) in tables.iter().take(TABLES_MAX).enumerate() {
        let twice = match one(text) {
            Ok((None, list)) => {
                lists.others = list;
                std::mem::replace(&mut others, true)
            }
            Ok((Some(tenant), list)) => lists.by_tenant.insert(tenant, list).is_some(),
            Err(wrong) => {
                problems.push(ConfigProblem::new(format!("[[upstreams.tenants]] number {}", index + 1), wrong));
                false
            }
        };
        if twice {
            let message = "there is another table for the same tenant";
            problems.push(ConfigProblem::new(format!("[[upstreams.tenants]] number {}", index + 1), message));
        }
    }
    lists
}

fn one(text: &str) -> Result<(Option<TenantId>, TenantList), String> {
    let table: Table = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let tenant = match table.tenant.as_str() {
        OTHERS => None,
        name => Some(name.parse::<TenantId>().map_err(|error| format!("`{name}`: {error}"))?),
    };
    if tenant.as_ref().is_some_and(TenantId::is_home) {
        return Err("the home tenant is the operator's own and needs no table".to_owned());
    }
    let climbs = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    if let Some(path) = table.paths.iter().find(|path| path.is_relative() || climbs(path)) {
        return Err(format!("`{}` must begin with `/` and not contain `..`", path.display()));
    }
    let words = |command: &String| command.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let commands: Vec<Vec<String>> = table.commands.iter().map(words).collect();
    if commands.iter().any(Vec::is_empty) {
        return Err("a command must name a program".to_owned());
    }
    let hosts = OpenedNetworks::read(table.hosts.iter().map(String::as_str))
        .map_err(|(text, error)| format!("`{text}`: {error}"))?;
    Ok((tenant, TenantList { commands, variables: table.variables, paths: table.paths, hosts }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::settings::ConfigFile;
    use super::*;

    fn lists(text: &str) -> (TenantLists, Vec<String>) {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
        let settings = EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()).unwrap();
        let mut problems = Vec::new();
        let lists = read(&settings, &mut problems);
        (lists, problems.iter().map(ToString::to_string).collect())
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
