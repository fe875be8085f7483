//! Appending, reopening after a crash, rotation of keys, and what is refused.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::segments::file_name;
use crate::stage::{LogPlace, lines, record, record_of};
use crate::{FileWitness, LogCheckpoint, NoteKey, SignedNote, checkpoint, notes_in, tree_file};

fn key(text: &str) -> NoteKey {
    text.parse().unwrap()
}

fn mark_key(place: &LogPlace) -> NoteKey {
    let mark: serde_json::Value = serde_json::from_slice(&fs::read(place.file("log.json")).unwrap()).unwrap();
    key(mark["key"].as_str().unwrap())
}

#[tokio::test]
async fn records_are_numbered_lines_of_json_even_with_newlines_in_them() {
    let place = LogPlace::new();
    let log = place.open();
    log.append([record("one\ntwo"), record("three")].into()).await.unwrap();
    let lines = lines(&place.file(&file_name(1)));
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["action"], &lines[0]["seq"]), (&"log_begun".into(), &0.into()));
    assert_eq!(lines[1]["note"], "one\ntwo");
    assert_eq!(lines[1]["at"], "2027-01-15T08:00:00.000Z");
    assert_eq!(lines[1]["usage"]["memory_peak_mb"], 9);
    assert_eq!((&lines[1]["decision"], &lines[1]["decision_reason"]), (&"allow".into(), &"token".into()));
    assert_eq!((&lines[2]["seq"], &lines[2]["principal_seq"]), (&2.into(), &1.into()));
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert!(ids[2].ends_with("-2") && ids[1].ends_with("-1"));
}

#[tokio::test]
async fn what_is_written_is_in_the_file_and_is_told_when_it_is_durable() {
    let place = LogPlace::new();
    let log = place.open();
    let path = place.file(&file_name(1));
    log.write_now(&[record("one"), record("two")]).unwrap().unwrap();
    log.write([record("three")].into()).await.unwrap();
    assert_eq!(lines(&path).len(), 4, "the end of the process does not take it");
    assert_eq!((log.size(), log.reader().read(0, 10).unwrap().len()), (1, 1), "the end of the machine could");
    log.sync().await.unwrap();
    assert_eq!((log.size(), log.reader().read(0, 10).unwrap().len()), (4, 4));
    // A checkpoint is signed over what is durable, and makes the rest so first.
    log.write_now(&[record("four")]).unwrap().unwrap();
    let newest = LogCheckpoint::verified(&log.checkpoint().await.unwrap(), &mark_key(&place)).unwrap();
    assert_eq!((newest.size, log.size()), (5, 5));
    // Whoever holds the writer is not waited for.
    let held = log.writer.lock().unwrap();
    assert!(log.write_now(&[record("five")]).is_none());
    drop(held);
    // Killed after a write: what was written is there, and its hashes are made again.
    log.write_now(&[record("five")]).unwrap().unwrap();
    drop(log);
    let log = place.open();
    assert_eq!(log.size(), 7, "and what nothing signed spoke for is told");
    log.close().await.unwrap();
    assert!(crate::verify_dir(&place.dir(), &crate::VerifyTrust::default()).unwrap().whole);
}

#[tokio::test]
async fn a_record_says_who_acted_for_whom_and_through_whose_hands() {
    let place = LogPlace::new();
    place.open().append([record("x")].into()).await.unwrap();
    let line = &lines(&place.file(&file_name(1)))[1];
    assert_eq!(
        (&line["tenant"], &line["subject"], &line["user"]),
        (&"acme".into(), &"did:example:bot".into(), &"did:example:ann".into())
    );
    assert_eq!(line["token_id"], "t-2");
    assert_eq!(line["chain"], serde_json::json!([{ "subject": "did:example:ann", "token_id": "t-1" }]));
}

#[tokio::test]
async fn reopening_goes_on_after_the_last_whole_line_with_numbers_and_tree() {
    let place = LogPlace::new();
    let path = place.file(&file_name(1));
    for round in 0..4 {
        let log = place.open();
        // Each crash is told in a record.
        assert_eq!(log.size(), 1 + 3 * round);
        log.append([record_of("a", 0), record_of("b", 1)].into()).await.unwrap();
        // Not closed: what a crash would leave, with half a line after it.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"seq\":9,\"torn\":tr").unwrap();
    }
    let log = place.open();
    let lines = lines(&path);
    let numbers: Vec<_> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..13).collect::<Vec<_>>());
    let turns: Vec<_> =
        lines.iter().filter(|line| line["note"] == "b").map(|line| line["principal_seq"].clone()).collect();
    assert_eq!(turns, [0, 1, 2, 3]);
    let newest = LogCheckpoint::verified(&log.checkpoint().await.unwrap(), &mark_key(&place)).unwrap();
    assert_eq!(newest.size, 13);
    let proof = log.prove(lines[5]["id"].as_str().unwrap()).await.unwrap().unwrap();
    assert_eq!(proof.verify(&mark_key(&place)).unwrap(), newest);
}

#[tokio::test]
async fn the_tree_is_made_again_when_it_is_missing_short_long_or_wrong() {
    let place = LogPlace::new().with_records(&[3, 4]).await;
    let tree = place.file(tree_file::NAME);
    let good = fs::read(&tree).unwrap();
    let root = place.open().checkpoint().await.unwrap();
    let mut wrong = good.clone();
    wrong.fill(7);
    for bad in [Vec::new(), good[..64].to_vec(), [&good[..], &[1; 500]].concat(), wrong] {
        fs::write(&tree, bad).unwrap();
        fs::remove_file(place.file("principals.json")).unwrap();
        let log = place.open();
        assert_eq!(log.checkpoint().await.unwrap(), root);
        assert_eq!(fs::read(&tree).unwrap(), good);
        log.append([].into()).await.unwrap();
        log.writer.lock().unwrap().principals.save(&place.dir(), 0, &crate::merkle::empty_root()).unwrap();
    }
}

#[tokio::test]
async fn a_log_that_disagrees_with_its_checkpoints_is_not_added_to() {
    let place = LogPlace::new().with_records(&[3, 4]).await;
    let (log, notes) = (place.file(&file_name(1)), place.file(checkpoint::NAME));
    let (good, good_notes) = (fs::read_to_string(&log).unwrap(), fs::read_to_string(&notes).unwrap());
    let cut: String = good.lines().take(6).map(|line| format!("{line}\n")).collect();
    let changed = good.replace("\"note\":\"n2\"", "\"note\":\"nX\"");
    let forged = good_notes.replace("\n8\n", "\n7\n");
    for (lines, notes_now, tree) in [
        (&cut, &good_notes, true),
        (&changed, &good_notes, false),
        (&good, &forged, true),
        (&good, &String::new(), true),
    ] {
        fs::write(&log, lines).unwrap();
        fs::write(&notes, notes_now).unwrap();
        if !tree {
            fs::remove_file(place.file(tree_file::NAME)).unwrap();
        }
        assert!(matches!(FileLog::open(&place.dir(), &place.options).unwrap_err(), LogOpenError::Tampered));
    }
    fs::write(&log, &good).unwrap();
    fs::write(&notes, &good_notes).unwrap();
    assert_eq!(place.open().size(), 8);
    fs::remove_file(place.file("log.json")).unwrap();
    assert!(matches!(FileLog::open(&place.dir(), &place.options).unwrap_err(), LogOpenError::Mark));
}

#[tokio::test]
async fn files_from_before_the_numbering_are_kept_and_named_by_the_first_record() {
    let place = LogPlace::new();
    fs::create_dir(place.dir()).unwrap();
    let old = "{\"at\":\"2026-01-01T00:00:00.000Z\",\"action\":\"token_minted\"}\n";
    fs::write(place.file(&file_name(3)), old).unwrap();
    let log = place.open();
    log.append([record("new")].into()).await.unwrap();
    assert_eq!(fs::read_to_string(place.file(&file_name(3))).unwrap(), old);
    let first = &lines(&place.file(&file_name(4)))[0];
    assert_eq!((&first["seq"], &first["before"][0]["name"]), (&0.into(), &"audit-000003.jsonl".into()));
    assert_eq!(first["before"][0]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(log.reader().read(0, 10).unwrap().len(), 2);
    log.close().await.unwrap();
    drop(log);
    assert_eq!(place.open().size(), 2);
}

#[tokio::test]
async fn a_full_file_is_followed_by_the_next_number() {
    let mut place = LogPlace::new();
    place.options.file_bytes_max = 1;
    let log = place.open();
    for note in ["a", "b", "c"] {
        log.append([record(note)].into()).await.unwrap();
    }
    drop(log);
    for (number, note) in [(2, "a"), (3, "b"), (4, "c")] {
        assert_eq!(lines(&place.file(&file_name(number)))[0]["note"], note);
    }
    assert_eq!(place.open().reader().read(0, 10).unwrap().len(), 5, "what was not signed is told in one more");
}

#[tokio::test]
async fn checkpoints_are_signed_by_number_at_the_end_and_never_back_in_time() {
    let mut place = LogPlace::new();
    place.options.checkpoint_records = 3;
    let witness = place.folder.path().join("witness");
    place.options.witness = Some(Arc::new(FileWitness::new(witness.clone())));
    let log = place.open();
    for _ in 0..4 {
        place.clock.0.fetch_sub(3_600_000, Ordering::SeqCst);
        log.append([record("x")].into()).await.unwrap();
    }
    log.close().await.unwrap();
    let text = fs::read_to_string(place.file(checkpoint::NAME)).unwrap();
    let said: Vec<_> =
        notes_in(&text).iter().map(|note| LogCheckpoint::of(&SignedNote::parse(note).unwrap()).unwrap()).collect();
    assert_eq!(said.iter().map(|checkpoint| checkpoint.size).collect::<Vec<_>>(), [1, 4, 5]);
    assert!(said.iter().all(|checkpoint| checkpoint.time.as_deref() == Some("2027-01-15T08:00:00.000Z")));
    assert_eq!(fs::read_to_string(witness).unwrap(), text, "the witness was told all of them");
}

#[tokio::test]
async fn the_key_is_private_and_belongs_to_the_log() {
    let place = LogPlace::new();
    drop(place.open());
    let path = place.options.key_file.clone();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    for bad in ["", "no key"] {
        fs::write(&path, bad).unwrap();
        assert!(matches!(FileLog::open(&place.dir(), &place.options).unwrap_err(), LogOpenError::Key(_)));
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(FileLog::open(&place.dir(), &place.options).unwrap_err(), LogOpenError::Key(None)));
    fs::write(&path, text).unwrap();
    place.open();
}

#[tokio::test]
async fn a_new_key_is_named_under_the_former_one_and_then_signs() {
    let place = LogPlace::new();
    let log = place.open();
    let former = mark_key(&place);
    let new = key(&log.rotate_key().await.unwrap());
    log.append([record("after")].into()).await.unwrap();
    let note = log.checkpoint().await.unwrap();
    assert!(LogCheckpoint::verified(&note, &new).is_ok() && LogCheckpoint::verified(&note, &former).is_err());
    let said = &lines(&place.file(&file_name(1)))[1];
    assert_eq!(
        (said["former_key"].as_str(), said["key"].as_str()),
        (Some(&*former.to_string()), Some(&*new.to_string()))
    );
    drop(log);
    place.open();
    // A crash after the log has said it and before the key took its place.
    let log = place.open();
    let next = key_file::fresh(new.name(), &*place.options.entropy);
    {
        let mut writer = log.writer.lock().unwrap();
        key_file::write(&key_file::next(&place.options.key_file), &next).unwrap();
        let (from, to) = (new.to_string(), next.verifier().to_string());
        let now = place.clock.now();
        writer.append_own(crate::line::OwnWord::KeyChanged { from: &from, to: &to }, now).unwrap();
    }
    drop(log);
    let log = place.open();
    assert!(LogCheckpoint::verified(&log.checkpoint().await.unwrap(), &next.verifier()).is_ok());
    for key in [&former, &new, &next.verifier()] {
        let report =
            crate::verify_dir(&place.dir(), &crate::VerifyTrust { keys: vec![key.clone()], witnessed: Vec::new() });
        assert!(report.as_ref().unwrap().whole, "the former key has signed its successor: {report:?}");
    }
    // And one before the log has said it.
    key_file::write(&key_file::next(&place.options.key_file), &key_file::fresh(new.name(), &*place.options.entropy))
        .unwrap();
    drop(log);
    let log = place.open();
    log.append([record("x")].into()).await.unwrap();
    assert!(LogCheckpoint::verified(&log.checkpoint().await.unwrap(), &next.verifier()).is_ok());
}

#[tokio::test]
async fn what_cannot_be_written_is_taken_back_and_numbered_the_same_again() {
    let place = LogPlace::new();
    let log = place.open();
    log.append([record("one")].into()).await.unwrap();
    {
        // A disk that takes nothing: the file is open for reading only.
        let mut writer = log.writer.lock().unwrap();
        writer.file = Arc::new(fs::File::open(place.file(&file_name(1))).unwrap());
    }
    assert!(log.append([record("two")].into()).await.is_err());
    assert_eq!(log.size(), 2);
    {
        let mut writer = log.writer.lock().unwrap();
        let file = OpenOptions::new().read(true).write(true).open(place.file(&file_name(1))).unwrap();
        writer.file = Arc::new(file);
    }
    log.append([record("two")].into()).await.unwrap();
    let lines = lines(&place.file(&file_name(1)));
    assert_eq!((lines.len(), &lines[2]["seq"], &lines[2]["principal_seq"]), (3, &2.into(), &1.into()));
    assert_eq!(*log.subscribe().borrow(), 3);
}

#[tokio::test]
async fn proofs_are_for_records_of_this_log_only() {
    let place = LogPlace::new().with_records(&[5]).await;
    let log = place.open();
    let id = |seq: u64| format!("{}-{seq}", log.log_id);
    assert!(log.prove(&id(5)).await.unwrap().is_some());
    for unknown in
        [id(6), id(u64::MAX), "x-1".to_owned(), format!("{}-01", log.log_id), log.log_id.clone(), String::new()]
    {
        assert!(log.prove(&unknown).await.unwrap().is_none(), "{unknown}");
        assert!(crate::prove_in(&place.dir(), &unknown).unwrap().is_none(), "{unknown}");
    }
    let proof = crate::prove_in(&place.dir(), &id(3)).unwrap().unwrap();
    let text = serde_json::to_string(&proof).unwrap();
    let back = crate::InclusionProof::parse(&text).unwrap();
    assert!(back.verify(&mark_key(&place)).is_ok());
    assert!(crate::InclusionProof::parse("{}").is_err());
    let other = crate::InclusionProof { record: back.record.replace("n2", "n3"), ..back.clone() };
    assert!(matches!(other.verify(&mark_key(&place)), Err(crate::ProofError::NotIncluded)));
    let other = crate::InclusionProof { index: 2, ..back.clone() };
    assert!(matches!(other.verify(&mark_key(&place)), Err(crate::ProofError::NotIncluded)));
    let other = crate::InclusionProof { checkpoint: back.checkpoint.replace("\n6\n", "\n7\n"), ..back };
    assert!(matches!(other.verify(&mark_key(&place)), Err(crate::ProofError::Checkpoint(_))));
}

#[test]
fn a_file_in_the_directorys_place_is_a_clear_refusal() {
    let place = LogPlace::new();
    fs::write(place.dir(), "x").unwrap();
    let error = FileLog::open(&place.dir(), &place.options).unwrap_err();
    assert!(matches!(error, LogOpenError::Directory(_)));
    assert!(!error.to_string().contains("audit/"));
}

#[tokio::test]
async fn room_that_was_taken_for_the_rest_of_a_file_is_no_part_of_the_log() {
    let mut place = LogPlace::new();
    place.options.file_bytes_max = 3 << 20;
    let (log, note) = (place.open(), "x".repeat(4_000));
    // Past the point from which room is taken, past the end of the first file, and past that point in the second.
    for _ in 0..12 {
        let records: Vec<_> = (0..100).map(|_| record(&note)).collect();
        log.append(records.into()).await.unwrap();
        let newest = place.file(&file_name(*crate::segments::numbers(&place.dir()).unwrap().last().unwrap()));
        assert_eq!(fs::read(newest).unwrap().last(), Some(&b'\n'));
    }
    drop(log);
    assert_eq!(crate::segments::numbers(&place.dir()).unwrap(), [1, 2]);
    let log = place.open();
    assert_eq!(log.size(), 1_202);
    log.append([record("after")].into()).await.unwrap();
    log.close().await.unwrap();
    let report = crate::verify_dir(&place.dir(), &crate::VerifyTrust::default()).unwrap();
    assert!(report.whole && report.records == 1_203, "{:?}", report.faults);
}
