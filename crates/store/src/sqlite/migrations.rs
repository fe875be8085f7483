//! The shapes the database has had, and the way from each to the next. (STORE-007)
//!
//! `user_version` says how many steps a file has taken. Each step is one transaction together with its number, so a step
//! that fails or is interrupted leaves the shape before it. Steps only add: the release before can still read and write
//! what this one leaves behind, as far as it knows it. A step, once released, is never edited.
//!
//! Not here: building the search index after a step (`index`), refusing newer files (`opening`).

use base::SaturatingFrom as _;
use rusqlite::Connection;

/// All steps, oldest first.
const STEPS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_registry.sql"),
    include_str!("../../migrations/sqlite/0002_search.sql"),
    include_str!("../../migrations/sqlite/0003_access.sql"),
    include_str!("../../migrations/sqlite/0004_upstreams.sql"),
    include_str!("../../migrations/sqlite/0005_ledger.sql"),
    include_str!("../../migrations/sqlite/0006_revocations_end.sql"),
    include_str!("../../migrations/sqlite/0007_jobs.sql"),
    include_str!("../../migrations/sqlite/0008_checkpoints.sql"),
    include_str!("../../migrations/sqlite/0009_webhooks.sql"),
    include_str!("../../migrations/sqlite/0010_jobs_resolved.sql"),
    include_str!("../../migrations/sqlite/0011_usage.sql"),
    include_str!("../../migrations/sqlite/0012_vectors.sql"),
    include_str!("../../migrations/sqlite/0013_breaker_history.sql"),
    include_str!("../../migrations/sqlite/0014_lifecycle.sql"),
    include_str!("../../migrations/sqlite/0015_job_flows.sql"),
    include_str!("../../migrations/sqlite/0016_checkpoint_attempts.sql"),
    include_str!("../../migrations/sqlite/0017_call_owners.sql"),
    include_str!("../../migrations/sqlite/0018_activation_identity.sql"),
    include_str!("../../migrations/sqlite/0019_job_flows_waiting.sql"),
    include_str!("../../migrations/sqlite/0020_job_interruptions.sql"),
    include_str!("../../migrations/sqlite/0021_revocation_issuers.sql"),
    include_str!("../../migrations/sqlite/0022_quarantine_tenants.sql"),
];

/// How many steps this program knows: the `user_version` of an up-to-date file.
pub(super) fn newest() -> i64 {
    i64::saturating_from(STEPS.len())
}

/// How many steps the file has taken.
pub(super) fn taken(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Takes the steps that are missing.
pub(super) fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let taken = taken(connection)?;
    for (number, step) in (1_i64..).zip(STEPS).filter(|(number, _)| *number > taken) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
        tracing::info!(step = number, "store migrated");
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
        let step = STEPS.iter().position(|step| step.contains("set_by_tenant")).unwrap();
        for earlier in STEPS.iter().take(step) {
            connection.execute_batch(earlier).unwrap();
        }
        connection.pragma_update(None, "user_version", i64::try_from(step).unwrap()).unwrap();
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
            "INSERT INTO tool_definitions (tenant_id, tool_id, name, description, provider, protocol, created_at, updated_at)
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
