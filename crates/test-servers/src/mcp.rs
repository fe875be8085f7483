//! MCP servers as little as they can be: JSON-RPC by hand, over Streamable HTTP or standard streams, with a handler that says what
//! is answered.
//!
//! The conformance fixture and the server that the bench calls through Gantry are made of it.

pub mod http;
pub mod stdio;
pub mod wire;
