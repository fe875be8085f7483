//! Whatever moment a process is killed at, the log opens again with every record it had written; and what it has not written is
//! refused, however it got there.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;
use crate::checkpoint::notes_in;
use crate::merkle::{TreeFrontier, leaf_hash};
use crate::segments::file_name;
use crate::stage::{LogPlace, lines, record};
use crate::{LogFault, VerifyTrust, quarantine, verify_dir};

fn now() -> UnixMillis {
    UnixMillis(1_800_000_000_000)
}

fn opened(place: &LogPlace) -> LogWriter {
    open(&place.dir(), &place.options).unwrap()
}

fn write(writer: &mut LogWriter, notes: &[&str]) {
    let records: Vec<_> = notes.iter().map(|note| record(note)).collect();
    writer.append(&records).unwrap();
}

fn refused(place: &LogPlace) -> LogOpenError {
    open(&place.dir(), &place.options).unwrap_err()
}

fn append(place: &LogPlace, number: u64, text: &str) {
    let path = place.file(&file_name(number));
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn text(place: &LogPlace) -> String {
    fs::read_to_string(place.file(&file_name(1))).unwrap()
}

fn actions(place: &LogPlace) -> Vec<String> {
    lines(&place.file(&file_name(1))).iter().map(|line| line["action"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_stop_that_is_killed_while_it_signs_is_a_crash_and_no_lockout() {
    let place = LogPlace::new();
    let mut writer = opened(&place);
    write(&mut writer, &["one", "two"]);
    writer.close(now()).unwrap();
    let (whole, log) = (fs::read(place.file(checkpoint::NAME)).unwrap(), text(&place));
    let notes = notes_in(std::str::from_utf8(&whole).unwrap());
    let before = whole.len() - notes.last().unwrap().len() - 1;
    for cut in before..=whole.len() {
        fs::write(place.file(checkpoint::NAME), &whole[..cut]).unwrap();
        fs::write(place.file(&file_name(1)), &log).unwrap();
        let writer = opened(&place);
        let is_end = cut == whole.len();
        assert_eq!(writer.size(), if is_end { 3 } else { 4 }, "cut at {cut}: only a crash is worth a record");
        assert!(!writer.is_ended);
    }
}

#[test]
fn an_end_is_taken_back_durably_before_the_first_record_after_it() {
    let place = LogPlace::new();
    let mut writer = opened(&place);
    writer.close(now()).unwrap();
    // Somebody still has something to say after the end.
    write(&mut writer, &["late"]);
    drop(writer);
    // And a start that is killed before, while and after it has said something.
    drop(opened(&place));
    let mut writer = opened(&place);
    write(&mut writer, &["x"]);
    drop(writer);
    let mut writer = opened(&place);
    writer.close(now()).unwrap();
    writer.close(now()).unwrap();
    let told =
        [actions(&place)[0].as_str(), "invocation_finished", "log_recovered", "invocation_finished", "log_recovered"]
            .map(str::to_owned);
    assert_eq!(actions(&place), told);
    let report = verify_dir(&place.dir(), &VerifyTrust::default()).unwrap();
    assert!(report.whole && report.unsigned == 0, "{:?}", report.faults);
    let ranges: Vec<_> = report.recovered.iter().map(|range| (range.first, range.last, range.told_by)).collect();
    assert_eq!(ranges, [(1, 1, 2), (3, 3, 4)]);
}

#[test]
fn lines_of_somebody_else_are_refused_wherever_they_stand_after_the_end() {
    for is_orderly in [true, false] {
        let place = LogPlace::new();
        let mut writer = opened(&place);
        write(&mut writer, &["one", "two"]);
        if is_orderly {
            writer.close(now()).unwrap();
        }
        drop(writer);
        let good = text(&place);
        let last = good.lines().last().unwrap();
        let next = last.replacen("{\"seq\":2,", "{\"seq\":3,", 1);
        let without = format!("{}}}", next.split(",\"mac\"").next().unwrap());
        let two = format!("{next}\n{next}");
        for (number, foreign, count) in [
            (1, last, 1),
            (1, next.as_str(), 1),
            (1, without.as_str(), 1),
            (1, two.as_str(), 2),
            (1, "no record", 1),
            (1, "{\"seq\":99,\"id\":\"x\"}", 1),
            (2, next.as_str(), 1),
            (2, "no record", 1),
        ] {
            append(&place, number, &format!("{foreign}\n"));
            let before = (text(&place), fs::read(place.file(checkpoint::NAME)).unwrap());
            match refused(&place) {
                LogOpenError::Foreign { lines, records } => assert_eq!((lines, records), (count, 3), "{foreign}"),
                other => panic!("{foreign}: {other}"),
            }
            assert_eq!((text(&place), fs::read(place.file(checkpoint::NAME)).unwrap()), before, "nothing is changed");
            fs::write(place.file(&file_name(1)), &good).unwrap();
            let _ = fs::remove_file(place.file(&file_name(2)));
        }
        // Half a line is what a crash leaves, but nothing is left after an end.
        append(&place, 1, "{\"seq\":3,\"ac");
        let report = verify_dir(&place.dir(), &VerifyTrust::default()).unwrap();
        assert_eq!(report.whole, !is_orderly, "a check judges as a start does: {:?}", report.faults);
        assert_eq!(report.faults.contains(&LogFault::HalfAfterEnd { records: 3 }), is_orderly);
        assert_eq!(open(&place.dir(), &place.options).is_err(), is_orderly);
    }
}

#[test]
fn a_genuine_line_of_another_history_does_not_fit_here() {
    let place = LogPlace::new();
    drop(opened(&place));
    let (log, notes) = (text(&place), fs::read(place.file(checkpoint::NAME)).unwrap());
    let mut tails = Vec::new();
    for name in ["first", "second"] {
        fs::write(place.file(&file_name(1)), &log).unwrap();
        fs::write(place.file(checkpoint::NAME), &notes).unwrap();
        let mut writer = opened(&place);
        write(&mut writer, &[name, name]);
        tails.push(text(&place).lines().skip(1).map(str::to_owned).collect::<Vec<_>>());
    }
    // Both were written with the key, under the same numbers, after a log that somebody had put back.
    fs::write(place.file(&file_name(1)), format!("{log}{}\n{}\n", tails[0][0], tails[1][1])).unwrap();
    fs::write(place.file(checkpoint::NAME), &notes).unwrap();
    assert!(matches!(refused(&place), LogOpenError::Foreign { lines: 1, records: 2 }));
    fs::write(place.file(&file_name(1)), format!("{log}{}\n{}\n", tails[0][0], tails[0][1])).unwrap();
    assert_eq!(opened(&place).size(), 4);
}

#[test]
fn the_tail_of_a_version_without_codes_is_taken_once_and_nothing_without_one_after_that() {
    let place = LogPlace::new();
    drop(opened(&place));
    // As that version left it: no codes in the lines, none promised by the checkpoint.
    let strip = |line: &str| format!("{}}}\n", line.split(",\"mac\"").next().unwrap());
    let first = strip(text(&place).lines().next().unwrap());
    let mut frontier = TreeFrontier::default();
    frontier.push(leaf_hash(first.trim_end().as_bytes()), |_| ());
    let signer = key_file::read(&place.options.key_file).unwrap().unwrap();
    let (origin, root) = (signer.verifier().name().to_owned(), STANDARD.encode(frontier.root()));
    let note = signer.sign(&format!("{origin}\n1\n{root}\ntime t\n"));
    fs::write(place.file(checkpoint::NAME), format!("{note}\n")).unwrap();
    let id = origin.rsplit('/').next().unwrap();
    let tail = format!("{{\"seq\":1,\"id\":\"{id}-1\",\"at\":\"t\",\"action\":\"tool_registered\"}}\n");
    fs::write(place.file(&file_name(1)), format!("{first}{tail}")).unwrap();
    let writer = opened(&place);
    assert_eq!((writer.size(), actions(&place).last().unwrap().as_str()), (3, RECOVERED_ACTION));
    drop(writer);
    append(&place, 1, &tail.replace("\"seq\":1", "\"seq\":3"));
    assert!(matches!(refused(&place), LogOpenError::Foreign { lines: 1, records: 3 }));
}

const RECOVERED_ACTION: &str = crate::line::RECOVERED;

#[test]
fn what_is_set_aside_is_kept_and_named_whatever_moment_that_is_interrupted_at() {
    let place = LogPlace::new();
    let mut writer = opened(&place);
    write(&mut writer, &["one"]);
    writer.close(now()).unwrap();
    let good = text(&place);
    append(&place, 1, "foreign\n");
    append(&place, 2, "more\n");
    // Killed after the copy was made, and then after one of two files was taken away.
    fs::write(place.file("quarantine-000001.pending"), "foreign\nmore\n").unwrap();
    assert!(matches!(refused(&place), LogOpenError::Foreign { lines: 2, .. }));
    fs::remove_file(place.file(&file_name(2))).unwrap();
    assert!(matches!(refused(&place), LogOpenError::Foreign { lines: 1, .. }));
    assert_eq!(quarantine::set_aside(&place.dir(), &place.options).unwrap(), Some(1));
    assert_eq!(text(&place), good);
    let mut writer = opened(&place);
    writer.close(now()).unwrap();
    drop(writer);
    assert_eq!(fs::read_to_string(place.file("quarantine-000001.jsonl")).unwrap(), "foreign\nmore\n");
    assert_eq!(fs::read_to_string(place.file("quarantine-000002.jsonl")).unwrap(), "foreign\n");
    assert_eq!(actions(&place)[2..], ["log_tail_set_aside", "log_tail_set_aside"]);
    drop(opened(&place));
    assert_eq!(actions(&place).len(), 4, "each is named once");
    assert_eq!(quarantine::set_aside(&place.dir(), &place.options).unwrap(), None);
    assert!(verify_dir(&place.dir(), &VerifyTrust::default()).unwrap().whole);
}

#[test]
fn a_key_that_names_itself_the_next_one_is_not_used() {
    let place = LogPlace::new();
    let mut writer = opened(&place);
    let former = writer.signer.verifier().to_string();
    writer.close(now()).unwrap();
    let (log, id) = (text(&place), writer.mark.id.clone());
    drop(writer);
    let forger = NoteSigner::from_seed(&format!("gantry-audit/{id}"), &[66; 32]);
    let line = format!(
        "{{\"seq\":1,\"id\":\"{id}-1\",\"at\":\"t\",\"action\":\"log_key_changed\",\"former_key\":\"{former}\",\"key\":\"{}\"}}\n",
        forger.verifier()
    );
    append(&place, 1, &line);
    let own = fs::read(&place.options.key_file).unwrap();
    key_file::write(&key_file::next(&place.options.key_file), &forger).unwrap();
    assert!(matches!(refused(&place), LogOpenError::Foreign { .. }));
    assert_eq!(fs::read(&place.options.key_file).unwrap(), own);
    // In the place of the key itself it fares no better.
    key_file::promote(&place.options.key_file).unwrap();
    assert!(matches!(refused(&place), LogOpenError::Tampered));
    fs::write(&place.options.key_file, own).unwrap();
    fs::write(place.file(&file_name(1)), log).unwrap();
    assert_eq!(opened(&place).size(), 1);
}

/// What a process does before it is killed.
#[derive(Debug, Clone)]
enum Deed {
    Write(u8),
    Sync,
    Sign,
    Close,
}

fn deeds() -> impl Strategy<Value = Vec<(Vec<Deed>, u16)>> {
    let deed = prop_oneof![
        (1..4_u8).prop_map(Deed::Write),
        (1..4_u8).prop_map(Deed::Write),
        Just(Deed::Sync),
        Just(Deed::Sign),
        Just(Deed::Close)
    ];
    // What one process does, and how much of the end of the file goes with it.
    proptest::collection::vec((proptest::collection::vec(deed, 0..6), 0..1_500_u16), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_process_that_is_killed_at_any_moment_leaves_a_log_that_opens_and_is_whole(lives in deeds()) {
        let place = LogPlace::new();
        for (deeds, torn) in lives {
            let mut writer = opened(&place);
            let mut safe = writer.bytes;
            for deed in deeds {
                match deed {
                    Deed::Write(count) => write(&mut writer, &vec!["x"; usize::from(count)]),
                    Deed::Sync => writer.sync().unwrap(),
                    Deed::Sign => drop(writer.checkpoint(now()).unwrap()),
                    Deed::Close => writer.close(now()).unwrap(),
                }
                if !matches!(deed, Deed::Write(_)) {
                    safe = writer.bytes;
                }
            }
            // The end of the machine takes what was not synced, or a part of it.
            let left = writer.bytes.saturating_sub(u64::from(torn)).max(safe);
            drop(writer);
            OpenOptions::new().write(true).open(place.file(&file_name(1))).unwrap().set_len(left).unwrap();
        }
        opened(&place).close(now()).unwrap();
        let report = verify_dir(&place.dir(), &VerifyTrust::default()).unwrap();
        prop_assert!(report.whole && report.unsigned == 0, "{:?}", report.faults);
    }
}
