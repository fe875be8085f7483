//! The secrets of an installation, sealed before they go into the store that its instances share.
//!
//! Whoever reads the table then holds nothing without the key, which is in no database: each instance is given it by its
//! configuration. How they are sealed is in `store_seal`; the name of a secret is sealed with it, so that no row can pass for
//! another.
//!
//! Invariants
//! - SEAL-1: with a key, nothing is written but sealed, and what was there before is sealed when it is first read.
//! - SEAL-2: without a key, nothing sealed is taken for a secret; with another key, neither. Both are refused before
//!   anything is written.
//! - SEAL-3: a value is replaced only if it still is the one that was read, sealed or not: no instance undoes what another did.
//!
//! Not here: where the key comes from (`store_keys`), which secrets there are (`commands/serve/installation.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ports::entropy::Entropy;
use ports::installation_store::InstallationStore;
use ports::registry_store::StoreError;

use crate::failure::CommandFailure;
use crate::store_keys::{self, COPY_IT};
use crate::store_seal::{StoreKey, StoreSeal, is_sealed};

/// Times that a value which others change at the same moment is read again.
const READS_MAX: usize = 5;

/// Why a value of the store is no secret of ours. Says nothing of what it is.
#[derive(Debug, thiserror::Error)]
enum SealError {
    #[error("`{0}` in the store is sealed, and this instance has no key")]
    NoKey(String),
    #[error("`{0}` in the store is sealed with another key, or was changed")]
    Broken(String),
    #[error("`{0}` is being changed by other instances all the time")]
    Restless(String),
    #[error("`{0}` cannot be sealed")]
    NotSealed(String),
}

impl From<SealError> for StoreError {
    fn from(error: SealError) -> Self {
        Self::Corrupt(Box::new(error))
    }
}

/// A store of secrets, with seals on what it keeps if there is a key.
pub(crate) struct SealedSecrets {
    inner: Arc<dyn InstallationStore>,
    seal: Option<StoreSeal>,
}

impl fmt::Debug for SealedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedSecrets").field("sealing", &self.seal.is_some()).finish_non_exhaustive()
    }
}

impl SealedSecrets {
    /// Looks at everything that is kept, and seals what is not sealed yet if there is a key (SEAL-1, SEAL-2).
    pub(crate) async fn open(
        inner: Arc<dyn InstallationStore>,
        key: Option<&StoreKey>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, CommandFailure> {
        let seal = key.map(|key| StoreSeal::new(key, Arc::clone(&entropy))).transpose()?;
        let secrets = Self { inner, seal };
        let kept = secrets.inner.secrets().await.map_err(|error| unread(&error))?;
        // All of them first: nothing is sealed with a key that is not theirs.
        for (name, value) in &kept {
            secrets.opened(name, value).map_err(|error| refused(&error))?;
        }
        if let Some(key) = key {
            store_keys::claim(&*secrets.inner, key, &entropy).await?;
        }
        for (name, value) in &kept {
            if secrets.seal.is_some() && !is_sealed(value) {
                secrets.settled(name, value.clone()).await.map_err(|error| CommandFailure::new(error.to_string()))?;
            }
        }
        Ok(secrets)
    }

    fn seal(&self, name: &str, value: &str) -> Result<String, SealError> {
        let Some(seal) = &self.seal else { return Ok(value.to_owned()) };
        seal.seal(&what(name), value).ok_or_else(|| SealError::NotSealed(name.to_owned()))
    }

    /// The secret that a kept value is.
    fn opened(&self, name: &str, value: &str) -> Result<String, SealError> {
        if !is_sealed(value) {
            return Ok(value.to_owned());
        }
        let seal = self.seal.as_ref().ok_or_else(|| SealError::NoKey(name.to_owned()))?;
        seal.open(&what(name), value).ok_or_else(|| SealError::Broken(name.to_owned()))
    }

    /// The secret behind a kept value, which is sealed in the store when this answers (SEAL-1).
    async fn settled(&self, name: &str, mut kept: String) -> Result<String, StoreError> {
        for _ in 0..READS_MAX {
            let secret = self.opened(name, &kept)?;
            if self.seal.is_none() || is_sealed(&kept) {
                return Ok(secret);
            }
            let sealed = self.seal(name, &secret)?;
            if self.inner.replace(name, &kept, &sealed).await? {
                tracing::warn!(secret = name, "a secret of the installation was not sealed in the store; it is now");
                return Ok(secret);
            }
            // SEAL-3: another instance was quicker, with the same or with another secret.
            kept = self.inner.keep(name, &sealed).await?;
        }
        Err(SealError::Restless(name.to_owned()).into())
    }
}

#[async_trait]
impl InstallationStore for SealedSecrets {
    async fn secrets(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let kept = self.inner.secrets().await?;
        let opened = kept.into_iter().map(|(name, value)| Ok((self.opened(&name, &value)?, name)));
        Ok(opened.map(|one| one.map(|(secret, name)| (name, secret))).collect::<Result<_, SealError>>()?)
    }

    async fn keep(&self, name: &str, value: &str) -> Result<String, StoreError> {
        let kept = self.inner.keep(name, &self.seal(name, value)?).await?;
        self.settled(name, kept).await
    }

    async fn replace(&self, name: &str, former: &str, value: &str) -> Result<bool, StoreError> {
        let Some(kept) = self.inner.secrets().await?.remove(name) else { return Ok(false) };
        if self.opened(name, &kept)? != former {
            return Ok(false);
        }
        self.inner.replace(name, &kept, &self.seal(name, value)?).await
    }
}

/// SEAL-1: what belongs to the name is no other's.
pub(crate) fn what(name: &str) -> String {
    format!("gantry installation secret {name}")
}

/// The table of secrets cannot be read.
pub(crate) fn unread(error: &StoreError) -> CommandFailure {
    CommandFailure::new(format!("the secrets of this installation cannot be read: {error}"))
        .hint("docs/postgres.md says what a database for Gantry needs")
}

fn refused(error: &SealError) -> CommandFailure {
    let hint = match error {
        SealError::NoKey(_) | SealError::Broken(_) => COPY_IT,
        SealError::Restless(_) | SealError::NotSealed(_) => "start it again",
    };
    CommandFailure::new(error.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::OsEntropy;
    use crate::shared_keys::tests::KeyShelf;

    const SEALED: &str = "gantry-sealed:1:";
    const SEALED_SOMEHOW: &str = "gantry-sealed:";

    fn key(number: u8) -> StoreKey {
        StoreKey::parse(&format!("{number:02x}").repeat(32)).unwrap()
    }

    async fn open(shelf: &Arc<KeyShelf>, key: Option<StoreKey>) -> Result<SealedSecrets, CommandFailure> {
        let entropy = Arc::new(OsEntropy::open().unwrap());
        SealedSecrets::open(Arc::clone(shelf) as _, key.as_ref(), entropy).await
    }

    async fn raw(shelf: &KeyShelf) -> BTreeMap<String, String> {
        shelf.secrets().await.unwrap()
    }

    #[tokio::test]
    async fn what_is_kept_is_sealed_and_read_by_whoever_has_the_key() {
        let shelf: Arc<KeyShelf> = Arc::default();
        let (one, other) = (open(&shelf, Some(key(1))).await.unwrap(), open(&shelf, Some(key(1))).await.unwrap());
        assert_eq!(one.keep("token", "hunter2").await.unwrap(), "hunter2");
        assert_eq!(other.keep("token", "another").await.unwrap(), "hunter2", "the first one wins");
        assert_eq!(other.secrets().await.unwrap()["token"], "hunter2");
        assert!(raw(&shelf).await["token"].starts_with(SEALED));
        assert!(!format!("{:?}{one:?}", raw(&shelf).await).contains("hunter2"));
        assert!(!one.replace("token", "not that", "x").await.unwrap());
        assert!(one.replace("token", "hunter2", "hunter3").await.unwrap());
        assert_eq!(other.secrets().await.unwrap()["token"], "hunter3");
        assert!(!other.replace("token", "hunter2", "hunter4").await.unwrap(), "it is not that any more");
        assert!(!other.replace("unknown", "a", "b").await.unwrap());
    }

    #[tokio::test]
    async fn what_was_there_before_the_key_is_sealed_at_the_next_start() {
        let shelf: Arc<KeyShelf> = Arc::default();
        let before = open(&shelf, None).await.unwrap();
        before.keep("token", "hunter2").await.unwrap();
        assert_eq!(raw(&shelf).await["token"], "hunter2", "without a key it is as it always was");
        let after = open(&shelf, Some(key(1))).await.unwrap();
        assert!(raw(&shelf).await["token"].starts_with(SEALED));
        assert_eq!(after.keep("token", "another").await.unwrap(), "hunter2");
        // What an instance without a key puts beside it is sealed when it is next kept.
        shelf.keep("late", "plain").await.unwrap();
        assert_eq!(after.secrets().await.unwrap()["late"], "plain");
        assert_eq!(after.keep("late", "other").await.unwrap(), "plain");
        assert!(raw(&shelf).await["late"].starts_with(SEALED));
    }

    #[tokio::test]
    async fn without_the_key_and_with_another_the_start_is_refused_and_nothing_is_changed() {
        let shelf: Arc<KeyShelf> = Arc::default();
        let right = open(&shelf, Some(key(1))).await.unwrap();
        right.keep("token", "hunter2").await.unwrap();
        shelf.keep("plain", "as it is").await.unwrap();
        let kept = raw(&shelf).await;
        let without = open(&shelf, None).await.unwrap_err();
        assert!(without.message.contains("sealed") && without.hint.unwrap().contains("seal_key_file"));
        let wrong = open(&shelf, Some(key(2))).await.unwrap_err();
        assert!(wrong.message.contains("another key"), "{}", wrong.message);
        assert_eq!(raw(&shelf).await, kept);
    }

    #[tokio::test]
    async fn a_value_that_was_changed_or_belongs_to_another_name_is_none() {
        let shelf: Arc<KeyShelf> = Arc::default();
        let secrets = open(&shelf, Some(key(1))).await.unwrap();
        secrets.keep("token", "hunter2").await.unwrap();
        let sealed = raw(&shelf).await["token"].clone();
        for forged in [
            sealed.clone(),
            SEALED.to_owned(),
            format!("{SEALED}AAAA"),
            format!("{SEALED}***"),
            format!("{SEALED_SOMEHOW}2:AAAA"),
        ] {
            let shelf: Arc<KeyShelf> = Arc::default();
            shelf.keep("other", &forged).await.unwrap();
            assert!(open(&shelf, Some(key(1))).await.is_err(), "{forged}");
        }
        let mut turned = sealed.clone().into_bytes();
        let last = turned.len() - 2;
        turned[last] = if turned[last] == b'A' { b'B' } else { b'A' };
        assert!(shelf.replace("token", &sealed, std::str::from_utf8(&turned).unwrap()).await.unwrap());
        assert!(secrets.secrets().await.is_err());
    }

    #[tokio::test]
    async fn many_that_seal_at_once_agree() {
        let shelf: Arc<KeyShelf> = Arc::default();
        shelf.keep("token", "hunter2").await.unwrap();
        let starts = (0..20).map(|_| open(&shelf, Some(key(1))));
        for started in futures_util::future::join_all(starts).await {
            assert_eq!(started.unwrap().keep("token", "x").await.unwrap(), "hunter2");
        }
    }
}
