//! The ways a tool can run. Each implements the kernel's one port, [`Executor`](ports::executor::Executor).
//!
//! - [`builtin`]: the tools that are part of Gantry, inside this process;
//! - [`process`]: a program in the tool's own folder;
//! - [`wasm`]: a WASM component in the tool's own folder;
//! - [`confinement`]: what a manifest's words give to a tool nobody trusts;
//! - [`guarded_calls`]: calls to addresses that a tenant chose, webhooks above all;
//! - [`tool_directories`]: where those folders are;
//! - [`server_confinement`]: what a server behind Gantry is given that runs here as a program;
//! - [`oci`]: a container image in the tool's own folder, under gVisor or runc;
//! - [`model`]: the adapter to a language model that built-ins may ask;
//! - [`origin`]: what an address outside means to policies.
//!
//! Invariant: an executor decides nothing. It gets a call that has been validated and authorized, runs it once, and says
//! what came of it in terms of the error table.
//!
//! Not here yet: HTTP, OpenAPI, gRPC, MCP, workflows, composites.

pub mod builtin;
mod call_time;
pub mod confinement;
pub mod guarded_calls;
mod log_hint;
pub mod model;
pub mod oci;
pub mod origin;
pub mod process;
pub mod sandbox_provider;
pub mod server_confinement;
pub mod tool_directories;
pub mod wasm;

pub use builtin::BuiltinExecutor;
pub use confinement::{OperatorReach, PathMasks, ToolConfinement};
pub use guarded_calls::{CallTimes, GuardedCalls, OpenedNetworks};
pub use model::{ModelClient, ModelConfig};
pub use oci::OciExecutor;
pub use process::{ProcessExecutor, ProcessIsolation};
pub use sandbox_provider::{RuntimePrograms, SandboxProvider};
pub use server_confinement::ServerConfinement;
pub use tool_directories::ToolDirectories;
pub use wasm::{WasmConfig, WasmExecutor};
