//! Rotation, compression, retention and torn lines; that events arrive at all is the suite's.

use std::io::Read as _;

use flate2::read::GzDecoder;

use super::*;
use crate::conformance::{MemorySource, QuickClock};

fn events(count: usize) -> Vec<SinkEvent> {
    let source = MemorySource::default();
    source.append(count, |seq| format!("note {seq}"));
    source.events()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = files(dir).unwrap().into_iter().map(|(_, name)| name).collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = File::open(path).unwrap();
    match path.extension().unwrap().to_str() {
        Some("gz") => GzDecoder::new(file).read_to_string(&mut text).unwrap(),
        _ => io::BufReader::new(file).read_to_string(&mut text).unwrap(),
    };
    text
}

#[tokio::test]
async fn a_full_file_is_closed_compressed_and_followed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let sink = FileSink::new(
        dir.path().join("out"),
        FileRotation { bytes: 1, ..FileRotation::default() },
        Arc::new(QuickClock::default()),
    );
    let events = events(3);
    for event in &events {
        sink.deliver(std::slice::from_ref(event)).await.unwrap();
    }
    let dir = dir.path().join("out");
    assert_eq!(names(&dir), ["events-000001.jsonl.gz", "events-000002.jsonl.gz", "events-000003.jsonl"]);
    for (name, event) in names(&dir).iter().zip(&events) {
        assert_eq!(text(&dir.join(name)), format!("{}\n", event.json()));
    }
}

#[tokio::test]
async fn an_old_file_is_closed_also_when_nothing_comes() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(QuickClock::default());
    let rotation = FileRotation { age: Duration::from_secs(60), compress: false, ..FileRotation::default() };
    let sink = FileSink::new(dir.path().to_owned(), rotation, Arc::clone(&clock) as _);
    sink.tend().await;
    sink.deliver(&events(1)).await.unwrap();
    clock.0.store(59_000, std::sync::atomic::Ordering::Relaxed);
    sink.tend().await;
    assert_eq!(names(dir.path()), ["events-000001.jsonl"]);
    clock.0.store(60_000, std::sync::atomic::Ordering::Relaxed);
    sink.tend().await;
    sink.tend().await;
    assert_eq!(names(dir.path()), ["events-000001.jsonl", "events-000002.jsonl"], "an empty file is never closed");
}

#[tokio::test]
async fn closed_files_go_by_number_and_by_age_and_the_newest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(QuickClock::default());
    let deliver = async |rotation: FileRotation, times: usize| {
        let sink = FileSink::new(dir.path().to_owned(), rotation, Arc::clone(&clock) as _);
        for _ in 0..times {
            sink.deliver(&events(1)).await.unwrap();
        }
    };
    deliver(FileRotation { bytes: 1, keep_files: Some(2), ..FileRotation::default() }, 6).await;
    assert_eq!(names(dir.path()), ["events-000004.jsonl.gz", "events-000005.jsonl.gz", "events-000006.jsonl"]);
    let far = millis(SystemTime::UNIX_EPOCH + Duration::from_secs(200 * 365 * 24 * 3600));
    clock.0.store(far.0, std::sync::atomic::Ordering::Relaxed);
    let year = Duration::from_secs(365 * 24 * 3600);
    deliver(FileRotation { bytes: 1, keep_for: Some(year), ..FileRotation::default() }, 1).await;
    assert_eq!(names(dir.path()), ["events-000007.jsonl"]);
}

#[tokio::test]
async fn what_a_crash_left_is_mended_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let events = events(3);
    fs::write(at("events-000001.jsonl"), format!("{}\n", events[0].json())).unwrap();
    fs::write(at("events-000001.jsonl.gz.new"), "half").unwrap();
    fs::write(at("events-000002.jsonl"), format!("{}\n{{\"torn\":tr", events[1].json())).unwrap();
    fs::write(at("of-somebody-else.jsonl"), "x").unwrap();
    let sink = FileSink::new(dir.path().to_owned(), FileRotation::default(), Arc::new(QuickClock::default()));
    sink.deliver(&events[2..]).await.unwrap();
    assert_eq!(names(dir.path()), ["events-000001.jsonl.gz", "events-000002.jsonl"]);
    assert_eq!(text(&at("events-000001.jsonl.gz")), format!("{}\n", events[0].json()));
    assert_eq!(text(&at("events-000002.jsonl")), format!("{}\n{}\n", events[1].json(), events[2].json()));
    assert!(at("of-somebody-else.jsonl").try_exists().unwrap());
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_a_failure_that_passes() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("out");
    fs::write(&place, "a file").unwrap();
    let sink = FileSink::new(place.clone(), FileRotation::default(), Arc::new(QuickClock::default()));
    let error = sink.deliver(&events(1)).await.unwrap_err();
    assert!(matches!(error.verdict, crate::sinks::BatchVerdict::Later { .. }) && error.acknowledged == 0);
    fs::remove_file(&place).unwrap();
    sink.deliver(&events(1)).await.unwrap();
    assert_eq!(names(&place), ["events-000001.jsonl"]);
}
