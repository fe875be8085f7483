//! Signing keys of an installation: in the store that its instances share, with a copy in each data directory. (AUTH-005)
//!
//! ```text
//! rotation at A    store: former ──replace──▶ new (A and B trust it) ── SETTLING ──▶ A and B sign with it
//! B                looks every LOOK_EVERY: trusts at once, signs after SETTLING
//! ```
//!
//! Present key and former public halves are one value, so that a replacement is one compare-and-set: of two instances that
//! rotate at the same moment one does, and the other says that it did not.
//!
//! Invariants
//! - SHARED-1: a key signs only [`SETTLING`] after it is in the store, and every instance that reaches the store looks
//!   several times in that span: no token is refused elsewhere because its key is too new.
//! - SHARED-2: the store decides. A copy in the data directory that cannot be written is a warning, never another key.
//!
//! Not here: which instance's key is the first (`commands/serve/installation.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::Kernel;
use policy::{SigningKey, VerifyingKey};
use ports::clock::Clock;
use ports::installation_store::InstallationStore;
use ports::key_vault::{KeyVault, KeyVaultError};
use serde::{Deserialize, Serialize};

use crate::key_vault::{DataDirVault, RETIRED_MAX};

/// The name of the keys in the store.
pub(crate) const SIGNING_KEYS: &str = "signing_keys";
/// How often an instance looks for a new key.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a new key is only trusted, before it signs.
const SETTLING: Duration = Duration::from_secs(2);

/// The present key and those it followed, as the store has them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRing {
    /// PEM of the private key.
    present: String,
    /// Newest first, at most [`RETIRED_MAX`].
    retired: Vec<RetiredKey>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RetiredKey {
    kid: String,
    /// PEM of the public half.
    public: String,
}

/// Why keys of the store cannot be used. Says nothing of what they are.
#[derive(Debug, thiserror::Error)]
#[error("the store's signing keys cannot be used: {0}")]
pub(crate) struct KeyRingError(String);

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("retired", &self.retired.len()).finish_non_exhaustive()
    }
}

impl KeyRing {
    /// Of a key and of those it followed, newest first.
    pub(crate) fn new(present: &SigningKey, former: &[VerifyingKey]) -> Result<Self, KeyRingError> {
        let pem = present.to_pem().map_err(|error| KeyRingError(error.to_string()))?;
        let former = former.iter().filter(|key| key.id() != present.id());
        let retired =
            former.filter_map(|key| Some(RetiredKey { kid: key.id().to_owned(), public: key.to_public_pem()? }));
        Ok(Self { present: pem, retired: retired.take(RETIRED_MAX).collect() })
    }

    /// As the store has it.
    pub(crate) fn parse(text: &str) -> Result<Self, KeyRingError> {
        // The reason may repeat a part of the text.
        let ring: Self =
            serde_json::from_str(text).map_err(|_| KeyRingError("they are not what was written".into()))?;
        ring.present()?;
        ring.own_keys()?;
        Ok(ring)
    }

    /// For the store.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The key that signs.
    pub(crate) fn present(&self) -> Result<SigningKey, KeyRingError> {
        SigningKey::from_pem(&self.present).map_err(|error| KeyRingError(error.to_string()))
    }

    /// The public halves of the keys before it, newest first.
    pub(crate) fn retired(&self) -> Result<Vec<VerifyingKey>, KeyRingError> {
        let read = |key: &RetiredKey| VerifyingKey::from_public_pem(&key.public, &key.kid);
        let keys = self.retired.iter().take(RETIRED_MAX).map(read).collect::<Result<_, _>>();
        keys.map_err(|error| KeyRingError(error.to_string()))
    }

    /// All public halves, the present one first.
    pub(crate) fn own_keys(&self) -> Result<Vec<VerifyingKey>, KeyRingError> {
        Ok(std::iter::once(self.present()?.verifying_key()).chain(self.retired()?).collect())
    }

    /// With another key in the place of the present one.
    fn followed_by(&self, key: &SigningKey) -> Result<Self, KeyRingError> {
        Self::new(key, &self.own_keys()?)
    }
}

/// Keeps keys in the store, and copies of them in the data directory.
#[derive(Debug, Clone)]
pub(crate) struct SharedKeys {
    store: Arc<dyn InstallationStore>,
    local: DataDirVault,
}

impl SharedKeys {
    /// In this store.
    pub(crate) fn new(store: Arc<dyn InstallationStore>, local: DataDirVault) -> Self {
        Self { store, local }
    }

    /// What the store has, as text.
    async fn look(&self) -> Result<String, KeyVaultError> {
        let mut secrets = self.store.secrets().await.map_err(|error| KeyVaultError(error.to_string()))?;
        secrets.remove(SIGNING_KEYS).ok_or_else(|| KeyVaultError("the store has none".into()))
    }

    async fn copy(&self, ring: KeyRing) {
        let local = self.local.clone();
        let written = tokio::task::spawn_blocking(move || write_copy(&local, &ring)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(error, "the signing key of the store could not be copied to the data directory");
        }
    }

    /// Takes over what other instances make of the keys. Never ends.
    pub(crate) async fn follow(self, kernel: Arc<Kernel>, clock: Arc<dyn Clock>, mut known: KeyRing) {
        // One that is trusted and does not sign yet, and since when.
        let mut settling: Option<(SigningKey, Duration)> = None;
        let mut troubled = false;
        loop {
            clock.sleep(LOOK_EVERY).await;
            if let Some((key, _)) = settling.take_if(|(_, since)| clock.monotonic().saturating_sub(*since) >= SETTLING)
            {
                tracing::info!(kid = key.id(), "signs with the key that the installation has now");
                kernel.sign_with(key);
            }
            match self.newer_than(&known).await {
                Ok(None) => troubled = false,
                Ok(Some((ring, key, own))) => {
                    troubled = false;
                    if let Err(refusal) = kernel.trust_shared_keys(own) {
                        tracing::error!(
                            error = &refusal as &dyn std::error::Error,
                            "the store's signing keys cannot be used"
                        );
                        continue;
                    }
                    self.copy(ring.clone()).await;
                    known = ring;
                    settling = Some((key, clock.monotonic()));
                }
                Err(error) if troubled => tracing::debug!(%error, "still no word about the signing keys"),
                Err(error) => {
                    troubled = true;
                    tracing::warn!(%error, "another instance's signing key would not be noticed at the moment");
                }
            }
        }
    }

    async fn newer_than(&self, known: &KeyRing) -> Result<Option<(KeyRing, SigningKey, Vec<VerifyingKey>)>, String> {
        let text = self.look().await.map_err(|error| error.0)?;
        let said = |error: KeyRingError| error.to_string();
        let ring = KeyRing::parse(&text).map_err(said)?;
        if ring == *known {
            return Ok(None);
        }
        let (key, own) = (ring.present().map_err(said)?, ring.own_keys().map_err(said)?);
        Ok(Some((ring, key, own)))
    }
}

/// Makes the data directory have these keys too.
pub(crate) fn write_copy(local: &DataDirVault, ring: &KeyRing) -> Result<(), String> {
    let said = |error: KeyRingError| error.to_string();
    let id = ring.present().map_err(said)?.id().to_owned();
    local.replace_now(&ring.present, &id).map_err(|failure| failure.message)?;
    local.note_retired(&ring.retired().map_err(said)?).map_err(|failure| failure.message)
}

#[async_trait]
impl KeyVault for SharedKeys {
    async fn replace(&self, key: &SigningKey) -> Result<(), KeyVaultError> {
        let said = |error: KeyRingError| KeyVaultError(error.to_string());
        let former = self.look().await?;
        let ring = KeyRing::parse(&former).map_err(said)?.followed_by(key).map_err(said)?;
        let replaced = self.store.replace(SIGNING_KEYS, &former, &ring.text()).await;
        if !replaced.map_err(|error| KeyVaultError(error.to_string()))? {
            return Err(KeyVaultError("another instance has replaced the key at the same moment".into()));
        }
        self.copy(ring).await;
        // SHARED-1: whoever asked for the rotation signs with the key when this answers.
        tokio::time::sleep(SETTLING).await;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use base::MutexExt as _;
    use ports::registry_store::StoreError;

    use super::*;
    use crate::data_dir::DataDir;

    /// A store that is a map.
    #[derive(Debug, Default)]
    pub(crate) struct KeyShelf(Mutex<BTreeMap<String, String>>);

    impl KeyShelf {
        fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
            act(&mut self.0.lock_unpoisoned())
        }
    }

    #[async_trait]
    impl InstallationStore for KeyShelf {
        async fn secrets(&self) -> Result<BTreeMap<String, String>, StoreError> {
            Ok(self.with(|all| all.clone()))
        }

        async fn keep(&self, name: &str, value: &str) -> Result<String, StoreError> {
            Ok(self.with(|all| all.entry(name.to_owned()).or_insert_with(|| value.to_owned()).clone()))
        }

        async fn replace(&self, name: &str, former: &str, value: &str) -> Result<bool, StoreError> {
            Ok(self.with(|all| match all.get_mut(name) {
                Some(kept) if kept == former => {
                    value.clone_into(kept);
                    true
                }
                _ => false,
            }))
        }
    }

    fn key(number: u8) -> SigningKey {
        SigningKey::from_seed(&[number; 32])
    }

    fn ids(ring: &KeyRing) -> Vec<String> {
        ring.own_keys().unwrap().iter().map(|key| key.id().to_owned()).collect()
    }

    #[test]
    fn a_ring_reads_back_as_it_was_written_and_never_grows_beyond_its_bound() {
        let mut ring = KeyRing::new(&key(0), &[]).unwrap();
        for number in 1..=40 {
            ring = ring.followed_by(&key(number)).unwrap();
            assert_eq!(KeyRing::parse(&ring.text()).unwrap(), ring);
        }
        let known = ids(&ring);
        assert_eq!((known.len(), known[0].as_str(), known[1].as_str()), (RETIRED_MAX + 1, key(40).id(), key(39).id()));
        assert!(!format!("{ring:?}").contains("PRIVATE"));
    }

    #[test]
    fn what_is_no_ring_is_refused_without_repeating_it() {
        for text in ["", "{}", "hunter2", r#"{"present":"hunter2","retired":[]}"#, r#"{"present":1,"retired":[]}"#] {
            assert!(!KeyRing::parse(text).unwrap_err().to_string().contains("hunter2"), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_that_rotate_at_once_one_does_and_the_former_key_stays_known() {
        let folder = tempfile::tempdir().unwrap();
        let shelf: Arc<dyn InstallationStore> = Arc::new(KeyShelf::default());
        shelf.keep(SIGNING_KEYS, &KeyRing::new(&key(0), &[]).unwrap().text()).await.unwrap();
        let instance = |name: &str| {
            let data = DataDir::at(folder.path().join(name));
            data.create().unwrap();
            let local = DataDirVault::new(data.clone());
            write_copy(&local, &KeyRing::new(&key(0), &[]).unwrap()).unwrap();
            (SharedKeys::new(Arc::clone(&shelf), local), data)
        };
        let ((one, data), (other, _)) = (instance("one"), instance("other"));
        // Both have seen the first key when either replaces it.
        let former = one.look().await.unwrap();
        one.replace(&key(1)).await.unwrap();
        let late = KeyRing::parse(&former).unwrap().followed_by(&key(2)).unwrap();
        assert!(!shelf.replace(SIGNING_KEYS, &former, &late.text()).await.unwrap());
        let now = KeyRing::parse(&other.look().await.unwrap()).unwrap();
        assert_eq!(ids(&now), [key(1).id(), key(0).id()]);
        assert_eq!(data.signing_key().unwrap().unwrap().value.id(), key(1).id());
        assert!(other.newer_than(&now).await.unwrap().is_none());
    }
}
