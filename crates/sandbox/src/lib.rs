//! Linux isolation of a program nobody trusts: namespaces, an own root, seccomp, Landlock, control groups, accounting.
pub mod egress;
pub mod spec;

pub use spec::{Access, Confinement, Limits, Mount, Network, OwnFile, PATH, PROXY_PORT, SYSTEM, Spec};
