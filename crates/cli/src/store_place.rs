//! Where a store is, as a command was told or as the configuration says.

use std::fmt;
use std::path::PathBuf;

use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// A store by its address.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StorePlace {
    Sqlite(PathBuf),
    /// With its password: not to be shown.
    Postgres(String),
}

impl StorePlace {
    /// What a flag says.
    pub(crate) fn parse(flag: &str, url: &str) -> Result<Self, CommandFailure> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url.to_owned()));
        }
        match url.strip_prefix("sqlite:") {
            Some("" | ":memory:") | None => {
                // The address itself may hold a password, and is not repeated.
                Err(CommandFailure::usage(format!(
                    "{flag} must be sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE"
                )))
            }
            Some(path) => Ok(Self::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))),
        }
    }

    /// The one that was named, or that of the configuration.
    pub(crate) fn of(context: &CommandContext, named: Option<&str>) -> Result<Self, CommandFailure> {
        match named {
            Some(url) => Self::parse("--store", url),
            None => {
                let store = context.config(Vec::new())?.store;
                Ok(match store.database() {
                    Some(database) => Self::Postgres(database.url.clone()),
                    None => Self::Sqlite(store.file(context.data_dir().path())),
                })
            }
        }
    }
}

impl fmt::Debug for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(_) => f.write_str("Postgres"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_or_a_database_and_nothing_else() {
        for (url, expected) in [
            ("sqlite:x.db", Some(StorePlace::Sqlite("x.db".into()))),
            ("sqlite:///abs/x.db", Some(StorePlace::Sqlite("/abs/x.db".into()))),
            ("postgres://u@h/d", Some(StorePlace::Postgres("postgres://u@h/d".into()))),
            ("postgresql://u@h/d", Some(StorePlace::Postgres("postgresql://u@h/d".into()))),
            ("sqlite:", None),
            ("sqlite::memory:", None),
            ("mysql://u:hunter2@h/d", None),
        ] {
            let parsed = StorePlace::parse("--store", url);
            if let Err(failure) = &parsed {
                assert!(!failure.message.contains("hunter2"));
            }
            assert_eq!(parsed.ok(), expected, "{url}");
        }
    }
}
