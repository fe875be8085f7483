//! Pages for people and generators: `/`, `/docs`, `/openapi.json`, the manifest's schema. All public, all self-contained.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::HeaderValue;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// The page loads nothing from elsewhere and cannot be framed.
const DOCS_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                           img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        mount: |filter| to(filter, root),
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Welcome>),
        ..page("/", "getRoot", "What this is and where to look; browsers are sent to /docs", "application/json")
    },
    RouteOperation {
        mount: |filter| to(filter, docs),
        ..page("/docs", "getDocs", "This interface, for people", "text/html")
    },
    RouteOperation {
        mount: |filter| to(filter, openapi),
        ..page("/openapi.json", "getOpenapi", "This interface, as OpenAPI 3.1", "application/json")
    },
    RouteOperation {
        mount: |filter| to(filter, manifest_schema),
        ..page(
            "/schemas/tool-manifest.schema.json",
            "getManifestSchema",
            "The JSON Schema of tool manifests",
            "application/schema+json",
        )
    },
];

const fn page(path: &'static str, id: &'static str, summary: &'static str, media: &'static str) -> RouteOperation {
    RouteOperation {
        verb: RouteMethod::Get,
        path,
        id,
        tag: "pages",
        summary,
        access: RouteAccess::Public,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the page")],
        gives: ResponseBody::Plain(media),
        codes: &[],
        mount: |filter| to(filter, docs),
    }
}

/// What this is and where to look.
#[derive(Debug, Serialize, JsonSchema)]
struct Welcome {
    name: &'static str,
    version: &'static str,
    links: Links,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Links {
    docs: &'static str,
    openapi: &'static str,
    manifest_schema: &'static str,
    health: &'static str,
    tools: &'static str,
}

async fn root(_: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let accepts = incoming.parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/html") {
        return Ok(HttpAnswer::see_other("/docs"));
    }
    HttpAnswer::json(&Welcome {
        name: "gantry",
        version: env!("CARGO_PKG_VERSION"),
        links: Links {
            docs: "/docs",
            openapi: "/openapi.json",
            manifest_schema: "/schemas/tool-manifest.schema.json",
            health: "/health",
            tools: "/v1/tools",
        },
    })
}

async fn docs(_: Arc<Door>, _: IncomingRequest) -> Handled {
    Ok(kept("text/html; charset=utf-8", Bytes::from_static(include_bytes!("../docs.html")))
        .header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(DOCS_POLICY))
        .header(REFERRER_POLICY, HeaderValue::from_static("no-referrer")))
}

async fn openapi(_: Arc<Door>, _: IncomingRequest) -> Handled {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| written(&crate::openapi()));
    Ok(kept("application/json", DOCUMENT.clone()))
}

async fn manifest_schema(_: Arc<Door>, _: IncomingRequest) -> Handled {
    static SCHEMA: LazyLock<Bytes> = LazyLock::new(|| written(contract::manifest::manifest_schema()));
    Ok(kept("application/schema+json", SCHEMA.clone()))
}

fn written(value: &Value) -> Bytes {
    serde_json::to_vec_pretty(value).unwrap_or_default().into()
}

/// Changes only with the binary, so it may be kept for a while.
fn kept(content_type: &'static str, body: Bytes) -> HttpAnswer {
    HttpAnswer::plain(content_type, body).header(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"))
}
