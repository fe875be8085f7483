//! The single checks of `gantry doctor`.

use std::sync::Arc;

use contract::manifest::Execution;
use ports::clock::Clock;
use ports::registry_store::RegistryStore;
use serde_json::Value;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;

use super::{Finding, isolation, shared_state, tls};
use crate::client::ClientError;
use crate::config::GantryConfig;
use crate::config::store::DatabaseConfig;
use crate::context::CommandContext;
use crate::data_dir::{DataDir, DataDirSecret};
use crate::failure::CommandFailure;
use crate::machine::SystemClock;
use crate::open_store::unusable;
use crate::outside::OutsideAuthorities;
use crate::policy_files::PolicyText;
use crate::store_seal::NOT_SEALED;
use crate::{key_vault, tool_folders};

/// Less free space than this is worth a word.
const FREE_MIB_MIN: u64 = 256;
/// What to do about a database file that cannot be read.
const RESTORE: &str = "restore a backup of the database file: `gantry restore --help`";
/// What to do about a secret that others can read.
const ONLY_ITS_OWNER: &str = "take the right away from its group with the command above";

/// The directory and the secrets in it.
pub(super) fn data_dir(dir: &DataDir) -> Vec<Finding> {
    const WHAT: &str = "data directory";
    let path = dir.path().display();
    let directory = match dir.mode() {
        Ok(None) => {
            return vec![Finding::well(WHAT, format!("{path} is not there yet; the first `gantry serve` makes it"))];
        }
        Ok(Some(mode)) if mode & 0o077 != 0 => Finding::warning(
            WHAT,
            format!("{path} can be looked into by others (mode {mode:o})"),
            format!("chmod 700 {path}"),
        ),
        Ok(Some(_)) => Finding::well(WHAT, path.to_string()),
        Err(error) => {
            return vec![Finding::failed(WHAT, format!("{path} cannot be used: {error}"), "check --data-dir")];
        }
    };
    let mut findings =
        vec![directory, secret("admin token", dir.admin_token()), secret("signing key", dir.signing_key())];
    findings.extend(former_keys(dir));
    findings.extend(kept_tools(dir));
    findings.extend(disk(dir));
    findings
}

/// Folders of tools that the server keeps must hold what was added; nothing to say where there are none.
fn kept_tools(dir: &DataDir) -> Option<Finding> {
    const WHAT: &str = "kept tools";
    let (altered, all) = tool_folders::kept_copy::altered(dir);
    if altered.is_empty() {
        return (all > 0).then(|| Finding::well(WHAT, format!("{all}, each as it was added")));
    }
    Some(Finding::failed(
        WHAT,
        format!("{} does not hold the files that were added, so it does not run", altered.join(", ")),
        "`gantry tool add DIR` with the folder it came from puts them back; other files need another `version`",
    ))
}

/// A full disk stops audit and store, and with them every call.
fn disk(dir: &DataDir) -> Option<Finding> {
    const WHAT: &str = "disk";
    let disk = rustix::fs::statvfs(dir.path()).ok()?;
    let free_mib = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
    let detail = format!("{free_mib} MiB free for the data directory");
    Some(if free_mib >= FREE_MIB_MIN {
        Finding::well(WHAT, detail)
    } else {
        Finding::warning(WHAT, detail, "make room: calls that cannot be recorded do not run")
    })
}

fn secret<T>(what: &'static str, found: Result<Option<DataDirSecret<T>>, CommandFailure>) -> Finding {
    match found {
        Ok(None) => Finding::well(what, "not made yet; the first `gantry serve` makes it"),
        Ok(Some(DataDirSecret { warning: None, .. })) => Finding::well(what, "there, and only its owner can read it"),
        Ok(Some(DataDirSecret { warning: Some(warning), .. })) => Finding::warning(what, warning, ONLY_ITS_OWNER),
        Err(failure) => Finding::of_failure(what, failure, "restore it from a backup"),
    }
}

/// Keys that signed before; their tokens are accepted until they expire.
fn former_keys(dir: &DataDir) -> Option<Finding> {
    const WHAT: &str = "former keys";
    match key_vault::retired_keys(dir) {
        Ok(keys) if keys.is_empty() => None,
        Ok(keys) => {
            Some(Finding::well(WHAT, format!("{} of them, whose tokens are accepted until they expire", keys.len())))
        }
        Err(failure) => Some(Finding::of_failure(WHAT, failure, "look at `keys` in the data directory")),
    }
}

/// Everything the configuration speaks about.
pub(super) async fn configured(context: &CommandContext, config: &GantryConfig) -> Vec<Finding> {
    let dir = context.data_dir();
    let mut findings = vec![
        store(config, &dir).await,
        sealing(config, &dir),
        shared_state::finding(&config.shared_state).await,
        audit(config, &dir),
    ];
    let (tools, processes) = tools(config);
    findings.extend(tools);
    findings.extend(isolation::findings(config, processes).await);
    findings.push(tls::finding(config, &dir, SystemClock::start().now().0));
    findings.push(outside(config));
    findings.push(policies(config));
    findings.push(match &config.model {
        Some(model) => Finding::well("model", format!("{} is set; it is not asked here", model.model)),
        None => {
            Finding::well("model", "none is set: deep_reasoning, translation and abstractive summaries answer E3408")
        }
    });
    findings
}

/// Can whoever reads the store, or a copy of it, read parameters and keys there?
fn sealing(config: &GantryConfig, dir: &DataDir) -> Finding {
    const WHAT: &str = "seal";
    match &config.store.seal_key {
        Some(place) => match place.key() {
            Ok(_) => Finding::well(WHAT, "parameters and keys in the store are sealed with the key that is given"),
            Err(failure) => {
                Finding::of_failure(WHAT, failure, "restore the key from a backup; docs/postgres.md says more")
            }
        },
        None => match dir.store_key() {
            Ok(Some(_)) => Finding::well(WHAT, "parameters in the store are sealed with `keys/store.key`"),
            // The first start on a new database makes it; without it, this data directory serves one from before.
            Ok(None) if config.store.database().is_some() && dir.admin_token_file().try_exists().unwrap_or(true) => {
                Finding::warning(WHAT, NOT_SEALED, "set `[store] seal_key_file`; docs/postgres.md says how")
            }
            Ok(None) => Finding::absent(WHAT, "`keys/store.key` is made at the first start"),
            Err(failure) => {
                Finding::of_failure(WHAT, failure, "restore the key from a backup; docs/postgres.md says more")
            }
        },
    }
}

async fn store(config: &GantryConfig, dir: &DataDir) -> Finding {
    match config.store.database() {
        Some(database) => shared_store(database).await,
        None => store_file(&config.store.file(dir.path())).await,
    }
}

/// A database that instances share. Looked at only: who migrates it is decided elsewhere.
async fn shared_store(database: &DatabaseConfig) -> Finding {
    const WHAT: &str = "store";
    let place = database.shown();
    match PostgresStore::examine(&database.url, &database.options()).await {
        Ok(steps) if steps.unknown() > 0 => {
            let unknown = steps.unknown();
            Finding::warning(
                WHAT,
                format!("{place} has {unknown} steps that this release does not know"),
                "a newer release has migrated it; this one can work beside it until it is replaced",
            )
        }
        Ok(steps) if steps.missing() == 0 => {
            Finding::well(WHAT, format!("{place} is up to date, {} steps", steps.taken))
        }
        Ok(steps) => Finding::warning(
            WHAT,
            format!("{place} lacks {} of {} steps", steps.missing(), steps.known),
            "the next `gantry serve` takes them, or `gantry migrate up`",
        ),
        Err(error) => Finding::of_failure(WHAT, unusable(&database.url, &error), "check `[store] url`"),
    }
}

async fn store_file(file: &std::path::Path) -> Finding {
    const WHAT: &str = "store";
    if !file.try_exists().unwrap_or(true) {
        return Finding::well(WHAT, "not made yet; the first `gantry serve` makes it");
    }
    let store = match SqliteStore::open_read_only(file) {
        Ok(store) => Arc::new(store),
        Err(error) => return Finding::failed(WHAT, error.to_string(), RESTORE),
    };
    // Reads every published version, so that damage anywhere in them shows.
    match RegistryStore::load(&*store).await {
        Ok(versions) => Finding::well(WHAT, format!("{} published versions can be read", versions.len())),
        Err(error) => Finding::failed(WHAT, error.to_string(), RESTORE),
    }
}

fn audit(config: &GantryConfig, dir: &DataDir) -> Finding {
    const WHAT: &str = "audit log";
    let path = config.audit.dir(dir.path());
    match std::fs::read_dir(&path) {
        Ok(entries) => Finding::well(WHAT, format!("{} files in {}", entries.count(), path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::well(WHAT, "not made yet; the first `gantry serve` makes it")
        }
        Err(error) => Finding::failed(
            WHAT,
            format!("{} cannot be read: {error}", path.display()),
            "without it no call runs; check `[audit] dir`",
        ),
    }
}

/// The folders, and how many process tools are in them.
fn tools(config: &GantryConfig) -> (Vec<Finding>, usize) {
    const WHAT: &str = "tool folders";
    if config.tools.dirs.is_empty() {
        let none = "none in the configuration; `gantry serve --tools DIR` adds some";
        return (vec![Finding::well(WHAT, none)], 0);
    }
    let found = tool_folders::find(&config.tools.dirs);
    let mut findings: Vec<Finding> =
        found.troubles.into_iter().map(|trouble| Finding::failed(WHAT, trouble, "check `[tools] dirs`")).collect();
    let (mut good, mut processes) = (0_usize, 0_usize);
    for tool in &found.tools {
        match &tool.manifest {
            Ok(manifest) => {
                good += 1;
                processes += usize::from(matches!(manifest.execution, Some(Execution::Process { .. })));
            }
            Err(error) => findings.push(Finding::warning(
                WHAT,
                error.to_string(),
                "mend its manifest; the server goes on with the other tools",
            )),
        }
    }
    findings.push(Finding::well(WHAT, format!("{good} good manifests, {processes} of them process tools")));
    (findings, processes)
}

/// Can the authorities outside be asked as they are configured? Nobody is asked here.
fn outside(config: &GantryConfig) -> Finding {
    const WHAT: &str = "authorities";
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let outside = match OutsideAuthorities::from_config(config, &clock) {
        Ok(outside) => outside,
        Err(failure) => {
            return Finding::of_failure(WHAT, failure, "check `[identity]` and `[policy]` in docs/configuration.md");
        }
    };
    let named = [
        outside.issuer.map(|issuer| format!("tokens of issuer `{}`", issuer.name)),
        outside.did_resolver.map(|_| format!("did:web on {}", config.identity.did_web_hosts.join(", "))),
        outside.engine.map(|_| "a policy engine".to_owned()),
    ];
    let named: Vec<String> = named.into_iter().flatten().collect();
    let detail = if named.is_empty() {
        "none: this server trusts its own keys and policies only".to_owned()
    } else {
        format!("{} (not asked here)", named.join("; "))
    };
    Finding::well(WHAT, detail)
}

/// Can the policies in files be put in force?
fn policies(config: &GantryConfig) -> Finding {
    const WHAT: &str = "policy files";
    let Some(path) = &config.policy.file else {
        return Finding::well(WHAT, "none in the configuration; policies come by the API");
    };
    let text = match PolicyText::read(std::slice::from_ref(path)) {
        Ok(text) => text,
        Err(failure) => return Finding::of_failure(WHAT, failure, "check `[policy] file`"),
    };
    match text.compile() {
        Ok(policies) if policies.warnings().is_empty() => {
            Finding::well(WHAT, format!("{} policies, all usable", policies.len()))
        }
        Ok(policies) => {
            let warnings: Vec<String> = policies.warnings().iter().map(|found| text.place(found).to_string()).collect();
            Finding::warning(WHAT, warnings.join("; "), "mend it in the file; `gantry policy check` looks at it again")
        }
        Err(problems) => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Finding::failed(
                WHAT,
                problems.join("; "),
                "a running server keeps the former policies; a first start is refused",
            )
        }
    }
}

/// Does a server answer, and is it well?
pub(super) async fn server(context: &CommandContext) -> Finding {
    const WHAT: &str = "server";
    let noted = context.data_dir().running_server();
    // With the token there is, or the server says little; one that cannot be had is no reason to ask nothing.
    let client = match context.client().or_else(|_| context.anonymous_client()) {
        Ok(client) => client,
        Err(failure) => return Finding::of_failure(WHAT, failure, "check --server, GANTRY_SERVER and GANTRY_TOKEN"),
    };
    match client.health().await {
        Ok(health) => {
            let version = health.get("version").and_then(Value::as_str).unwrap_or("unknown");
            let tools = health.get("tools").and_then(Value::as_u64);
            let tools = tools.map(|tools| format!(", {tools} tools")).unwrap_or_default();
            let detail = format!("{} answers, version {version}{tools}", client.base());
            if health.get("healthy") != Some(&Value::Bool(true)) {
                let checks = health.get("checks").map(Value::to_string).unwrap_or_default();
                Finding::failed(WHAT, format!("{detail}, but it is not well: {checks}"), "look at its log")
            } else if version == env!("CARGO_PKG_VERSION") {
                Finding::well(WHAT, detail)
            } else {
                Finding::warning(WHAT, detail, format!("this command is version {}", env!("CARGO_PKG_VERSION")))
            }
        }
        Err(ClientError::NotRunning { base }) if context.global.server.is_some() => {
            Finding::failed(WHAT, format!("no server answers at {base}"), "check --server and GANTRY_SERVER")
        }
        Err(ClientError::NotRunning { .. }) if noted.is_some() => {
            Finding::warning(WHAT, "not running; it did not end in order last time", "start it with `gantry serve`")
        }
        Err(ClientError::NotRunning { .. }) => Finding::well(WHAT, "not running; start it with `gantry serve`"),
        Err(ClientError::Failed(failure)) => Finding::of_failure(WHAT, failure, "look at its log"),
    }
}
