//! Which key seals what must not be readable in the store, and whether it is the right one.
//!
//! ```text
//!  given by the operator ──▶ that one
//!  a file of this machine ──▶ `keys/store.key`, made at the first start
//!  a database, nothing in it yet ──▶ the same, and a check value in the database: from now on this key is needed
//!  a database with sealed secrets ──▶ `keys/store.key` if it is that key, else no start
//!  a database whose secrets were never sealed ──▶ none; it stays as it is until a key is given
//! ```
//!
//! Invariants
//! - STORE-KEY-1: of instances that begin a database together one makes the key; no other keeps one that opens nothing.
//! - STORE-KEY-2: the file is there before the database is sealed with it: no crash leaves a database without its key.
//! - STORE-KEY-3: an upgrade stops nobody. Instances of a database without a key share no file, so none is made for them.
//!
//! Not here: the seal (`store_seal`), and what is sealed in the table (`sealed_secrets`).

use std::sync::Arc;

use ports::entropy::Entropy;
use ports::installation_store::InstallationStore;

use crate::config::store::{SealKeyPlace, StoreSection};
use crate::data_dir::DataDir;
use crate::failure::CommandFailure;
use crate::sealed_secrets::{unread, what};
use crate::store_seal::{NOT_SEALED, StoreKey, StoreSeal, is_sealed};

/// Under this name the database holds a text that only its key opens, sealed like its secrets.
const KEY_CHECK: &str = "store_key_check";
/// The text.
const CHECKED: &str = "the key of this store";

/// The keys on what must not be readable in the store.
#[derive(Debug)]
pub(crate) struct StoreKeys {
    /// Seals what is written; none if the database was begun without one and nobody has given one since.
    pub(crate) key: Option<StoreKey>,
    /// Opens what this data directory has sealed before a key was given.
    former: Option<StoreKey>,
}

impl StoreKeys {
    /// Those of this instance. `shared` is the table of secrets of a database that instances share.
    pub(crate) async fn of(
        config: &StoreSection,
        shared: Option<&dyn InstallationStore>,
        data_dir: &DataDir,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, CommandFailure> {
        let given = config.seal_key.as_ref().map(SealKeyPlace::key).transpose()?;
        let Some(shared) = shared else {
            return match given {
                Some(key) => Ok(Self { key: Some(key), former: data_dir.store_key()? }),
                None => Ok(Self { key: Some(data_dir.store_key_or_new(&**entropy)?), former: None }),
            };
        };
        let kept = shared.secrets().await.map_err(|error| unread(&error))?;
        if let Some(key) = given {
            // Whether it is the right one is asked with the first secret that is opened.
            return Ok(Self { key: Some(key), former: data_dir.store_key()? });
        }
        if kept.is_empty() {
            return Ok(Self { key: Some(begun(shared, data_dir, entropy).await?), former: None });
        }
        if !kept.values().any(|value| is_sealed(value)) {
            tracing::warn!(
                "{NOT_SEALED}: give all instances the same key with `[store] seal_key_file`, and it is sealed"
            );
            return Ok(Self { key: None, former: data_dir.store_key()? });
        }
        match data_dir.store_key()? {
            Some(key) => Ok(Self { key: Some(key), former: None }),
            None => {
                Err(CommandFailure::new("the database is sealed, and this instance does not have its key")
                    .hint(COPY_IT))
            }
        }
    }

    /// What seals and what opens what was sealed before, for one user of the store.
    pub(crate) fn seals(
        &self,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<(Option<StoreSeal>, Option<StoreSeal>), CommandFailure> {
        let seal =
            |key: &Option<StoreKey>| key.as_ref().map(|key| StoreSeal::new(key, Arc::clone(entropy))).transpose();
        Ok((seal(&self.key)?, seal(&self.former)?))
    }
}

/// What an instance without the key of its database is told to do.
pub(crate) const COPY_IT: &str = "copy `keys/store.key` from the data directory of the instance that made the database into \
                                  this one's, or give all instances one key with `[store] seal_key_file` or \
                                  GANTRY_STORE__SEAL_KEY; nothing was changed";

/// The key of a database with nothing in it.
async fn begun(
    shared: &dyn InstallationStore,
    data_dir: &DataDir,
    entropy: &Arc<dyn Entropy>,
) -> Result<StoreKey, CommandFailure> {
    let was_there = data_dir.store_key()?.is_some();
    // STORE-KEY-2.
    let key = data_dir.store_key_or_new(&**entropy)?;
    let claimed = claim(shared, &key, entropy).await;
    if claimed.is_err() && !was_there {
        // STORE-KEY-1. If it stays it opens nothing, and the next start says so.
        let _ = std::fs::remove_file(data_dir.store_key_file());
    }
    claimed.map(|()| key)
}

/// Says in the database which key is its own, unless another one is.
pub(crate) async fn claim(
    shared: &dyn InstallationStore,
    key: &StoreKey,
    entropy: &Arc<dyn Entropy>,
) -> Result<(), CommandFailure> {
    let seal = StoreSeal::new(key, Arc::clone(entropy))?;
    let check = seal
        .seal(&what(KEY_CHECK), CHECKED)
        .ok_or_else(|| CommandFailure::new("the key of the store cannot be used"))?;
    let kept = shared.keep(KEY_CHECK, &check).await.map_err(|error| unread(&error))?;
    match seal.open(&what(KEY_CHECK), &kept) {
        Some(text) if text == CHECKED => Ok(()),
        _ => Err(CommandFailure::new("the database is sealed with another key than this instance has").hint(COPY_IT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::OsEntropy;
    use crate::shared_keys::tests::KeyShelf;

    fn entropy() -> Arc<dyn Entropy> {
        Arc::new(OsEntropy::open().unwrap())
    }

    fn data_dir(folder: &tempfile::TempDir, name: &str) -> DataDir {
        let data = DataDir::at(folder.path().join(name));
        data.create().unwrap();
        data
    }

    async fn keys(shelf: &KeyShelf, data: &DataDir) -> Result<StoreKeys, CommandFailure> {
        StoreKeys::of(&StoreSection::unset(), Some(shelf), data, &entropy()).await
    }

    #[tokio::test]
    async fn who_begins_a_database_makes_its_key_and_others_need_that_one() {
        let (folder, shelf) = (tempfile::tempdir().unwrap(), KeyShelf::default());
        let (first, second) = (data_dir(&folder, "first"), data_dir(&folder, "second"));
        let made = keys(&shelf, &first).await.unwrap().key.unwrap();
        assert_eq!(first.store_key().unwrap().unwrap(), made);
        assert_eq!(keys(&shelf, &first).await.unwrap().key.unwrap(), made, "and at the next start");
        let refused = keys(&shelf, &second).await.unwrap_err();
        assert!(refused.hint.unwrap().contains("keys/store.key"), "{}", refused.message);
        assert!(second.store_key().unwrap().is_none(), "no key is made that opens nothing");
        std::fs::copy(first.store_key_file(), second.store_key_file()).unwrap();
        assert_eq!(keys(&shelf, &second).await.unwrap().key.unwrap(), made);
    }

    #[tokio::test]
    async fn of_two_that_begin_together_one_has_the_key() {
        let (folder, shelf) = (tempfile::tempdir().unwrap(), KeyShelf::default());
        let (first, second) = (data_dir(&folder, "first"), data_dir(&folder, "second"));
        // Both have seen that nothing was there.
        begun(&shelf, &first, &entropy()).await.unwrap();
        let refused = begun(&shelf, &second, &entropy()).await.unwrap_err();
        assert!(refused.message.contains("another key") && refused.hint.unwrap().contains("keys/store.key"));
        assert!(first.store_key().unwrap().is_some() && second.store_key().unwrap().is_none());
    }

    #[tokio::test]
    async fn a_database_from_before_stays_as_it_is_until_a_key_is_given() {
        let (folder, shelf) = (tempfile::tempdir().unwrap(), KeyShelf::default());
        shelf.keep("admin_token", "as it is").await.unwrap();
        let data = data_dir(&folder, "first");
        assert!(keys(&shelf, &data).await.unwrap().key.is_none());
        assert!(data.store_key().unwrap().is_none());
    }
}
