//! What a tool may touch outside itself, read from its manifest once, when it is registered (MAN-011, DESIGN §6.3).
//!
//! The words are the same for every way a tool can run: a process sees the paths as mounts, a WASM component as preopened
//! directories, both reach hosts through the same gate. The token's scopes are compared with the words themselves
//! (`policy::Scope`); this is what is left to enforce once the call is authorized.

/// Everything a tool has declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Absolute paths it may read, with everything below.
    pub read: Vec<Box<str>>,
    /// Absolute paths it may write, with everything below.
    pub write: Vec<Box<str>>,
    /// Where it may connect to.
    pub network: Vec<NetworkPermission>,
    /// Names of secrets it is given.
    pub credentials: Vec<Box<str>>,
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPermission {
    /// A host name, an address, or `*.example.com`.
    pub host: Box<str>,
    pub port: u16,
}
