//! What a fault of PostgreSQL means to the kernel: try again now, try again later, or have a person look.

use std::sync::Arc;

use ports::registry_store::StoreError;
use tokio_postgres::error::SqlState;

use crate::stored_row::Unreadable;

/// Why the store could not take work, apart from what the server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    /// All connections stayed taken for the whole bounded wait.
    #[error("all connections to the database are taken")]
    ConnectionsTaken,
    /// The server did not answer in time.
    #[error("the database did not answer in time")]
    NoAnswer,
    /// Others were quicker each time it was tried.
    #[error("too many others wanted the same at once")]
    Contended,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// What went wrong inside one piece of work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Busy(#[from] Busy),
    /// What went wrong for several callers at once.
    #[error(transparent)]
    Shared(Arc<Self>),
}

impl Fault {
    /// The fault itself, whoever else has it.
    fn itself(&self) -> &Self {
        match self {
            Self::Shared(fault) => fault.itself(),
            own => own,
        }
    }

    /// Did the server undo the transaction because another one was in its way? Then trying again may help at once.
    pub(super) fn is_lost_race(&self) -> bool {
        let Self::Postgres(error) = self.itself() else { return false };
        matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
    }

    /// Is the server no primary, or no more? Nothing was done, and the next connection may reach the new one.
    pub(super) fn is_not_the_primary(&self) -> bool {
        matches!(self.itself(), Self::Postgres(error) if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION))
    }

    /// Did the server refuse a second row where there can be one?
    pub(super) fn is_duplicate(&self) -> bool {
        matches!(self.itself(), Self::Postgres(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION))
    }

    /// Did the server refuse what was to be written, and not the moment? Then it may have been one row of many.
    pub(super) fn may_be_of_one_row(&self) -> bool {
        let Self::Postgres(error) = self.itself() else { return false };
        // Values that cannot be, and values that break a rule of the table.
        error.code().is_some_and(|code| code.code().starts_with("22") || code.code().starts_with("23"))
    }

    /// May the work have been done all the same, or be done yet, because its answer did not come?
    pub(super) fn leaves_doubt(&self) -> bool {
        match self.itself() {
            Self::Postgres(_) => self.spoils_connection() && !self.is_not_the_primary(),
            Self::Busy(busy) => *busy == Busy::NoAnswer,
            Self::Unreadable(_) | Self::Shared(_) => false,
        }
    }

    /// Is the connection of no more use? Also one to a server that has become a read-only standby: the next one may reach
    /// the new primary.
    pub(super) fn spoils_connection(&self) -> bool {
        match self.itself() {
            Self::Postgres(error) => match error.as_db_error() {
                None => true,
                Some(said) => {
                    *said.code() == SqlState::READ_ONLY_SQL_TRANSACTION
                        || said.code().code().starts_with("57P")
                        || said.code().code().starts_with("08")
                }
            },
            Self::Busy(_) => true,
            Self::Unreadable(_) | Self::Shared(_) => false,
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let corrupt = match fault.itself() {
            Fault::Unreadable(_) => true,
            Fault::Postgres(error) => is_damage(error),
            Fault::Busy(_) | Fault::Shared(_) => false,
        };
        if corrupt { Self::Corrupt(Box::new(fault)) } else { Self::Unavailable(Box::new(fault)) }
    }
}

/// Does the fault say that the database holds something it should not?
fn is_damage(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => matches!(*code, SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED | SqlState::UNDEFINED_TABLE),
        // A column of another type than the program expects. The library has no word for it but its text.
        None => error.to_string().starts_with("error deserializing column"),
    }
}
