//! How a tool runs: one tagged union for all executors (MAN-024).
//!
//! The union lives in the contract because a manifest is a promise to the outside; what each variant *does* is the
//! business of the executor that claims it. A variant no executor of a server claims can be registered and found there,
//! but a call answers E3108.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The least isolation that will do. A server that cannot give it refuses; it never gives less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    #[default]
    Process,
    Gvisor,
    Microvm,
}

/// What a process tool speaks on its standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ProcessProtocol {
    /// Parameters as JSON on stdin, result as JSON on stdout, non-zero exit is an error.
    #[default]
    #[serde(rename = "simple")]
    Simple,
    /// Newline-delimited JSON-RPC: progress, checkpoints, documents, cancel.
    #[serde(rename = "gantry/1")]
    Session,
}

/// How a tool runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Execution {
    /// Code inside Gantry.
    Builtin {
        /// Which built-in, for example `calculator`.
        #[serde(alias = "name")]
        handler: String,
    },
    /// A program in the tool's own folder.
    Process {
        /// Program and arguments; never a shell line.
        #[schemars(length(min = 1, max = 64))]
        command: Vec<String>,
        #[serde(default)]
        isolation: Isolation,
        #[serde(default)]
        protocol: ProcessProtocol,
        /// Extra environment; the caller's and the server's are never inherited.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// A WASM component in the tool's own folder.
    Wasm {
        component: String,
    },
    /// A container image, by digest.
    Oci {
        image: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        command: Vec<String>,
        #[serde(default)]
        isolation: Isolation,
    },
    /// One HTTP request.
    Http {
        method: String,
        url: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
    /// One operation of an OpenAPI document.
    Openapi {
        document: String,
        operation_id: String,
    },
    Grpc {
        endpoint: String,
        service: String,
        method: String,
    },
    Websocket {
        url: String,
    },
    /// A tool of an MCP server behind Gantry.
    Mcp {
        server: String,
        tool: String,
    },
    /// An n8n workflow by webhook.
    Workflow {
        workflow_id: String,
        webhook_path: String,
    },
    Composio {
        action: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entity_id: Option<String>,
    },
    /// A DAG of other tools.
    Composite {
        steps: Vec<Value>,
    },
}

impl Execution {
    /// The word in `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Builtin { .. } => "builtin",
            Self::Process { .. } => "process",
            Self::Wasm { .. } => "wasm",
            Self::Oci { .. } => "oci",
            Self::Http { .. } => "http",
            Self::Openapi { .. } => "openapi",
            Self::Grpc { .. } => "grpc",
            Self::Websocket { .. } => "websocket",
            Self::Mcp { .. } => "mcp",
            Self::Workflow { .. } => "workflow",
            Self::Composio { .. } => "composio",
            Self::Composite { .. } => "composite",
        }
    }
}
