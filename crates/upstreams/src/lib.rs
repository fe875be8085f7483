//! MCP servers behind Gantry: connecting to them, keeping them alive, taking their tools in and pinning what was taken.
//!
//! - [`spec`]: what is known of a server before it is started;
//! - [`admission`]: who may put what behind Gantry;
//! - [`upstreams`]: all servers, how each stands, and what can be asked of them;
//! - [`executor`]: calls of their tools, as the kernel makes them;
//! - [`supervisor`]: starts, heartbeats, restarts, drains; `restarts` has the rule when to give up;
//! - `connection`: the wire: standard streams, Streamable HTTP, the HTTP+SSE of 2024-11-05;
//! - [`import`]: the configuration people already have; [`tool_names`] and [`pins`]: what a tool is called here and what was accepted of it;
//! - [`package`]: packages of npm and PyPI that servers are started from;
//! - [`diagnosis`]: why one does not start, from what it has written;
//! - [`catalogue`]: servers' tools taken in, held back, given free;
//! - `offerings`, `watched`: their resources and prompts, for whoever may ask, and what changes of them;
//! - [`headers`]: what of a request stands in its headers;
//! - [`observer`]: what is worth counting;
//! - [`sse_events`]: streams of events, for whoever reads one;
//! - `oauth`: tokens for servers elsewhere;
//! - `server_log`: what servers write to their standard error.
//!
//! Invariant: what a server says is data. It is bounded where it is read, and nothing of it decides anything.

pub mod admission;
pub mod bounds;
pub mod catalogue;
mod connection;
pub mod diagnosis;
pub mod executor;
mod fault;
pub mod headers;
pub mod import;
mod oauth;
pub mod observer;
mod offerings;
mod origin;
pub mod package;
pub mod pins;
pub mod plain_secrets;
mod restarts;
mod rounds;
mod server_log;
mod server_tasks;
pub mod spec;
pub mod sse_events;
mod starter;
pub mod supervisor;
pub mod tool_names;
pub mod upstreams;
mod watched;
pub mod watcher;
mod wire;

pub use admission::{ServerAdmission, TenantList, TenantLists};
pub use bounds::UpstreamBounds;
pub use connection::ProtocolEra;
pub use executor::UpstreamExecutor;
pub use observer::{UpstreamEvent, UpstreamObserver};
pub use package::{PackagePin, PackageRegistry};
pub use server_log::LogBounds;
pub use supervisor::ServerState;
pub use upstreams::{PendingChanges, SecondMeeting, ServerDefinition, ServerStatus, UpstreamParts, UpstreamServers};
pub use watcher::UpstreamWatcher;
