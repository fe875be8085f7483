//! What a permit may demand besides allowing (AUTH-008). A closed set: an obligation that is not known here denies.

use std::fmt;
use std::str::FromStr;

use contract::manifest::Isolation;

/// One obligation, written `name` or `name=value`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Obligation {
    /// `redact=member`: members of the result with this name are masked, wherever they stand.
    Redact(Box<str>),
    /// `require_approval`: an approver is asked first.
    RequireApproval,
    /// `require_confirmation`: the user is asked first.
    RequireConfirmation,
    /// `timeout_seconds=n`: the call takes at most this long.
    TimeoutSeconds(u32),
    /// `result_bytes=n`: the result is at most this long as JSON.
    ResultBytes(u64),
    /// `isolation=gvisor`: the tool runs in at least this much isolation, or not at all.
    Isolation(Isolation),
}

/// Not one of the known obligations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "obligation `{given}` is not known: separated by commas, there are `redact=member` (one name, no path and no pattern), `require_approval`, `require_confirmation`, `timeout_seconds=n`, `result_bytes=n` and `isolation=process|gvisor|microvm`"
)]
pub struct ObligationError {
    pub given: String,
}

/// Can a member be meant? What looks like a path, a pattern, or a second obligation behind a missing comma would mask nothing,
/// and nobody would notice.
pub(crate) fn is_member_name(name: &str) -> bool {
    let is_of_name = |c: char| !c.is_whitespace() && !c.is_control() && !"=*.,;/$[](){}\"'`".contains(c);
    !name.is_empty() && name.chars().all(is_of_name)
}

impl FromStr for Obligation {
    type Err = ObligationError;
    fn from_str(text: &str) -> Result<Self, ObligationError> {
        let unknown = || ObligationError { given: text.chars().filter(|c| !c.is_control()).take(80).collect() };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (text.trim(), None),
        };
        match (name, value) {
            ("redact", Some(member)) if is_member_name(member) => Ok(Self::Redact(member.into())),
            ("require_approval", None) => Ok(Self::RequireApproval),
            ("require_confirmation", None) => Ok(Self::RequireConfirmation),
            ("timeout_seconds", Some(n)) => {
                n.parse().ok().filter(|n| *n > 0).map(Self::TimeoutSeconds).ok_or_else(unknown)
            }
            ("result_bytes", Some(n)) => n.parse().ok().filter(|n| *n > 0).map(Self::ResultBytes).ok_or_else(unknown),
            ("isolation", Some(word)) => {
                let levels = [Isolation::Process, Isolation::Gvisor, Isolation::Microvm];
                levels.into_iter().find(|level| level.as_str() == word).map(Self::Isolation).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Obligation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redact(member) => write!(f, "redact={member}"),
            Self::RequireApproval => f.write_str("require_approval"),
            Self::RequireConfirmation => f.write_str("require_confirmation"),
            Self::TimeoutSeconds(n) => write!(f, "timeout_seconds={n}"),
            Self::ResultBytes(n) => write!(f, "result_bytes={n}"),
            Self::Isolation(level) => write!(f, "isolation={}", level.as_str()),
        }
    }
}
