//! `[store]`: where the durable truth is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use store::postgres::{self, PostgresOptions};

use super::paths::PrivatePath;
use super::problems::SectionProblems;
use super::secret_text::SecretText;
use super::section::ConfigSection;
use crate::data_dir;
use crate::failure::CommandFailure;
use crate::store_seal::StoreKey;

/// Where the durable truth is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct StoreKeys {
    /// `sqlite:PATH`, a file on this machine's own disk, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, a database that
    /// any number of instances share (docs/postgres.md).
    #[schemars(extend("x-unset" = "`gantry.db` in the data directory", "x-since" = "0.1"))]
    pub(super) url: Option<StoreAddress>,
    /// PostgreSQL only: most connections of this instance, besides one on which it hears of changes.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) connections_max: usize,
    /// PostgreSQL only: seconds that a piece of work waits for a connection, a new one included. After that it is refused:
    /// E3001.
    #[schemars(range(min = 1, max = 300))]
    pub(super) connection_wait_seconds: u64,
    /// PostgreSQL only: seconds that one statement may take before the server ends it.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) statement_seconds: u64,
    /// The key that seals what must not be readable in the store: the parameters of background calls, the state in
    /// checkpoints, and on PostgreSQL the secrets which all instances know alike. 32 bytes as 64 hexadecimal digits or in
    /// base64, on PostgreSQL the same for all instances. Better in the environment, as `GANTRY_STORE__SEAL_KEY`, or in a
    /// file (`seal_key_file`) than here.
    #[schemars(extend("x-unset" = "`keys/store.key` in the data directory, made at the first start; on PostgreSQL by the first instance, and the others need a copy"))]
    pub(super) seal_key: Option<SecretText>,
    /// A file with that key, which nobody else may be able to read.
    #[schemars(extend("x-unset" = "see `seal_key`"))]
    pub(super) seal_key_file: Option<PrivatePath>,
}

impl Default for StoreKeys {
    fn default() -> Self {
        let usual = PostgresOptions::default();
        Self {
            url: None,
            connections_max: usual.connections_max,
            connection_wait_seconds: usual.connection_wait.as_secs(),
            statement_seconds: usual.statement_max.as_secs(),
            seal_key: None,
            seal_key_file: None,
        }
    }
}

/// The address of a store: a file of the server's own, or a database, which may name a file with the roots that are trusted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("x-paths" = [
    { "role": "private", "shape": "sqlite_address" },
    { "role": "control", "shape": "database_roots" }
]))]
pub(crate) struct StoreAddress(SecretText);

/// The section's values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoreSection {
    place: Place,
    /// Seals what must not be readable in the store.
    pub(crate) seal_key: Option<SealKeyPlace>,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// `None`: in the data directory.
    File(Option<PathBuf>),
    Database(DatabaseConfig),
}

/// A database and how it is used.
#[derive(PartialEq, Eq)]
pub(crate) struct DatabaseConfig {
    /// With its password.
    pub(crate) url: String,
    connections_max: usize,
    connection_wait: Duration,
    statement_max: Duration,
}

/// Where the key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SealKeyPlace {
    Given(StoreKey),
    File(PathBuf),
}

impl ConfigSection for StoreKeys {
    const NAME: &'static str = "store";
    type Checked = Option<StoreSection>;

    fn checked(self, problems: &mut SectionProblems<'_>) -> Option<StoreSection> {
        let file = self.seal_key_file.map(PathBuf::from);
        let seal_key = match seal_key(self.seal_key.as_ref().map(SecretText::expose), file) {
            Ok(place) => place,
            Err(message) => {
                problems.at("seal_key", message);
                return None;
            }
        };
        let database = |url: &str| DatabaseConfig {
            url: url.to_owned(),
            connections_max: self.connections_max,
            connection_wait: Duration::from_secs(self.connection_wait_seconds),
            statement_max: Duration::from_secs(self.statement_seconds),
        };
        match parse(self.url.as_ref().map(|StoreAddress(url)| url.expose()), database) {
            Ok(place) => Some(StoreSection { place, seal_key }),
            Err(message) => {
                problems.at("url", message);
                None
            }
        }
    }
}

impl StoreSection {
    /// Nothing was said.
    #[cfg(test)]
    pub(crate) fn unset() -> Self {
        Self { place: Place::File(None), seal_key: None }
    }

    /// The database, if it is one.
    pub(crate) fn database(&self) -> Option<&DatabaseConfig> {
        match &self.place {
            Place::File(_) => None,
            Place::Database(database) => Some(database),
        }
    }

    /// The database file, if it is one.
    pub(crate) fn file(&self, data_dir: &Path) -> PathBuf {
        match &self.place {
            Place::File(Some(file)) => file.clone(),
            Place::File(None) | Place::Database(_) => data_dir.join("gantry.db"),
        }
    }
}

impl DatabaseConfig {
    /// The address for people: without the password.
    pub(crate) fn shown(&self) -> String {
        postgres::without_password(&self.url)
    }

    /// How it is opened.
    pub(crate) fn options(&self) -> PostgresOptions {
        let mut options = PostgresOptions::default();
        options.connections_max = self.connections_max;
        options.connection_wait = self.connection_wait;
        options.statement_max = self.statement_max;
        options
    }
}

impl fmt::Debug for DatabaseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("url", &self.shown()).finish_non_exhaustive()
    }
}

/// Messages do not repeat the key.
fn seal_key(text: Option<&str>, file: Option<PathBuf>) -> Result<Option<SealKeyPlace>, String> {
    match (text, file) {
        (None, None) => Ok(None),
        (None, Some(file)) => Ok(Some(SealKeyPlace::File(file))),
        (Some(text), None) => match StoreKey::parse(text) {
            Some(key) => Ok(Some(SealKeyPlace::Given(key))),
            None => Err(NOT_A_KEY.into()),
        },
        (Some(_), Some(_)) => Err("is given twice: leave out `seal_key` or `seal_key_file`".into()),
    }
}

const NOT_A_KEY: &str = "must be 32 bytes, as 64 hexadecimal digits or in base64: `openssl rand -hex 32` makes one";

impl SealKeyPlace {
    /// The key itself.
    pub(crate) fn key(&self) -> Result<StoreKey, CommandFailure> {
        let file = match self {
            Self::Given(key) => return Ok(key.clone()),
            Self::File(file) => file,
        };
        let found = data_dir::read(file)?.ok_or_else(|| {
            CommandFailure::new(format!("`{}` does not exist", file.display()))
                .hint("`[store] seal_key_file` names a file with the key that all instances have")
        })?;
        StoreKey::parse(&found.text).ok_or_else(|| {
            CommandFailure::new(format!("`{}` holds no key", file.display())).hint(format!("it {NOT_A_KEY}"))
        })
    }
}

/// Messages do not repeat the URL: it may hold a password.
fn parse(url: Option<&str>, database: impl Fn(&str) -> DatabaseConfig) -> Result<Place, String> {
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

    fn database(url: &str) -> DatabaseConfig {
        DatabaseConfig {
            url: url.to_owned(),
            connections_max: 1,
            connection_wait: Duration::from_secs(1),
            statement_max: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_key_is_given_once_and_whole() {
        let hex = "0f".repeat(32);
        assert_eq!(seal_key(None, None), Ok(None));
        assert!(matches!(seal_key(Some(&hex), None), Ok(Some(SealKeyPlace::Given(_)))));
        assert!(matches!(seal_key(None, Some("/run/key".into())), Ok(Some(SealKeyPlace::File(_)))));
        assert!(seal_key(Some(&hex), Some("/run/key".into())).is_err());
        assert!(!seal_key(Some("hunter2"), None).unwrap_err().contains("hunter2"));
        let dir = tempfile::tempdir().unwrap();
        let place = SealKeyPlace::File(dir.path().join("key"));
        assert!(place.key().unwrap_err().message.contains("does not exist"));
        crate::secret_file::write(&dir.path().join("key"), "hunter2").unwrap();
        let failure = place.key().unwrap_err();
        assert!(failure.message.contains("holds no key") && !failure.message.contains("hunter2"));
        crate::secret_file::write(&dir.path().join("key"), &format!("{hex}\n")).unwrap();
        assert_eq!(place.key().unwrap(), StoreKey::parse(&hex).unwrap());
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
            let section = parse(url, database).ok().map(|place| StoreSection { place, seal_key: None });
            assert_eq!(section.map(|section| section.file(dir)), expected.map(PathBuf::from), "{url:?}");
        }
        for url in ["postgres://a:secret@h/d", "postgresql://a:secret@h:1/d?sslmode=require"] {
            let section = StoreSection { place: parse(Some(url), database).unwrap(), seal_key: None };
            assert_eq!(section.database().map(|found| found.url.as_str()), Some(url));
            assert!(!format!("{section:?}").contains("secret"));
        }
    }
}
