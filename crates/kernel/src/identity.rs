//! Who is calling. A token's signature is checked once and remembered by the token's digest until it expires (DESIGN §7);
//! expiry, revocation and the tenant's standing are asked every time.
//!
//! ```text
//! credential ─▶ remembered? ─no▶ failure limit ─▶ signature, claims, chain ─unknown key▶ fetch the issuer's keys once, try again
//!                  │yes                                    │
//!                  └──────────────▶ standing (revoked? tenant?) ─▶ DID known? ─▶ Principal
//! ```
//!
//! Invariants
//! - ID-1: a [`Principal`] comes from here only: from a credential, or from a caller record that the jobs have kept.
//! - ID-2: what was remembered under former keys is verified anew under the present ones.
//! - ID-3: unknown key ids, however many, make at most one fetch per [`verification_keys::COOLDOWN`].

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::Subject;
use policy::{
    AuthenticationError, Authenticator, BearerSecret, Caller, CallerKind, CallerRecord, TokenError, VerifyingKey,
    did_of_subject,
};
use ports::audit_sink::{DelegationLink, RecordedActor};
use ports::clock::UnixMillis;
use ports::did_resolver::DidError;
use ports::observer::Observer;
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

use crate::access::AccessControl;

mod failures;
mod verification_keys;

use failures::Failures;
pub use verification_keys::{ExternalIssuer, IdentityError, IdentitySettings};
use verification_keys::{Keyring, Ring};

/// Remembered tokens; the least used make room.
const REMEMBERED_MAX: usize = 10_000;
/// For how long a DID that had to be asked for elsewhere counts as known.
const DID_KNOWN_FOR: Duration = Duration::from_secs(300);

/// A recognised caller, with what the audit log says about it.
#[derive(Debug)]
pub struct Principal {
    caller: Caller,
    pub(crate) who: Arc<RecordedActor>,
    /// The caller's token can be used until then; it includes the leeway between clocks.
    usable_until: Option<UnixMillis>,
    /// Under which keys it was verified.
    generation: u64,
    /// At which access epoch, and until when, its DID was last found to be known.
    did_epoch: AtomicU64,
    did_until: AtomicI64,
    /// Does a caller record stand for the token? Then the token's end does not matter, and nobody waits on a line.
    is_recorded: bool,
}

impl Deref for Principal {
    type Target = Caller;
    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Principal {
    /// How long the token can still be used.
    pub(crate) fn time_left(&self, now: UnixMillis) -> Option<Duration> {
        self.usable_until.map(|end| end.since(now))
    }

    /// Does a caller record stand for its token?
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The verified caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
}

/// The keys in force and what verifies with them.
#[derive(Debug)]
struct Trusted {
    generation: u64,
    authenticator: Authenticator,
}

/// The kernel's sense of who is calling.
#[derive(Debug)]
pub struct Identity {
    trusted: ArcSwap<Trusted>,
    keyring: Keyring,
    remembered: Cache<[u8; 32], Arc<Principal>>,
    failures: Failures,
    /// Records of calls of whom nobody was recognised.
    strangers: Failures,
    /// Changes of the keys happen one after the other.
    swapping: Mutex<()>,
    observer: Arc<dyn Observer>,
}

impl Identity {
    /// With the bootstrap secret, the own public keys, and what the configuration says.
    pub fn new(
        admin_secret: &str,
        own_keys: Vec<VerifyingKey>,
        settings: IdentitySettings,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, IdentityError> {
        let (failures, strangers) =
            (Failures::new(settings.failures_per_minute), Failures::new(settings.failures_per_minute));
        let keyring = Keyring::new(settings, own_keys);
        let authenticator =
            Authenticator::new(admin_secret, keyring.trust(&keyring.ring())?).map_err(|_| IdentityError::Name)?;
        Ok(Self {
            trusted: ArcSwap::from_pointee(Trusted { generation: 0, authenticator }),
            keyring,
            remembered: Cache::new(REMEMBERED_MAX),
            failures,
            strangers,
            swapping: Mutex::new(()),
            observer,
        })
    }

    /// Says who calls, or why nobody was recognised.
    pub async fn recognise(
        &self,
        access: &AccessControl,
        credential: Option<BearerSecret<'_>>,
        source: Option<IpAddr>,
        now: UnixMillis,
    ) -> Result<Arc<Principal>, Refusal> {
        let principal = self.prove(credential, source, now).await?;
        self.welcome(access, &principal, now).await?;
        Ok(principal)
    }

    /// Is somebody who has proven itself still welcome? Asked at every call, and again when a job of its begins.
    pub(crate) async fn welcome(
        &self,
        access: &AccessControl,
        principal: &Principal,
        now: UnixMillis,
    ) -> Result<(), Refusal> {
        let epoch = access.snapshot().epoch;
        match self.stands(access, principal, now).await {
            // Another instance may have introduced it a moment ago, and the word of it may still be on its way.
            Err(refusal) if matches!(refusal.code, ErrorCode::E3206 | ErrorCode::E3207) => match principal.token_id() {
                Some(token) if access.look_again(token, epoch).await => self.stands(access, principal, now).await,
                _ => Err(refusal),
            },
            outcome => outcome,
        }
    }

    async fn stands(&self, access: &AccessControl, principal: &Principal, now: UnixMillis) -> Result<(), Refusal> {
        access.snapshot().standing(principal)?;
        self.known_did(access, principal, now).await
    }

    /// The principal of a caller record that this installation wrote ([`Kernel::caller_of`](crate::Kernel::caller_of)).
    pub(crate) fn honour(&self, record: CallerRecord) -> Principal {
        let trusted = self.trusted.load();
        let caller = trusted.authenticator.honour(record);
        Principal { is_recorded: true, ..Self::principal(caller, trusted.generation) }
    }

    /// From a credential to a proven identity; whether it is still welcome is asked by the caller.
    async fn prove(
        &self,
        credential: Option<BearerSecret<'_>>,
        source: Option<IpAddr>,
        now: UnixMillis,
    ) -> Result<Arc<Principal>, Refusal> {
        let Some(BearerSecret(secret)) = credential else { return Err(AuthenticationError::Missing.refusal()) };
        // An over-long credential is refused by the authenticator; hashing it first would be work for an attacker.
        let short = secret.len() <= policy::TOKEN_BYTES_MAX;
        let digest: [u8; 32] = if short { Sha256::digest(secret.as_bytes()).into() } else { [0; 32] };
        let generation = self.trusted.load().generation;
        if short && let Some(known) = self.remembered.get(&digest) {
            if known.generation == generation && known.usable_until.is_none_or(|end| now < end) {
                self.observer.recognised(true);
                return Ok(known);
            }
            self.remembered.remove(&digest);
        }
        self.observer.recognised(false);
        self.failures.room(source, now)?;
        match self.verify(secret, now).await {
            Ok(principal) => {
                let principal = Arc::new(principal);
                self.remembered.insert(digest, Arc::clone(&principal));
                Ok(principal)
            }
            Err(error) => {
                self.failures.count(source, now);
                let refusal = error.refusal();
                self.observer.authentication_failed(refusal.code);
                Err(refusal)
            }
        }
    }

    /// Counts a proof that is no token and did not hold, like a token that does not. Gives back what the caller is told: from an
    /// address that has failed too often, that it has to wait. Whoever can show a good proof need not.
    pub(crate) fn unproven(&self, source: Option<IpAddr>, now: UnixMillis, refusal: Refusal) -> Refusal {
        let limited = self.failures.room(source, now);
        self.failures.count(source, now);
        self.observer.authentication_failed(refusal.code);
        limited.err().unwrap_or(refusal)
    }

    /// Is a call of somebody who was not recognised put on record? So many of one address are, and those that follow within
    /// the minute are only counted: whoever has no token must not fill the disk that every call needs.
    pub(crate) fn records_stranger(&self, source: Option<IpAddr>, now: UnixMillis) -> bool {
        let source = Some(source.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        let has_room = self.strangers.room(source, now).is_ok();
        if has_room {
            self.strangers.count(source, now);
        }
        has_room
    }

    async fn verify(&self, secret: &str, now: UnixMillis) -> Result<Principal, AuthenticationError> {
        let attempt = || {
            let trusted = self.trusted.load();
            let caller = trusted.authenticator.authenticate(Some(BearerSecret(secret)), now.0)?;
            Ok(Self::principal(caller, trusted.generation))
        };
        match attempt() {
            Err(AuthenticationError::Token(TokenError::UnknownKey)) if self.keyring.has_source() => {
                self.fetch_keys(policy::key_id(secret).as_deref()).await;
                attempt()
            }
            outcome => outcome,
        }
    }

    fn principal(caller: Caller, generation: u64) -> Principal {
        let usable_until = caller.expires_at_ms().map(UnixMillis);
        let who = Arc::new(RecordedActor {
            tenant: caller.tenant().clone(),
            subject: caller.subject().clone(),
            user: caller.user().cloned(),
            token_id: caller.token_id().map(Into::into),
            chain: caller
                .chain()
                .iter()
                .map(|link| DelegationLink { subject: link.sub.clone(), token_id: link.jti.as_deref().map(Into::into) })
                .collect(),
        });
        // An epoch that no snapshot has: the DID has not been looked at yet.
        let (did_epoch, did_until) = (AtomicU64::new(u64::MAX), AtomicI64::new(i64::MIN));
        Principal { caller, who, usable_until, generation, did_epoch, did_until, is_recorded: false }
    }

    // ---------------------------------------------------------------------------------------------------------- DIDs

    async fn known_did(&self, access: &AccessControl, principal: &Principal, now: UnixMillis) -> Result<(), Refusal> {
        if principal.kind() == CallerKind::AdminToken {
            return Ok(());
        }
        let epoch = access.snapshot().epoch;
        let remembered =
            principal.did_epoch.load(Ordering::Acquire) == epoch && now.0 < principal.did_until.load(Ordering::Acquire);
        if remembered {
            return Ok(());
        }
        did_is_known(access, principal.tenant(), principal.subject()).await?;
        for link in principal.chain() {
            did_is_known(access, principal.tenant(), &link.sub).await?;
        }
        if principal.user().is_some_and(|user| did_of_subject(user).is_err()) {
            return Err(unknown_did("acts for a user whose DID is not as the standard has it"));
        }
        principal.did_until.store(now.plus(DID_KNOWN_FOR).0, Ordering::Release);
        principal.did_epoch.store(epoch, Ordering::Release);
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------------------- keys

    /// How often a token may be handed on.
    pub(crate) fn delegation_depth_max(&self) -> usize {
        self.keyring.delegation_depth_max()
    }

    /// What every token must say as `aud`.
    pub fn audience(&self) -> &str {
        self.keyring.audience()
    }

    /// The public keys of this server's own tokens, for its JWK set: the present one and those it followed.
    pub fn own_keys(&self) -> Vec<VerifyingKey> {
        self.keyring.ring().own
    }

    /// Trusts one more key of this server's own.
    pub(crate) fn add_own_key(&self, key: VerifyingKey) -> Result<(), Refusal> {
        self.swap(|ring| {
            ring.own.retain(|known| known.id() != key.id());
            ring.own.insert(0, key);
        })
    }

    /// Trusts these keys as this server's own, and no others; the present one first.
    pub(crate) fn set_own_keys(&self, keys: Vec<VerifyingKey>) -> Result<(), Refusal> {
        if self.keyring.ring().own == keys {
            return Ok(());
        }
        self.swap(|ring| ring.own = keys)
    }

    /// Fetches the external issuer's keys at the start and then now and then. Never ends.
    pub async fn keep_keys_fresh(&self, clock: &dyn ports::clock::Clock) {
        let Some(pause) = self.keyring.refresh_every() else { return std::future::pending().await };
        loop {
            self.fetch_keys(None).await;
            clock.sleep(pause).await;
        }
    }

    /// Fetches the external issuer's keys, unless the wanted one has come meanwhile or it was done a moment ago.
    async fn fetch_keys(&self, wanted: Option<&str>) {
        let Some(fetched) = self.keyring.fetch(wanted).await else { return };
        self.observer.keys_fetched(fetched.is_some());
        if let Some(keys) = fetched
            && let Err(refusal) = self.swap(|ring| ring.fetched = keys)
        {
            tracing::error!(
                error = &refusal as &dyn std::error::Error,
                "the issuer's key set cannot be used; the former keys stay in force"
            );
        }
    }

    /// Changes the keys in force; tokens remembered under the former ones are verified anew (ID-2).
    fn swap(&self, change: impl FnOnce(&mut Ring)) -> Result<(), Refusal> {
        let _one_at_a_time = self.swapping.lock_unpoisoned();
        let ring = self.keyring.changed(change);
        let unusable = |error: IdentityError| Refusal::new(ErrorCode::E3000, error.to_string());
        let trust = self.keyring.trust(&ring).map_err(unusable)?;
        self.keyring.keep(ring);
        self.trusted.rcu(|former| Trusted {
            generation: former.generation.wrapping_add(1),
            authenticator: former.authenticator.with_trust(trust.clone()),
        });
        Ok(())
    }
}

/// E3207 unless the subject is known to the tenant: introduced by an administrator, or able to certify itself (AUTH-012).
pub(crate) async fn did_is_known(
    access: &AccessControl,
    tenant: &contract::ids::TenantId,
    subject: &Subject,
) -> Result<(), Refusal> {
    let Ok(did) = did_of_subject(subject) else { return Err(unknown_did("is not a DID as the standard has it")) };
    let Some(did) = did else {
        return if access.requires_did() { Err(unknown_did("is no DID, and this server wants one")) } else { Ok(()) };
    };
    if access.snapshot().knows(tenant, subject) {
        return Ok(());
    }
    match did.method() {
        // It holds its key, or it would not have come so far.
        "key" => Ok(()),
        "web" => match access.did_resolver() {
            None => Err(unknown_did("is not known here")),
            Some(resolver) => resolver.resolve(subject).await.map_err(|error| match error {
                DidError::Unknown => unknown_did("is not known here"),
                DidError::Unreachable => unknown_did("could not be resolved"),
            }),
        },
        _ => Err(unknown_did("is not known here")),
    }
}

fn unknown_did(what: &str) -> Refusal {
    Refusal::new(ErrorCode::E3207, format!("the token's subject {what}"))
        .hint("ask an administrator to introduce the agent (PUT /v1/agents), or use a `did:key`")
}
