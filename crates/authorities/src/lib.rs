//! Asking authorities outside this process: key sets of other issuers, DID documents, policy engines.
//!
//! Each implements one port of the kernel. Everything here is bounded in time and size, follows no redirect, uses no proxy
//! of the environment, and fails closed.
