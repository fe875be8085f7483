//! From the configuration to what tools may be given on this machine: the operator's word with the server's own places
//! taken out of it. (EXEC-019, decision 0019)
//!
//! Invariants
//! - REACH-1: the configuration file, the data directory, the audit log, the store, the secrets and every file with a key or password
//!   are private, wherever they are and whatever the configuration says; what decides what the server runs or trusts (folders of
//!   tools, also those of tenants, policies, certificates, public keys) is blocked. Which setting is which is said in
//!   `config::paths`, once for all.
//! - REACH-2: every fence is absolute, and canonical where it exists: a declared path is opened without following links, so
//!   a fence that is itself a link would stand beside the way. What is blocked is blocked under both names.
//! - REACH-3: the homes of people, and of the user this server runs as, are open to no tool unless `allowed_paths` has them.
//!
//! Not here: what a declared path is compared with it for (`executors::confinement`).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use executors::{OperatorReach, PathMasks};

use crate::config::paths::{PathRole, paths_in};
use crate::config::{DEFAULT_FILE, GantryConfig};

/// Where people's homes are.
const HOMES: [&str; 2] = ["/root", "/home"];

/// What any tool may be given at most.
pub(crate) fn reach(config: &GantryConfig, data_dir: &Path, home: Option<&Path>) -> OperatorReach {
    let section = &config.sandbox;
    // Who may write where tools or policies are loaded from may do everything.
    let control = paths_in(&config.settings, PathRole::Control);
    let blocked = section.blocked_paths.iter().cloned().chain(control);
    OperatorReach {
        allowed_paths: section.allowed_paths.as_ref().map(|paths| paths.iter().map(|path| canonical(path)).collect()),
        blocked_paths: blocked.flat_map(|path| [absolute(&path), canonical(&path)]).collect(),
        homes: homes(home).iter().flat_map(|path| [absolute(path), canonical(path)]).collect(),
        private_paths: own_places(config, data_dir).iter().flat_map(|path| [absolute(path), canonical(path)]).collect(),
        masks: None,
        egress: config.egress.bounds.clone(),
        open_networks: config.egress.open_networks.clone(),
        pids: section.pids,
        open_files: section.open_files,
        io_bytes_per_second: section.io_bytes_per_second,
        // As they are: what is a link on the machine is the same link inside.
        system: section.system_paths.clone(),
    }
}

/// The empty folder and file that cover the server's own data in folders of MCP servers. They lie in the data directory.
pub(crate) fn masks(config: &GantryConfig, data_dir: &Path) -> io::Result<PathMasks> {
    let place = data_dir.join("mask");
    let (folder, file) = (place.join("folder"), place.join("file"));
    for made in [&place, &folder] {
        match DirBuilder::new().mode(0o755).create(made) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o444).open(&file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Nothing is shown that somebody has put there.
    if fs::read_dir(&folder)?.next().is_some() || fs::metadata(&file)?.len() > 0 {
        return Err(io::Error::other("the mask is not empty"));
    }
    let config_file = config.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    Ok(PathMasks { folder: canonical(&folder), file: canonical(&file), config_file: canonical(&config_file) })
}

/// REACH-3. A home that is the root of everything is none.
fn homes(home: Option<&Path>) -> Vec<PathBuf> {
    let own = home.filter(|home| home.is_absolute() && home.parent().is_some()).map(Path::to_owned);
    HOMES.iter().map(PathBuf::from).chain(own).collect()
}

/// REACH-1.
fn own_places(config: &GantryConfig, data_dir: &Path) -> Vec<PathBuf> {
    let store = config.store.file(data_dir);
    // SQLite keeps two files beside its own, and they hold the newest writes.
    let beside = ["-wal", "-shm"].map(|ending| {
        let mut name = store.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    });
    // What has no setting of its own is in the data directory.
    let mut places = vec![data_dir.to_owned(), store];
    places.extend(beside);
    places.extend(paths_in(&config.settings, PathRole::Private));
    // It names secrets' places and addresses, and who may write it decides what the server does when it starts again.
    places.extend(config.file.clone());
    places
}

/// A path that does not exist yet cannot be resolved; its folder may be.
fn canonical(path: &Path) -> PathBuf {
    let path = absolute(path);
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn reach_with(variables: &[(&str, &str)], data_dir: &Path) -> OperatorReach {
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>();
        reach(&GantryConfig::from_sources(None, &environment, Vec::new()).unwrap(), data_dir, None)
    }

    #[test]
    fn what_is_the_servers_own_is_always_blocked() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().canonicalize().unwrap();
        let data = elsewhere.join("data");
        let at = |name: &str| elsewhere.join(name).display().to_string();
        let reach = reach_with(
            &[
                ("GANTRY_SANDBOX__BLOCKED_PATHS", ""),
                ("GANTRY_AUDIT__DIR", &at("audit")),
                ("GANTRY_SECRETS__DIR", &at("secrets")),
                ("GANTRY_STORE__URL", &format!("sqlite:{}", at("x.db"))),
                ("GANTRY_STORE__SEAL_KEY_FILE", &at("seal.key")),
                ("GANTRY_SERVER__TLS_CERT", &at("tls.crt")),
                ("GANTRY_SERVER__TLS_KEY", &at("tls.key")),
                ("GANTRY_AUDIT__WITNESS_FILE", &at("witness")),
                ("GANTRY_AUDIT__SINKS", &format!(r#"[{{"name":"a","kind":"file","dir":"{}"}}]"#, at("events"))),
                ("GANTRY_TOOLS__DIRS", &at("tools")),
                ("GANTRY_TOOLS__TENANTS", &format!("acme={},shop={}", at("acme"), at("shop"))),
                ("GANTRY_POLICY__FILE", &at("policies")),
                ("GANTRY_IDENTITY__TRUSTED_ISSUER", "them"),
                ("GANTRY_IDENTITY__TRUSTED_KEYS", &at("their.pem")),
            ],
            &data,
        );
        for name in ["data", "audit", "secrets", "x.db", "x.db-wal", "seal.key", "tls.key", "witness", "events"] {
            assert!(reach.private_paths.contains(&elsewhere.join(name)), "{name}: {:?}", reach.private_paths);
        }
        for name in ["tools", "acme", "shop", "policies", "tls.crt", "their.pem"] {
            assert!(reach.blocked_paths.contains(&elsewhere.join(name)), "{name}: {:?}", reach.blocked_paths);
        }
        assert!(reach.private_paths.iter().all(|path| path.is_absolute()));
        assert!(!reach.private_paths.iter().any(|path| path.ends_with("gantry.toml")), "none is in use");
    }

    #[test]
    fn masks_are_empty_or_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let config = GantryConfig::from_sources(None, &BTreeMap::new(), Vec::new()).unwrap();
        for _ in 0..2 {
            let masks = masks(&config, dir.path()).unwrap();
            assert!(masks.folder.is_absolute() && masks.folder.is_dir() && masks.file.is_file());
            assert!(masks.config_file.is_absolute() && masks.config_file.ends_with("gantry.toml"));
        }
        fs::write(dir.path().join("mask/folder/secret"), "x").unwrap();
        assert!(masks(&config, dir.path()).is_err());
    }

    #[test]
    fn the_configuration_file_in_use_is_the_servers_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let name = root.join("etc/gantry.toml").display().to_string();
        std::fs::create_dir(root.join("etc")).unwrap();
        std::fs::write(&name, "").unwrap();
        let file = crate::config::ConfigFile { name: name.clone(), folder: root.clone(), text: String::new() };
        let config = GantryConfig::from_sources(Some(&file), &BTreeMap::new(), Vec::new()).unwrap();
        assert!(reach(&config, &root.join("data"), None).private_paths.contains(&PathBuf::from(name)));
    }

    #[test]
    fn the_home_of_the_servers_user_is_a_home_and_the_root_of_everything_is_none() {
        let of = |home: &str| {
            let config = GantryConfig::from_sources(None, &BTreeMap::new(), Vec::new()).unwrap();
            reach(&config, Path::new("/srv/data"), Some(Path::new(home))).homes
        };
        assert!(of("/opt/gantry").contains(&PathBuf::from("/opt/gantry")));
        for none in ["/", "", "relative"] {
            assert!(of(none).iter().all(|home| home.starts_with("/root") || home.starts_with("/home")), "{none}");
        }
    }

    #[test]
    fn a_fence_behind_a_link_stands_on_both_sides() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let link = root.join("link").display().to_string();
        let reach = reach_with(
            &[("GANTRY_SANDBOX__BLOCKED_PATHS", &link), ("GANTRY_SANDBOX__ALLOWED_PATHS", &format!("{link}/new"))],
            &root.join("data"),
        );
        assert!(["link", "real"].iter().all(|name| reach.blocked_paths.contains(&root.join(name))));
        assert_eq!(reach.allowed_paths, Some(vec![root.join("real/new")]));
    }
}
