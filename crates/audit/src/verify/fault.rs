//! What can be wrong with a log, each with its name.

use std::fmt;

use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum LogFault {
    /// A record is not what it was.
    Changed { seq: u64 },
    /// One or more of these records are not what they were, and the tree file does not say which.
    ChangedBetween { from: u64, to: u64 },
    /// Records are missing in the middle.
    Removed { from: u64, to: u64 },
    /// A record stands after later ones.
    Reordered { seq: u64 },
    /// A record stands there twice, or was put in.
    Repeated { seq: u64 },
    /// A line is no record.
    Unreadable { after: u64 },
    /// The end is missing: the log's own checkpoints say that there was more.
    Truncated { records: u64, signed: u64 },
    /// The log agrees with itself, but somebody else has kept a checkpoint of more records, or of other ones.
    RolledBack { records: u64, witnessed: u64 },
    /// A checkpoint that was not signed with a trusted key, or was changed after it was.
    ForgedCheckpoint { size: Option<u64>, why: String },
    /// There is no checkpoint at all.
    Unsigned,
    /// Records stand after the checkpoint with which the server has stopped in order.
    AddedAfterEnd { from: u64, to: u64 },
    /// Half a line stands after the checkpoint with which the server has stopped in order.
    HalfAfterEnd { records: u64 },
    /// A principal's records are not numbered one after the other.
    SequenceGap { seq: u64, principal: String, expected: u64, found: u64 },
    /// The directory does not say which log it is.
    NoMark,
    /// A file from before the log is not what it was when the log began.
    FormerFile { name: String },
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { seq } => write!(f, "changed: record {seq} is not what was signed"),
            Self::ChangedBetween { from, to } => {
                write!(
                    f,
                    "changed: one or more of the records {from} to {} are not what was signed",
                    to.saturating_sub(1)
                )
            }
            Self::Removed { from, to } if to.saturating_sub(*from) == 1 => {
                write!(f, "removed: record {from} is missing")
            }
            Self::Removed { from, to } => write!(f, "removed: records {from} to {} are missing", to.saturating_sub(1)),
            Self::Reordered { seq } => write!(f, "reordered: record {seq} stands after later ones"),
            Self::Repeated { seq } => write!(f, "repeated: record {seq} is there more than once, or was put in"),
            Self::Unreadable { after } => write!(f, "changed: the line after {after} records is no record"),
            Self::Truncated { records, signed } => {
                write!(f, "truncated: the log has {records} records, its checkpoints cover {signed}")
            }
            Self::RolledBack { records, witnessed } => write!(
                f,
                "rolled back: the log has {records} records and agrees with itself, but a kept checkpoint of {witnessed} does not fit it"
            ),
            Self::ForgedCheckpoint { size: Some(size), why } => {
                write!(f, "forged checkpoint: that of {size} records: {why}")
            }
            Self::ForgedCheckpoint { size: None, why } => write!(f, "forged checkpoint: {why}"),
            Self::Unsigned => write!(f, "unsigned: there is no checkpoint, so nothing is proven"),
            Self::SequenceGap { seq, principal, expected, found } => write!(
                f,
                "sequence gap: record {seq} is number {found} of `{}` where {expected} was due",
                principal.escape_debug()
            ),
            Self::AddedAfterEnd { from, to } => write!(
                f,
                "added: records {from} to {} stand after the end with which the server stopped, and nobody has signed them",
                to.saturating_sub(1)
            ),
            Self::HalfAfterEnd { records } => write!(
                f,
                "added: bytes that are no record stand after the {records} with which the server stopped, and no crash leaves them there"
            ),
            Self::NoMark => write!(f, "no log: the directory has no `log.json`"),
            Self::FormerFile { name } => write!(f, "changed: `{name}`, from before the log, is not what it was"),
        }
    }
}
