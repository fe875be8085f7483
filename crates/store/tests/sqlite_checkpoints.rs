//! Checkpoints in a real file that is full, or was damaged behind our back.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::path::Path;
use std::time::Duration;

use contract::envelope::CheckpointKind;
use contract::ids::TenantId;
use gantry_store::sqlite::{SqliteOptions, SqliteStore};
use kernel::checkpoints::codec::{self, CodecError};
use kernel::checkpoints::record::CheckpointRecord;
use ports::checkpoint_store::{CheckpointHead, CheckpointId, CheckpointStore, ListPage, SaveOutcome, SealedCheckpoint};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::saved_state::SavedState;
use serde_json::json;

const HOUR: Option<Duration> = Some(Duration::from_hours(1));

fn id(n: u128) -> CheckpointId {
    format!("{:032x}", 0x019a_0000_0000_7000_8000_0000_0000_0000_u128 + n).parse().unwrap()
}

fn sealed(n: u128, bytes: usize) -> SealedCheckpoint {
    let head = CheckpointHead {
        id: id(n),
        tenant: TenantId::home(),
        invocation: "01990000-0000-7000-8000-000000000001".parse().unwrap(),
        owner: "agent-1".parse().unwrap(),
        tool: "demo.index".parse().unwrap(),
        version: "1.0.0".parse().unwrap(),
        kind: CheckpointKind::Micro,
        label: None,
        parent: None,
        saved_at: UnixMillis(1_800_000_000_000),
    };
    let state = SavedState { custom_state: json!("x".repeat(bytes)), ..SavedState::default() };
    codec::seal(&CheckpointRecord { head, state }, None, usize::MAX).unwrap().0
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &SqliteOptions::default()).unwrap()
}

#[tokio::test]
async fn a_full_disk_keeps_nothing_new_and_loses_nothing_old() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("gantry.db"));
    assert_eq!(store.save(&sealed(1, 10), None, HOUR).await.unwrap(), SaveOutcome::Kept);
    store.set_bytes_max(1).await.unwrap();
    let full = store.save(&sealed(2, 1 << 20), None, HOUR).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    store.set_bytes_max(1 << 30).await.unwrap();
    assert_eq!(store.save(&sealed(2, 1 << 20), None, HOUR).await.unwrap(), SaveOutcome::Kept);
    let page = ListPage { after: None, limit: 9 };
    let invocation = sealed(1, 10).head.invocation;
    assert_eq!(store.list(&TenantId::home(), invocation, page).await.unwrap().len(), 2);
    for n in [1, 2] {
        codec::open(&store.chain(&TenantId::home(), id(n)).await.unwrap()).unwrap();
    }
}

#[tokio::test]
async fn damage_in_the_file_is_handed_over_to_be_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    let store = open(&path);
    store.save(&sealed(1, 100), None, HOUR).await.unwrap();
    store.close().await;
    let damages = [
        ("payload = substr(payload, 1, 20)", CodecError::Corrupt),
        ("payload = zeroblob(length(payload))", CodecError::Corrupt),
        ("checksum = x'00'", CodecError::Corrupt),
        ("seal = zeroblob(32)", CodecError::Corrupt),
        ("is_gzip = 1", CodecError::Corrupt),
        ("owner = 'mallory'", CodecError::Corrupt),
        ("content_bytes = 9000000000", CodecError::Corrupt),
        ("schema_version = '2.0'", CodecError::UnknownVersion { version: "2.0".into() }),
    ];
    for (damage, expected) in damages {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch(&format!("CREATE TABLE safe AS SELECT * FROM checkpoints; UPDATE checkpoints SET {damage}"))
            .unwrap();
        drop(connection);
        let store = open(&path);
        let chain = store.chain(&TenantId::home(), id(1)).await.unwrap();
        assert_eq!(codec::open(&chain).unwrap_err(), expected, "{damage}");
        store.close().await;
        let connection = rusqlite::Connection::open(&path).unwrap();
        let restore = "DELETE FROM checkpoints; INSERT INTO checkpoints SELECT * FROM safe; DROP TABLE safe";
        connection.execute_batch(restore).unwrap();
    }
    codec::open(&open(&path).chain(&TenantId::home(), id(1)).await.unwrap()).unwrap();
}
