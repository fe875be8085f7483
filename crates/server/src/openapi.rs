//! The OpenAPI 3.1 document, made from the table of operations and the very types that are read and written (API-001).
//!
//! OpenAPI 3.1 uses JSON Schema 2020-12, so what schemars makes is used as it is. Error answers come from the error table:
//! each status lists the codes that can stand behind it.
//!
//! Not here: the page that shows it (`docs.html`).

use std::collections::BTreeMap;

use contract::envelope::ErrorResponse;
use contract::error::ErrorCode;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::problem::{OauthError, http_status};
use crate::routes::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, operations,
};

/// Codes that every operation can answer: a failure of ours, and a name that is not ours.
const ALWAYS: &[ErrorCode] = &[ErrorCode::E3000, ErrorCode::E3206];
/// Codes that come with a token: who it is, and whether there is a place.
const WITH_TOKEN: &[ErrorCode] = &[
    ErrorCode::E3001,
    ErrorCode::E3003,
    ErrorCode::E3201,
    ErrorCode::E3202,
    ErrorCode::E3203,
    ErrorCode::E3206,
    ErrorCode::E3207,
];
/// Codes that come with a body, and with the calls that bodies start.
const WITH_BODY: &[ErrorCode] =
    &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3005, ErrorCode::E3006, ErrorCode::E3009];

/// The OpenAPI document of the REST door.
pub fn openapi() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();

    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations() {
        let verb = match operation.verb {
            RouteMethod::Get => "get",
            RouteMethod::Post => "post",
            RouteMethod::Put => "put",
            RouteMethod::Delete => "delete",
        };
        paths.entry(operation.path).or_default().insert(verb.to_owned(), described(operation, &mut generator));
    }
    // Asked for last and by name, so that every refusal can refer to it.
    generator.subschema_for::<ErrorResponse>();
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Gantry",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "The tool execution layer for AI agents",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
                "description": "the admin token of the data directory, or a capability token" } },
        },
    })
}

fn tags() -> Value {
    json!([
        { "name": "invocation", "description": "Calling tools" },
        { "name": "jobs", "description": "Calls that outlive their request: status, cancel, events" },
        { "name": "registry", "description": "Publishing and finding tools" },
        { "name": "lifecycle", "description": "From active to removed" },
        { "name": "compatibility", "description": "What a change means for callers" },
        { "name": "tokens", "description": "Who may do what" },
        { "name": "access", "description": "Tenants, agents, activations and policies" },
        { "name": "servers", "description": "MCP servers behind Gantry, and what of theirs is accepted" },
        { "name": "discovery", "description": "What a tenant has, what an agent may use, and what it could" },
        { "name": "operations", "description": "Probes and metrics" },
        { "name": "pages", "description": "For people and generators" },
    ])
}

fn described(operation: &RouteOperation, generator: &mut SchemaGenerator) -> Value {
    let mut entry = Map::new();
    entry.insert("operationId".into(), operation.id.into());
    entry.insert("summary".into(), operation.summary.into());
    entry.insert("tags".into(), json!([operation.tag]));
    entry.insert(
        "security".into(),
        match operation.access {
            RouteAccess::Public => json!([]),
            RouteAccess::Token => json!([{ "token": [] }]),
            RouteAccess::Configured => json!([{}, { "token": [] }]),
        },
    );
    if !operation.parameters.is_empty() {
        let parameters: Vec<Value> = operation.parameters.iter().map(|one| parameter(one, generator)).collect();
        entry.insert("parameters".into(), parameters.into());
    }
    match operation.asks {
        RequestBody::Nothing => {}
        RequestBody::Json(schema) => {
            entry.insert(
                "requestBody".into(),
                json!({ "required": true, "content": { "application/json": { "schema": schema(generator) } } }),
            );
        }
        RequestBody::FormOrJson(schema) => {
            let body = json!({ "schema": schema(generator) });
            entry.insert(
                "requestBody".into(),
                json!({ "required": true, "content": { "application/x-www-form-urlencoded": body, "application/json": body } }),
            );
        }
        RequestBody::JsonIfAny(schema) => {
            entry.insert(
                "requestBody".into(),
                json!({ "content": { "application/json": { "schema": schema(generator) } } }),
            );
        }
    }
    entry.insert("responses".into(), responses(operation, generator));
    Value::Object(entry)
}

fn parameter(parameter: &RouteParameter, generator: &mut SchemaGenerator) -> Value {
    let (place, required) = match parameter.place {
        ParameterPlace::Path => ("path", true),
        ParameterPlace::Query => ("query", false),
        ParameterPlace::RequiredQuery => ("query", true),
    };
    json!({
        "name": parameter.name, "in": place, "required": required,
        "description": parameter.about, "schema": (parameter.schema)(generator),
    })
}

fn responses(operation: &RouteOperation, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    let refusal = match operation.gives {
        ResponseBody::Oauth(_) => json!({ "application/json": { "schema": generator.subschema_for::<OauthError>() } }),
        ResponseBody::Json(_) | ResponseBody::Plain(_) => {
            json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/ErrorResponse" } } })
        }
    };
    for (status, codes) in codes_by_status(operation) {
        let lines: Vec<String> = codes.iter().map(|code| format!("`{code}` {}", code.row().meaning)).collect();
        responses.insert(status.to_string(), json!({ "description": lines.join("; "), "content": refusal }));
    }
    for (status, meaning) in operation.good {
        if *status == 204 {
            responses.insert(status.to_string(), json!({ "description": meaning }));
            continue;
        }
        let content = match operation.gives {
            ResponseBody::Json(schema) | ResponseBody::Oauth(schema) => {
                json!({ "application/json": { "schema": schema(generator) } })
            }
            ResponseBody::Plain(media) => json!({ media: {} }),
        };
        responses.insert(status.to_string(), json!({ "description": meaning, "content": content }));
    }
    Value::Object(responses)
}

/// Every code an operation can answer, under the status it is answered with.
fn codes_by_status(operation: &RouteOperation) -> BTreeMap<u16, Vec<ErrorCode>> {
    let token: &[ErrorCode] = if operation.access == RouteAccess::Public { &[] } else { WITH_TOKEN };
    let body: &[ErrorCode] = if matches!(operation.asks, RequestBody::Nothing) { &[] } else { WITH_BODY };
    let mut codes: Vec<ErrorCode> = [ALWAYS, token, body, operation.codes].concat();
    codes.sort_unstable();
    codes.dedup();
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in codes {
        by_status.entry(http_status(code).as_u16()).or_default().push(code);
    }
    by_status
}
