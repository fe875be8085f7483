//! Connecting for the first time: what is refused, and with which words.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::PostgresOptions;
use super::address::{Address, password_has_raw_signs};
use super::faults::Fault;
use super::pool::Pool;
use super::tls::Tls;
use super::transaction::Scope;

/// The oldest server that will do, as `server_version_num` has it.
const SERVER_MIN: i32 = 160_000;

/// How long a connection is quiet before the server is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why a store could not be opened. The texts are for the person at the terminal; none has the password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// Not an address at all. Without its cause where that could repeat a part of the password.
    #[error("the store's address cannot be read: write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`")]
    Address(#[source] Option<tokio_postgres::Error>),
    /// Nobody there, or nobody who lets us in.
    #[error("the database cannot be reached: check that PostgreSQL runs there, and the user, password and database")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file with the roots of trust is of no use.
    #[error("the file that `sslrootcert` of the store's address names has no certificates that can be used")]
    Roots(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No TLS, or not with whom it should be.
    #[error(
        "no encrypted connection to the database: its certificate is not trusted, or it has none; \
         name its authority with `sslrootcert=FILE`, or on a network you trust set `sslmode=disable`"
    )]
    Untrusted(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server is too old.
    #[error("the server is PostgreSQL {found}, and 16 or newer is needed: upgrade it, or use another")]
    TooOld { found: i32 },
    /// The extension for vectors is not there.
    #[error(
        "the database has no extension `vector`: install pgvector, then run `CREATE EXTENSION vector` in it as superuser"
    )]
    NoVector(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A newer release has changed its shape in a way that this one cannot live with.
    #[error("the database was migrated by a newer Gantry (step {found}, this one knows {known}): upgrade this binary")]
    Newer { found: i32, known: i32 },
    /// A step was edited after it had been taken.
    #[error(
        "step {step} of the database is not the one this Gantry knows: it was made by another build; restore a backup"
    )]
    OtherStep { step: i32 },
    /// A step could not be taken; nothing was changed.
    #[error(
        "step {step} of the migration failed and was undone: the user needs the right to create tables in the database"
    )]
    Step {
        step: i32,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The role may do too little with the tables that are there.
    #[error("the role {role} may not use {tables}: run `{grant}` as their owner (docs/postgres.md)")]
    Rights { role: String, tables: String, grant: String },
    /// Tables are to be made, and the role may not make them.
    #[error(
        "the role {role} may not make tables in the schema {schema}: run `{grant}` as its owner, or `gantry migrate up` \
         with a role that may"
    )]
    MayNotMake { role: String, schema: String, grant: String },
    /// There is no store in it.
    #[error("there is no store of Gantry in this database: check its name")]
    NoStore,
    /// A copy or a restoration into it was broken off.
    #[error(
        "a copy into this database was not finished: run the same `gantry migrate copy` or `gantry restore` again, or \
         make a new database"
    )]
    Unfinished,
    /// Something else, likely passing.
    #[error("the database cannot be used at the moment: look at its log, then try again")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<Fault> for PostgresOpenError {
    fn from(fault: Fault) -> Self {
        Self::Unavailable(Box::new(fault))
    }
}

fn refuse_old(version: i32) -> Result<(), PostgresOpenError> {
    if version < SERVER_MIN { Err(PostgresOpenError::TooOld { found: version / 10_000 }) } else { Ok(()) }
}

/// Connects, and makes sure that the database has what the steps need.
pub(super) async fn connect(url: &str, options: &PostgresOptions) -> Result<Pool, PostgresOpenError> {
    let pool = reach(url, options).await?;
    provide_vector(&pool).await?;
    Ok(pool)
}

/// Connects and looks at the server.
pub(super) async fn reach(url: &str, options: &PostgresOptions) -> Result<Pool, PostgresOpenError> {
    let Address { mut config, roots } = Address::parse(url)
        .map_err(|error| PostgresOpenError::Address((!password_has_raw_signs(url)).then_some(error)))?;
    let tls = Tls::new(roots.as_ref()).map_err(|error| PostgresOpenError::Roots(Box::new(error)))?;
    // A server that is gone without a word is noticed before somebody needs it.
    config.keepalives_idle(KEEPALIVE);
    config.connect_timeout(options.connection_wait);
    if config.get_application_name().is_none() {
        config.application_name("gantry");
    }
    let pool = Pool::new(config, tls, options);
    let rows = pool
        .query(Scope::System, "SELECT current_setting('server_version_num')::int AS version", &[])
        .await
        .map_err(unreachable_because)?;
    let version: i32 = match rows.first() {
        Some(row) => row.try_get(0).map_err(Fault::from)?,
        None => 0,
    };
    refuse_old(version)?;
    Ok(pool)
}

/// Nobody there, or somebody who cannot show who they are.
fn unreachable_because(fault: Fault) -> PostgresOpenError {
    // The library has no word for it but its text.
    let untrusted = fault.to_string().starts_with("error performing TLS handshake");
    if untrusted {
        PostgresOpenError::Untrusted(Box::new(fault))
    } else {
        PostgresOpenError::Unreachable(Box::new(fault))
    }
}

/// Half a store is not opened (MOVE-3).
pub(super) async fn refuse_unfinished(pool: &Pool) -> Result<(), PostgresOpenError> {
    let sql = "SELECT 1 WHERE to_regclass('gantry_copy') IS NOT NULL";
    if pool.query(Scope::System, sql, &[]).await?.is_empty() { Ok(()) } else { Err(PostgresOpenError::Unfinished) }
}

/// The extension, made if we may.
async fn provide_vector(pool: &Pool) -> Result<(), PostgresOpenError> {
    let there = pool.query(Scope::System, "SELECT 1 FROM pg_extension WHERE extname = 'vector'", &[]).await?;
    if !there.is_empty() {
        return Ok(());
    }
    match pool.execute(Scope::System, "CREATE EXTENSION IF NOT EXISTS vector", &[]).await {
        Ok(_) => Ok(()),
        // Another instance was quicker.
        Err(Fault::Postgres(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(()),
        Err(fault) => Err(PostgresOpenError::NoVector(Box::new(fault))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused_with_their_version() {
        for (version, refusal) in
            [(90_600, Some("PostgreSQL 9")), (150_004, Some("PostgreSQL 15")), (160_000, None), (170_002, None)]
        {
            match (refuse_old(version), refusal) {
                (Ok(()), None) => {}
                (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{version}: {found:?}"),
            }
        }
    }
}
