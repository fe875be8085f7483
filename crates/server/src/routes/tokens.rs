//! `POST /v1/tokens`: mint a capability token. `GET /.well-known/jwks.json`: the keys that verify them (AUTH-002…004).

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{HOME_TENANT, Subject, TenantId};
use contract::version::VersionRange;
use http::StatusCode;
use kernel::ports::clock::UnixMillis;
use policy::{MintRequest, Role, Scope, ToolGrant, VerifyingKey};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Access, Asks, Gives, Operation, Verb, to};
use crate::answer::{Answer, Handled};
use crate::door::Door;
use crate::incoming::Incoming;
use crate::members::typed;

/// Life of a token when none is asked for, in seconds.
const TTL_DEFAULT: u64 = 3600;
/// The zero-configuration tenant (DESIGN §3).
const TENANT_DEFAULT: &str = HOME_TENANT;

pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Post,
        path: "/v1/tokens",
        id: "mintToken",
        tag: "tokens",
        summary: "Mint a capability token (administrators only)",
        access: Access::Token,
        parameters: &[],
        asks: Asks::Json(SchemaGenerator::subschema_for::<MintBody>),
        good: &[(201, "the token; it is shown this once")],
        gives: Gives::Json(SchemaGenerator::subschema_for::<Minted>),
        codes: &[ErrorCode::E3206, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, mint),
    },
    Operation {
        verb: Verb::Get,
        path: "/.well-known/jwks.json",
        id: "getKeys",
        tag: "tokens",
        summary: "The public keys that verify tokens, as a JWK set",
        access: Access::Public,
        parameters: &[],
        asks: Asks::Nothing,
        good: &[(200, "the keys")],
        gives: Gives::Json(SchemaGenerator::subschema_for::<KeySet>),
        codes: &[],
        mount: |filter| to(filter, keys),
    },
];

/// What the token should say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MintBody {
    /// Who will use it: a DID, or a plain name.
    sub: Subject,
    /// Default `local`.
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
    scopes: Vec<Scope>,
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

/// One entry of `tools`.
#[derive(JsonSchema)]
#[schemars(rename = "ToolGrant")]
#[expect(dead_code, reason = "exists only for its schema")]
struct GrantBody {
    /// A tool id, `namespace.*` or `*`.
    tool_id: String,
    /// Absent means every version.
    version_range: Option<VersionRange>,
}

/// A fresh token.
#[derive(Debug, Serialize, JsonSchema)]
struct Minted {
    token: String,
    /// RFC 3339, UTC.
    expires_at: String,
    jti: String,
}

/// A JWK set (RFC 7517).
#[derive(Debug, Serialize, JsonSchema)]
struct KeySet {
    keys: Vec<Value>,
}

fn agent() -> Vec<Role> {
    vec![Role::Agent]
}

fn an_hour() -> u64 {
    TTL_DEFAULT
}

async fn mint(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let request = mint_request(typed(value, "", || body.again())?)?;
    let kernel = door.shared_kernel();
    door.settle(async move {
        let minted = kernel.mint_token(who.actor(), &request).await?;
        let expires_at = UnixMillis(minted.claims.exp.saturating_mul(1000)).to_string();
        Answer::json_with(StatusCode::CREATED, &Minted { token: minted.token, expires_at, jti: minted.claims.jti })
    })
    .await
}

fn mint_request(body: MintBody) -> Result<MintRequest, Refusal> {
    let tenant = match body.tenant {
        Some(tenant) => tenant,
        None => TENANT_DEFAULT.parse().map_err(|_| Refusal::new(ErrorCode::E3000, "the default tenant has no name"))?,
    };
    Ok(MintRequest {
        sub: body.sub,
        tenant,
        roles: body.roles,
        tools: body.tools,
        scopes: body.scopes,
        user_did: body.user_did,
        session_id: body.session_id,
        ttl_seconds: body.ttl_seconds,
    })
}

async fn keys(door: Arc<Door>, _: Incoming) -> Handled {
    let keys = door.kernel().identity().authenticator().keys().iter().map(VerifyingKey::to_jwk).collect();
    Answer::json(&KeySet { keys })
}

#[cfg(test)]
mod tests {
    use policy::ToolPattern;

    use super::*;

    #[test]
    fn the_published_schema_of_a_grant_has_the_members_that_are_read() {
        let grant = ToolGrant { tool_id: ToolPattern::All, version_range: Some("^1".parse().unwrap()) };
        let written = serde_json::to_value(grant).unwrap();
        let schema = SchemaGenerator::default().into_root_schema_for::<GrantBody>().to_value();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&written), names(&schema["properties"]));
    }
}
