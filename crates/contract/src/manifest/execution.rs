//! How a tool runs: one tagged union for all executors (MAN-024).
//!
//! The union lives in the contract because a manifest is a promise to the outside; what each variant *does* is the
//! business of the executor that claims it. A variant that no executor of a server claims is refused there at registration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The least isolation that will do, weakest first. A server that cannot give it refuses; it never gives less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// None: code of Gantry itself. Nobody can ask for it; it is what a built-in has.
    #[serde(skip_deserializing)]
    Builtin,
    /// Namespaces, seccomp, Landlock and control groups of the kernel that the server runs on. A WASM component counts as
    /// this much.
    #[default]
    Process,
    /// A kernel of its own in user space.
    Gvisor,
    /// A machine of its own.
    Microvm,
}

impl Isolation {
    /// The word in manifests, policies and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Process => "process",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
        }
    }
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

/// What an MCP server says about one of its tools besides its name, its description and its schemas.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpDisplay {
    /// `title`, `readOnlyHint` and the like: hints, never a class.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Value>,
    #[serde(rename = "_meta", default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Value>,
    /// How its calls take to being tasks, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_support: Option<TaskSupport>,
}

/// How calls of a tool of an MCP server take to being tasks, in the words of 2025-11-25.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskSupport {
    Forbidden,
    Optional,
    Required,
}

impl TaskSupport {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
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
        /// The interpreter stays for the next call of the same tool version and tenant. Only with protocol `gantry/1`.
        // Left out when false: a member of a later release must not change the digest of what was published before.
        #[serde(default, skip_serializing_if = "is_false")]
        warm: bool,
    },
    /// A WASM component in the tool's own folder.
    Wasm {
        /// A file inside the tool's folder.
        component: String,
        /// The whole environment of the component.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// A container.
    Oci {
        /// A folder inside the tool's folder: a root file system, or an OCI image layout.
        image: String,
        /// Program and arguments; empty means what the image says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 64))]
        command: Vec<String>,
        #[serde(default)]
        isolation: Isolation,
        #[serde(default, skip_serializing_if = "ProcessProtocol::is_simple")]
        protocol: ProcessProtocol,
        /// Environment besides that of the image; the caller's and the server's are never inherited.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
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
        /// What the server says about the tool to clients, which is handed on to them. Nothing relies on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<Box<McpDisplay>>,
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

impl ProcessProtocol {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_simple(&self) -> bool {
        *self == Self::Simple
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
pub(super) fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Execution {
    /// The least isolation the manifest itself asks for. WASM counts as `process`, whatever runs no code of the tool's
    /// author here as `builtin`.
    pub fn isolation_asked(&self) -> Isolation {
        match self {
            Self::Process { isolation, .. } | Self::Oci { isolation, .. } => *isolation,
            Self::Wasm { .. } => Isolation::Process,
            Self::Builtin { .. }
            | Self::Http { .. }
            | Self::Openapi { .. }
            | Self::Grpc { .. }
            | Self::Websocket { .. }
            | Self::Mcp { .. }
            | Self::Workflow { .. }
            | Self::Composio { .. }
            | Self::Composite { .. } => Isolation::Builtin,
        }
    }

    /// The most isolation this way of running can ever have, on any server.
    pub fn isolation_possible(&self) -> Isolation {
        match self {
            Self::Process { .. } | Self::Oci { .. } => Isolation::Microvm,
            _ => self.isolation_asked(),
        }
    }

    /// Is running it a call to somebody else? MCP servers are not counted to those: they have a supervisor.
    pub fn calls_out(&self) -> bool {
        match self {
            Self::Http { .. }
            | Self::Openapi { .. }
            | Self::Grpc { .. }
            | Self::Websocket { .. }
            | Self::Workflow { .. }
            | Self::Composio { .. } => true,
            Self::Builtin { .. }
            | Self::Process { .. }
            | Self::Wasm { .. }
            | Self::Oci { .. }
            | Self::Mcp { .. }
            | Self::Composite { .. } => false,
        }
    }

    /// Can CPU, memory and network of one call be limited? Only where each call has something of its own to limit.
    pub fn keeps_limits(&self) -> bool {
        match self {
            Self::Process { .. } | Self::Wasm { .. } | Self::Oci { .. } => true,
            Self::Builtin { .. }
            | Self::Http { .. }
            | Self::Openapi { .. }
            | Self::Grpc { .. }
            | Self::Websocket { .. }
            | Self::Mcp { .. }
            | Self::Workflow { .. }
            | Self::Composio { .. }
            | Self::Composite { .. } => false,
        }
    }

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
