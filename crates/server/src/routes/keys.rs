//! The keys that sign this server's tokens: `POST /v1/keys/rotate` replaces the present one, `GET /.well-known/jwks.json`
//! publishes the present one and those it followed (AUTH-005).

use std::sync::Arc;

use contract::error::ErrorCode;
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use policy::VerifyingKey;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// For how long others may keep the keys. Whoever meets a new `kid` before that fetches them again.
const KEPT: &str = "public, max-age=300";

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/keys/rotate",
        id: "rotateKeys",
        tag: "tokens",
        summary: "Sign with a new key from now on; tokens of the former keys stay valid until they expire",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the name of the new key")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Rotated>),
        codes: &[ErrorCode::E3001, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, rotate),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/.well-known/jwks.json",
        id: "getKeys",
        tag: "tokens",
        summary: "The public keys that verify tokens, as a JWK set",
        access: RouteAccess::Public,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the keys, the newest first")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<KeySet>),
        codes: &[],
        mount: |filter| to(filter, keys),
    },
];

/// The key that signs from now on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeyRotated")]
struct Rotated {
    kid: String,
}

/// A JWK set (RFC 7517).
#[derive(Debug, Serialize, JsonSchema)]
struct KeySet {
    keys: Vec<Value>,
}

async fn rotate(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move { HttpAnswer::json(&Rotated { kid: kernel.rotate_keys(who.actor()).await? }) }).await
}

async fn keys(door: Arc<Door>, _: IncomingRequest) -> Handled {
    let keys = door.kernel().identity().own_keys().iter().map(VerifyingKey::to_jwk).collect();
    Ok(HttpAnswer::json(&KeySet { keys })?.header(CACHE_CONTROL, HeaderValue::from_static(KEPT)))
}
