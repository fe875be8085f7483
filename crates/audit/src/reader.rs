//! Reading the log from a record on: for sinks, queries and proofs.
//!
//! A reader of a running log ([`FileLog::reader`](crate::FileLog::reader)) gives only what is durable, so that no sink
//! learns of a record that a crash then takes back. A reader of a directory that nobody writes gives every whole line.
//!
//! Reading on costs no search: the place after the last batch is remembered.
//!
//! Invariants
//! - READ-1: entries come in the order of their numbers without a gap, or there is an error.
//! - READ-2: a batch has at most as many entries as asked for and about [`BATCH_BYTES_MAX`] bytes.

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::MutexExt as _;

use crate::segments::{self, LogSegment};

/// A batch ends with the line that passes this many bytes.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One record as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its number in the log, from 0.
    pub seq: u64,
    /// The exact line, without the newline: what was hashed.
    pub line: String,
}

/// Reads a log.
#[derive(Debug)]
pub struct LogReader {
    dir: PathBuf,
    /// How many records are durable; without it every whole line is.
    durable: Option<Arc<AtomicU64>>,
    /// Where the last batch ended.
    ended: Mutex<Option<Place>>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    seq: u64,
    number: u64,
    offset: u64,
}

impl LogReader {
    /// Reads the log in `dir`, which nobody needs to be writing.
    pub fn open(dir: &Path) -> io::Result<Self> {
        segments::numbers(dir)?;
        Ok(Self { dir: dir.to_owned(), durable: None, ended: Mutex::new(None) })
    }

    /// Reads a log that is written, no further than `durable` records.
    pub(crate) fn following(dir: PathBuf, durable: Arc<AtomicU64>) -> Self {
        Self { dir, durable: Some(durable), ended: Mutex::new(None) }
    }

    /// The records from number `from_seq` on, at most `max`; none if there are no more yet.
    pub fn read(&self, from_seq: u64, max: usize) -> io::Result<Vec<LogEntry>> {
        let end = self.durable.as_ref().map_or(u64::MAX, |durable| durable.load(Ordering::Acquire));
        let mut entries = Vec::new();
        if from_seq >= end || max == 0 {
            return Ok(entries);
        }
        let mut ended = self.ended.lock_unpoisoned();
        let files = match *ended {
            // The file that was read last, and those after it.
            Some(place) if place.seq == from_seq => self.files_from(place.number)?,
            _ => {
                *ended = None;
                segments::list(&self.dir)?
            }
        };
        let begin = files.iter().rposition(|file| file.first.is_some_and(|first| first <= from_seq));
        let begin = if ended.is_some() { Some(0) } else { begin };
        let Some(begin) = begin else {
            return match files.iter().find_map(|file| file.first) {
                Some(first) if first > from_seq => Err(out_of_place(from_seq)),
                _ => Ok(entries),
            };
        };
        let mut want = Want { next: from_seq, end, max, bytes: 0 };
        for file in files.iter().skip(begin) {
            let start = ended.filter(|place| place.number == file.number).map(|place| place.offset);
            let offset = take(file, start, &mut want, &mut entries)?;
            if want.next > from_seq || ended.is_some() {
                *ended = Some(Place { seq: want.next, number: file.number, offset });
            }
            if want.is_met(entries.len()) {
                break;
            }
        }
        Ok(entries)
    }

    fn files_from(&self, number: u64) -> io::Result<Vec<LogSegment>> {
        let numbers = segments::numbers(&self.dir)?.into_iter().filter(|other| *other >= number);
        Ok(numbers
            .map(|number| LogSegment { number, path: self.dir.join(segments::file_name(number)), first: None })
            .collect())
    }
}

struct Want {
    next: u64,
    end: u64,
    max: usize,
    bytes: usize,
}

impl Want {
    fn is_met(&self, taken: usize) -> bool {
        taken >= self.max || self.next >= self.end || self.bytes >= BATCH_BYTES_MAX
    }
}

/// Takes what is wanted out of one file; answers where it ended.
fn take(segment: &LogSegment, start: Option<u64>, want: &mut Want, entries: &mut Vec<LogEntry>) -> io::Result<u64> {
    let mut file = File::open(&segment.path)?;
    let mut offset = match start {
        Some(offset) => offset,
        None => segments::place(&mut file, want.next)?,
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let mut line = Vec::new();
    while !want.is_met(entries.len()) && segments::next_line(&mut reader, &mut line)? {
        let seq = segments::sequence(&line).ok_or_else(|| out_of_place(want.next))?;
        offset += line.len() as u64 + 1;
        if seq < want.next && start.is_none() && entries.is_empty() {
            continue;
        }
        if seq != want.next {
            return Err(out_of_place(want.next));
        }
        want.next += 1;
        want.bytes = want.bytes.saturating_add(line.len());
        let text = String::from_utf8(std::mem::take(&mut line)).map_err(|_| out_of_place(seq))?;
        entries.push(LogEntry { seq, line: text });
    }
    Ok(offset)
}

fn out_of_place(seq: u64) -> io::Error {
    let message = format!("audit record {seq} is not where it belongs: `gantry audit verify` says more");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::file_name;
    use std::fs;
    use std::io::Write as _;

    fn log(files: &[(u64, u64)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (at, (first, end)) in files.iter().enumerate() {
            let text: String = (*first..*end).map(|n| format!("{{\"seq\":{n},\"id\":\"i-{n}\"}}\n")).collect();
            fs::write(dir.path().join(file_name(at as u64 + 1)), text).unwrap();
        }
        dir
    }

    fn numbers(entries: &[LogEntry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.seq).collect()
    }

    #[test]
    fn records_come_in_order_across_files_from_any_number() {
        let dir = log(&[(0, 3), (3, 4), (4, 4), (4, 9)]);
        let reader = LogReader::open(dir.path()).unwrap();
        for from in 0..10 {
            let expected: Vec<u64> = (from..9).collect();
            assert_eq!(numbers(&reader.read(from, 100).unwrap()), expected, "anew from {from}");
            assert_eq!(numbers(&LogReader::open(dir.path()).unwrap().read(from, 100).unwrap()), expected);
        }
        let mut seen = Vec::new();
        loop {
            let batch = reader.read(seen.len() as u64, 2).unwrap();
            assert!(batch.len() <= 2);
            if batch.is_empty() {
                break;
            }
            seen.extend(numbers(&batch));
        }
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        assert_eq!(reader.read(5, 1).unwrap()[0].line, r#"{"seq":5,"id":"i-5"}"#);
    }

    #[test]
    fn a_torn_line_is_not_there_yet_and_comes_once_it_is_whole() {
        let dir = log(&[(0, 2)]);
        let reader = LogReader::open(dir.path()).unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(dir.path().join(file_name(1))).unwrap();
        file.write_all(b"{\"seq\":2,\"id\"").unwrap();
        assert_eq!(numbers(&reader.read(0, 10).unwrap()), [0, 1]);
        assert!(reader.read(2, 10).unwrap().is_empty());
        file.write_all(b":\"x\"}\n").unwrap();
        assert_eq!(numbers(&reader.read(2, 10).unwrap()), [2]);
        fs::write(dir.path().join(file_name(2)), "{\"seq\":3,\"id\":\"x\"}\n").unwrap();
        assert_eq!(numbers(&reader.read(3, 10).unwrap()), [3], "a file that came later is found");
    }

    #[test]
    fn only_what_is_durable_is_read_from_a_log_that_is_written() {
        let dir = log(&[(0, 5)]);
        let durable = Arc::new(AtomicU64::new(2));
        let reader = LogReader::following(dir.path().to_owned(), Arc::clone(&durable));
        assert_eq!(numbers(&reader.read(0, 10).unwrap()), [0, 1]);
        assert!(reader.read(2, 10).unwrap().is_empty());
        durable.store(5, Ordering::Release);
        assert_eq!(numbers(&reader.read(2, 10).unwrap()), [2, 3, 4]);
    }

    #[test]
    fn a_gap_is_an_error_and_not_skipped() {
        let dir = log(&[(0, 2), (3, 5)]);
        let reader = LogReader::open(dir.path()).unwrap();
        assert!(reader.read(0, 10).is_err());
        assert_eq!(numbers(&reader.read(3, 10).unwrap()), [3, 4]);
        assert!(LogReader::open(&dir.path().join("nowhere")).is_err());
    }
}
