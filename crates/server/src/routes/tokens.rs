//! `POST /v1/tokens`: mint a capability token. `POST /v1/tokens/revoke`: make tokens void (AUTH-002…004, AUTH-014).
//!
//! Not here: handing a token on (`oauth`), the keys that sign them (`keys`).

use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::{Subject, TenantId};
use http::StatusCode;
use kernel::RevocationRequest;
use policy::{ArgumentLimit, CallBudget, MintRequest, PermissionScope, Role, ToolGrant};
use ports::clock::UnixMillis;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::rights::{BudgetBody, GrantBody, LimitBody};
use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// Life of a token when none is asked for, in seconds.
const TTL_DEFAULT: u64 = 3600;

/// What is said about a token or subject that the tenant is not known to have.
const NOT_KNOWN: &str = "no such token or subject is known in this tenant; if one is shown, it is refused from now on";

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/tokens",
        id: "mintToken",
        tag: "tokens",
        summary: "Mint a capability token (administrators only)",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<MintBody>),
        good: &[(201, "the token; it is shown this once")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Minted>),
        codes: &[ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, mint),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/tokens/revoke",
        id: "revokeTokens",
        tag: "tokens",
        summary: "Make one token void, or all tokens that a subject has so far; whoever holds a token may give it up",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<RevokeBody>),
        good: &[(200, "void, and everything delegated from it too; or not known here, and void should it be shown")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<RevokedAnswer>),
        codes: &[ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, revoke),
    },
];

/// What the token should say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MintBody {
    /// Who will use it: a DID, or a plain name.
    sub: Subject,
    /// Default: the tenant of whoever asks.
    #[serde(default)]
    tenant: Option<TenantId>,
    /// Default `["agent"]`.
    #[serde(default = "agent")]
    roles: Vec<Role>,
    /// Which tools it names; none by default.
    #[serde(default)]
    #[schemars(with = "Vec<GrantBody>")]
    tools: Vec<ToolGrant>,
    /// What the tools may touch, for example `network:https://api.example.com`; nothing by default.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    scopes: Vec<PermissionScope>,
    /// What the arguments of its calls may be; no limits by default.
    #[serde(default)]
    #[schemars(with = "Vec<LimitBody>")]
    limits: Vec<ArgumentLimit>,
    /// How many calls it is good for; unlimited by default.
    #[serde(default)]
    #[schemars(with = "Option<BudgetBody>")]
    budget: Option<CallBudget>,
    /// The person on whose behalf it acts.
    #[serde(default)]
    user_did: Option<Subject>,
    /// The session it belongs to.
    #[serde(default)]
    #[schemars(length(max = 255))]
    session_id: Option<String>,
    /// 1 to 31,536,000; default 3600.
    #[serde(default = "an_hour")]
    #[schemars(range(min = 1, max = 31_536_000))]
    ttl_seconds: u64,
}

/// A fresh token.
#[derive(Debug, Serialize, JsonSchema)]
struct Minted {
    token: String,
    /// RFC 3339, UTC.
    expires_at: String,
    jti: String,
}

/// Whose tokens become void: exactly one of `jti` and `sub`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevokeBody {
    /// One token, by its id.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    jti: Option<String>,
    /// Who issued the token of `jti` (its `iss`). Default: whoever did; for the token that asks, its own issuer.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    issuer: Option<String>,
    /// All tokens of this subject that were issued so far.
    #[serde(default)]
    sub: Option<Subject>,
    /// The tenant of the subject; default the tenant of whoever asks.
    #[serde(default)]
    tenant: Option<TenantId>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Revoked")]
struct RevokedAnswer {
    /// True if the tenant is known to have had such a token or subject. If it is not known, the revocation is kept, and
    /// holds should one be shown in the tenant; a token or subject of another tenant is answered like one that never was.
    revoked: bool,
    /// What holds where `revoked` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
}

fn agent() -> Vec<Role> {
    vec![Role::Agent]
}

fn an_hour() -> u64 {
    TTL_DEFAULT
}

async fn mint(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let mut wish: MintBody = incoming.json(&door, &who).await?.typed()?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let tenant = match wish.tenant.take() {
            Some(tenant) => tenant,
            None => kernel.recognise(who.actor()).await?.tenant().clone(),
        };
        let minted = kernel.mint_token(who.actor(), &wish.into_request(tenant)).await?;
        let expires_at = UnixMillis(minted.claims.exp.saturating_mul(1000)).to_string();
        HttpAnswer::json_with(StatusCode::CREATED, &Minted { token: minted.token, expires_at, jti: minted.claims.jti })
    })
    .await
}

impl MintBody {
    fn into_request(self, tenant: TenantId) -> MintRequest {
        MintRequest {
            sub: self.sub,
            tenant,
            roles: self.roles,
            tools: self.tools,
            scopes: self.scopes,
            limits: self.limits,
            budget: self.budget,
            user_did: self.user_did,
            session_id: self.session_id,
            ttl_seconds: self.ttl_seconds,
            act: None,
        }
    }
}

async fn revoke(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let RevokeBody { jti, issuer, sub, tenant } = incoming.json(&door, &who).await?.typed()?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let revoked = kernel.revoke_tokens(who.actor(), &RevocationRequest { jti, issuer, sub, tenant }).await?;
        HttpAnswer::json(&RevokedAnswer { revoked, message: (!revoked).then_some(NOT_KNOWN) })
    })
    .await
}
