//! `POST /oauth/token`: narrow a token and hand it on, as RFC 8693 has it (AUTH-014, AUTH-015).
//! `GET /.well-known/oauth-protected-resource`: how clients learn where tokens come from (RFC 9728).
//!
//! The subject token is the credential: who holds it may narrow it, and nobody may widen it. Beyond the parameters of the
//! RFC there are those that our tokens have and OAuth does not know: `sub`, `tools`, `limits`, `budget`, `roles`,
//! `ttl_seconds`, `session_id`. In a form `tools`, `limits` and `budget` are JSON texts, `roles` words between spaces.
//!
//! Where we are stricter than RFC 6749: a parameter nobody knows is refused, not ignored. Most of ours make the token
//! narrower, so one that is misspelt would yield a token wider than was meant.
//!
//! Refusals have the form of RFC 6749 §5.2. RFC 8693 §2.2.2 wants `invalid_request` for a subject token that is not good,
//! whatever is wrong with it; our own code beside it says what.
//!
//! Not here: what may be delegated (`kernel`), other grants of OAuth.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::Subject;
use contract::json;
use kernel::{DelegationRequest, MintedToken};
use policy::{ArgumentLimit, CallBudget, NarrowingRequest, PermissionScope, Role, ToolGrant};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::rights::{BudgetBody, GrantBody, LimitBody};
use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::body::{is_form, not_json};
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::members::typed;
use crate::problem::{RESOURCE_METADATA, RefusalResponse};

/// The one grant that is understood.
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// What our tokens are to OAuth: usable here, and of the form of RFC 7519.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
/// Longest body. Nobody has been recognised before it is read.
const BYTES_MAX: usize = 64 * 1024;
/// All of each kind (MAN-011).
const SCOPES: &[&str] = &["tool:*", "filesystem:read:*", "filesystem:write:*", "network:*", "credentials:*"];
/// Longest life of a token.
const TTL_SECONDS_MAX: u64 = 31_536_000;

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/oauth/token",
        id: "exchangeToken",
        tag: "tokens",
        summary: "Narrow a token and hand it on (RFC 8693 token exchange); the subject token is the credential",
        access: RouteAccess::Public,
        parameters: &[],
        asks: RequestBody::FormOrJson(SchemaGenerator::subschema_for::<ExchangeBody>),
        good: &[(200, "the narrower token")],
        gives: ResponseBody::Oauth(SchemaGenerator::subschema_for::<Exchanged>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3003,
            ErrorCode::E3201,
            ErrorCode::E3202,
            ErrorCode::E3203,
            ErrorCode::E3206,
            ErrorCode::E3207,
            ErrorCode::E3801,
            ErrorCode::E3803,
        ],
        mount: |filter| to(filter, exchange),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: RESOURCE_METADATA,
        id: "getResourceMetadata",
        tag: "tokens",
        summary: "Where tokens for this server come from, and how they are shown (RFC 9728)",
        access: RouteAccess::Public,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the metadata")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ResourceMetadata>),
        codes: &[ErrorCode::E3004],
        mount: |filter| to(filter, metadata),
    },
];

/// What is handed on, to whom. What is not asked for is inherited; nothing can be asked for that the subject token has not.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "TokenExchange")]
#[serde(deny_unknown_fields)]
struct ExchangeBody {
    /// `urn:ietf:params:oauth:grant-type:token-exchange`.
    #[expect(dead_code, reason = "looked at before the rest is read")]
    grant_type: String,
    /// The token to be narrowed.
    subject_token: String,
    /// `urn:ietf:params:oauth:token-type:access_token` or `…:jwt`.
    subject_token_type: String,
    /// The same two; default that of the subject token.
    #[serde(default)]
    requested_token_type: Option<String>,
    /// Not supported: whoever acts is `sub`, and the chain is taken from the subject token.
    #[serde(default)]
    #[schemars(skip)]
    actor_token: Option<String>,
    #[serde(default)]
    #[schemars(skip)]
    actor_token_type: Option<String>,
    /// Scopes, separated by spaces.
    #[serde(default)]
    scope: Option<String>,
    /// If it is there, the audience of this server's tokens, or this server's address.
    #[serde(default)]
    audience: Option<String>,
    /// If it is there, an address of this server.
    #[serde(default)]
    resource: Option<String>,
    /// Clients of OAuth may say who they are; it has no meaning here.
    #[serde(default)]
    #[expect(dead_code, reason = "read so that it is not refused")]
    client_id: Option<String>,
    /// Who will use it; default the same subject, for a narrower purpose.
    #[serde(default)]
    sub: Option<Subject>,
    #[serde(default)]
    #[schemars(with = "Option<Vec<GrantBody>>")]
    tools: Option<Vec<ToolGrant>>,
    /// In addition to those that the subject token has.
    #[serde(default)]
    #[schemars(with = "Vec<LimitBody>")]
    limits: Vec<ArgumentLimit>,
    #[serde(default)]
    #[schemars(with = "Option<BudgetBody>")]
    budget: Option<CallBudget>,
    /// Among those of the subject token, or `agent`; default `agent`.
    #[serde(default)]
    roles: Option<Vec<Role>>,
    /// Default: as long as the subject token lives.
    #[serde(default)]
    #[schemars(range(min = 1, max = 31_536_000))]
    ttl_seconds: Option<u64>,
    #[serde(default)]
    #[schemars(length(max = 255))]
    session_id: Option<String>,
}

/// The narrower token (RFC 8693 §2.2.1).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExchangedToken")]
struct Exchanged {
    access_token: String,
    issued_token_type: &'static str,
    /// `Bearer`.
    token_type: &'static str,
    /// Seconds.
    expires_in: i64,
    /// The scopes it has, separated by spaces; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// RFC 9728 §2.
#[derive(Debug, Serialize, JsonSchema)]
struct ResourceMetadata {
    resource: String,
    resource_name: &'static str,
    authorization_servers: Vec<String>,
    /// The widest of each kind; narrower ones say where, as in `filesystem:read:/data`.
    scopes_supported: &'static [&'static str],
    bearer_methods_supported: [&'static str; 1],
    resource_documentation: String,
}

async fn exchange(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    exchanged(door, incoming).await.map_err(|refused| refused.in_oauth(word))
}

async fn exchanged(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let body = exchange_body(&door, &mut incoming).await?;
    // Most parameters make the token narrower: where nothing reads them, they are refused as unknown ones are.
    incoming.query(&[])?;
    let who = door.placed(&credential(&incoming, &body.subject_token)?).await?;
    let issued_token_type = token_types(&body)?;
    target_is_here(&door, &incoming, &body)?;
    let kernel = door.shared_kernel();
    let request = body.into_request(kernel.clock().now().0.div_euclid(1000))?;
    door.carry_to_end(async move {
        let minted = kernel.delegate_token(who.actor(), &request).await?;
        HttpAnswer::json(&Exchanged::of(minted, issued_token_type))
    })
    .await
}

/// The words of RFC 6749 §5.2 and RFC 8693 §2.2.2, for refusals that have not got theirs where they were made.
fn word(refusal: &Refusal) -> &'static str {
    let widens = || matches!(refusal.reason.as_deref(), Some(RefusalReason::Widening(_)));
    match refusal.code.http() {
        429 | 503 => "temporarily_unavailable",
        500.. => "server_error",
        403 if widens() => "invalid_scope",
        _ => "invalid_request",
    }
}

// ------------------------------------------------------------------------------------------------------ what is asked

async fn exchange_body(door: &Door, incoming: &mut IncomingRequest) -> Result<ExchangeBody, RefusalResponse> {
    let form = is_form(&incoming.parts.headers)?;
    let text = incoming.bytes(door, door.config().body_bytes_max.min(BYTES_MAX)).await?;
    let limits = door.json_limits();
    let value = if form {
        Value::Object(form_members(&text, &limits)?)
    } else {
        json::read(&text, &limits).map_err(|error| not_json(&error))?
    };
    // Who asks comes first: a token that is not good is refused, and counted, whatever else the body says.
    if let Some(token) = value.get("subject_token").and_then(Value::as_str) {
        door.kernel().recognise(incoming.credential_of(token).actor()).await?;
    }
    // Whoever wants another grant has not heard of our parameters, so this comes before them.
    let grant = value.get("grant_type").and_then(Value::as_str);
    if grant.is_some_and(|grant| grant != TOKEN_EXCHANGE) {
        let refusal = malformed("this `grant_type` is not supported").hint(format!("use `{TOKEN_EXCHANGE}`"));
        return Err(RefusalResponse::from(refusal).in_oauth(|_| "unsupported_grant_type"));
    }
    let again = value.clone();
    Ok(typed(value, "", || again)?)
}

/// A form as the members of a JSON body. A parameter without a value counts as absent (RFC 6749 §3.2).
fn form_members(text: &[u8], limits: &json::JsonLimits) -> Result<Map<String, Value>, RefusalResponse> {
    let mut members = Map::new();
    for (name, text) in form_urlencoded::parse(text) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        // Decoding puts this character where the bytes are no text.
        if name.contains(char::REPLACEMENT_CHARACTER) || text.contains(char::REPLACEMENT_CHARACTER) {
            return Err(malformed(format!("`{shown}` is not valid UTF-8 after decoding")).into());
        }
        if text.is_empty() {
            continue;
        }
        let value = match &*name {
            "tools" | "limits" | "budget" => json::read(text.as_bytes(), limits)
                .map_err(|error| malformed(format!("`{shown}` is not acceptable JSON: {error}")))?,
            "roles" => text.split_ascii_whitespace().map(Value::from).collect(),
            "ttl_seconds" => text.parse::<u64>().map_or_else(|_| Value::from(&*text), Value::from),
            _ => Value::from(&*text),
        };
        if members.insert(name.into_owned(), value).is_some() {
            return Err(malformed(format!("`{shown}` stands twice")).hint("send it once").into());
        }
    }
    Ok(members)
}

/// The subject token. An `authorization` header is not needed, but it must not tell another story.
fn credential(incoming: &IncomingRequest, subject_token: &str) -> Result<CallerCredential, RefusalResponse> {
    let header = incoming.credential()?;
    let same = header.secret().is_some_and(|shown| shown.0 == subject_token);
    if !header.is_empty() && !same {
        let refusal = malformed("the `authorization` header shows something else than the subject token");
        return Err(refusal.hint("leave the header out: the subject token is the credential").into());
    }
    Ok(incoming.credential_of(subject_token))
}

/// Checks the types of tokens; answers that of the new one.
fn token_types(body: &ExchangeBody) -> Result<&'static str, Refusal> {
    let known = |text: &str| [ACCESS_TOKEN, JWT].into_iter().find(|known| *known == text);
    let refused = |what: &str| {
        malformed(format!("this `{what}` is not supported")).hint(format!("use `{ACCESS_TOKEN}` or `{JWT}`"))
    };
    if body.actor_token.is_some() || body.actor_token_type.is_some() {
        return Err(malformed("`actor_token` is not supported")
            .hint("name whoever will act as `sub`; the chain is taken from the subject token"));
    }
    let shown = known(&body.subject_token_type).ok_or_else(|| refused("subject_token_type"))?;
    match &body.requested_token_type {
        None => Ok(shown),
        Some(text) => known(text).ok_or_else(|| refused("requested_token_type")),
    }
}

/// Tokens are made for this server only.
fn target_is_here(door: &Door, incoming: &IncomingRequest, body: &ExchangeBody) -> Result<(), RefusalResponse> {
    let base = incoming.base().text();
    let at_base = |text: &str| {
        let rest = base.as_deref().and_then(|base| text.strip_prefix(base));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let audience = door.kernel().identity().audience();
    let audience_fits = body.audience.as_deref().is_none_or(|text| text == audience || at_base(text));
    if audience_fits && body.resource.as_deref().is_none_or(at_base) {
        return Ok(());
    }
    let refusal = malformed("tokens for another service are not made here")
        .hint("leave `audience` and `resource` out, or name this server");
    Err(RefusalResponse::from(refusal).in_oauth(|_| "invalid_target"))
}

fn malformed(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3004, message)
}

impl ExchangeBody {
    fn into_request(self, now: i64) -> Result<DelegationRequest, RefusalResponse> {
        let scopes = self.scope.map(|text| scopes(&text)).transpose()?;
        let expires_at = match self.ttl_seconds {
            None => None,
            Some(ttl @ 1..=TTL_SECONDS_MAX) => Some(now.saturating_add_unsigned(ttl)),
            Some(_) => {
                return Err(malformed(format!("`ttl_seconds` must be between 1 and {TTL_SECONDS_MAX}")).into());
            }
        };
        let wish = NarrowingRequest { tools: self.tools, scopes, limits: self.limits, budget: self.budget, expires_at };
        Ok(DelegationRequest { sub: self.sub, roles: self.roles, wish, session_id: self.session_id })
    }
}

fn scopes(text: &str) -> Result<Vec<PermissionScope>, RefusalResponse> {
    let read = |word: &str| word.parse().map_err(|error| malformed(format!("`scope`: {error}")));
    let scopes: Result<_, Refusal> = text.split_ascii_whitespace().map(read).collect();
    scopes.map_err(|refusal| RefusalResponse::from(refusal).in_oauth(|_| "invalid_scope"))
}

// ---------------------------------------------------------------------------------------------------- what is answered

impl Exchanged {
    fn of(minted: MintedToken, issued_token_type: &'static str) -> Self {
        let claims = minted.claims;
        let scope = claims.scopes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        Self {
            access_token: minted.token,
            issued_token_type,
            token_type: "Bearer",
            expires_in: claims.exp.saturating_sub(claims.iat),
            scope: Some(scope).filter(|scope| !scope.is_empty()),
        }
    }
}

async fn metadata(_: Arc<Door>, incoming: IncomingRequest) -> Handled {
    described(&incoming, "")
}

/// The metadata of a part of this server that is a resource of its own: the MCP door (RFC 9728 §3.1).
pub(super) async fn metadata_of_part(_: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let path = incoming.parts.uri.path();
    let resource = path.strip_prefix(RESOURCE_METADATA).unwrap_or_default().to_owned();
    described(&incoming, &resource)
}

fn described(incoming: &IncomingRequest, resource: &str) -> Handled {
    let base = incoming.base().text().ok_or_else(|| {
        malformed("the request does not say under which address this server was found").hint("send a `host` header")
    })?;
    HttpAnswer::json(&ResourceMetadata {
        resource_name: "Gantry",
        authorization_servers: vec![base.clone()],
        scopes_supported: SCOPES,
        bearer_methods_supported: ["header"],
        resource_documentation: format!("{base}/docs"),
        resource: format!("{base}{resource}"),
    })
}
