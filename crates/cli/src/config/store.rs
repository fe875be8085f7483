//! `[store]`: where the durable truth is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::postgres;

use super::key::{Key, Kind};
use super::settings::{Problem, Settings};

const SECTION: &str = "store";

/// Which store.
pub(crate) const URL: Key = Key {
    section: SECTION,
    name: "url",
    kind: Kind::Secret,
    default: None,
    unset: "`gantry.db` in the data directory",
    doc: "`sqlite:PATH`, a file on this machine's own disk, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, a database that \
          any number of instances share (docs/postgres.md).",
    since: "0.1",
};

const CONNECTIONS_MAX: Key = Key {
    section: SECTION,
    name: "connections_max",
    kind: Kind::Integer(1..=1_000),
    default: Some("16"),
    unset: "",
    doc: "PostgreSQL only: most connections of this instance, besides one on which it hears of changes.",
    since: "0.2",
};

const CONNECTION_WAIT_SECONDS: Key = Key {
    section: SECTION,
    name: "connection_wait_seconds",
    kind: Kind::Integer(1..=300),
    default: Some("5"),
    unset: "",
    doc: "PostgreSQL only: seconds that a piece of work waits for a connection, a new one included. After that it is \
          refused: E3001.",
    since: "0.2",
};

const STATEMENT_SECONDS: Key = Key {
    section: SECTION,
    name: "statement_seconds",
    kind: Kind::Integer(1..=3_600),
    default: Some("10"),
    unset: "",
    doc: "PostgreSQL only: seconds that one statement may take before the server ends it.",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&URL, &CONNECTIONS_MAX, &CONNECTION_WAIT_SECONDS, &STATEMENT_SECONDS];

/// The section's values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoreSection(Place);

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// `None`: in the data directory.
    File(Option<PathBuf>),
    Database(Database),
}

/// A database and how it is used.
#[derive(PartialEq, Eq)]
pub(crate) struct Database {
    /// With its password.
    pub(crate) url: String,
    connections_max: usize,
    connection_wait: Duration,
    statement_max: Duration,
}

impl StoreSection {
    pub(super) fn read(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Self> {
        let database = |url: &str| Database {
            url: url.to_owned(),
            connections_max: usize::try_from(settings.integer(&CONNECTIONS_MAX)).unwrap_or(usize::MAX),
            connection_wait: Duration::from_secs(settings.integer(&CONNECTION_WAIT_SECONDS)),
            statement_max: Duration::from_secs(settings.integer(&STATEMENT_SECONDS)),
        };
        match parse(settings.text(&URL), database) {
            Ok(place) => Some(Self(place)),
            Err(message) => {
                problems.push(Problem::new(URL.title(), message));
                None
            }
        }
    }

    /// The database, if it is one.
    pub(crate) fn database(&self) -> Option<&Database> {
        match &self.0 {
            Place::File(_) => None,
            Place::Database(database) => Some(database),
        }
    }

    /// The database file, if it is one.
    pub(crate) fn file(&self, data_dir: &Path) -> PathBuf {
        match &self.0 {
            Place::File(Some(file)) => file.clone(),
            Place::File(None) | Place::Database(_) => data_dir.join("gantry.db"),
        }
    }
}

impl Database {
    /// The address for people: without the password.
    pub(crate) fn shown(&self) -> String {
        postgres::without_password(&self.url)
    }

    /// How it is opened.
    pub(crate) fn options(&self) -> postgres::Options {
        let mut options = postgres::Options::default();
        options.connections_max = self.connections_max;
        options.connection_wait = self.connection_wait;
        options.statement_max = self.statement_max;
        options
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("url", &self.shown()).finish_non_exhaustive()
    }
}

/// Messages do not repeat the URL: it may hold a password.
fn parse(url: Option<&str>, database: impl Fn(&str) -> Database) -> Result<Place, String> {
    let Some(url) = url else { return Ok(Place::File(None)) };
    match url.strip_prefix("sqlite:") {
        Some("" | ":memory:") => {
            Err("`sqlite:` needs the path of a file, for example sqlite:/var/lib/gantry/gantry.db".into())
        }
        // `sqlite:///abs/path` is how other programs write it.
        Some(path) => Ok(Place::File(Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path))))),
        None if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Ok(Place::Database(database(url)))
        }
        None => Err("must be sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(url: &str) -> Database {
        Database {
            url: url.to_owned(),
            connections_max: 1,
            connection_wait: Duration::from_secs(1),
            statement_max: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_store_is_a_file_or_a_database() {
        let dir = Path::new("/data");
        for (url, expected) in [
            (None, Some("/data/gantry.db")),
            (Some("sqlite:x.db"), Some("x.db")),
            (Some("sqlite:/abs/x.db"), Some("/abs/x.db")),
            (Some("sqlite:///abs/x.db"), Some("/abs/x.db")),
            (Some("sqlite:"), None),
            (Some("sqlite::memory:"), None),
            (Some("mysql://x"), None),
            (Some("/abs/x.db"), None),
        ] {
            let section = parse(url, database).ok().map(StoreSection);
            assert_eq!(section.map(|section| section.file(dir)), expected.map(PathBuf::from), "{url:?}");
        }
        for url in ["postgres://a:secret@h/d", "postgresql://a:secret@h:1/d?sslmode=require"] {
            let section = StoreSection(parse(Some(url), database).unwrap());
            assert_eq!(section.database().map(|found| found.url.as_str()), Some(url));
            assert!(!format!("{section:?}").contains("secret"));
        }
    }
}
