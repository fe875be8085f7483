//! Configuration: `gantry.toml`, `GANTRY_SECTION__KEY`, flags. (DESIGN §3, OPS-008)
//!
//! Each section is a file with its keys as constants, a struct of its values in force, and its own rules. This file only
//! puts them in order; [`settings`] merges the sources and [`reference`](mod@reference) writes the page for people.
//!
//! Relative paths in the file are paths in its folder ([`path_settings`]).
//!
//! The file is `./gantry.toml` if there is one, or what `--config` names. Not also one in the data directory: two files
//! of which one silently wins are worse than one.
//!
//! Not here: where data lives (`--data-dir`, `GANTRY_DATA_DIR`), because the configuration may itself speak about it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::CommandFailure;
use crate::plain_file;

pub(crate) mod audit;
pub(crate) mod egress;
pub(crate) mod health;
pub(crate) mod identity;
pub(crate) mod inbound_jobs;
pub(crate) mod isolation;
pub(crate) mod jobs;
pub(crate) mod key;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod mcp;
pub(crate) mod model;
pub(crate) mod path_settings;
pub(crate) mod policy;
pub(crate) mod process;
pub(crate) mod redaction;
pub(crate) mod reference;
pub(crate) mod resilience;
mod retention;
pub(crate) mod sandbox;
pub(crate) mod scan;
pub(crate) mod secrets;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod shared_state;
pub(crate) mod store;
pub(crate) mod tools;
pub(crate) mod traces;
mod upstreams;
pub(crate) mod usage;
pub(crate) mod visibility;
pub(crate) mod webhooks;

use key::{ConfigKey, KeyValue};
pub(crate) use settings::ConfigFile;
use settings::{ConfigProblem, EffectiveSettings};

/// The file that is read when `--config` names none.
pub(crate) const DEFAULT_FILE: &str = "gantry.toml";
/// A configuration file is a page, not a database.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Every section's keys, in the order of the reference page.
const KEYS: &[&[&ConfigKey]] = &[
    server::KEYS,
    store::KEYS,
    shared_state::KEYS,
    identity::KEYS,
    visibility::KEYS,
    policy::KEYS,
    audit::KEYS,
    retention::KEYS,
    redaction::KEYS,
    log::KEYS,
    traces::KEYS,
    tools::KEYS,
    jobs::KEYS,
    mcp::KEYS,
    process::KEYS,
    limits::KEYS,
    resilience::KEYS,
    sandbox::KEYS,
    egress::KEYS,
    isolation::KEYS,
    secrets::KEYS,
    upstreams::KEYS,
    scan::KEYS,
    model::KEYS,
    webhooks::KEYS,
    inbound_jobs::KEYS,
    health::KEYS,
    usage::KEYS,
];

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct GantryConfig {
    pub(crate) server: server::ServerSection,
    pub(crate) store: store::StoreSection,
    pub(crate) shared_state: shared_state::SharedStateSection,
    pub(crate) identity: identity::IdentitySection,
    /// What agents may use without an activation.
    pub(crate) visibility: Option<::policy::VisibilityDefault>,
    pub(crate) policy: policy::PolicySection,
    pub(crate) audit: audit::AuditSection,
    /// How long the archive of all instances keeps what.
    pub(crate) retention: ports::record_archive::Retention,
    pub(crate) redaction: redaction::RedactionSection,
    pub(crate) log: log::LogSection,
    /// There if traces go somewhere.
    pub(crate) traces: Option<telemetry::TraceConfig>,
    pub(crate) tools: tools::ToolsSection,
    pub(crate) jobs: ::jobs::JobsSettings,
    pub(crate) mcp: ::server::McpConfig,
    pub(crate) process: process::ProcessSection,
    pub(crate) limits: limits::LimitsSection,
    /// Breakers, limits, retries.
    pub(crate) resilience: kernel::resilience::ResilienceSettings,
    pub(crate) sandbox: sandbox::SandboxSection,
    pub(crate) egress: egress::EgressSection,
    pub(crate) isolation: isolation::IsolationSection,
    pub(crate) secrets: secrets::SecretsSection,
    /// What tenants may put behind this server.
    pub(crate) upstreams: ::upstreams::TenantLists,
    pub(crate) upstreams_reread: Duration,
    upstreams_packages: Option<PathBuf>,
    pub(crate) scan: scan::ScanSection,
    pub(crate) model: Option<executors::ModelConfig>,
    pub(crate) webhooks: webhooks::WebhooksSection,
    /// There if the signed door for jobs is open.
    pub(crate) inbound_jobs: Option<inbound_jobs::InboundSection>,
    pub(crate) health: health::HealthSection,
    pub(crate) usage: usage::UsageSection,
    /// The file it was read from, as the user wrote it.
    pub(crate) file: Option<PathBuf>,
    /// Where each value came from.
    pub(crate) settings: EffectiveSettings,
}

impl GantryConfig {
    /// Where packages are installed that MCP servers are started from.
    pub(crate) fn packages_dir(&self, data_dir: &Path) -> PathBuf {
        self.upstreams_packages.clone().unwrap_or_else(|| data_dir.join("packages"))
    }

    /// Merges file, environment and flags, and applies every section's rules.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
        flags: Vec<(&'static ConfigKey, KeyValue)>,
    ) -> Result<Self, CommandFailure> {
        let file = find_file(file)?;
        Self::from_sources(file.as_ref(), environment, flags).map_err(|problems| not_usable(&problems))
    }

    /// The same without any file.
    pub(crate) fn without_file(
        environment: &BTreeMap<String, String>,
        flags: Vec<(&'static ConfigKey, KeyValue)>,
    ) -> Result<Self, CommandFailure> {
        Self::from_sources(None, environment, flags).map_err(|problems| not_usable(&problems))
    }

    pub(crate) fn from_sources(
        file: Option<&ConfigFile>,
        environment: &BTreeMap<String, String>,
        flags: Vec<(&'static ConfigKey, KeyValue)>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let settings = EffectiveSettings::gather(file, environment, flags)?;
        let mut problems = Vec::new();
        let server = server::ServerSection::read(&settings, &mut problems);
        let store = store::StoreSection::read(&settings, &mut problems);
        let shared_state = shared_state::SharedStateSection::read(&settings, &mut problems);
        let identity = identity::IdentitySection::read(&settings, &mut problems);
        let visibility = visibility::read(&settings);
        let policy = policy::PolicySection::read(&settings, &mut problems);
        let audit = audit::AuditSection::read(&settings, &mut problems);
        let retention = retention::read(&settings, &mut problems);
        let redaction = redaction::RedactionSection::read(&settings, &mut problems);
        let log = log::LogSection::read(&settings, &mut problems);
        let traces = traces::read(&settings, &mut problems);
        let tools = tools::ToolsSection::read(&settings, &mut problems);
        let jobs = jobs::read(&settings);
        if jobs.concurrency == 0 && server.as_ref().is_some_and(|server| server.limits.probes_only) {
            let nothing =
                "a worker (`[server] worker_only`) that does no jobs does nothing: let it do at least one at once";
            problems.push(ConfigProblem::new("[jobs] concurrency", nothing.to_owned()));
        }
        let mcp = mcp::read(&settings, &mut problems);
        let process = process::ProcessSection::read(&settings);
        let limits = limits::LimitsSection::read(&settings);
        let resilience = resilience::read(&settings, &mut problems);
        let sandbox = sandbox::SandboxSection::read(&settings, &mut problems);
        let egress = egress::EgressSection::read(&settings, &mut problems);
        let isolation = isolation::IsolationSection::read(&settings, &mut problems);
        let secrets = secrets::SecretsSection::read(&settings);
        let upstreams = upstreams::read(&settings, &mut problems);
        let upstreams_reread = upstreams::reread(&settings);
        let upstreams_packages = upstreams::packages_dir(&settings);
        let scan = scan::ScanSection::read(&settings);
        let model = model::read(&settings, &mut problems);
        let webhooks = webhooks::WebhooksSection::read(&settings, &mut problems);
        let inbound_jobs = inbound_jobs::InboundSection::read(&settings, &mut problems);
        let health = health::HealthSection::read(&settings);
        let usage = usage::UsageSection::read(&settings, &mut problems);
        match (server, store) {
            (Some(server), Some(store)) if problems.is_empty() => Ok(Self {
                server,
                store,
                shared_state,
                identity,
                visibility,
                policy,
                audit,
                retention,
                redaction,
                log,
                traces,
                tools,
                jobs,
                mcp,
                process,
                limits,
                resilience,
                sandbox,
                egress,
                isolation,
                secrets,
                upstreams,
                upstreams_reread,
                upstreams_packages,
                scan,
                model,
                webhooks,
                inbound_jobs,
                health,
                usage,
                file: file.map(|file| PathBuf::from(&file.name)),
                settings,
            }),
            _ => Err(problems),
        }
    }
}

/// The names of all sections.
fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|section| section.first()).map(|key| key.section)
}

fn is_section(name: &str) -> bool {
    sections().any(|section| section == name)
}

fn find_file(named: Option<&Path>) -> Result<Option<ConfigFile>, CommandFailure> {
    let path = named.unwrap_or_else(|| Path::new(DEFAULT_FILE));
    let name = path.display().to_string();
    let file = match plain_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => return Ok(None),
        Err(error) => return Err(unreadable(&name, &error)),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| unreadable(&name, &error))?;
    if u64::try_from(text.len()).is_ok_and(|length| length <= FILE_BYTES_MAX) {
        let folder = folder_of(path).ok_or_else(|| {
            CommandFailure::new(format!("the folder of the configuration file `{name}` has a name that is not text"))
                .hint("put the file into a folder with a name in UTF-8")
        })?;
        return Ok(Some(ConfigFile { name, folder, text }));
    }
    Err(CommandFailure::new(format!("configuration file `{name}` is larger than {FILE_BYTES_MAX} bytes"))
        .hint("check that it is the file you mean"))
}

/// The folder that a file was found in. It is the one of the name that was given: a file that is a link may be a copy of a file
/// elsewhere, and what it speaks of is here. Without `..`, which section rules refuse in paths.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(PathBuf::new, |folder| folder.canonicalize().unwrap_or_else(|_| folder.to_owned()));
    folder.to_str().is_some().then_some(folder)
}

fn unreadable(name: &str, error: &std::io::Error) -> CommandFailure {
    CommandFailure::new(format!("configuration file `{name}` cannot be read: {error}"))
        .hint("check the path and its permissions, or leave --config out")
}

fn not_usable(problems: &[ConfigProblem]) -> CommandFailure {
    CommandFailure::new("the configuration cannot be used").reasons(problems.iter().map(ToString::to_string).collect()).hint(
        "every key is explained in docs/configuration.md; `gantry doctor --settings` shows what is in force and why",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<GantryConfig, Vec<ConfigProblem>> {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
        GantryConfig::from_sources(Some(&file), &BTreeMap::new(), Vec::new())
    }

    #[test]
    fn no_configuration_at_all_is_a_configuration() {
        let config = config("").unwrap();
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:7300");
        assert!(config.model.is_none() && !config.process.unsandboxed && config.tools.dirs.is_empty());
    }

    #[test]
    fn backends_of_other_builds_are_refused_by_name() {
        for (text, word) in [
            ("[store]\nurl = 'mysql://me:pw@host/db'", "postgres://"),
            ("[shared_state]\nurl = 'redis://u:secret@host:port'", "must be redis://"),
            ("[shared_state]\nurl = 'redis://host'\nnamespace = 'a b'", "namespace"),
            ("[shared_state]\nurl = 'memcached://host'", "memory:"),
            ("[server]\nlisten = 'nowhere'", "127.0.0.1:7300"),
        ] {
            let problems = config(text).unwrap_err();
            let said: String = problems.iter().map(ToString::to_string).collect();
            assert!(said.contains(word), "{text}: {said}");
            assert!(!said.contains("pw"), "{said}");
        }
    }

    #[test]
    fn a_missing_default_file_is_fine_and_a_missing_named_one_is_not() {
        assert!(find_file(Some(Path::new("/nowhere/at/all.toml"))).is_err());
    }
}
