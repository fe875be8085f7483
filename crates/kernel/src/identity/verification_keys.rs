//! The keys tokens are verified with: this server's own, those of another issuer from files, and those from its key set.
//!
//! A key set that cannot be fetched leaves the former keys in force; one that has not been had for [`STALE_AFTER`] is
//! forgotten, because keys that were withdrawn must not live on for ever.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use policy::{KeyError, KeySet, Role, TokenIssuerKeys, TokenTrust, VerifyingKey};
use ports::clock::Clock;
use ports::key_source::KeySource;

/// Unknown key ids make the key set be fetched at most this often.
pub(super) const COOLDOWN: Duration = Duration::from_secs(5);
/// A key set older than this is no longer used.
const STALE_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Why the keys cannot be used together.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("the administrator has no valid name")]
    Name,
}

/// Another issuer whose tokens are accepted.
#[derive(Debug)]
pub struct ExternalIssuer {
    /// What its tokens say as `iss`.
    pub name: String,
    /// Which roles its tokens may give.
    pub roles: Vec<Role>,
    /// Keys that were given as files.
    pub keys: Vec<VerifyingKey>,
    /// Where its key set is.
    pub source: Option<Arc<dyn KeySource>>,
    /// How often the key set is fetched without being asked.
    pub refresh_every: Duration,
}

/// What the configuration says about identity.
#[derive(Debug)]
pub struct IdentitySettings {
    /// What this server's own tokens say as `iss`.
    pub issuer: String,
    /// What every token must say as `aud`.
    pub audience: String,
    /// How far the clocks of two machines may differ.
    pub leeway_seconds: u32,
    /// How often a token may be delegated on.
    pub delegation_depth_max: usize,
    pub external: Option<ExternalIssuer>,
    /// Failed authentications per minute and source address.
    pub failures_per_minute: u32,
    pub clock: Arc<dyn Clock>,
}

impl IdentitySettings {
    /// The zero-configuration profile.
    pub fn local(clock: Arc<dyn Clock>) -> Self {
        Self {
            issuer: policy::ISSUER.into(),
            audience: policy::AUDIENCE.into(),
            leeway_seconds: 0,
            delegation_depth_max: policy::DELEGATION_DEPTH_MAX,
            external: None,
            failures_per_minute: 600,
            clock,
        }
    }
}

/// All keys at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring {
    /// The newest first.
    pub(super) own: Vec<VerifyingKey>,
    pub(super) fetched: KeySet,
}

#[derive(Debug, Default)]
struct Fetching {
    tried_at: Option<Duration>,
    had_at: Option<Duration>,
}

/// The keyring.
#[derive(Debug)]
pub(super) struct Keyring {
    settings: IdentitySettings,
    /// Taken for the length of a clone or a store, never while anything is awaited.
    ring: Mutex<Ring>,
    /// Held while the key set is fetched, so that one fetch serves everybody who waits for it.
    fetching: tokio::sync::Mutex<Fetching>,
}

impl Keyring {
    pub(super) fn new(settings: IdentitySettings, own: Vec<VerifyingKey>) -> Self {
        let ring = Mutex::new(Ring { own, fetched: KeySet::default() });
        Self { settings, ring, fetching: tokio::sync::Mutex::default() }
    }

    pub(super) fn ring(&self) -> Ring {
        self.ring.lock_unpoisoned().clone()
    }

    pub(super) fn changed(&self, change: impl FnOnce(&mut Ring)) -> Ring {
        let mut ring = self.ring();
        change(&mut ring);
        ring
    }

    pub(super) fn keep(&self, ring: Ring) {
        *self.ring.lock_unpoisoned() = ring;
    }

    pub(super) fn audience(&self) -> &str {
        &self.settings.audience
    }

    pub(super) fn delegation_depth_max(&self) -> usize {
        self.settings.delegation_depth_max
    }

    pub(super) fn has_source(&self) -> bool {
        self.source().is_some()
    }

    pub(super) fn refresh_every(&self) -> Option<Duration> {
        let external = self.settings.external.as_ref()?;
        external.source.is_some().then_some(external.refresh_every)
    }

    /// Whom tokens are accepted from, with these keys.
    pub(super) fn trust(&self, ring: &Ring) -> Result<TokenTrust, IdentityError> {
        let settings = &self.settings;
        let own = TokenIssuerKeys {
            name: settings.issuer.clone(),
            keys: KeySet::new(ring.own.clone())?,
            roles: Role::ALL.to_vec(),
        };
        let external = settings.external.iter().map(|external| {
            // A file that names a key is the operator's word; a set that has one of the same name does not overrule it.
            let by_file = |kid: &str| external.keys.iter().any(|key| key.id() == kid);
            let fetched = ring.fetched.iter().filter(|key| !by_file(key.id()));
            let keys = external.keys.iter().chain(fetched).cloned();
            Ok(TokenIssuerKeys { name: external.name.clone(), keys: KeySet::new(keys)?, roles: external.roles.clone() })
        });
        Ok(TokenTrust {
            audience: settings.audience.clone(),
            leeway_seconds: settings.leeway_seconds,
            delegation_depth_max: settings.delegation_depth_max,
            issuers: std::iter::once(Ok(own)).chain(external).collect::<Result<_, IdentityError>>()?,
        })
    }

    /// Fetches the key set. `None`: nothing was fetched, because the wanted key has come meanwhile or it was tried a
    /// moment ago. `Some(None)`: it could not be had, and the former keys stay.
    pub(super) async fn fetch(&self, wanted: Option<&str>) -> Option<Option<KeySet>> {
        let source = self.source()?;
        let mut fetching = self.fetching.lock().await;
        let now = self.settings.clock.monotonic();
        let here_meanwhile = wanted.is_some_and(|kid| self.ring().fetched.get(kid).is_some());
        let tried_just_now = fetching.tried_at.is_some_and(|at| now.saturating_sub(at) < COOLDOWN);
        if here_meanwhile || (wanted.is_some() && tried_just_now) {
            return None;
        }
        fetching.tried_at = Some(now);
        let keys = match source.fetch().await {
            Ok(text) => KeySet::from_jwks(&text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match keys {
            Ok((keys, skipped)) => {
                if skipped > 0 {
                    tracing::warn!(skipped, "some keys of the issuer's key set are of a kind that is not accepted");
                }
                fetching.had_at = Some(now);
                Some(Some(keys))
            }
            Err(error) => {
                tracing::error!(error, "the issuer's key set could not be had");
                let stale = fetching.had_at.is_some_and(|at| now.saturating_sub(at) > STALE_AFTER);
                Some(stale.then(KeySet::default))
            }
        }
    }

    fn source(&self) -> Option<&Arc<dyn KeySource>> {
        self.settings.external.as_ref()?.source.as_ref()
    }
}
