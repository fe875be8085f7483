//! The files of the log: `audit-000001.jsonl`, `audit-000002.jsonl`, …, and where in them a record is.
//!
//! Every line begins with its number in the log (`{"seq":41,`), so no index is kept: the file of a record is found by the
//! files' first lines, its place by halving the file. A file whose first line has no number was written before logs were
//! numbered; it is kept, and it is not part of this log.
//!
//! Invariants
//! - SEG-1: a reader never sees part of a line: what has no newline is not there yet.
//!
//! Not here: writing (`file_log`), what the lines prove (`verify`).

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The longest line that is read. A record is far shorter; what is longer is no record.
pub(crate) const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// How every line begins.
const HEAD: &[u8] = b"{\"seq\":";
/// Below this span a file is read on instead of halved.
const HALVING_BYTES_MIN: u64 = 16 * 1024;

/// One file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSegment {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// The number of its first record; none while it is empty.
    pub(crate) first: Option<u64>,
}

/// The name of a file.
pub(crate) fn file_name(number: u64) -> String {
    format!("audit-{number:06}.jsonl")
}

/// The numbers of all files in the directory, those from before the numbering too, in order.
pub(crate) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse::<u64>().ok());
        found.extend(number);
    }
    found.sort_unstable();
    Ok(found)
}

/// The files of this log, in order; those from before the numbering are left out.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<LogSegment>> {
    let mut found = Vec::new();
    for number in numbers(dir)? {
        let path = dir.join(file_name(number));
        match first_line(&path)? {
            None => found.push(LogSegment { number, path, first: None }),
            Some(line) => {
                if let Some(first) = sequence(&line) {
                    found.push(LogSegment { number, path, first: Some(first) });
                }
            }
        }
    }
    Ok(found)
}

/// The number a line begins with.
pub(crate) fn sequence(line: &[u8]) -> Option<u64> {
    let mut number = None;
    for byte in line.strip_prefix(HEAD)? {
        match byte {
            b'0'..=b'9' => {
                number = Some(number.unwrap_or(0_u64).checked_mul(10)?.checked_add(u64::from(byte - b'0'))?);
            }
            b',' => return number,
            _ => return None,
        }
    }
    None
}

/// Reads the next whole line without its newline. `Ok(false)` at the end, or if the last line is not whole.
pub(crate) fn next_line(reader: &mut impl io::BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(true);
    }
    if read as u64 == LINE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an audit line is too long to be a record"));
    }
    Ok(false)
}

/// The first whole line of a file.
pub(crate) fn first_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    Ok(next_line(&mut BufReader::new(File::open(path)?), &mut line)?.then_some(line))
}

/// Where a line begins from which reading on finds record `wanted`, if the file has it.
pub(crate) fn place(file: &mut File, wanted: u64) -> io::Result<u64> {
    let (mut low, mut high) = (0, file.metadata()?.len());
    let mut line = Vec::new();
    while high.saturating_sub(low) > HALVING_BYTES_MIN {
        let middle = low + (high - low) / 2;
        file.seek(SeekFrom::Start(middle))?;
        let mut reader = BufReader::with_capacity(4096, &*file);
        let skipped = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
        let start = middle + skipped;
        let whole = next_line(&mut reader, &mut line)?;
        match sequence(&line).filter(|_| whole) {
            Some(seq) if seq <= wanted && start < high => low = start,
            _ => high = middle,
        }
        line.clear();
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_its_number_or_none() {
        let cases: &[(&str, Option<u64>)] = &[
            (r#"{"seq":0,"id":"x"}"#, Some(0)),
            (r#"{"seq":18446744073709551615,"#, Some(u64::MAX)),
            (r#"{"seq":18446744073709551616,"#, None),
            (r#"{"seq":,"#, None),
            (r#"{"seq":1"#, None),
            (r#"{"seq":-1,"#, None),
            (r#"{"at":"2027-01-15T08:00:00.000Z"}"#, None),
            ("", None),
        ];
        for (line, number) in cases {
            assert_eq!(sequence(line.as_bytes()), *number, "{line}");
        }
    }

    #[test]
    fn every_record_of_a_long_file_is_found_by_halving() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file_name(1));
        let text: String =
            (100..5_100).map(|n| format!("{{\"seq\":{n},\"x\":\"{}\"}}\n", "y".repeat(n % 90))).collect();
        fs::write(&path, text).unwrap();
        let mut file = File::open(&path).unwrap();
        for wanted in [100, 101, 2_047, 3_333, 5_099] {
            let at = place(&mut file, wanted).unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            let mut reader = BufReader::new(&file);
            let mut line = Vec::new();
            let mut steps = 0;
            while next_line(&mut reader, &mut line).unwrap() && sequence(&line) != Some(wanted) {
                steps += 1;
            }
            assert_eq!(sequence(&line), Some(wanted));
            assert!(steps < 1_000, "{wanted} took {steps} lines");
        }
    }

    #[test]
    fn files_from_before_the_numbering_are_no_part_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(file_name(1)), "{\"at\":\"x\"}\n").unwrap();
        fs::write(dir.path().join(file_name(2)), "{\"seq\":0,\"id\":\"x\"}\n").unwrap();
        fs::write(dir.path().join(file_name(3)), "").unwrap();
        fs::write(dir.path().join("other"), "").unwrap();
        let found: Vec<_> = list(dir.path()).unwrap().into_iter().map(|file| (file.number, file.first)).collect();
        assert_eq!(found, [(2, Some(0)), (3, None)]);
        assert_eq!(numbers(dir.path()).unwrap(), [1, 2, 3]);
    }
}
