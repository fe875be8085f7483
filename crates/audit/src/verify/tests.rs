//! One test per way to tamper with a log, each found and named.

use std::fs;
use std::sync::atomic::Ordering;

use super::*;
use crate::merkle::leaf_hash;
use crate::note::NoteSigner;
use crate::segments::file_name;
use crate::stage::{LogPlace, record, record_of};
use crate::{RecordRange, checkpoint, export, notes_in, tree_file};
use ports::audit_sink::AuditSink as _;

/// Records 0 to 17 with checkpoints after 1, 6, 14 and 18.
async fn log() -> LogPlace {
    LogPlace::new().with_records(&[5, 8, 4]).await
}

fn trust(place: &LogPlace) -> VerifyTrust {
    let key = LogMark::read(&place.dir()).unwrap().unwrap().key;
    VerifyTrust { keys: vec![key.parse().unwrap()], witnessed: Vec::new() }
}

fn text(place: &LogPlace, name: &str) -> String {
    fs::read_to_string(place.file(name)).unwrap()
}

fn lines(place: &LogPlace) -> Vec<String> {
    text(place, &file_name(1)).lines().map(str::to_owned).collect()
}

fn put(place: &LogPlace, lines: &[String]) {
    fs::write(place.file(&file_name(1)), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

fn faults(place: &LogPlace) -> Vec<LogFault> {
    verify_dir(&place.dir(), &trust(place)).unwrap().faults
}

#[tokio::test]
async fn records_that_nothing_signed_speaks_for_yet_are_counted() {
    let place = log().await;
    let log = place.open();
    log.append([record("one"), record("two")].into()).await.unwrap();
    let report = verify_dir(&place.dir(), &trust(&place)).unwrap();
    assert_eq!((report.whole, report.records, report.covered, report.unsigned), (true, 20, 18, 2));
    log.checkpoint().await.unwrap();
    assert_eq!(verify_dir(&place.dir(), &trust(&place)).unwrap().unsigned, 0);
}

#[tokio::test]
async fn a_log_that_nobody_touched_is_whole() {
    let place = log().await;
    let report = verify_dir(&place.dir(), &trust(&place)).unwrap();
    assert_eq!(report.faults, []);
    assert!(report.whole && report.key_given && report.notes.is_empty());
    assert_eq!((report.records, report.covered, report.checkpoints, report.unsigned), (18, 18, 5, 0));
    let alone = verify_dir(&place.dir(), &VerifyTrust::default()).unwrap();
    assert!(alone.whole && !alone.key_given);
}

#[tokio::test]
async fn a_flipped_bit_is_found_wherever_it_is() {
    let place = log().await;
    let good = fs::read(place.file(&file_name(1))).unwrap();
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 4;
        fs::write(place.file(&file_name(1)), &bad).unwrap();
        assert!(!faults(&place).is_empty(), "byte {at}");
    }
    fs::write(place.file(&file_name(1)), &good).unwrap();
    let mut changed = lines(&place);
    changed[9] = changed[9].replace("\"note\":\"n8\"", "\"note\":\"n9\"");
    put(&place, &changed);
    assert_eq!(faults(&place), [LogFault::Changed { seq: 9 }]);
}

#[tokio::test]
async fn a_change_that_was_carried_into_the_tree_file_is_found_between_checkpoints() {
    let place = log().await;
    let mut changed = lines(&place);
    changed[9] = changed[9].replace("\"note\":\"n8\"", "\"note\":\"n9\"");
    put(&place, &changed);
    let mut edge = TreeFrontier::default();
    let mut hashes = Vec::new();
    for line in &changed {
        edge.push(leaf_hash(line.as_bytes()), |hash| hashes.extend_from_slice(hash));
    }
    fs::write(place.file(tree_file::NAME), &hashes).unwrap();
    assert_eq!(faults(&place), [LogFault::ChangedBetween { from: 6, to: 14 }]);
    fs::remove_file(place.file(tree_file::NAME)).unwrap();
    assert_eq!(faults(&place), [LogFault::ChangedBetween { from: 6, to: 14 }]);
}

#[tokio::test]
async fn a_deleted_record_is_named() {
    let place = log().await;
    let good = lines(&place);
    for seq in [1, 5, 6, 9, 16] {
        let mut bad = good.clone();
        bad.remove(usize::try_from(seq).unwrap());
        put(&place, &bad);
        assert_eq!(faults(&place), [LogFault::Removed { from: seq, to: seq + 1 }], "{seq}");
    }
    let mut bad = good;
    bad.drain(3..8);
    put(&place, &bad);
    assert_eq!(faults(&place), [LogFault::Removed { from: 3, to: 8 }]);
}

#[tokio::test]
async fn a_deleted_record_whose_successors_were_renumbered_shows_as_a_gap_of_its_principal() {
    let place = log().await;
    let mut bad = lines(&place);
    bad.remove(7);
    for (seq, line) in bad.iter_mut().enumerate().skip(7) {
        *line = line.replace(&format!("{{\"seq\":{},", seq + 1), &format!("{{\"seq\":{seq},"));
    }
    put(&place, &bad);
    fs::remove_file(place.file(tree_file::NAME)).unwrap();
    let found = faults(&place);
    let gap = found.iter().find(|fault| matches!(fault, LogFault::SequenceGap { .. })).unwrap();
    assert!(matches!(gap, LogFault::SequenceGap { seq: 9, expected: 2, found: 3, .. }), "{gap:?}");
    assert!(found.contains(&LogFault::ChangedBetween { from: 6, to: 14 }));
    assert!(found.contains(&LogFault::Truncated { records: 17, signed: 18 }));
}

#[tokio::test]
async fn a_record_out_of_order_or_there_twice_is_named() {
    let place = log().await;
    let good = lines(&place);
    let mut bad = good.clone();
    bad.swap(8, 9);
    put(&place, &bad);
    assert_eq!(faults(&place), [LogFault::Reordered { seq: 8 }]);
    let mut bad = good.clone();
    bad.insert(10, good[4].clone());
    put(&place, &bad);
    assert_eq!(faults(&place)[0], LogFault::Repeated { seq: 4 });
}

#[tokio::test]
async fn a_truncated_log_is_named() {
    let place = log().await;
    let good = lines(&place);
    for kept in [1, 7, 14, 17] {
        put(&place, &good[..kept]);
        assert_eq!(faults(&place), [LogFault::Truncated { records: kept as u64, signed: 18 }]);
    }
    fs::remove_file(place.file(&file_name(1))).unwrap();
    assert_eq!(faults(&place), [LogFault::Truncated { records: 0, signed: 18 }]);
}

#[tokio::test]
async fn a_log_that_was_rolled_back_whole_is_known_by_a_checkpoint_kept_elsewhere() {
    let place = log().await;
    let notes = notes_in(&text(&place, checkpoint::NAME));
    let kept = VerifyTrust { witnessed: notes.clone(), ..trust(&place) };
    assert!(verify_dir(&place.dir(), &kept).unwrap().whole);
    // Back to fourteen records, everything in the directory in step.
    put(&place, &lines(&place)[..14]);
    fs::write(place.file(checkpoint::NAME), notes[..3].iter().map(|note| format!("{note}\n")).collect::<String>())
        .unwrap();
    fs::remove_file(place.file("principals.json")).unwrap();
    drop(place.open());
    assert_eq!(faults(&place), [], "by itself it cannot tell");
    let found = verify_dir(&place.dir(), &kept).unwrap().faults;
    assert_eq!(found, [LogFault::RolledBack { records: 14, witnessed: 18 }]);
    // And grown again to as many, with other records and the right key.
    let log = place.open();
    log.append([record("other"), record("history"), record("as"), record("long")].into()).await.unwrap();
    log.close().await.unwrap();
    assert_eq!(faults(&place), []);
    let found = verify_dir(&place.dir(), &kept).unwrap().faults;
    assert_eq!(found, [LogFault::RolledBack { records: 18, witnessed: 18 }]);
}

#[tokio::test]
async fn a_forged_checkpoint_is_named() {
    let place = log().await;
    let good = text(&place, checkpoint::NAME);
    fs::write(place.file(checkpoint::NAME), good.replace("\n14\n", "\n13\n")).unwrap();
    assert!(matches!(&faults(&place)[..], [LogFault::ForgedCheckpoint { size: Some(13), .. }]));
    // Somebody else's key under the right name, over the right records and over changed ones.
    let trusted = trust(&place);
    let origin = trusted.keys[0].name().to_owned();
    let forger = NoteSigner::from_seed(&origin, &[99; 32]);
    let edge = {
        let tree = TreeFile::open_to_read(&place.dir()).unwrap().unwrap();
        crate::merkle::root_of(&tree, 18).unwrap()
    };
    let now = ports::clock::UnixMillis(0);
    for root in [edge.root(), [1; 32]] {
        let note = crate::LogCheckpoint::sign(&forger, 18, &root, now, false);
        fs::write(place.file(checkpoint::NAME), format!("{note}\n")).unwrap();
        assert!(matches!(&faults(&place)[..], [LogFault::ForgedCheckpoint { size: Some(18), .. }]));
    }
    fs::write(place.file(checkpoint::NAME), "").unwrap();
    assert_eq!(faults(&place), [LogFault::Unsigned]);
}

#[tokio::test]
async fn a_new_key_is_believed_only_under_the_former_one_and_the_newest_vouches_for_all() {
    let place = LogPlace::new().with_records(&[3]).await;
    let first = trust(&place);
    let log = place.open();
    let second: NoteKey = log.rotate_key().await.unwrap().parse().unwrap();
    log.append([record("after")].into()).await.unwrap();
    log.close().await.unwrap();
    let by_second = VerifyTrust { keys: vec![second.clone()], ..VerifyTrust::default() };
    for trusted in [&first, &by_second] {
        let report = verify_dir(&place.dir(), trusted).unwrap();
        assert_eq!((report.faults, report.checkpoints, report.keys.len()), (vec![], 7, 2));
    }
    let mut bytes = Vec::new();
    export(&place.dir(), RecordRange::default(), &mut bytes).unwrap();
    for trusted in [&first, &by_second] {
        assert_eq!(verify_export(&bytes[..], trusted).unwrap().faults, []);
    }
    // Without the former key's word for it the new one is a forger's.
    let notes = notes_in(&text(&place, checkpoint::NAME));
    let kept: String = notes.iter().take(4).chain(&notes[5..]).map(|note| format!("{note}\n")).collect();
    fs::write(place.file(checkpoint::NAME), kept).unwrap();
    let found = verify_dir(&place.dir(), &first).unwrap().faults;
    assert!(matches!(found.first(), Some(LogFault::ForgedCheckpoint { .. })), "{found:?}");
}

#[tokio::test]
async fn a_clock_that_goes_back_is_noted_and_no_fault() {
    let place = LogPlace::new();
    let log = place.open();
    for _ in 0..3 {
        place.clock.0.fetch_sub(60_000, Ordering::SeqCst);
        let at = ports::clock::Clock::now(&*place.clock);
        log.append([ports::audit_sink::AuditRecord { at, ..record("x") }].into()).await.unwrap();
    }
    log.close().await.unwrap();
    let report = verify_dir(&place.dir(), &trust(&place)).unwrap();
    assert!(report.whole);
    assert!(report.notes[0].contains("went back 3 times"), "{:?}", report.notes);
}

#[tokio::test]
async fn a_damaged_tree_file_is_noted_and_no_fault() {
    let place = log().await;
    let mut tree = fs::read(place.file(tree_file::NAME)).unwrap();
    tree[0] ^= 1;
    fs::write(place.file(tree_file::NAME), tree).unwrap();
    let report = verify_dir(&place.dir(), &trust(&place)).unwrap();
    assert!(report.whole && report.notes.len() == 1, "{report:?}");
}

#[tokio::test]
async fn files_from_before_the_log_are_held_to_their_digests() {
    let place = LogPlace::new();
    fs::create_dir(place.dir()).unwrap();
    fs::write(place.file(&file_name(1)), "{\"at\":\"x\"}\n").unwrap();
    let place = place.with_records(&[2]).await;
    assert_eq!(faults(&place), []);
    fs::write(place.file(&file_name(1)), "{\"at\":\"y\"}\n").unwrap();
    assert_eq!(faults(&place), [LogFault::FormerFile { name: file_name(1) }]);
}

#[tokio::test]
async fn an_export_of_any_run_is_checked_alone_and_every_change_of_it_is_found() {
    let place = log().await;
    let trusted = trust(&place);
    for (from, to) in [(0, None), (0, Some(18)), (3, Some(9)), (7, None), (17, Some(18)), (4, Some(4)), (0, Some(99))] {
        let mut bytes = Vec::new();
        let written = export(&place.dir(), RecordRange { from, to }, &mut bytes).unwrap();
        assert_eq!(written, to.unwrap_or(18).min(18) - from);
        let report = verify_export(&bytes[..], &trusted).unwrap();
        assert_eq!((report.faults, report.records, report.covered), (vec![], written, 18), "{from} {to:?}");
        let text = String::from_utf8(bytes).unwrap();
        for at in (text.find('\n').unwrap() + 1..text.len()).step_by(131) {
            let mut bad = text.clone().into_bytes();
            bad[at] ^= 2;
            assert!(!verify_export(&bad[..], &trusted).unwrap().whole, "{from} {to:?} byte {at}");
        }
        if written > 2 {
            let bad: Vec<&str> = text.lines().enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
            assert!(
                verify_export(bad.join("\n").as_bytes(), &trusted)
                    .unwrap()
                    .faults
                    .contains(&LogFault::Removed { from: from + 1, to: from + 2 })
            );
            let bad: Vec<&str> = text.lines().take(2).collect();
            let found = verify_export(format!("{}\n", bad.join("\n")).as_bytes(), &trusted).unwrap().faults;
            assert!(matches!(found[..], [LogFault::Truncated { .. }]), "{found:?}");
        }
    }
    assert!(verify_export(&b"{}\n"[..], &trusted).is_err());
    assert!(verify_export(&b""[..], &trusted).is_err());
}

#[tokio::test]
async fn hostile_strings_are_records_like_any_other() {
    let place = LogPlace::new();
    let log = place.open();
    let notes = [
        "\u{1b}[31mred\u{7}",
        "{\"seq\":99,\"id\":\"x\"}\n{\"seq\":100,",
        "\0\r\n\t\u{202e}",
        &"ü".repeat(20_000),
        "\\\"\\",
    ];
    for (at, note) in notes.iter().enumerate() {
        log.append([record_of(note, at % 3)].into()).await.unwrap();
    }
    log.close().await.unwrap();
    let report = verify_dir(&place.dir(), &trust(&place)).unwrap();
    assert_eq!((report.faults, report.records), (vec![], 6));
    let read = log.reader().read(1, 10).unwrap();
    for (entry, note) in read.iter().zip(notes) {
        assert!(!entry.line.contains(|letter: char| letter.is_ascii_control()));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&entry.line).unwrap()["note"], note);
        assert!(crate::cloud_event(&entry.line).is_ok());
    }
}
