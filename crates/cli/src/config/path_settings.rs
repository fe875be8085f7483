//! The settings that name files and folders of this machine: all of them, with what each is to the server.
//!
//! Two things follow from this list and from nothing else: which places are kept from tools (`reach`), and which values are
//! resolved against the folder of the configuration file they stand in. A test demands of every key that takes a text that it is
//! listed here or said to be no path, so that a new one cannot be forgotten.
//!
//! Invariants
//! - PATHS-1: what a configuration file says is the same wherever the server is started: a relative path in it is one in the
//!   folder of the file. In the environment and in flags it is one in the working directory.
//! - PATHS-2: a value without a path stays as it is, byte for byte.
//!
//! Not here: `--data-dir` and `--config`, which are no settings; what a tool may be given (`executors::confinement`).

use std::path::{Path, PathBuf};

use store::postgres;

use super::key::{ConfigKey, KeyValue};
use super::settings::{EffectiveSettings, all_keys};

/// What a file or folder is to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathRole {
    /// It holds what is the server's own: records, secrets, private keys. No tool is given it, nor sees a folder that has it.
    Private,
    /// It decides what the server does, runs or trusts. It is no secret, but who may write it may do everything.
    Control,
    /// It bounds what tools are given and is no place of the server's.
    Bound,
}

/// Where in a value the paths are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathShape {
    /// The text, or each text of the list.
    Text,
    /// The same, and the section refuses what does not begin with `/`.
    AbsoluteText,
    /// What stands behind the first `=` of each text.
    AfterEquals,
    /// `sqlite:PATH`.
    SqliteAddress,
    /// `sslrootcert=FILE` in the address of a database.
    DatabaseRoots,
    /// A member of each table.
    Member(&'static str),
    /// The same, and the section refuses what does not begin with `/`.
    AbsoluteMember(&'static str),
}

/// One place in the configuration that names files.
struct PathSetting {
    section: &'static str,
    name: &'static str,
    shape: PathShape,
    role: PathRole,
}

const fn setting(section: &'static str, name: &'static str, shape: PathShape, role: PathRole) -> PathSetting {
    PathSetting { section, name, shape, role }
}

use PathRole::{Bound, Control, Private};
use PathShape::{AbsoluteMember, AbsoluteText, AfterEquals, DatabaseRoots, Member, SqliteAddress, Text};

/// All of them, in the order of the reference page.
const PATH_SETTINGS: &[PathSetting] = &[
    setting("server", "tls_cert", Text, Control),
    setting("server", "tls_key", Text, Private),
    setting("server", "tls_client_ca", Text, Control),
    setting("store", "url", SqliteAddress, Private),
    setting("store", "url", DatabaseRoots, Control),
    setting("store", "seal_key_file", Text, Private),
    setting("identity", "trusted_keys", Text, Control),
    setting("identity", "jwks_file", Text, Control),
    setting("policy", "file", Text, Control),
    setting("audit", "dir", Text, Private),
    // What others hold against the log: who may write it can hide that the log was rolled back.
    setting("audit", "witness_file", Text, Private),
    setting("audit", "sinks", Member("dir"), Private),
    setting("audit", "sinks", Member("tls_ca"), Control),
    setting("audit", "sinks", Member("tls_cert"), Control),
    setting("audit", "sinks", Member("tls_key"), Private),
    setting("audit", "sinks", Member("sasl_password_file"), Private),
    setting("tools", "dirs", Text, Control),
    setting("tools", "tenants", AfterEquals, Control),
    setting("sandbox", "allowed_paths", Text, Bound),
    setting("sandbox", "blocked_paths", Text, Bound),
    setting("sandbox", "system_paths", AbsoluteText, Bound),
    setting("secrets", "dir", Text, Private),
    setting("upstreams", "tenants", AbsoluteMember("paths"), Bound),
    // What is in it runs as a server.
    setting("upstreams", "packages_dir", Text, Control),
];

/// Every path in force that has this role, as it stands in the configuration.
pub(crate) fn paths_in(settings: &EffectiveSettings, role: PathRole) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for setting in PATH_SETTINGS.iter().filter(|setting| setting.role == role) {
        let key = all_keys().find(|key| setting.is_of(key));
        let Some((value, _)) = key.and_then(|key| settings.get(key)) else { continue };
        setting.shape.map(value.clone(), &mut |path| {
            found.push(PathBuf::from(path));
            path.to_owned()
        });
    }
    found
}

/// The value with every relative path in it resolved against a folder (PATHS-1).
pub(crate) fn resolved(key: &ConfigKey, value: KeyValue, folder: &Path) -> KeyValue {
    let mut to_folder = |path: &str| match Path::new(path).is_absolute() {
        true => path.to_owned(),
        // A folder whose name is no text cannot stand in a value; it is refused before (`ConfigFile`).
        false => folder.join(path).display().to_string(),
    };
    let settings = PATH_SETTINGS.iter().filter(|setting| setting.is_of(key));
    settings.fold(value, |value, setting| match setting.shape {
        AbsoluteText | AbsoluteMember(_) => value,
        shape => shape.map(value, &mut to_folder),
    })
}

/// Does the key name files?
pub(crate) fn names_files(key: &ConfigKey) -> bool {
    PATH_SETTINGS.iter().any(|setting| setting.is_of(key))
}

impl PathSetting {
    fn is_of(&self, key: &ConfigKey) -> bool {
        (self.section, self.name) == (key.section, key.name)
    }
}

impl PathShape {
    /// The value with each path in it replaced. An empty path is none: it stands for an unset key.
    fn map(self, value: KeyValue, replace: &mut impl FnMut(&str) -> String) -> KeyValue {
        match value {
            KeyValue::Text(text) => KeyValue::Text(self.map_text(text, replace)),
            KeyValue::Secret(text) => KeyValue::Secret(self.map_text(text, replace)),
            KeyValue::List(items) => {
                KeyValue::List(items.into_iter().map(|item| self.map_text(item, replace)).collect())
            }
            KeyValue::Flag(_) | KeyValue::Integer(_) => value,
        }
    }

    fn map_text(self, text: String, replace: &mut impl FnMut(&str) -> String) -> String {
        match self {
            Text | AbsoluteText if text.is_empty() => text,
            Text | AbsoluteText => replace(&text),
            AfterEquals => match text.split_once('=') {
                Some((name, path)) if !path.trim().is_empty() => format!("{name}={}", replace(path.trim())),
                _ => text,
            },
            SqliteAddress => match text.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path)) {
                Some("" | ":memory:") | None => text,
                Some(path) => format!("sqlite:{}", replace(path)),
            },
            DatabaseRoots => match postgres::root_certificates(&text).as_deref().and_then(Path::to_str) {
                Some(file) if text.starts_with("postgres") && !file.is_empty() => {
                    postgres::with_root_certificates(&text, &replace(file))
                }
                _ => text,
            },
            Member(name) | AbsoluteMember(name) => map_member(text, name, replace),
        }
    }
}

/// A member is a text or a list of texts. A table that is neither is told by its section.
fn map_member(table: String, name: &str, replace: &mut impl FnMut(&str) -> String) -> String {
    let Ok(mut members) = serde_json::from_str::<serde_json::Value>(&table) else { return table };
    let texts: Vec<&mut String> = match members.get_mut(name) {
        Some(serde_json::Value::String(text)) => vec![text],
        Some(serde_json::Value::Array(items)) => items
            .iter_mut()
            .filter_map(|item| match item {
                serde_json::Value::String(text) => Some(text),
                _ => None,
            })
            .collect(),
        _ => return table,
    };
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        *text = replace(text);
    }
    members.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::audit::sinks;
    use super::super::key::KeyKind;
    use super::super::settings::ConfigFile;
    use super::*;

    /// Keys that take texts which are no paths of this machine.
    const NO_PATHS: &[&str] = &[
        "[server] listen",
        "[server] allowed_hosts",
        "[store] seal_key",
        "[shared_state] url",
        "[shared_state] namespace",
        "[identity] issuer",
        "[identity] audience",
        "[identity] trusted_issuer",
        "[identity] trusted_roles",
        "[identity] jwks_url",
        "[identity] did_web_hosts",
        "[policy] environment",
        "[policy] engine_url",
        "[policy] engine_path",
        "[policy] engine_token",
        "[audit] witness_url",
        "[retention] audit",
        "[retention] invocations",
        "[redaction] rules",
        "[log] level",
        "[traces] endpoint",
        "[traces] sample_ratio",
        "[traces] authorization",
        "[traces] service_name",
        "[mcp] toolsets",
        "[mcp] allowed_origins",
        "[mcp] allowed_hosts",
        "[mcp] tasks_at_once",
        "[mcp] tasks_required",
        "[egress] allowed_hosts",
        "[egress] allowed_networks",
        "[egress] open_networks",
        "[isolation] demands",
        "[model] base_url",
        "[model] model",
        "[model] reasoning_model",
        "[model] api_key",
        "[webhooks] allow",
        "[inbound_jobs] signing_key",
        "[inbound_jobs] next_signing_key",
        "[inbound_jobs] public_url",
        "[inbound_jobs] tenant",
        "[inbound_jobs] secret",
        "[inbound_jobs] embedding_url",
        "[inbound_jobs] workflow_url",
        "[inbound_jobs] notification_url",
        "[usage] currency",
        "[usage] cpu_second_price",
        "[usage] network_gib_price",
    ];

    fn gather(text: &str, folder: &str, variables: &[(&str, &str)]) -> EffectiveSettings {
        let file = ConfigFile { name: "gantry.toml".into(), folder: folder.into(), text: text.into() };
        let environment: BTreeMap<_, _> = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        EffectiveSettings::gather(Some(&file), &environment, Vec::new()).unwrap()
    }

    #[test]
    fn every_key_that_takes_a_text_is_listed_with_its_role_or_is_said_to_be_no_path() {
        let takes_text = |key: &&ConfigKey| match key.kind {
            KeyKind::Text | KeyKind::Secret | KeyKind::List | KeyKind::Named(_) | KeyKind::Tables => true,
            KeyKind::Flag | KeyKind::Integer(_) | KeyKind::Choice(_) => false,
        };
        let unclassified: Vec<String> = all_keys()
            .filter(takes_text)
            .filter(|key| names_files(key) == NO_PATHS.contains(&key.title().as_str()))
            .map(ConfigKey::title)
            .collect();
        assert!(unclassified.is_empty(), "say in this file what they are: {unclassified:#?}");
        let known: BTreeSet<String> = all_keys().map(ConfigKey::title).collect();
        let listed = PATH_SETTINGS.iter().map(|setting| format!("[{}] {}", setting.section, setting.name));
        let gone: Vec<String> = listed
            .chain(NO_PATHS.iter().map(|&title| title.to_owned()))
            .filter(|title| !known.contains(title))
            .collect();
        assert!(gone.is_empty(), "there are no such keys: {gone:?}");
    }

    /// Of tables, the members are listed one by one.
    #[test]
    fn every_member_of_a_table_is_listed_or_is_said_to_be_no_path() {
        const NO_PATHS: &[&str] = &[
            "[audit] sinks name",
            "[audit] sinks kind",
            "[audit] sinks from",
            "[audit] sinks batch_records",
            "[audit] sinks batch_bytes",
            "[audit] sinks rotate_bytes",
            "[audit] sinks rotate_hours",
            "[audit] sinks compress",
            "[audit] sinks keep_files",
            "[audit] sinks keep_days",
            "[audit] sinks url",
            "[audit] sinks mode",
            "[audit] sinks header",
            "[audit] sinks credential",
            "[audit] sinks allow",
            "[audit] sinks timeout_ms",
            "[audit] sinks brokers",
            "[audit] sinks topic",
            "[audit] sinks tls",
            "[audit] sinks sasl_mechanism",
            "[audit] sinks sasl_username",
            "[redaction] rules tenant",
            "[redaction] rules names",
            "[redaction] rules patterns",
            "[upstreams] tenants tenant",
            // Compared word by word with what a tenant asks for; the programs are the machine's.
            "[upstreams] tenants commands",
            "[upstreams] tenants variables",
            "[upstreams] tenants hosts",
        ];
        let of_sinks = sinks::members().map(|name| format!("[audit] sinks {name}"));
        let of_tenants = members_told_by("[[upstreams.tenants]]\nnothing = 1").into_iter();
        let of_tenants = of_tenants.map(|name| format!("[upstreams] tenants {name}"));
        let of_rules = members_told_by("[[redaction.rules]]\nnothing = 1").into_iter();
        let of_rules = of_rules.map(|name| format!("[redaction] rules {name}"));
        let members: BTreeSet<String> = of_sinks.chain(of_tenants).chain(of_rules).collect();
        assert!(members.len() > 25, "{members:?}");
        let listed: BTreeSet<String> = PATH_SETTINGS
            .iter()
            .filter_map(|setting| match setting.shape {
                Member(name) | AbsoluteMember(name) => Some(format!("[{}] {} {name}", setting.section, setting.name)),
                _ => None,
            })
            .collect();
        for member in &members {
            assert_ne!(
                listed.contains(member),
                NO_PATHS.contains(&member.as_str()),
                "say in this file what it is: {member}"
            );
        }
        assert!(listed.is_subset(&members), "{listed:?}");
    }

    /// The members of a table, as the refusal of an unknown one names them.
    fn members_told_by(text: &str) -> Vec<String> {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
        let problems = super::super::GantryConfig::from_sources(Some(&file), &BTreeMap::new(), Vec::new()).unwrap_err();
        let said = problems[0].to_string();
        let (_, names) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn relative_paths_in_a_file_are_paths_in_its_folder_and_those_in_variables_stay() {
        let text = r#"
[server]
tls_cert = "tls/cert.pem"
tls_key = "/abs/key.pem"
[store]
url = "sqlite:state/x.db"
[policy]
file = ""
[tools]
dirs = ["tools", "/abs/tools"]
tenants = ["acme=own tools", "shop=/abs"]
[sandbox]
allowed_paths = ["work"]
system_paths = ["/usr"]
[secrets]
dir = "here"
[[audit.sinks]]
name = "stream"
kind = "file"
dir = "events"
"#;
        let settings = gather(text, "/etc/gantry", &[("GANTRY_SECRETS__DIR", "there")]);
        let of = |section: &str, name: &str| {
            let key = all_keys().find(|key| (key.section, key.name) == (section, name)).unwrap();
            match settings.get(key).unwrap().0 {
                KeyValue::Text(text) | KeyValue::Secret(text) => vec![text.clone()],
                KeyValue::List(items) => items.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("server", "tls_cert"), ["/etc/gantry/tls/cert.pem"]);
        assert_eq!(of("server", "tls_key"), ["/abs/key.pem"]);
        assert_eq!(of("store", "url"), ["sqlite:/etc/gantry/state/x.db"]);
        assert_eq!(of("policy", "file"), [""], "unset is not the folder itself");
        assert_eq!(of("tools", "dirs"), ["/etc/gantry/tools", "/abs/tools"]);
        assert_eq!(of("tools", "tenants"), ["acme=/etc/gantry/own tools", "shop=/abs"]);
        assert_eq!(of("sandbox", "allowed_paths"), ["/etc/gantry/work"]);
        assert_eq!(of("sandbox", "blocked_paths"), ["/etc", "/var"]);
        assert_eq!(of("secrets", "dir"), ["there"]);
        assert!(of("audit", "sinks")[0].contains(r#""dir":"/etc/gantry/events""#));
        let beside = gather(text, "", &[]);
        assert!(paths_in(&beside, PathRole::Control).contains(&PathBuf::from("own tools")), "the file is where we are");
    }

    #[test]
    fn a_databases_roots_are_a_file_too_and_its_password_stays_as_it_is() {
        let key = all_keys().find(|key| (key.section, key.name) == ("store", "url")).unwrap();
        let url = "postgres://me:a%2Fb@h/d?sslmode=require&sslrootcert=ca.pem";
        let KeyValue::Secret(full) = resolved(key, KeyValue::Secret(url.to_owned()), Path::new("/etc/g")) else {
            panic!()
        };
        assert_eq!(full, "postgres://me:a%2Fb@h/d?sslmode=require&sslrootcert=/etc/g/ca.pem");
        for same in ["postgres://me:pw@h/d", "sqlite::memory:", "sqlite:", "mysql://x"] {
            let value = KeyValue::Secret(same.to_owned());
            assert_eq!(resolved(key, value.clone(), Path::new("/etc/g")), value);
        }
    }
}
