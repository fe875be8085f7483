//! Configuration: `gantry.toml`, `GANTRY_SECTION__KEY`, flags. (DESIGN §3, OPS-008)
//!
//! Each section is a file with a struct whose fields are its keys, with type, range, default and text, and the rules that are more
//! than that. This file only puts them in order; [`settings`] merges the sources, [`reference`](mod@reference) writes the page
//! for people and [`schema`] the one for editors, all from what the structs say ([`section`]).
//!
//! Relative paths in the file are paths in its folder ([`paths`]).
//!
//! The file is `./gantry.toml` if there is one, or what `--config` names. Not also one in the data directory: two files
//! of which one silently wins are worse than one.
//!
//! Not here: where data lives (`--data-dir`, `GANTRY_DATA_DIR`), because the configuration may itself speak about it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

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
mod named_lists;
pub(crate) mod paths;
pub(crate) mod policy;
mod problems;
pub(crate) mod process;
pub(crate) mod redaction;
pub(crate) mod reference;
pub(crate) mod resilience;
mod retention;
pub(crate) mod sandbox;
pub(crate) mod scan;
pub(crate) mod schema;
pub(crate) mod secret_text;
pub(crate) mod secrets;
mod section;
#[cfg(test)]
mod section_tests;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod shared_state;
pub(crate) mod store;
mod tables;
pub(crate) mod tools;
pub(crate) mod traces;
pub(crate) mod upstreams;
pub(crate) mod usage;
pub(crate) mod value;
pub(crate) mod visibility;
pub(crate) mod webhooks;

use problems::ConfigProblem;
use section::SectionShape;
use settings::EffectiveSettings;
pub(crate) use settings::{ConfigFile, FlagValue};

/// The file that is read when `--config` names none.
pub(crate) const DEFAULT_FILE: &str = "gantry.toml";
/// A configuration file is a page, not a database.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Every section, in the order of the reference page.
const SECTIONS: &[SectionShape] = &[
    SectionShape::of::<server::ServerKeys>(),
    SectionShape::of::<store::StoreKeys>(),
    SectionShape::of::<shared_state::SharedStateKeys>(),
    SectionShape::of::<identity::IdentityKeys>(),
    SectionShape::of::<visibility::VisibilityKeys>(),
    SectionShape::of::<policy::PolicyKeys>(),
    SectionShape::of::<audit::AuditKeys>(),
    SectionShape::of::<retention::RetentionKeys>(),
    SectionShape::of::<redaction::RedactionKeys>(),
    SectionShape::of::<log::LogKeys>(),
    SectionShape::of::<traces::TracesKeys>(),
    SectionShape::of::<tools::ToolsKeys>(),
    SectionShape::of::<jobs::JobsKeys>(),
    SectionShape::of::<mcp::McpKeys>(),
    SectionShape::of::<process::ProcessSection>(),
    SectionShape::of::<limits::LimitsSection>(),
    SectionShape::of::<resilience::ResilienceKeys>(),
    SectionShape::of::<sandbox::SandboxKeys>(),
    SectionShape::of::<egress::EgressKeys>(),
    SectionShape::of::<isolation::IsolationKeys>(),
    SectionShape::of::<secrets::SecretsKeys>(),
    SectionShape::of::<upstreams::UpstreamsKeys>(),
    SectionShape::of::<scan::ScanKeys>(),
    SectionShape::of::<model::ModelKeys>(),
    SectionShape::of::<webhooks::WebhooksKeys>(),
    SectionShape::of::<inbound_jobs::InboundKeys>(),
    SectionShape::of::<health::HealthKeys>(),
    SectionShape::of::<usage::UsageKeys>(),
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
    pub(crate) upstreams: upstreams::UpstreamsSection,
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
    /// Merges file, environment and flags, and applies every section's rules.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
        flags: Vec<FlagValue>,
    ) -> Result<Self, CommandFailure> {
        let file = find_file(file)?;
        Self::from_sources(file.as_ref(), environment, flags).map_err(|problems| not_usable(&problems))
    }

    /// The same without any file.
    pub(crate) fn without_file(
        environment: &BTreeMap<String, String>,
        flags: Vec<FlagValue>,
    ) -> Result<Self, CommandFailure> {
        Self::from_sources(None, environment, flags).map_err(|problems| not_usable(&problems))
    }

    pub(crate) fn from_sources(
        file: Option<&ConfigFile>,
        environment: &BTreeMap<String, String>,
        flags: Vec<FlagValue>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let settings = EffectiveSettings::gather(file, environment, flags)?;
        let mut problems = Vec::new();
        let server = settings.read::<server::ServerKeys>(&mut problems);
        let store = settings.read::<store::StoreKeys>(&mut problems);
        let shared_state = settings.read::<shared_state::SharedStateKeys>(&mut problems);
        let identity = settings.read::<identity::IdentityKeys>(&mut problems);
        let visibility = settings.read::<visibility::VisibilityKeys>(&mut problems);
        let policy = settings.read::<policy::PolicyKeys>(&mut problems);
        let audit = settings.read::<audit::AuditKeys>(&mut problems);
        let retention = settings.read::<retention::RetentionKeys>(&mut problems);
        let redaction = settings.read::<redaction::RedactionKeys>(&mut problems);
        let log = settings.read::<log::LogKeys>(&mut problems);
        let traces = settings.read::<traces::TracesKeys>(&mut problems);
        let tools = settings.read::<tools::ToolsKeys>(&mut problems);
        let jobs = settings.read::<jobs::JobsKeys>(&mut problems);
        if jobs.concurrency == 0 && server.as_ref().is_some_and(|server| server.limits.probes_only) {
            let nothing =
                "a worker (`[server] worker_only`) that does no jobs does nothing: let it do at least one at once";
            problems.push(ConfigProblem::new("[jobs] concurrency", nothing.to_owned()));
        }
        let mcp = ::server::McpConfig { exposure: tools.exposure, ..settings.read::<mcp::McpKeys>(&mut problems) };
        let process = settings.read::<process::ProcessSection>(&mut problems);
        let limits = settings.read::<limits::LimitsSection>(&mut problems);
        let resilience = settings.read::<resilience::ResilienceKeys>(&mut problems);
        let sandbox = settings.read::<sandbox::SandboxKeys>(&mut problems);
        let egress = settings.read::<egress::EgressKeys>(&mut problems);
        let isolation = settings.read::<isolation::IsolationKeys>(&mut problems);
        let secrets = settings.read::<secrets::SecretsKeys>(&mut problems);
        let upstreams = settings.read::<upstreams::UpstreamsKeys>(&mut problems);
        let scan = settings.read::<scan::ScanKeys>(&mut problems);
        let model = settings.read::<model::ModelKeys>(&mut problems);
        let webhooks = settings.read::<webhooks::WebhooksKeys>(&mut problems);
        let inbound_jobs = settings.read::<inbound_jobs::InboundKeys>(&mut problems);
        let health = settings.read::<health::HealthKeys>(&mut problems);
        let usage = settings.read::<usage::UsageKeys>(&mut problems);
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
