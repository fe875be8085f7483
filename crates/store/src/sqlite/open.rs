//! Opening a database file, or refusing to with advice. (STORE-007, DESIGN §6.1)
//!
//! The file is looked at before SQLite touches it: whatever is not ours is refused unread, and nothing is ever deleted,
//! replaced or "repaired". Our mark (`application_id`) is written before anything else and before the file goes into WAL
//! mode, so it can be trusted in the bytes of the file at any later time.
//!
//! One process writes. It holds an advisory lock on `<file>.lock` for as long as it lives; the operating system takes the
//! lock back however the process ends. SQLite's own exclusive mode would do the same, but would shut out readers such as
//! `gantry tool list` beside a running server.
//!
//! After an unclean end there is a write-ahead log with content. SQLite replays it by itself; we also run a quick check
//! then, unless the file is large, because a power cut is when disks lie.
//!
//! Messages name the file, never its directory.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::SaturatingFrom as _;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::faults::is_damage;
use super::{freed_space, index, migrations, vector_functions};
use crate::SchemaSteps;
use crate::schema_step;

/// "GNTR": marks our files among all SQLite files.
pub(super) const APPLICATION_ID: i32 = 0x474e_5452;
/// How often, and after which pauses, the lock is asked for. A server that was killed while it started a program has its
/// lock in that program's hands too, for the moment until the program is really another one.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// How long SQLite waits for a lock of another connection, for example of a backup.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest file that is checked after an unclean end; checking takes about a second per gigabyte.
const QUICK_CHECK_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// The write-ahead log is cut back to this size when it was larger.
const JOURNAL_BYTES_MAX: i64 = 64 * 1024 * 1024;
/// Page cache of each connection in KiB.
const CACHE_KIB: i64 = 4096;
/// Prepared statements that the writer keeps: more than all ports have, because preparing costs as much as running.
const STATEMENTS_KEPT: usize = 256;
/// Bytes of the header of a SQLite file.
const HEADER_BYTES: usize = 100;

/// Why a store could not be opened. The texts are for the person at the terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteOpenError {
    /// The directory cannot be made or written.
    #[error("the directory of `{file}` cannot be used: check that it is a directory this user may write to")]
    Directory {
        file: String,
        #[source]
        source: io::Error,
    },
    /// The file is there but cannot be read or written.
    #[error("`{file}` cannot be opened: check its owner and permissions")]
    Unreadable {
        file: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No such file, and it was to be read only.
    #[error("there is no `{file}` yet: start the server once, or check the data directory")]
    Missing { file: String },
    /// Another process has it open for writing.
    #[error("`{file}` is in use by another Gantry: stop that one, or use another data directory")]
    InUse { file: String },
    /// Not a SQLite database at all.
    #[error("`{file}` is not a Gantry database: check the data directory, or move the file away")]
    NotADatabase { file: String },
    /// A SQLite database of some other program.
    #[error("`{file}` belongs to another program: check the data directory, or move the file away")]
    OtherProgram { file: String },
    /// A newer release has changed its shape.
    #[error("`{file}` was written by a newer Gantry: upgrade this binary or restore a backup")]
    Newer { file: String },
    /// An older release wrote it, and a reader may not migrate it.
    #[error("`{file}` was written by an older Gantry: start the server once to migrate it")]
    Older { file: String },
    /// Parts of the file are missing or make no sense.
    #[error("`{file}` is damaged: restore a backup; the file was left as it is")]
    Damaged {
        file: String,
        #[source]
        source: Option<rusqlite::Error>,
    },
    /// The disk is full, or another passing trouble.
    #[error("`{file}` cannot be used at the moment: check that its disk has free space, then try again")]
    Unavailable {
        file: String,
        #[source]
        source: rusqlite::Error,
    },
}

/// A database file by path, with the name that messages use.
#[derive(Debug, Clone)]
pub(super) struct Location {
    path: PathBuf,
    file: String,
}

/// What the file looked like before SQLite saw it.
enum Found {
    Nothing,
    Ours { after_unclean_end: bool },
}

impl Location {
    pub(super) fn new(path: &Path) -> Self {
        let file =
            path.file_name().map_or_else(|| "the database".to_owned(), |name| name.to_string_lossy().into_owned());
        Self { path: path.to_owned(), file }
    }

    /// Takes the lock, makes the file if there is none, checks and migrates it. The lock lives as long as the file handle.
    pub(super) fn open_writer(&self) -> Result<(Connection, File), SqliteOpenError> {
        self.make_directory()?;
        let lock = self.lock()?;
        let found = self.examine()?;
        // Made by us and not by SQLite, because SQLite would ask the umask for the mode.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(|source| self.unreadable(source))?;
        let connection = Connection::open_with_flags(&self.path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE))
            .map_err(|error| self.classify(error))?;
        self.prepare_writer(&connection, &found).map_err(|error| self.classify(error))?;
        self.check_shape(&connection, &found)?;
        migrations::migrate(&connection).map_err(|error| self.classify(error))?;
        let is_new = matches!(found, Found::Nothing);
        freed_space::clean_former(&connection, is_new).map_err(|error| self.classify(error))?;
        index::bring_up_to_date(&connection).map_err(|fault| match fault {
            super::faults::Fault::Sqlite(error) => self.classify(error),
            super::faults::Fault::Unreadable(_) => SqliteOpenError::Damaged { file: self.file.clone(), source: None },
        })?;
        Ok((connection, lock))
    }

    /// Checks the file for a process that only reads, beside a writer or alone.
    pub(super) fn check_for_reading(&self) -> Result<(), SqliteOpenError> {
        let Found::Ours { .. } = self.examine()? else {
            return Err(SqliteOpenError::Missing { file: self.file.clone() });
        };
        let connection = self.open_reader().map_err(|error| self.classify(error))?;
        let taken = migrations::taken(&connection).map_err(|error| self.classify(error))?;
        match taken.cmp(&migrations::newest()) {
            std::cmp::Ordering::Less => Err(SqliteOpenError::Older { file: self.file.clone() }),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(SqliteOpenError::Newer { file: self.file.clone() }),
        }
    }

    /// How far the file has been migrated.
    pub(super) fn steps(&self) -> Result<SchemaSteps, SqliteOpenError> {
        let taken = match self.examine()? {
            Found::Ours { .. } => {
                let connection = self.open_reader().map_err(|error| self.classify(error))?;
                migrations::taken(&connection).map_err(|error| self.classify(error))?
            }
            Found::Nothing => 0,
        };
        Ok(schema_step::progress(migrations::STEPS, i32::try_from(taken).unwrap_or(i32::MAX)))
    }

    /// A connection that cannot write.
    pub(super) fn open_reader(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(&self.path, flags(OpenFlags::SQLITE_OPEN_READ_ONLY))?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        vector_functions::provide(&connection)?;
        Ok(connection)
    }

    /// Moves the log of writes into the file and leaves it empty. False: somebody was reading from it all the time.
    pub(super) fn empty_log(&self) -> rusqlite::Result<bool> {
        let connection = Connection::open_with_flags(&self.path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE))?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
    }

    /// Is the file one of ours that this program can open or migrate?
    pub(super) fn check_for_moving(&self) -> Result<(), SqliteOpenError> {
        let Found::Ours { .. } = self.examine()? else {
            return Err(SqliteOpenError::Missing { file: self.file.clone() });
        };
        let connection = self.open_reader().map_err(|error| self.classify(error))?;
        let taken = migrations::taken(&connection).map_err(|error| self.classify(error))?;
        if taken > migrations::newest() {
            return Err(SqliteOpenError::Newer { file: self.file.clone() });
        }
        Ok(())
    }

    /// The lock of the file, without the file: its directory is made if need be.
    pub(super) fn lock_directory(&self) -> Result<File, SqliteOpenError> {
        self.make_directory()?;
        self.lock()
    }

    /// The name that messages use.
    pub(super) fn name(&self) -> &str {
        &self.file
    }

    /// What is said of a file that is not whole.
    pub(super) fn damaged(&self) -> SqliteOpenError {
        SqliteOpenError::Damaged { file: self.file.clone(), source: None }
    }

    // --------------------------------------------------------------------------------------------------- private parts

    fn make_directory(&self) -> Result<(), SqliteOpenError> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|source| self.no_directory(source))
    }

    fn lock(&self) -> Result<File, SqliteOpenError> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| self.no_directory(source))?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(source)) => return Err(self.no_directory(source)),
            }
        }
        Err(SqliteOpenError::InUse { file: self.file.clone() })
    }

    /// Looks at the bytes of the file: ours, somebody else's, cut off?
    fn examine(&self) -> Result<Found, SqliteOpenError> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(source) => return Err(self.unreadable(source)),
        };
        let bytes = file.metadata().map_err(|source| self.unreadable(source))?.len();
        if bytes == 0 {
            return Ok(Found::Nothing);
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        file.by_ref()
            .take(u64::saturating_from(HEADER_BYTES))
            .read_to_end(&mut header)
            .map_err(|source| self.unreadable(source))?;
        if !header.starts_with(b"SQLite format 3\0") {
            return Err(SqliteOpenError::NotADatabase { file: self.file.clone() });
        }
        let damaged = || SqliteOpenError::Damaged { file: self.file.clone(), source: None };
        let field = |at: usize| {
            header.get(at..at + 4).and_then(|slice| slice.try_into().ok()).map(u32::from_be_bytes).ok_or_else(damaged)
        };
        if field(68)? != APPLICATION_ID.unsigned_abs() {
            return Err(SqliteOpenError::OtherProgram { file: self.file.clone() });
        }
        let log_bytes = std::fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len());
        // The size in the header holds only without a log, and only if the last writer kept it (the two counters agree).
        let page_bytes = match field(16)? >> 16 {
            1 => 65_536,
            size => u64::from(size),
        };
        if log_bytes == 0 && field(24)? == field(92)? && bytes < page_bytes * u64::from(field(28)?) {
            return Err(damaged());
        }
        Ok(Found::Ours { after_unclean_end: log_bytes > 0 && bytes <= QUICK_CHECK_BYTES_MAX })
    }

    fn prepare_writer(&self, connection: &Connection, found: &Found) -> rusqlite::Result<()> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if let Found::Nothing = found {
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        if mode != "wal" {
            tracing::warn!(file = %self.file, %mode, "the file system allows no write-ahead log: commands cannot read beside the server");
        }
        // An acknowledged write must survive a power cut (DESIGN §5): the log is synced at every commit.
        connection.pragma_update(None, "synchronous", "FULL")?;
        freed_space::overwrite(connection)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "journal_size_limit", JOURNAL_BYTES_MAX)
    }

    /// Is the shape one we know, and is the file sound as far as we look?
    fn check_shape(&self, connection: &Connection, found: &Found) -> Result<(), SqliteOpenError> {
        let read = || -> rusqlite::Result<(i64, String)> {
            connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0))?;
            let verdict = match found {
                Found::Ours { after_unclean_end: true } => {
                    connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?
                }
                Found::Ours { after_unclean_end: false } | Found::Nothing => "ok".to_owned(),
            };
            Ok((migrations::taken(connection)?, verdict))
        };
        let (taken, verdict) = read().map_err(|error| self.classify(error))?;
        if taken > migrations::newest() {
            return Err(SqliteOpenError::Newer { file: self.file.clone() });
        }
        if verdict != "ok" {
            return Err(SqliteOpenError::Damaged { file: self.file.clone(), source: None });
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        path.into()
    }

    fn no_directory(&self, source: io::Error) -> SqliteOpenError {
        SqliteOpenError::Directory { file: self.file.clone(), source }
    }

    pub(super) fn unreadable(&self, source: io::Error) -> SqliteOpenError {
        SqliteOpenError::Unreadable { file: self.file.clone(), source: Box::new(source) }
    }

    pub(super) fn classify(&self, error: rusqlite::Error) -> SqliteOpenError {
        let file = self.file.clone();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => SqliteOpenError::NotADatabase { file },
            _ if is_damage(&error) => SqliteOpenError::Damaged { file, source: Some(error) },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                SqliteOpenError::Unreadable { file, source: Box::new(error) }
            }
            _ => SqliteOpenError::Unavailable { file, source: error },
        }
    }
}

/// Without URI file names (a path is a path), and each connection used by one thread at a time.
fn flags(access: OpenFlags) -> OpenFlags {
    access | OpenFlags::SQLITE_OPEN_NO_MUTEX
}
