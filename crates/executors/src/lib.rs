//! The ways a tool can run. Each implements the kernel's one port, [`Executor`](kernel::ports::executor::Executor).
//!
//! - [`builtin`]: the tools that are part of Gantry, inside this process;
//! - [`process`]: a program in the tool's own folder;
//! - [`oci`]: a container image in the tool's own folder, under gVisor or runc;
//! - [`model`]: the adapter to a language model that built-ins may ask.
//!
//! Invariant: an executor decides nothing. It gets a call that has been validated and authorized, runs it once, and says
//! what came of it in terms of the error table.
//!
//! Not here yet: WASM, HTTP, OpenAPI, gRPC, MCP, workflows, composites, and the sandbox around processes.

pub mod builtin;
pub mod model;
pub mod oci;
pub mod process;

pub use builtin::BuiltinExecutor;
pub use model::{ModelClient, ModelConfig};
pub use oci::{OciConfig, OciExecutor};
pub use process::{ProcessExecutor, ProcessPolicy};
