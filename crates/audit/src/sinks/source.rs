//! Where couriers read from: the log, by sequence number.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::reader::{LogEntry, LogReader};
use crate::segments;

/// How much of the end of a file is looked at for its last line at first; twice as much the next time.
const TAIL_BYTES: u64 = 16 * 1024;

/// Reads records that are durable. Blocking: couriers call it where blocking is allowed.
pub trait RecordSource: Send + Sync + fmt::Debug {
    /// Up to `max` records from `from` on, in order and without a gap. Empty at the end of the log.
    ///
    /// # Errors
    /// When the log cannot be read, or has a record that is none.
    fn read(&self, from: u64, max: usize) -> io::Result<Vec<LogEntry>>;

    /// How many records the log has, which is the number the next one gets.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn end(&self) -> io::Result<u64>;
}

/// The log in a directory.
#[derive(Debug)]
pub struct LogSource {
    dir: PathBuf,
    reader: LogReader,
}

impl LogSource {
    /// Reads the log in `dir`, which nobody writes.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self::following(dir, LogReader::open(dir)?))
    }

    /// Reads the log in `dir` through a reader that knows what of it is durable. What a crash may take back must not have
    /// been delivered: another record would get its number, and that one would never be.
    pub fn following(dir: &Path, reader: LogReader) -> Self {
        Self { dir: dir.to_owned(), reader }
    }
}

impl RecordSource for LogSource {
    fn read(&self, from: u64, max: usize) -> io::Result<Vec<LogEntry>> {
        self.reader.read(from, max)
    }

    fn end(&self) -> io::Result<u64> {
        for number in segments::numbers(&self.dir)?.into_iter().rev() {
            if let Some(seq) = last_sequence(&self.dir.join(segments::file_name(number)))? {
                return Ok(seq.saturating_add(1));
            }
        }
        Ok(0)
    }
}

/// The number of a file's last whole line; none of an empty file, nor of one from before the lines were numbered.
fn last_sequence(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut tail_bytes = TAIL_BYTES;
    loop {
        let start = length.saturating_sub(tail_bytes);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        (&mut file).take(length - start).read_to_end(&mut tail)?;
        // What follows the last newline is not there yet.
        let mut lines = tail.rsplit(|byte| *byte == b'\n').skip(1);
        let (last, before) = (lines.next(), lines.next());
        if let Some(last) = last.filter(|_| before.is_some() || start == 0) {
            return Ok(segments::sequence(last));
        }
        if start == 0 {
            return Ok(None);
        }
        tail_bytes = tail_bytes.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_end_is_after_the_last_whole_line_however_long_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let write = |number: u64, text: &str| fs::write(dir.path().join(segments::file_name(number)), text).unwrap();
        let source = LogSource::open(dir.path()).unwrap();
        assert_eq!(source.end().unwrap(), 0);
        write(1, "{\"seq\":0,}\n{\"seq\":1,}\n{\"seq\":2,");
        assert_eq!(source.end().unwrap(), 2);
        let long = format!("{{\"seq\":2,\"note\":\"{}\"}}\n", "x".repeat(100_000));
        write(2, &long);
        assert_eq!(source.end().unwrap(), 3);
        write(2, &format!("{long}{{\"seq\":3,}}\n{}", "y".repeat(40_000)));
        assert_eq!(source.end().unwrap(), 4);
        write(3, "");
        assert_eq!(source.end().unwrap(), 4);
    }
}
