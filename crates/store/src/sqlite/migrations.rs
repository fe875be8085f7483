//! The shapes the database has had, and the way from each to the next. (STORE-007)
//!
//! `user_version` is the mark of the newest step a file has taken. Each step is one transaction together with its mark, so a step
//! that fails or is interrupted leaves the shape before it. Steps only add: the release before can still read and write
//! what this one leaves behind, as far as it knows it. A step, once released, is never edited.
//!
//! Not here: building the search index after a step (`index`), refusing newer files (`opening`).

use rusqlite::Connection;

use crate::schema_step::{self, SchemaStep, step};

/// All steps, oldest first.
pub(crate) const STEPS: &[SchemaStep] = &[
    step!("sqlite", "0001_registry", 1),
    step!("sqlite", "0002_search", 2),
    step!("sqlite", "0003_access", 3),
    step!("sqlite", "0004_upstreams", 4),
    step!("sqlite", "0005_ledger", 5),
    step!("sqlite", "0006_revocations_end", 6),
    step!("sqlite", "0007_jobs", 7),
    step!("sqlite", "0009_checkpoints", 8),
    step!("sqlite", "0010_webhooks", 9),
    step!("sqlite", "0011_jobs_resolved", 10),
    step!("sqlite", "0012_usage", 11),
    step!("sqlite", "0017_vectors", 12),
    step!("sqlite", "0018_breaker_history", 13),
    step!("sqlite", "0020_lifecycle", 14),
    step!("sqlite", "0021_job_flows", 15),
    step!("sqlite", "0022_checkpoint_attempts", 16),
    step!("sqlite", "0023_call_owners", 17),
    step!("sqlite", "0024_activation_identity", 18),
    step!("sqlite", "0025_job_flows_waiting", 19),
    step!("sqlite", "0026_job_interruptions", 20),
    step!("sqlite", "0027_revocation_issuers", 21),
    step!("sqlite", "0028_quarantine_tenants", 22),
];

/// The mark of the newest step: the `user_version` of an up-to-date file.
pub(super) fn newest() -> i64 {
    schema_step::newest(STEPS).into()
}

/// The mark of the newest step that the file has taken.
pub(super) fn taken(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Takes the steps that are missing.
pub(super) fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let taken = taken(connection)?;
    for step in STEPS.iter().filter(|step| i64::from(step.mark) > taken) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(step.statements)?;
        transaction.pragma_update(None, "user_version", step.mark)?;
        transaction.commit()?;
        tracing::info!(step = step.file, "store migrated");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_can_be_taken_alone_and_all_can_be_repeated() {
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection).unwrap();
        migrate(&connection).unwrap();
        assert_eq!(taken(&connection).unwrap(), newest());
    }

    #[test]
    fn a_step_that_fails_leaves_the_shape_before_it() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE search_terms (other TEXT)").unwrap();
        migrate(&connection).unwrap_err();
        assert_eq!(taken(&connection).unwrap(), 1);
        connection.execute_batch("DROP TABLE search_terms").unwrap();
        migrate(&connection).unwrap();
        assert_eq!(taken(&connection).unwrap(), newest());
    }

    #[test]
    fn a_quarantine_from_before_its_setter_was_kept_is_the_installations() {
        let connection = Connection::open_in_memory().unwrap();
        for earlier in STEPS.iter().take_while(|step| step.file != "0028_quarantine_tenants") {
            connection.execute_batch(earlier.statements).unwrap();
            connection.pragma_update(None, "user_version", earlier.mark).unwrap();
        }
        let old = "INSERT INTO tool_quarantines (tenant_id, tool_id, reason, set_by, set_at)
                   VALUES ('acme', 'own_tool', 'it lies', 'did:example:ada', 1)";
        connection.execute_batch(old).unwrap();
        // As a program reads it that only looks, and after the step.
        for _ in 0..2 {
            let held = crate::sqlite::quarantine::all(&connection).unwrap_or_default();
            let setters: Vec<bool> = held.iter().map(|one| one.by_tenant.is_home()).collect();
            assert_eq!(setters, [true]);
            migrate(&connection).unwrap();
        }
    }

    /// The steps as files were made by when SQLite's had numbers of their own: the n-th left `user_version` n.
    const OLD_NUMBERS: [&str; 22] = [
        "registry",
        "search",
        "access",
        "upstreams",
        "ledger",
        "revocations_end",
        "jobs",
        "checkpoints",
        "webhooks",
        "jobs_resolved",
        "usage",
        "vectors",
        "breaker_history",
        "lifecycle",
        "job_flows",
        "checkpoint_attempts",
        "call_owners",
        "activation_identity",
        "job_flows_waiting",
        "job_interruptions",
        "revocation_issuers",
        "quarantine_tenants",
    ];

    #[test]
    fn a_file_of_the_old_numbers_is_carried_on_from_where_it_was() {
        let shape = |connection: &Connection| -> Vec<(String, Option<String>)> {
            let mut all = connection.prepare("SELECT type || ' ' || name, sql FROM sqlite_schema ORDER BY 1").unwrap();
            all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
        };
        let new = Connection::open_in_memory().unwrap();
        migrate(&new).unwrap();
        for taken_then in 0..=OLD_NUMBERS.len() {
            let old = Connection::open_in_memory().unwrap();
            for name in OLD_NUMBERS.iter().take(taken_then) {
                let step = STEPS.iter().find(|step| step.file.get(5..) == Some(name)).unwrap();
                old.execute_batch(step.statements).unwrap();
            }
            old.pragma_update(None, "user_version", i64::try_from(taken_then).unwrap()).unwrap();
            migrate(&old).unwrap();
            assert_eq!(taken(&old).unwrap(), newest());
            assert_eq!(shape(&old), shape(&new), "from the old number {taken_then}");
        }
    }

    #[test]
    fn published_rows_can_neither_be_changed_nor_deleted() {
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection).unwrap();
        connection
            .execute_batch(
                "INSERT INTO tool_definitions
                     (tenant_id, tool_id, name, description, provider, protocol, created_at, updated_at)
                 VALUES ('local', 'abc', 'n', 'd', 'p', 'native', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z');
                 INSERT INTO tool_versions
                     (tenant_id, tool_id, version, version_text, manifest, digest, published_at, published_by)
                 VALUES ('local', 'abc', '1.0.0', '1.0.0', '{}', 'x', '2026-01-01T00:00:00.000Z', 'me');",
            )
            .unwrap();
        for sql in [
            "UPDATE tool_versions SET manifest = '[]'",
            "UPDATE tool_versions SET tenant_id = 'acme'",
            "UPDATE tool_definitions SET tenant_id = 'acme'",
            "INSERT INTO tool_definitions (tenant_id, tool_id, name, description, provider, protocol, created_at,
             updated_at)
             VALUES ('acme', 'abc', 'n', 'd', 'p', 'native', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z')",
            "DELETE FROM tool_versions",
            "UPDATE tool_versions SET lifecycle_state = 'gone'",
            "UPDATE tool_versions SET deprecated_at = '2026-01-01T00:00:00.000Z'",
        ] {
            connection.execute(sql, []).unwrap_err();
        }
        assert_eq!(connection.execute("UPDATE tool_versions SET lifecycle_state = 'removed'", []).unwrap(), 1);
    }
}
