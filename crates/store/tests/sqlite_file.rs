//! What only a file can suffer: damage, strangers, newer and older shapes, two owners, a full disk. And what only this
//! adapter promises: writes that share a commit, readers beside the writer.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use contract::ids::TenantId;
use gantry_store::conformance::{new_version, sample_manifest};
use gantry_store::sqlite::{SqliteOpenError, SqliteOptions, SqliteStore};
use ports::registry_store::{PublishOutcome, RegistryStore, StoreError, StoredVersion};
use ports::tool_search::ToolSearch;
use rusqlite::Connection;

fn sample(tool: &str, description: &str) -> StoredVersion {
    new_version(sample_manifest(tool, "1.0.0", "A sample tool", description))
}

fn open(path: &Path) -> Result<SqliteStore, SqliteOpenError> {
    SqliteStore::open(path, &SqliteOptions::default())
}

/// A closed file with some tools in it.
async fn make_file(path: &Path) {
    let store = open(path).unwrap();
    for number in 0..50 {
        let description = format!("Has a long text. {}", "word ".repeat(100));
        store.publish(sample(&format!("tool_{number}"), &description)).await.unwrap();
    }
    store.close().await;
}

/// The file is refused for this reason, the message says what to do and not where the file is, and nothing was changed.
fn check_refused(path: &Path, expected: &str) {
    let before = fs::read(path).unwrap();
    for refusal in [open(path).unwrap_err(), SqliteStore::open_read_only(path).unwrap_err()] {
        let message = refusal.to_string();
        assert!(message.contains(expected) && message.contains("`gantry.db`"), "{message}");
        assert!(!message.contains(path.parent().unwrap().to_str().unwrap()), "{message}");
    }
    assert!(fs::read(path).unwrap() == before, "the refused file was changed");
}

#[tokio::test]
async fn a_new_file_and_its_directory_are_for_the_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/gantry.db");
    let store = open(&path).unwrap();
    store.publish(sample("some_tool", "Does what it does.")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(&path.with_file_name(format!("gantry.db{suffix}"))), 0o600, "{suffix}");
    }
    store.close().await;
    assert!(!path.with_file_name("gantry.db-wal").try_exists().unwrap(), "a clean end leaves no log");
}

#[tokio::test]
async fn a_second_writer_is_refused_until_the_first_has_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    let first = open(&path).unwrap();
    let refusal = open(&path).unwrap_err();
    assert!(matches!(refusal, SqliteOpenError::InUse { .. }), "{refusal}");
    assert!(refusal.to_string().contains("is in use by another Gantry: stop that one"), "{refusal}");
    first.close().await;
    open(&path).unwrap();
}

#[tokio::test]
async fn a_reader_beside_the_writer_sees_what_is_committed_and_cannot_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    assert!(matches!(SqliteStore::open_read_only(&path).unwrap_err(), SqliteOpenError::Missing { .. }));
    let writer = open(&path).unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    writer.publish(sample("some_tool", "Paints the fence.")).await.unwrap();
    assert_eq!(reader.load().await.unwrap().len(), 1);
    assert_eq!(reader.search(&TenantId::home(), "fence", 10).await.unwrap().len(), 1);
    reader.ping().await.unwrap();
    let refused = reader.publish(sample("other_tool", "Paints the house.")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));
    reader.close().await;
    writer.close().await;
    let alone = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(alone.load().await.unwrap().len(), 1);
}

#[tokio::test]
async fn files_of_other_programs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    check_refused(&path, "belongs to another program");
    fs::write(&path, "# notes\nnot a database, but longer than one hundred bytes. ".repeat(10)).unwrap();
    check_refused(&path, "is not a Gantry database");
    fs::write(&path, "x").unwrap();
    check_refused(&path, "is not a Gantry database");
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 9999).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    connection.close().unwrap();
    check_refused(&path, "was written by a newer Gantry: upgrade this binary or restore a backup");
}

#[tokio::test]
async fn a_truncated_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let whole = fs::read(&path).unwrap();
    for keep in [50, 100, 4096, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, whole.get(..keep).unwrap()).unwrap();
        check_refused(&path, "is damaged: restore a backup");
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_or_answers_with_an_error_but_never_with_nonsense() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let mut bytes = fs::read(&path).unwrap();
    // The schema itself: found when opening.
    bytes.get_mut(100..4096).unwrap().fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    check_refused(&path, "is damaged: restore a backup");
    // Somewhere in the middle, after a clean end: found when it is read.
    make_file(&directory.path().join("other.db")).await;
    let path = directory.path().join("other.db");
    let mut bytes = fs::read(&path).unwrap();
    for page in 10..bytes.len() / 4096 {
        bytes.get_mut(page * 4096..page * 4096 + 64).unwrap().fill(0xff);
    }
    fs::write(&path, &bytes).unwrap();
    match open(&path) {
        Err(refusal) => assert!(matches!(refusal, SqliteOpenError::Damaged { .. }), "{refusal}"),
        Ok(store) => assert!(matches!(store.load().await, Err(StoreError::Corrupt(_)))),
    }
}

#[tokio::test]
async fn rows_that_make_no_sense_are_reported_as_such() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DROP TRIGGER tool_versions_never_change;
             UPDATE tool_versions SET manifest = '{}' WHERE tool_id = 'tool_7';",
        )
        .unwrap();
    connection.close().unwrap();
    let store = open(&path).unwrap();
    let error = store.load().await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    assert_eq!(error.to_string(), "the store holds data that cannot be read");
}

#[tokio::test]
async fn a_path_that_cannot_be_written_is_refused() {
    // Permission bits do not stop a test that runs as root; a file in the place of the directory stops everybody.
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let refusal = open(&directory.path().join("file/gantry.db")).unwrap_err();
    assert!(matches!(refusal, SqliteOpenError::Directory { .. }), "{refusal}");
    fs::create_dir(directory.path().join("gantry.db")).unwrap();
    let refusal = open(&directory.path().join("gantry.db")).unwrap_err();
    assert!(matches!(refusal, SqliteOpenError::Unreadable { .. }), "{refusal}");
    // /proc is a directory where not even root can make files.
    let refusal = open(Path::new("/proc/gantry.db")).unwrap_err();
    assert!(matches!(refusal, SqliteOpenError::Directory { .. }), "{refusal}");
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_the_store_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("gantry.db")).unwrap();
    store.publish(sample("before_tool", "Mows the lawn.")).await.unwrap();
    store.set_bytes_max(0).await.unwrap();
    let big = |tool: &str| sample(tool, &"many words ".repeat(3000));
    let error = loop {
        match store.publish(big(&format!("tool_{}", store.counters().commits))).await {
            Ok(answer) => assert_eq!(answer, PublishOutcome::New),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let kept = store.load().await.unwrap().len();
    assert!(store.publish(big("refused_tool")).await.is_err());
    assert_eq!(store.load().await.unwrap().len(), kept);
    store.set_bytes_max(1 << 30).await.unwrap();
    assert_eq!(store.publish(big("refused_tool")).await.unwrap(), PublishOutcome::New);
    store.ping().await.unwrap();
    assert_eq!(store.load().await.unwrap().len(), kept + 1);
    assert_eq!(store.search(&TenantId::home(), "lawn", 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_that_come_together_share_commits() {
    const WRITES: usize = 500;
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory.path().join("gantry.db")).unwrap());
    let before = store.counters().commits;
    let writes: Vec<_> = (0..WRITES)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.publish(sample(&format!("tool_{number}"), "Is one of many.")).await })
        })
        .collect();
    for write in writes {
        assert_eq!(write.await.unwrap().unwrap(), PublishOutcome::New);
    }
    let commits = store.counters().commits - before;
    assert!(commits < 125, "{WRITES} writes took {commits} commits");
    assert_eq!(store.load().await.unwrap().len(), WRITES);
}

#[tokio::test]
async fn what_was_answered_is_in_the_files_at_that_very_moment() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("gantry.db")).unwrap();
    for number in 0..20_usize {
        store.publish(sample(&format!("tool_{number}"), "Must not get lost.")).await.unwrap();
        // The files as a sudden end would leave them.
        let after = tempfile::tempdir().unwrap();
        for name in ["gantry.db", "gantry.db-wal"] {
            fs::copy(directory.path().join(name), after.path().join(name)).unwrap();
        }
        let recovered = open(&after.path().join("gantry.db")).unwrap();
        assert_eq!(recovered.load().await.unwrap().len(), number + 1);
        assert_eq!(recovered.search(&TenantId::home(), "lost", 50).await.unwrap().len(), number + 1);
    }
}

#[tokio::test]
async fn a_closed_store_answers_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("gantry.db")).unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(store.publish(sample("some_tool", "Is too late.")).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.load().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_file_of_an_older_release_is_migrated_and_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "application_id", 0x474e_5452).unwrap();
    connection.execute_batch(include_str!("../migrations/sqlite/0001_registry.sql")).unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    let old = sample("old_tool", "Was published by the release before.");
    connection
        .execute(
            "INSERT INTO tool_definitions (tenant_id, tool_id, name, description, provider, protocol, created_at, updated_at)
             VALUES ('local', 'old_tool', 'Old', 'Old', 'p', 'native', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z')",
            [],
        )
        .unwrap();
    connection
        .execute(
            "INSERT INTO tool_versions
                 (tenant_id, tool_id, version, version_text, manifest, digest, published_at, published_by)
             VALUES ('local', 'old_tool', '1.0.0', '1.0.0', ?1, ?2, '2026-01-01T00:00:00.000Z', 'me')",
            [serde_json::to_string(&old.manifest).unwrap(), old.digest.to_string()],
        )
        .unwrap();
    connection.close().unwrap();
    let refusal = SqliteStore::open_read_only(&path).unwrap_err();
    assert!(matches!(refusal, SqliteOpenError::Older { .. }), "{refusal}");
    let store = open(&path).unwrap();
    assert_eq!(store.publish(old).await.unwrap(), PublishOutcome::Same);
    assert_eq!(store.load().await.unwrap().first().expect("one version").published_at.0, 1_767_225_600_000);
    assert_eq!(store.search(&TenantId::home(), "release before", 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_index_counts_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    let store = open(&path).unwrap();
    for version in ["1.0.0", "1.1.0", "2.0.0-rc.1", "1.2.0"] {
        for tool in ["first_tool", "second_tool"] {
            let description = format!("Version {version} of something with words of its own.");
            store.publish(new_version(sample_manifest(tool, version, "Some", &description))).await.unwrap();
        }
    }
    store.close().await;
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, tool_search, row)").unwrap();
    let difference: i64 = connection
        .query_row(
            "SELECT (SELECT count(*) FROM (SELECT term, doc FROM vocabulary EXCEPT SELECT term, sum(documents) FROM search_terms GROUP BY term))
                  + (SELECT count(*) FROM (SELECT term, sum(documents) FROM search_terms GROUP BY term EXCEPT SELECT term, doc FROM vocabulary))",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(difference, 0);
    let documents: i64 =
        connection.query_row("SELECT sum(documents) FROM registry_tenants", [], |row| row.get(0)).unwrap();
    assert_eq!(documents, 2);
}
