//! One row of the table.

use contract::error::ErrorCode;

use crate::forge::NOW;

/// A token, when it is shown, and what must come of it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) token: String,
    /// Seconds since the epoch.
    pub(crate) now: i64,
    /// Under a leeway of a minute.
    pub(crate) lenient: bool,
    pub(crate) expected: Expected,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Accepted,
    /// With code and HTTP status.
    Refused(ErrorCode, u16),
}

/// E3203: it is not a token this server understands, or not one for it.
pub(crate) fn malformed(name: impl Into<String>, token: String) -> Case {
    case(name, token, Expected::Refused(ErrorCode::E3203, 401))
}

/// E3202: nobody who is trusted has signed this.
pub(crate) fn unsigned(name: impl Into<String>, token: String) -> Case {
    case(name, token, Expected::Refused(ErrorCode::E3202, 401))
}

/// E3201: it was one once.
pub(crate) fn expired(name: impl Into<String>, token: String) -> Case {
    case(name, token, Expected::Refused(ErrorCode::E3201, 401))
}

/// E3206: genuine, and more than could be given.
pub(crate) fn widened(name: impl Into<String>, token: String) -> Case {
    case(name, token, Expected::Refused(ErrorCode::E3206, 403))
}

/// An edge that is still inside.
pub(crate) fn accepted(name: impl Into<String>, token: String) -> Case {
    case(name, token, Expected::Accepted)
}

impl Case {
    pub(crate) fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    pub(crate) fn at(mut self, now: i64) -> Self {
        self.now = now;
        self
    }
}

fn case(name: impl Into<String>, token: String, expected: Expected) -> Case {
    Case { name: name.into(), token, now: NOW, lenient: false, expected }
}
