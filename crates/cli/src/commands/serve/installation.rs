//! Who this installation is: instances on one store have one admin token, one set of signing keys, one root of webhook
//! secrets and one key that seals session ids. (DESIGN §4)
//!
//! At the start each instance offers what its data directory has, or something fresh. The first to come brings what all
//! use; the others take it over, into their data directories too, so that commands on each machine work as before.
//!
//! Invariants
//! - ONE-1: the store decides, also against what a data directory already has.
//! - ONE-2: nothing is lost silently. What the store replaces in a data directory stays beside it as `….replaced`, and the
//!   log says so.
//!
//! Not here: replacing the signing key later (`shared_keys`). A store that only one server can have has no part in this.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::Kernel;
use policy::{SigningKey, VerifyingKey};
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::installation_store::InstallationStore;
use ports::key_vault::KeyVault;
use tokio::task::JoinHandle;

use crate::data_dir::{self, DataDir};
use crate::failure::CommandFailure;
use crate::key_vault::{self, DataDirVault};
use crate::machine::OsEntropy;
use crate::sealed_secrets::SealedSecrets;
use crate::secret_file;
use crate::shared_keys::{self, KeyRing, SIGNING_KEYS, SharedKeys};
use crate::store_seal::StoreKey;

/// Files that may be set aside under one name. More than that is for a person to look at.
const SET_ASIDE_MAX: usize = 10;

/// What the instances have in common, as far as it is not in the data directory.
#[derive(Debug)]
pub(super) struct Installation {
    keys: SharedKeys,
    ring: KeyRing,
    own_keys: Vec<VerifyingKey>,
    seal_key: SealKey,
}

/// Seals what clients of MCP carry between instances.
struct SealKey([u8; 32]);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(…)")
    }
}

/// A secret that is one line of text.
struct Line {
    /// In the store.
    name: &'static str,
    /// For people.
    title: &'static str,
    file: PathBuf,
    is_sound: fn(&str) -> bool,
    fresh: fn(&dyn Entropy) -> String,
}

/// Agrees with the other instances on this store; the data directory has afterwards what was agreed on. `None` if there can
/// be no others.
pub(super) async fn agree(
    store: Option<Arc<dyn InstallationStore>>,
    key: Option<&StoreKey>,
    data_dir: &DataDir,
    entropy: &Arc<OsEntropy>,
) -> Result<Option<Installation>, CommandFailure> {
    let Some(store) = store else { return Ok(None) };
    let sealed = SealedSecrets::open(store, key, Arc::clone(entropy) as _).await?;
    join(Arc::new(sealed), data_dir, &**entropy).await.map(Some)
}

async fn join(
    store: Arc<dyn InstallationStore>,
    data_dir: &DataDir,
    entropy: &dyn Entropy,
) -> Result<Installation, CommandFailure> {
    let is_root = |text: &str| data_dir::root_of(text).is_some();
    let lines = [
        Line {
            name: "admin_token",
            title: "admin token",
            file: data_dir.admin_token_file(),
            is_sound: data_dir::is_admin_token,
            fresh: data_dir::new_admin_token,
        },
        Line {
            name: "webhook_root",
            title: "root of webhook secrets",
            file: data_dir.webhook_root_file(),
            is_sound: is_root,
            fresh: data_dir::new_root,
        },
    ];
    for line in &lines {
        line.agree(&*store, entropy).await?;
    }
    let seal = Line {
        name: "mcp_seal",
        title: "key of MCP sessions",
        file: data_dir.seal_key_file(),
        is_sound: is_root,
        fresh: data_dir::new_root,
    };
    let sealed = seal.agree(&*store, entropy).await?;
    let seal_key = data_dir::root_of(&sealed).map(SealKey).ok_or_else(|| unusable(seal.title))?;
    let ring = agree_on_keys(&*store, data_dir, entropy).await?;
    let own_keys = ring.own_keys().map_err(|error| CommandFailure::new(error.to_string()))?;
    let keys = SharedKeys::new(store, DataDirVault::new(data_dir.clone()));
    Ok(Installation { keys, ring, own_keys, seal_key })
}

impl Installation {
    /// The public halves of the signing key and of those it followed, the present one first.
    pub(super) fn own_keys(&self) -> Vec<VerifyingKey> {
        self.own_keys.clone()
    }

    /// Where new signing keys are kept.
    pub(super) fn vault(&self) -> Arc<dyn KeyVault> {
        Arc::new(self.keys.clone())
    }

    /// Seals what clients of MCP carry between instances.
    pub(super) fn seal_key(&self) -> &[u8; 32] {
        &self.seal_key.0
    }

    /// Takes over the signing keys that other instances make.
    pub(super) fn follow(&self, kernel: Arc<Kernel>, clock: Arc<dyn Clock>) -> JoinHandle<()> {
        tokio::spawn(self.keys.clone().follow(kernel, clock, self.ring.clone()))
    }
}

impl Line {
    /// Offers what is here, and takes over what is kept.
    async fn agree(&self, store: &dyn InstallationStore, entropy: &dyn Entropy) -> Result<String, CommandFailure> {
        let local = data_dir::read(&self.file)?.map(|found| found.text.trim().to_owned());
        if local.as_deref().is_some_and(|local| !(self.is_sound)(local)) {
            return Err(data_dir::garbled(&self.file, &format!("it does not hold the {}", self.title)));
        }
        let offered = local.clone().unwrap_or_else(|| (self.fresh)(entropy));
        let kept = keep(store, self.name, &offered).await?;
        if !(self.is_sound)(&kept) {
            return Err(unusable(self.title));
        }
        if local.as_deref() == Some(kept.as_str()) {
            return Ok(kept);
        }
        if let Some(local) = &local {
            set_aside(&self.file, &format!("{local}\n"), self.title)?;
        }
        secret_file::write(&self.file, &format!("{kept}\n")).map_err(|error| data_dir::refused(&error))?;
        Ok(kept)
    }
}

async fn agree_on_keys(
    store: &dyn InstallationStore,
    data_dir: &DataDir,
    entropy: &dyn Entropy,
) -> Result<KeyRing, CommandFailure> {
    let said = |error: shared_keys::KeyRingError| CommandFailure::new(error.to_string());
    let local = data_dir.signing_key()?.map(|kept| kept.value);
    let offered = match &local {
        Some(key) => KeyRing::new(key, &key_vault::retired_keys(data_dir)?),
        None => {
            let mut seed = [0u8; 32];
            entropy.fill(&mut seed);
            KeyRing::new(&SigningKey::from_seed(&seed), &[])
        }
    };
    let kept = keep(store, SIGNING_KEYS, &offered.map_err(said)?.text()).await?;
    let ring = KeyRing::parse(&kept).map_err(said)?;
    // A key that the store knows as a former one was rotated while this instance was away.
    let is_known = |key: &SigningKey| ring.own_keys().is_ok_and(|own| own.iter().any(|known| known.id() == key.id()));
    let vault = DataDirVault::new(data_dir.clone());
    if let Some(stranger) = local.filter(|key| !is_known(key)) {
        let pem = stranger.to_pem().map_err(|error| CommandFailure::new(error.to_string()))?;
        let file = data_dir.signing_key_file();
        set_aside(&file, &pem, "signing key")?;
        // Its tokens are not this installation's: it is replaced, and not kept as one of the former keys.
        std::fs::remove_file(&file)
            .map_err(|error| CommandFailure::new(format!("`{}` cannot be replaced: {error}", file.display())))?;
    }
    shared_keys::write_copy(&vault, &ring).map_err(CommandFailure::new)?;
    Ok(ring)
}

async fn keep(store: &dyn InstallationStore, name: &str, value: &str) -> Result<String, CommandFailure> {
    store.keep(name, value).await.map_err(|error| {
        CommandFailure::new(format!("the instances of this installation cannot agree: {error}"))
            .hint("docs/postgres.md says what a database for Gantry needs")
    })
}

fn unusable(title: &str) -> CommandFailure {
    CommandFailure::new(format!("the store's {title} makes no sense"))
        .hint("restore the table `installation_secrets` from a backup of the database")
}

/// ONE-2.
fn set_aside(file: &Path, text: &str, title: &str) -> Result<(), CommandFailure> {
    let beside = |number: usize| {
        let mut name = file.as_os_str().to_owned();
        name.push(".replaced");
        if number > 0 {
            name.push(format!(".{number}"));
        }
        PathBuf::from(name)
    };
    let free = (0..SET_ASIDE_MAX).map(beside).find(|path| matches!(path.try_exists(), Ok(false))).ok_or_else(|| {
        CommandFailure::new(format!("`{}` has been replaced {SET_ASIDE_MAX} times", file.display()))
            .hint("move the files `….replaced` beside it away")
    })?;
    secret_file::write(&free, text).map_err(|error| data_dir::refused(&error))?;
    tracing::warn!(
        "the {title} of this data directory is not the installation's: the store's is used from now on, and the former one is \
         in `{}`",
        free.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::shared_keys::tests::KeyShelf;

    struct InstallationHarness {
        dir: tempfile::TempDir,
        shelf: Arc<KeyShelf>,
        entropy: OsEntropy,
    }

    impl InstallationHarness {
        fn new() -> Self {
            let (dir, entropy) = (tempfile::tempdir().unwrap(), OsEntropy::open().unwrap());
            Self { dir, shelf: Arc::default(), entropy }
        }

        fn data(&self, name: &str) -> DataDir {
            let data = DataDir::at(self.dir.path().join(name));
            data.create().unwrap();
            data
        }

        async fn join(&self, data: &DataDir) -> Result<Installation, CommandFailure> {
            join(Arc::clone(&self.shelf) as _, data, &self.entropy).await
        }
    }

    fn secrets(data: &DataDir) -> Vec<String> {
        [data.admin_token_file(), data.webhook_root_file(), data.seal_key_file(), data.signing_key_file()]
            .iter()
            .map(|path| {
                assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
                std::fs::read_to_string(path).unwrap()
            })
            .collect()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn those_that_come_later_take_over_what_the_first_one_brought() {
        let harness = InstallationHarness::new();
        let (first, second) = (harness.data("first"), harness.data("second"));
        let brought = first.admin_token_or_new(&harness.entropy).unwrap().value;
        let one = harness.join(&first).await.unwrap();
        let two = harness.join(&second).await.unwrap();
        assert_eq!(secrets(&first), secrets(&second));
        assert_eq!(second.admin_token().unwrap().unwrap().value, brought);
        assert_eq!((one.own_keys(), one.seal_key()), (two.own_keys(), two.seal_key()));
        assert_eq!(names(second.path()), ["admin.token", "keys", "mcp.key", "webhook.key"], "nothing was replaced");
        let before = secrets(&second);
        harness.join(&second).await.unwrap();
        assert_eq!(secrets(&second), before, "nothing changes at the next start");
    }

    #[tokio::test]
    async fn a_data_directory_with_secrets_of_its_own_follows_the_store_and_loses_none() {
        let harness = InstallationHarness::new();
        let (first, moved) = (harness.data("first"), harness.data("moved"));
        harness.join(&first).await.unwrap();
        let token = moved.admin_token_or_new(&harness.entropy).unwrap().value;
        let key = moved.signing_key_or_new(&harness.entropy).unwrap().value;
        let installation = harness.join(&moved).await.unwrap();
        assert_eq!(secrets(&first), secrets(&moved));
        assert!(installation.own_keys().iter().all(|known| known.id() != key.id()));
        let aside = moved.path().join("admin.token.replaced");
        assert_eq!(std::fs::read_to_string(&aside).unwrap().trim(), token);
        assert_eq!(std::fs::metadata(&aside).unwrap().permissions().mode() & 0o777, 0o600);
        let pem = std::fs::read_to_string(moved.path().join("keys/signing.pem.replaced")).unwrap();
        assert_eq!(SigningKey::from_pem(&pem).unwrap().id(), key.id());
        // Once more, with another one: the first that was set aside stays.
        let another = data_dir::new_admin_token(&harness.entropy);
        secret_file::write(&moved.admin_token_file(), &another).unwrap();
        harness.join(&moved).await.unwrap();
        assert_eq!(std::fs::read_to_string(&aside).unwrap().trim(), token);
        assert!(std::fs::read_to_string(moved.path().join("admin.token.replaced.1")).unwrap().contains(&another));
    }

    #[tokio::test]
    async fn an_instance_that_was_away_while_keys_were_rotated_knows_them_all() {
        let harness = InstallationHarness::new();
        let (first, away) = (harness.data("first"), harness.data("away"));
        let former = harness.join(&first).await.unwrap();
        harness.join(&away).await.unwrap();
        let next = SigningKey::from_seed(&[9; 32]);
        let (text, ring) = (former.ring.text(), KeyRing::new(&next, &former.own_keys()).unwrap());
        assert!(harness.shelf.replace(SIGNING_KEYS, &text, &ring.text()).await.unwrap());
        let back = harness.join(&away).await.unwrap();
        assert_eq!((back.own_keys()[0].id(), back.own_keys().len()), (next.id(), 2));
        assert_eq!(away.signing_key().unwrap().unwrap().value.id(), next.id());
        assert_eq!(key_vault::retired_keys(&away).unwrap(), former.own_keys());
        assert_eq!(names(&away.path().join("keys")), ["retired", "signing.pem"], "it was no stranger's");
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_refused_on_either_side() {
        let harness = InstallationHarness::new();
        let garbled = harness.data("garbled");
        secret_file::write(&garbled.admin_token_file(), "hunter2").unwrap();
        assert!(harness.join(&garbled).await.unwrap_err().message.contains("admin.token"));
        assert!(harness.shelf.secrets().await.unwrap().is_empty(), "nothing of it gets into the store");
        harness.shelf.keep("admin_token", "hunter2").await.unwrap();
        let failure = harness.join(&harness.data("fresh")).await.unwrap_err();
        assert!(failure.message.contains("admin token") && !failure.message.contains("hunter2"));
    }
}
