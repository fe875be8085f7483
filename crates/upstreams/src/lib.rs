//! MCP servers behind Gantry: connecting to them, keeping them alive, taking their tools in and pinning what was taken.

pub mod spec;
