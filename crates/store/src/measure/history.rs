//! A past: a store in which very many calls were made before, for the question whether the next one costs more.
//!
//! Rows are made inside the database, because what is asked is not how fast they were written. Each settled call has its place in
//! the ledger for a month to come; one in ten was a job, with payload and result; and one in ten has a row of usage of its own.
//! Ids grow with time and end before now, as those of real calls do. Both dialects stand side by side so that they say the same.
//!
//! Not here: tools, which go in through the door (`cargo xtask bench --only stores`).

use std::path::Path;

use super::StoreMeasureError;
use crate::sqlite::raw_ledger::RawLedger;

/// Makes the file, if it is not there, and puts so many calls into its past. Nobody may have it open.
pub fn sqlite_history(file: &Path, calls: u32) -> Result<(), StoreMeasureError> {
    let statements = SQLITE.replace("{calls}", &calls.to_string());
    RawLedger::open(file)?.batch(&statements)
}

/// The statements that do the same in PostgreSQL, for a role that row level security does not hold, after the migrations.
pub fn postgres_history(calls: u32) -> String {
    POSTGRES.replace("{calls}", &calls.to_string())
}

const SQLITE: &str = r#"
BEGIN;
INSERT INTO ledger (invocation_id, trace_id, tenant_id, subject, tool_id, tool_version, side_effect_policy, scope, key,
                    holds_key, parameters_digest, window_seconds, owner_id, fence, state, begun_at, settled_at, keep_until,
                    outcome)
WITH RECURSIVE numbers (n, id) AS (
    SELECT 1, '' UNION ALL
    SELECT n + 1, printf('%08x-%04x-7000-8000-%012x', (1700000000000 + n) >> 16, (1700000000000 + n) & 65535, n * 7919)
    FROM numbers WHERE n <= {calls}
)
SELECT id, printf('%032x', n), 'local', 'bench-agent', 'bench.note', '1.0.0', 'idempotent', 'bench-agent',
       printf('past-%012d', n), 1, printf('sha256:%064x', n), 2592000, '00000000-0000-0000-0000-000000000001', 1, 'done',
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+30 days'), '{"success":{"result":{"expression":"sqrt(16) + 2^3","result":12}}}'
FROM numbers WHERE id <> '';

INSERT INTO jobs (seq, tenant_id, id, kind, label, subject, digest, priority, state, rank, attempts, attempts_max, fence,
                  created_at, due_at, started_at, ended_at)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {calls} / 10), moment (now) AS (
    SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)
)
SELECT n, 'local', printf('%08x-%04x-7001-8000-%012x', n >> 16, n & 65535, n), 'invocation', 'calculator', 'bench-agent',
       printf('sha256:%064x', n), 5, 'done', now, 1, 3, 1, now, now, now, now
FROM numbers, moment;

INSERT INTO job_bodies (seq, payload, result) SELECT seq, '{"expression":"6 * 7"}', '{"result":42}' FROM jobs;

INSERT INTO usage (tenant_id, day, tool_id, agent, user, calls, errors, timeouts, refused, replayed, duration_ms,
                   cpu_millicore_seconds, network_bytes, tokens, last_at)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {calls} / 10), moment (now) AS (
    SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)
)
SELECT 'local', now / 86400000 - n % 30, 'calculator', printf('agent-%d', n / 30), '', 10, 0, 0, 0, 0, 10, 0, 0, 0, now
FROM numbers, moment;
COMMIT;
ANALYZE;
"#;

const POSTGRES: &str = r#"
INSERT INTO ledger (invocation_id, trace_id, tenant_id, subject, tool_id, tool_version, side_effect_policy, scope, key,
                    holds_key, parameters_digest, window_seconds, owner_id, fence, claim, state, begun_at, settled_at,
                    keep_until, outcome)
SELECT substr(time, 1, 8) || '-' || substr(time, 9, 4) || '-7000-8000-' || lpad(to_hex(n * 7919), 12, '0'),
       lpad(to_hex(n), 32, '0'), 'local', 'bench-agent', 'bench.note', '1.0.0', 'idempotent', 'bench-agent'::bytea,
       convert_to('past-' || lpad(n::text, 12, '0'), 'UTF8'), true, 'sha256:' || lpad(to_hex(n), 64, '0'), 2592000,
       '00000000-0000-0000-0000-000000000001', 1, 1, 'done', now, now, now + 2592000000,
       '{"success":{"result":{"expression":"sqrt(16) + 2^3","result":12}}}'
FROM (SELECT n, lpad(to_hex(1700000000000 + n), 12, '0') AS time, (extract(epoch FROM now()) * 1000)::bigint AS now
      FROM generate_series(1::bigint, {calls}) AS n) AS numbers;

INSERT INTO jobs (tenant_id, id, kind, label, subject, digest, priority, state, rank, attempts, attempts_max, fence, created_at,
                  due_at, started_at, ended_at)
SELECT 'local', substr(time, 1, 8) || '-' || substr(time, 9, 4) || '-7001-8000-' || lpad(to_hex(n), 12, '0'), 'invocation',
       'calculator', 'bench-agent', 'sha256:' || lpad(to_hex(n), 64, '0'), 5, 'done', now, 1, 3, 1, now, now, now, now
FROM (SELECT n, lpad(to_hex(1700000000000 + n), 12, '0') AS time, (extract(epoch FROM now()) * 1000)::bigint AS now
      FROM generate_series(1::bigint, {calls} / 10) AS n) AS numbers;

INSERT INTO job_bodies (seq, tenant_id, payload, result)
SELECT seq, tenant_id, '{"expression":"6 * 7"}', '{"result":42}' FROM jobs;

INSERT INTO usage (tenant_id, day, tool_id, agent, "user", calls, errors, timeouts, refused, replayed, duration_ms,
                   cpu_millicore_seconds, network_bytes, tokens, last_at)
SELECT 'local', now / 86400000 - n % 30, 'calculator', 'agent-' || n / 30, '', 10, 0, 0, 0, 0, 10, 0, 0, 0, now
FROM (SELECT n, (extract(epoch FROM now()) * 1000)::bigint AS now FROM generate_series(1::bigint, {calls} / 10) AS n) AS numbers;

ANALYZE;
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_past_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gantry.db");
        sqlite_history(&file, 1_000).unwrap();
        let raw = RawLedger::open(&file).unwrap();
        for (table, rows) in [("ledger", 1_000), ("jobs", 100), ("job_bodies", 100), ("usage", 100)] {
            assert_eq!(raw.rows_of(table), rows, "{table}");
        }
    }

    #[test]
    fn a_database_has_the_past_it_was_given() {
        let postgres = test_servers::PostgresServer::start().unwrap();
        let url = postgres.database().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store =
                crate::postgres::PostgresStore::open(&url, &crate::postgres::PostgresOptions::default()).await.unwrap();
            store.close().await;
        });
        let database = url.rsplit('/').next().unwrap();
        postgres.sql(database, &postgres_history(1_000)).unwrap();
        for (table, rows) in [("ledger", "1000"), ("jobs", "100"), ("job_bodies", "100"), ("usage", "100")] {
            assert_eq!(postgres.sql(database, &format!("SELECT count(*) FROM {table}")).unwrap(), rows, "{table}");
        }
    }
}
