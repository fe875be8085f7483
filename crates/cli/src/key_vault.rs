//! Signing keys in the data directory: the present one, and the public halves of those it followed. (AUTH-005)
//!
//! ```text
//! keys/signing.pem          signs now; replaced whole (new file, fsync, rename, fsync of the folder)
//! keys/retired/<kid>.pem    public halves of former keys: their tokens stay valid until they expire
//! ```
//!
//! Invariants
//! - VAULT-1: the former key's public half is durable before the new key takes its place. A crash in between leaves a key
//!   that is both present and retired, which is harmless; the other order would end every token of the former key.
//! - VAULT-2: at most [`RETIRED_MAX`] former keys are kept, the newest ones.
//!
//! A key that has leaked must not only be rotated: remove its file from `keys/retired`, and restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use async_trait::async_trait;
use base::MutexExt as _;
use policy::{SigningKey, VerifyingKey};
use ports::key_vault::{KeyVault, KeyVaultError};

use crate::data_dir::DataDir;
use crate::failure::CommandFailure;
use crate::{public_key_file, secret_file};

/// Former keys that are kept: a rotation every two weeks, and tokens that live a year.
pub(crate) const RETIRED_MAX: usize = 32;

/// Keeps keys in the data directory.
#[derive(Debug, Clone)]
pub(crate) struct DataDirVault {
    data_dir: DataDir,
    /// One replacement after the other: each retires what the former one has written.
    turn: Arc<Mutex<()>>,
}

impl DataDirVault {
    /// On this data directory.
    pub(crate) fn new(data_dir: DataDir) -> Self {
        Self { data_dir, turn: Arc::default() }
    }

    /// Writes the public halves of former keys that are not there yet, given newest first. What cannot be written does no
    /// harm where the keys come from elsewhere.
    pub(crate) fn note_retired(&self, keys: &[VerifyingKey]) -> Result<(), CommandFailure> {
        self.data_dir.create_retired()?;
        // The oldest first, because the age of the files is their order.
        for key in keys.iter().rev() {
            let path = self.file_of(key);
            if let Some(text) = key.to_public_pem().filter(|_| !path.try_exists().unwrap_or(false)) {
                secret_file::write(&path, &text).map_err(|error| CommandFailure::new(error.to_string()))?;
            }
        }
        self.prune();
        Ok(())
    }

    pub(crate) fn replace_now(&self, pem: &str, new_id: &str) -> Result<(), CommandFailure> {
        let _turn = self.turn.lock_unpoisoned();
        let broken = |error: secret_file::SecretFileError| CommandFailure::new(error.to_string());
        if let Some(former) = self.data_dir.signing_key()?.filter(|former| former.value.id() != new_id) {
            let key = former.value.verifying_key();
            self.data_dir.create_retired()?;
            let text = key.to_public_pem().ok_or_else(|| CommandFailure::new("the former key has no public half"))?;
            secret_file::write(&self.file_of(&key), &text).map_err(broken)?;
        }
        secret_file::write(&self.data_dir.signing_key_file(), pem).map_err(broken)?;
        self.prune();
        Ok(())
    }

    fn file_of(&self, key: &VerifyingKey) -> PathBuf {
        self.data_dir.retired_keys_dir().join(format!("{}.pem", key.id()))
    }

    /// VAULT-2. What cannot be removed does no harm: only so many are read.
    fn prune(&self) {
        let Ok(files) = files_in(&self.data_dir.retired_keys_dir()) else { return };
        for file in files.iter().skip(RETIRED_MAX) {
            if let Err(error) = std::fs::remove_file(file) {
                tracing::warn!(%error, "a former signing key that is too old could not be removed");
            }
        }
    }
}

#[async_trait]
impl KeyVault for DataDirVault {
    async fn replace(&self, key: &SigningKey) -> Result<(), KeyVaultError> {
        let pem = key.to_pem().map_err(|error| KeyVaultError(error.to_string()))?;
        let (vault, id) = (self.clone(), key.id().to_owned());
        let written = tokio::task::spawn_blocking(move || vault.replace_now(&pem, &id)).await;
        written.map_err(|error| KeyVaultError(error.to_string()))?.map_err(|failure| KeyVaultError(failure.message))
    }
}

/// The public halves of former keys, newest first.
pub(crate) fn retired_keys(data_dir: &DataDir) -> Result<Vec<VerifyingKey>, CommandFailure> {
    let dir = data_dir.retired_keys_dir();
    let files = match files_in(&dir) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CommandFailure::new(format!("`{}` cannot be read: {error}", dir.display()))),
    };
    let read = |path: &PathBuf| {
        let name = public_key_file::name_of(path).unwrap_or_default();
        public_key_file::key_in(path, &public_key_file::text_of(path)?, name)
    };
    files.iter().take(RETIRED_MAX).map(read).collect()
}

/// The public halves of the present key and of those it followed, the present one first.
pub(crate) fn own_keys(data_dir: &DataDir, present: &SigningKey) -> Result<Vec<VerifyingKey>, CommandFailure> {
    let former = retired_keys(data_dir)?.into_iter().filter(|key| key.id() != present.id());
    Ok(std::iter::once(present.verifying_key()).chain(former).collect())
}

/// The key files of a folder, newest first; of one age in the order of their names.
fn files_in(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pem") {
            let age = std::fs::metadata(&path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            files.push((std::cmp::Reverse(age), path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn fresh() -> (tempfile::TempDir, DataDir, DataDirVault) {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path().join("data"));
        data.create().unwrap();
        secret_file::write(&data.signing_key_file(), &key(0).to_pem().unwrap()).unwrap();
        (dir, data.clone(), DataDirVault::new(data))
    }

    fn key(number: u8) -> SigningKey {
        SigningKey::from_seed(&[number; 32])
    }

    /// Makes what was retired so far older, as time would.
    fn age(data: &DataDir) {
        for file in files_in(&data.retired_keys_dir()).unwrap_or_default() {
            let before = std::fs::metadata(&file).unwrap().modified().unwrap() - Duration::from_secs(60);
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        }
    }

    #[tokio::test]
    async fn a_new_key_takes_the_place_and_the_former_one_is_still_known() {
        let (_dir, data, vault) = fresh();
        assert!(retired_keys(&data).unwrap().is_empty());
        vault.replace(&key(1)).await.unwrap();
        assert_eq!(data.signing_key().unwrap().unwrap().value.id(), key(1).id());
        assert_eq!(retired_keys(&data).unwrap(), [key(0).verifying_key()], "the very same key, under the same name");
        age(&data);
        vault.replace(&key(2)).await.unwrap();
        assert_eq!(retired_keys(&data).unwrap(), [key(1).verifying_key(), key(0).verifying_key()]);
        let left: Vec<_> =
            std::fs::read_dir(data.path().join("keys")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_kept_leaves_the_former_one() {
        let (_dir, data, vault) = fresh();
        // Neither the retired key nor the new one can be written where a file stands in the way.
        std::fs::write(data.retired_keys_dir(), "in the way").unwrap();
        assert!(vault.replace(&key(1)).await.is_err());
        assert_eq!(data.signing_key().unwrap().unwrap().value.id(), key(0).id());
        std::fs::remove_file(data.retired_keys_dir()).unwrap();
        std::fs::create_dir(data.path().join("keys/signing.pem.new")).unwrap();
        assert!(vault.replace(&key(1)).await.is_err());
        assert_eq!(data.signing_key().unwrap().unwrap().value.id(), key(0).id());
        assert_eq!(retired_keys(&data).unwrap().len(), 1, "VAULT-1: known before it is replaced");
    }

    #[tokio::test]
    async fn only_the_newest_former_keys_are_kept() {
        let (_dir, data, vault) = fresh();
        for number in 1..=40 {
            age(&data);
            vault.replace(&key(number)).await.unwrap();
        }
        let kept = retired_keys(&data).unwrap();
        assert_eq!((kept.len(), kept[0].id(), kept[31].id()), (RETIRED_MAX, key(39).id(), key(8).id()));
        assert_eq!(std::fs::read_dir(data.retired_keys_dir()).unwrap().count(), RETIRED_MAX);
    }

    #[test]
    fn a_former_key_that_makes_no_sense_is_refused() {
        let (_dir, data, _vault) = fresh();
        data.create_retired().unwrap();
        std::fs::write(data.retired_keys_dir().join("notes.txt"), "no key, and not taken for one").unwrap();
        assert!(retired_keys(&data).unwrap().is_empty());
        std::fs::write(data.retired_keys_dir().join("x.pem"), "-----BEGIN PUBLIC KEY-----").unwrap();
        assert!(retired_keys(&data).unwrap_err().message.contains("x.pem"));
    }
}
