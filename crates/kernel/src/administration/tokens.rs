//! Tokens: minted by administrators, narrowed and handed on by whoever holds one, made void, and the keys that sign them.

use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::{Subject, TenantId};
use policy::{
    Action, ArgumentLimit, CallerKind, Delegator, MintRequest, NarrowingRequest, Role, SigningKey, VerifyingKey, narrow,
};
use ports::access_store::{AgentRecord, Revocation, RevokedIssuers, RevokedTokens};
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::clock::UnixMillis;

use crate::identity::{Principal, did_is_known};
use crate::invoke::Kernel;
use crate::mint::{MintedToken, is_token_id_of};

/// A token that was given up is remembered for so much longer than it lives here: another instance may have another leeway.
const CLOCK_DISAGREEMENT_MAX_MS: i64 = 600_000;

/// Longest name of an issuer.
const ISSUER_BYTES_MAX: usize = 1_024;

/// The year 9999: ends beyond it cannot be written so that they can be compared, and count as unknown.
const LAST_END_MS: i64 = 253_370_764_800_000;

/// What a token is narrowed to before it is handed on (RFC 8693, AUTH-014).
#[derive(Debug, Clone, Default)]
pub struct DelegationRequest {
    /// Who will use it; absent: the same subject, for a narrower purpose.
    pub sub: Option<Subject>,
    /// Must be among the delegator's, or `agent`; absent: `agent`.
    pub roles: Option<Vec<Role>>,
    pub wish: NarrowingRequest,
    pub session_id: Option<String>,
}

/// Whose tokens are made void; exactly one of the first two is there.
#[derive(Debug, Clone, Default)]
pub struct RevocationRequest {
    pub jti: Option<String>,
    pub sub: Option<Subject>,
    /// Who issued the token: its id is unique there. Absent: a token of that id is void whoever issued it, except that whoever
    /// gives up its own token gives up that one only.
    pub issuer: Option<String>,
    /// The tenant of the subject; absent: the caller's own.
    pub tenant: Option<TenantId>,
}

impl Kernel {
    /// Mints a capability token. Whoever it is for is thereby introduced to its tenant.
    pub async fn mint_token(&self, actor: Actor<'_>, request: &MintRequest) -> Result<MintedToken, Refusal> {
        let caller = self.permitted(actor, Action::MintToken).await?;
        self.tenant_for(actor, &caller, Some(&request.tenant)).await?;
        limits_make_sense(&request.limits)?;
        // Policies of the platform may name agents: nobody but the installation's people gives such a name to somebody else.
        if !caller.tenant().is_home() && self.access().snapshot().is_known_elsewhere(&request.tenant, &request.sub) {
            let refusal = Refusal::new(ErrorCode::E3206, "this subject is an agent of somebody else")
                .hint("use a name of the tenant's own, or ask whoever administers the installation to mint the token");
            return Err(self.refuse(actor, &caller, "may not mint this subject".to_owned(), refusal).await);
        }
        let slot = self.parts.recorder.reserve().await?;
        let now = self.clock().now();
        let minted = self.parts.mint.make(request, self.entropy(), now)?;
        let record = AgentRecord {
            tenant: request.tenant.clone(),
            agent: request.sub.clone(),
            document: None,
            added_at: now,
            added_by: caller.subject().clone(),
        };
        self.access().introduce(vec![record]).await.map_err(|error| error.refusal())?;
        let roles: Vec<&str> = request.roles.iter().map(|role| role.as_str()).collect();
        let note =
            format!("jti {} for {} in {}, roles: {}", minted.claims.jti, request.sub, request.tenant, roles.join(" "));
        slot.record_durably(self.act(actor, &caller, AuditAction::TokenMinted, None, Some(note))).await?;
        Ok(minted)
    }

    /// Narrows the caller's own token and hands it on. Nothing can be asked for that the caller does not have.
    pub async fn delegate_token(&self, actor: Actor<'_>, request: &DelegationRequest) -> Result<MintedToken, Refusal> {
        let parent = self.recognise(actor).await?;
        let slot = self.parts.recorder.reserve().await?;
        match self.handed_on(&parent, request).await {
            Ok(minted) => {
                let note = format!("jti {} for {}", minted.claims.jti, minted.claims.sub);
                slot.record_durably(self.act(actor, &parent, AuditAction::TokenDelegated, None, Some(note))).await?;
                Ok(minted)
            }
            Err(refusal) => {
                let note = Some("may not hand its token on like that".to_owned());
                let record = self.act(actor, &parent, AuditAction::ActRefused, None, note);
                slot.record_durably(AuditRecord { code: Some(refusal.code), ..record }).await?;
                Err(refusal)
            }
        }
    }

    async fn handed_on(&self, parent: &Principal, request: &DelegationRequest) -> Result<MintedToken, Refusal> {
        if parent.kind() == CallerKind::AdminToken {
            return Err(Refusal::new(ErrorCode::E3206, "the bootstrap token cannot be delegated")
                .hint("mint a capability token with it, and delegate that one"));
        }
        limits_make_sense(&request.wish.limits)?;
        let sub = request.sub.as_ref().unwrap_or_else(|| parent.subject());
        did_is_known(self.access(), parent.tenant(), sub).await.map_err(|refusal| {
            let message = refusal.message.replacen("the token's subject", "the new token's subject", 1);
            Refusal { message, ..refusal }
        })?;
        let depth = parent.chain().len().saturating_add(1);
        if depth > self.identity().delegation_depth_max() {
            return Err(refused(&format!("it has been handed on {} times already", parent.chain().len()))
                .hint("ask somebody nearer to its root for a token"));
        }
        if sub != parent.subject() && parent.chain().iter().any(|link| link.sub == *sub) {
            return Err(refused("it would come back to somebody who has handed it on")
                .hint("whoever that is has a wider token already"));
        }
        let rights = narrow(&parent.rights(), &request.wish).map_err(|widening| widened(&widening.to_string()))?;
        let now = self.clock().now();
        let ttl = rights.expires_at.saturating_sub(now.0.div_euclid(1000));
        let ttl_seconds =
            u64::try_from(ttl).ok().filter(|ttl| *ttl > 0).ok_or_else(|| refused("no lifetime is left"))?;
        let mint = MintRequest {
            sub: sub.clone(),
            tenant: parent.tenant().clone(),
            roles: roles_of(parent, request.roles.as_deref())?,
            tools: rights.tools,
            scopes: rights.scopes,
            limits: rights.limits,
            budget: rights.budget,
            user_did: user_of(parent, sub),
            session_id: session_of(parent, request.session_id.as_deref())?,
            ttl_seconds,
            act: Some(Box::new(link_of(parent))),
        };
        self.parts.mint.make(&mint, self.entropy(), now)
    }

    /// Makes one token void, or all tokens of a subject that were issued so far. Whoever holds a token may give it up.
    ///
    /// Answers whether the token or subject is one that this tenant is known to have. If it is not, the revocation is kept
    /// all the same, because tokens of other issuers are not known before they are shown; and one of another tenant
    /// is answered exactly like none.
    pub async fn revoke_tokens(&self, actor: Actor<'_>, request: &RevocationRequest) -> Result<bool, Refusal> {
        let holder = self.recognise(actor).await?;
        let own_id = request.jti.as_deref().is_some_and(|id| holder.token_id() == Some(id));
        let own_issuer = request.issuer.as_deref().is_none_or(|issuer| holder.issuer() == Some(issuer));
        let gives_up = request.sub.is_none() && own_id && own_issuer;
        let caller = if gives_up { holder } else { self.permitted(actor, Action::RevokeToken).await? };
        let what = match (&request.jti, &request.sub) {
            (Some(id), None) => RevokedTokens::Token(caller.tenant().clone(), id.clone()),
            (None, Some(sub)) => {
                RevokedTokens::Subject(self.tenant_for(actor, &caller, request.tenant.as_ref()).await?, sub.clone())
            }
            _ => {
                return Err(Refusal::new(ErrorCode::E3004, "exactly one of `jti` and `sub` is needed")
                    .hint("`jti` makes one token void, `sub` all tokens of a subject"));
            }
        };
        let issuers = match (&request.issuer, &what) {
            (Some(issuer), _)
                if issuer.is_empty() || issuer.len() > ISSUER_BYTES_MAX || issuer.contains(char::is_control) =>
            {
                return Err(Refusal::new(ErrorCode::E3004, "`issuer` is no name that an issuer can have")
                    .hint("write the `iss` of the token; `gantry token inspect` shows it"));
            }
            (Some(issuer), RevokedTokens::Token(..)) => RevokedIssuers::only(issuer),
            (Some(_), RevokedTokens::Subject(..)) => {
                return Err(Refusal::new(ErrorCode::E3004, "`issuer` goes with `jti`")
                    .hint("leave `issuer` out: the tokens of a subject are void whoever issued them"));
            }
            (None, _) if gives_up => caller.issuer().map_or(RevokedIssuers::All, RevokedIssuers::only),
            (None, _) => RevokedIssuers::All,
        };
        let known = gives_up || self.is_revocable(&what);
        let slot = self.parts.recorder.reserve().await?;
        let note = match &what {
            RevokedTokens::Token(_, id) => format!("jti {}", id.chars().take(100).collect::<String>()),
            RevokedTokens::Subject(tenant, sub) => format!("all of {sub} in {tenant}"),
        };
        let needless_from = if gives_up { caller.expires_at_ms().and_then(end_of) } else { None };
        let revocation =
            Revocation { what, issuers, at: self.clock().now(), by: caller.subject().clone(), needless_from };
        self.access().revoke(&revocation).await.map_err(|error| error.refusal())?;
        slot.record_durably(self.act(actor, &caller, AuditAction::TokenRevoked, None, Some(note))).await?;
        Ok(known)
    }

    /// Does the tenant have such a token or subject, as far as is known? A revocation of the home tenant holds everywhere.
    fn is_revocable(&self, what: &RevokedTokens) -> bool {
        let snapshot = self.access().snapshot();
        match what {
            RevokedTokens::Subject(tenant, subject) => snapshot.knows(tenant, subject),
            RevokedTokens::Token(tenant, id) if tenant.is_home() => {
                is_token_id_of(tenant, id) || snapshot.tenants().iter().any(|record| is_token_id_of(&record.tenant, id))
            }
            RevokedTokens::Token(tenant, id) => is_token_id_of(tenant, id),
        }
    }

    /// Replaces the signing key. Tokens of the former keys stay valid until they expire. Answers the new key's name.
    pub async fn rotate_keys(&self, actor: Actor<'_>) -> Result<String, Refusal> {
        let caller = self.permitted(actor, Action::RotateKeys).await?;
        self.of_the_installation(actor, &caller).await?;
        let slot = self.parts.recorder.reserve().await?;
        let mut seed = [0u8; 32];
        self.entropy().fill(&mut seed);
        let key = SigningKey::from_seed(&seed);
        let id = key.id().to_owned();
        self.parts.mint.keep(&key).await?;
        // Trusted first, used second: no token is ever signed by a key that is not trusted yet.
        self.identity().add_own_key(key.verifying_key())?;
        self.parts.mint.use_key(key);
        slot.record_durably(self.act(actor, &caller, AuditAction::KeysRotated, None, Some(format!("kid {id}"))))
            .await?;
        Ok(id)
    }

    /// Trusts the keys that the instances of this installation share, the present one first. Whoever keeps them calls this
    /// when another instance has replaced one; signing with it comes later ([`Kernel::sign_with`]).
    pub fn trust_shared_keys(&self, keys: Vec<VerifyingKey>) -> Result<(), Refusal> {
        self.identity().set_own_keys(keys)
    }

    /// Signs with a key that every instance trusts by now.
    pub fn sign_with(&self, key: SigningKey) {
        self.parts.mint.use_key(key);
    }
}

/// A limit that no call can keep, or that limits nothing, is a mistake of whoever wrote it.
fn limits_make_sense(limits: &[ArgumentLimit]) -> Result<(), Refusal> {
    limits.iter().try_for_each(ArgumentLimit::check).map_err(|error| {
        Refusal::new(ErrorCode::E3004, format!("limits: {error}")).hint("mend the limit; no token was made")
    })
}

/// From when on a token cannot be used, whoever looks at it, and with it everything that was delegated from it. A revocation
/// of somebody else's token has none: its id says nothing about its life.
fn end_of(expires_at_ms: i64) -> Option<UnixMillis> {
    let end = expires_at_ms.checked_add(CLOCK_DISAGREEMENT_MAX_MS)?;
    (end < LAST_END_MS).then_some(UnixMillis(end))
}

fn refused(why: &str) -> Refusal {
    Refusal::new(ErrorCode::E3206, format!("the token cannot be delegated like that: {why}"))
        .hint("ask for no more than the token has")
}

/// More was asked for than there is.
fn widened(what: &str) -> Refusal {
    refused(what).because(RefusalReason::Widening(what.to_owned()))
}

/// Being an agent is no right, so everybody may hand that role on; every other only if one has it. What an agent hands on
/// is an agent's token: who could shed that role could pass for a person.
fn roles_of(parent: &Principal, asked: Option<&[Role]>) -> Result<Vec<Role>, Refusal> {
    let Some(asked) = asked else { return Ok(vec![Role::Agent]) };
    match asked.iter().find(|role| **role != Role::Agent && !parent.roles().contains(role)) {
        None => {
            let mut roles = asked.to_vec();
            if parent.roles().contains(&Role::Agent) && !roles.contains(&Role::Agent) {
                roles.push(Role::Agent);
            }
            Ok(roles)
        }
        Some(role) => Err(widened(&format!("it does not have the role `{}`", role.as_str()))),
    }
}

/// The person on whose behalf: the token's own, or whoever hands it on, if that is not itself an agent. An agent cannot
/// give itself a user by handing its token on to another name.
fn user_of(parent: &Principal, sub: &Subject) -> Option<Subject> {
    let person = sub != parent.subject() && !parent.roles().contains(&Role::Agent);
    parent.user().cloned().or_else(|| person.then(|| parent.subject().clone()))
}

fn session_of(parent: &Principal, asked: Option<&str>) -> Result<Option<String>, Refusal> {
    match (parent.session(), asked) {
        (Some(own), Some(asked)) if own != asked => Err(refused("it belongs to another session")),
        (Some(own), _) => Ok(Some(own.to_owned())),
        // Policies may ask for a session, so an agent cannot give itself one.
        (None, Some(_)) if parent.roles().contains(&Role::Agent) => Err(refused("an agent cannot add a session to it")),
        (None, asked) => Ok(asked.map(str::to_owned)),
    }
}

/// The parent as a link of the child's chain, with the rights it had.
fn link_of(parent: &Principal) -> Delegator {
    let mut chain = parent.chain().iter().rev().cloned();
    let nested = chain.next().map(|root| {
        chain.fold(Box::new(root), |inner, mut link| {
            link.act = Some(inner);
            Box::new(link)
        })
    });
    Delegator {
        act: nested,
        iss: parent.issuer().map(str::to_owned),
        roles: Some(parent.roles().to_vec()),
        ..Delegator::of(
            parent.subject().clone(),
            parent.token_id().unwrap_or_default().to_owned(),
            parent.issued_at().unwrap_or_default(),
            &parent.rights(),
            None,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_cannot_be_written_down_is_no_end() {
        assert_eq!(end_of(1_800_000_000_000), Some(UnixMillis(1_800_000_600_000)));
        for never in [LAST_END_MS, i64::MAX - 1, i64::MAX] {
            assert_eq!(end_of(never), None, "{never}");
        }
        let last = end_of(LAST_END_MS - CLOCK_DISAGREEMENT_MAX_MS - 1).unwrap();
        assert!(last.to_string().starts_with("9998-12-31T23:59:59.999"), "{last}");
    }
}
