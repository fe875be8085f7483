//! Reading the audit log: for whoever is answerable for what was done. (AUD-014)

use std::fmt;

use async_trait::async_trait;
use contract::ids::TenantId;
use serde_json::Value;

use crate::audit_sink::AuditError;

/// Records of a page, at most.
pub const AUDIT_PAGE_MAX: usize = 500;

/// Which records. Everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    pub tenant: Option<TenantId>,
    pub tool: Option<String>,
    pub subject: Option<String>,
    pub trace_id: Option<String>,
    pub action: Option<String>,
    /// Not before this time, as records write it.
    pub from: Option<String>,
    /// Before this time.
    pub to: Option<String>,
    /// Only records with a smaller number: `next` of the page before.
    pub before: Option<u64>,
    pub limit: usize,
}

/// A page of records, the newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditPage {
    pub records: Vec<Value>,
    /// Where to go on; none at the beginning of the log. A page may be empty and still have one, because a question looks
    /// at a bounded number of records.
    pub next: Option<u64>,
}

/// A signed tree head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditCheckpoint {
    /// The signed note.
    pub note: String,
    /// The public key that signed it. For convenience: whoever wants proof has it from elsewhere.
    pub key: String,
}

/// A record with the proof that it is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditProof {
    /// Whose record it is, if it is somebody's.
    pub tenant: Option<String>,
    /// All that a third party needs besides the public key.
    pub document: Value,
}

/// A log that can be asked.
#[async_trait]
pub trait AuditLog: Send + Sync + fmt::Debug {
    /// Looks from the end backwards at a bounded number of records.
    async fn search(&self, query: &AuditQuery) -> Result<AuditPage, AuditError>;

    /// The newest checkpoint, which covers every durable record.
    async fn checkpoint(&self) -> Result<AuditCheckpoint, AuditError>;

    /// The proof of a record; `None` if there is no such record.
    async fn proof(&self, id: &str) -> Result<Option<AuditProof>, AuditError>;

    /// Is every record there and what was signed, as far as anybody has looked? Asked by probes, so it must cost nothing.
    fn is_whole(&self) -> bool {
        true
    }

    /// Signs with a new key from now on; answers its public half. `None` if the key of this log is not its own to change.
    async fn rotate_key(&self) -> Result<Option<String>, AuditError> {
        Ok(None)
    }
}
