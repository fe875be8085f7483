//! The doors: how agents and people reach the kernel. There are three: REST (API-001…012, API-014), JSON-RPC (`routes::json_rpc`)
//! and MCP (`mcp`).
//!
//! A door is thin: it parses, calls the kernel and renders. Whether something may be done, retried or stored is decided
//! below; an `if` about that does not belong here. Start at [`serve`]; the list of what can be asked is the table in
//! `routes`, from which the router and the OpenAPI document are both made.
//!
//! ```text
//! serve ─▶ connection (pace) ─▶ router ─▶ routes::… ─▶ incoming, body, query ─▶ kernel ─▶ answer | problem
//! ```
//!
//! Invariants
//! - DOOR-1: every refusal, whatever its origin, is rendered by `problem` and nothing else.
//! - DOOR-2: a call that the kernel has begun is carried to its end, also when the client has gone away.
//! - DOOR-3: credentials are never logged, echoed or kept.
//!
//! Not here: where certificates are (`cli`), other doors (gRPC), MCP servers as tools (`upstreams`).

mod answer;
mod base_url;
mod body;
mod config;
mod connections;
mod door;
mod incoming_request;
mod mcp;
mod members;
mod openapi;
mod origin;
mod orphaned_work;
mod pace;
mod places_text;
mod problem;
mod query;
mod requests;
mod routes;
mod serve;
mod tls;
pub mod tool_view;
mod visibility_view;

pub use config::{ConfigError, ServerConfig};
pub use door::{Door, DoorParts, FreeSpace, MetricsText};
pub use mcp::config::{McpConfig, McpConfigError, McpMode, ToolExposure};
pub use mcp::{McpState, SessionKey, StdioError, serve_stdio};
pub use openapi::openapi;
pub use serve::{DrainOutcome, serve};
pub use tls::{DoorListener, HandshakeCounts, TlsError, TlsIdentity, TlsMaterial, TlsState};
