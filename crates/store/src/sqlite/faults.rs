//! What a fault of SQLite means to the kernel: try again later, or have a person look.

use ports::registry_store::StoreError;
use rusqlite::ErrorCode;

use crate::stored_row::Unreadable;

/// Why the store could not take work, apart from what SQLite itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Busy {
    /// The queue stayed full for the whole bounded wait.
    #[error("too many writes are waiting")]
    QueueFull,
    /// All read connections stayed taken for the whole bounded wait.
    #[error("too many reads are running")]
    ReadersTaken,
    /// The store was closed, or its writer came to an end.
    #[error("the store is closed")]
    Closed,
    /// Opened for reading only.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// Another write of the same batch brought the whole transaction down.
    #[error("the transaction was rolled back")]
    RolledBack,
}

impl From<Busy> for StoreError {
    fn from(busy: Busy) -> Self {
        Self::Unavailable(Box::new(busy))
    }
}

/// What went wrong inside one piece of work.
#[derive(Debug)]
pub(crate) enum Fault {
    Sqlite(rusqlite::Error),
    Unreadable(Unreadable),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Unreadable> for Fault {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unreadable(unreadable) => Self::Corrupt(Box::new(unreadable)),
            Fault::Sqlite(error) if is_damage(&error) => Self::Corrupt(Box::new(error)),
            Fault::Sqlite(error) => Self::Unavailable(Box::new(error)),
        }
    }
}

/// Does the fault say that the file holds something it should not?
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    }
}
