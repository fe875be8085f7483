//! MCP servers behind Gantry: connecting to them, keeping them alive, taking their tools in and pinning what was taken.

pub mod catalogue;
pub mod import;
pub mod naming;
pub mod pins;
pub mod spec;
