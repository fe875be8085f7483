//! The shapes the database has had, and the way from each to the next. (STORE-007)
//!
//! All missing steps are one transaction under a lock of the server, so instances that start together take them once, and
//! a step that fails leaves the shape before. Steps only add: the release before can go on beside this one while instances
//! are replaced one by one, and may be started again meanwhile. A step that the release before cannot live with says so by a
//! line `-- oldest: N`, the mark of the newest step that a program must know; it is kept with the step, so that older programs, which
//! do not have its text, refuse the database. A step, once released, is never edited: its digest is kept and compared.
//!
//! `step` and `oldest` in the table of steps are marks of steps (`schema_step`).

use contract::canonical::Digest;
use tokio_postgres::types::Type;

use super::faults::Fault;
use super::open::PostgresOpenError;
use super::pool::Pool;
use super::statement::{column, int, text};
use super::transaction::{Scope, Transaction};
use crate::SchemaSteps;
use crate::schema_step::{self, SchemaStep, step};

/// All steps, oldest first.
pub(crate) const STEPS: &[SchemaStep] = &[
    step!("postgres", "0001_registry", 1),
    step!("postgres", "0002_search", 2),
    step!("postgres", "0003_access", 3),
    step!("postgres", "0004_upstreams", 4),
    step!("postgres", "0005_ledger", 5),
    step!("postgres", "0007_jobs", 6),
    step!("postgres", "0008_workflow_runs", 7),
    step!("postgres", "0009_checkpoints", 8),
    step!("postgres", "0010_webhooks", 9),
    step!("postgres", "0012_usage", 10),
    step!("postgres", "0013_health", 11),
    step!("postgres", "0014_installation", 12),
    step!("postgres", "0015_presence", 13),
    step!("postgres", "0016_archive", 14),
    step!("postgres", "0017_vectors", 15),
    step!("postgres", "0018_breaker_history", 16),
    step!("postgres", "0019_log_heads", 17),
    step!("postgres", "0020_lifecycle", 18),
    step!("postgres", "0021_job_flows", 19),
    step!("postgres", "0022_checkpoint_attempts", 20),
    step!("postgres", "0023_call_owners", 21),
    step!("postgres", "0024_activation_identity", 22),
    step!("postgres", "0026_job_interruptions", 23),
    step!("postgres", "0027_revocation_issuers", 24),
    step!("postgres", "0028_quarantine_tenants", 25),
];

/// "GNTR": the server's lock under which steps are taken.
const LOCK: i64 = 0x474e_5452;

/// Is there a table of steps?
const STEPS_TABLE: &str = "SELECT 1 FROM pg_class WHERE relname = 'gantry_steps' AND pg_table_is_visible(oid)";

/// Begins the line by which a step says that programs which know fewer steps cannot live with it.
const OLDEST: &str = "-- oldest:";

/// Begins the line by which a step makes a table.
const MAKES: &str = "CREATE TABLE ";

/// The tables that steps make, by name: what else is in the database is somebody else's.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let lines = STEPS.iter().flat_map(|step| step.statements.lines());
    lines.filter_map(|line| line.strip_prefix(MAKES)?.split([' ', '(']).next())
}

/// The mark of the newest step that this program knows.
pub(super) fn known() -> i32 {
    schema_step::newest(STEPS)
}

/// Takes the steps that are missing, as far as the given one or as far as they are known.
pub(super) async fn migrate_to(pool: &Pool, step: Option<i32>) -> Result<(), PostgresOpenError> {
    let transaction = pool.begin(Scope::System).await?.patient();
    match take_steps(&transaction, step.unwrap_or_else(known)).await {
        Ok(()) => Ok(transaction.commit().await?),
        Err(error) => Err(error),
    }
}

/// Looks at the steps without taking any.
pub(super) async fn steps(pool: &Pool) -> Result<SchemaSteps, PostgresOpenError> {
    if pool.query(Scope::System, STEPS_TABLE, &[]).await?.is_empty() {
        return Ok(schema_step::progress(STEPS, 0));
    }
    let sql = "SELECT coalesce(max(step), 0) AS taken, coalesce(max(oldest), 0) AS oldest FROM gantry_steps";
    let rows = pool.query(Scope::System, sql, &[]).await?;
    let (taken, oldest): (i32, i32) = match rows.first() {
        Some(row) => (column(row, "taken")?, column(row, "oldest")?),
        None => (0, 0),
    };
    if oldest > known() {
        return Err(PostgresOpenError::Newer { found: taken, known: known() });
    }
    Ok(schema_step::progress(STEPS, taken))
}

async fn take_steps(transaction: &Transaction, to: i32) -> Result<(), PostgresOpenError> {
    // Waiting for another instance's steps may take longer than a statement normally may, and so may the steps.
    transaction.batch("SET LOCAL statement_timeout = 0").await?;
    transaction.query("SELECT pg_advisory_xact_lock($1)", &[int(&LOCK)]).await?;
    // Not IF NOT EXISTS: that asks for the right to create tables also where there is nothing to create.
    if transaction.query(STEPS_TABLE, &[]).await?.is_empty() {
        transaction
            .batch(
                "CREATE TABLE gantry_steps (
                     step integer PRIMARY KEY, digest text NOT NULL, oldest integer NOT NULL DEFAULT 0,
                     taken_at timestamptz NOT NULL DEFAULT now())",
            )
            .await
            .map_err(|fault| PostgresOpenError::Step { step: 0, source: Box::new(fault) })?;
    }
    let mut taken = 0;
    for row in transaction.query("SELECT step, digest, oldest FROM gantry_steps ORDER BY step", &[]).await? {
        let step: i32 = column(&row, "step")?;
        let Some(known_step) = STEPS.iter().find(|known| known.mark == step) else {
            if column::<i32>(&row, "oldest")? > known() {
                return Err(PostgresOpenError::Newer { found: step, known: known() });
            }
            tracing::warn!(step, "the database was migrated by a newer release, which this one can work beside");
            taken = step;
            continue;
        };
        if column::<&str>(&row, "digest")? != digest(known_step.statements) {
            return Err(PostgresOpenError::OtherStep { step });
        }
        taken = step;
    }
    for step in STEPS.iter().filter(|step| step.mark > taken && step.mark <= to) {
        take_step(transaction, step)
            .await
            .map_err(|fault| PostgresOpenError::Step { step: step.mark, source: Box::new(fault) })?;
        tracing::info!(step = step.file, "store migrated");
    }
    Ok(())
}

async fn take_step(transaction: &Transaction, step: &SchemaStep) -> Result<(), Fault> {
    transaction.batch(step.statements).await?;
    transaction
        .execute(
            "INSERT INTO gantry_steps (step, digest, oldest) VALUES ($1, $2, $3)",
            &[(&step.mark, Type::INT4), text(&digest(step.statements)), (&oldest(step.statements), Type::INT4)],
        )
        .await?;
    Ok(())
}

/// The mark of the newest step that a program must know to use the database after this one.
fn oldest(statements: &str) -> i32 {
    statements.lines().find_map(|line| line.strip_prefix(OLDEST)?.trim().parse().ok()).unwrap_or(0)
}

/// Tells steps apart.
fn digest(statements: &str) -> String {
    Digest::of_bytes(statements.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_that_steps_make_are_known_by_name() {
        let tables: Vec<&str> = tables().collect();
        for table in ["store_numbers", "ledger", "jobs", "audit_records", "log_heads"] {
            assert!(tables.contains(&table), "{table}");
        }
        assert!(tables.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')), "{tables:?}");
        // A table that is made in another way than by a line of its own would not be in a backup. Functions make parts of
        // tables, and triggers speak of tables that are none.
        let made = STEPS.iter().flat_map(|step| step.statements.lines()).filter(|line| {
            let (line, others) = (line.trim_start().to_ascii_uppercase(), ["EXECUTE", "CREATE TRIGGER"]);
            line.contains("CREATE") && line.contains(" TABLE ") && !others.iter().any(|other| line.starts_with(other))
        });
        assert_eq!(made.count(), tables.len());
    }

    #[test]
    fn a_step_says_by_a_line_of_its_own_who_cannot_live_with_it() {
        for (statements, fewest) in [
            ("-- A table.\nCREATE TABLE t (a int);", 0),
            ("-- A column goes.\n-- oldest: 13\nALTER TABLE t DROP COLUMN a;", 13),
            ("SELECT '-- oldest: 13'", 0),
        ] {
            assert_eq!(oldest(statements), fewest, "{statements}");
        }
        for SchemaStep { file, mark, statements } in STEPS {
            assert!(oldest(statements) <= *mark, "nobody could use the database after step {file}");
            assert_eq!(statements.contains(OLDEST), oldest(statements) > 0, "step {file} says something unreadable");
        }
    }
}
