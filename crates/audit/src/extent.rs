//! How much of each file a copy of the log takes: what the newest checkpoint covers, and nothing after it.
//!
//! The log is only ever appended to, so a copy can be made while somebody writes: what is covered does not change any more,
//! and what is not covered nobody could check. What can be made again (`tree.bin`, `principals.json`) is left out.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::checkpoint::{self, LogCheckpoint, notes_in};
use crate::note::SignedNote;
use crate::{log_mark, segments};

/// So much of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileExtent {
    /// Its name in the directory.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
}

/// What of a log its newest checkpoint covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoveredExtent {
    /// Records.
    pub records: u64,
    pub files: Vec<FileExtent>,
}

/// What a copy of the log in `dir` takes. Nothing, if there is no log or no checkpoint of it yet.
pub fn covered(dir: &Path) -> io::Result<CoveredExtent> {
    // The checkpoints first: the records they cover were there before them.
    let checkpoints = match fs::read(dir.join(checkpoint::NAME)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(CoveredExtent::default()),
        Err(error) => return Err(error),
    };
    let notes = notes_in(&checkpoints);
    let newest =
        notes.last().and_then(|note| SignedNote::parse(note).ok()).and_then(|note| LogCheckpoint::of(&note).ok());
    let Some(newest) = newest else { return Ok(CoveredExtent::default()) };
    let whole: usize = notes.iter().map(|note| note.len() + 1).sum();
    let mut files = vec![
        FileExtent {
            name: log_mark::NAME.to_owned(),
            path: dir.join(log_mark::NAME),
            bytes: bytes_of(dir, log_mark::NAME)?,
        },
        FileExtent {
            name: checkpoint::NAME.to_owned(),
            path: dir.join(checkpoint::NAME),
            // The last note may have no empty line after it yet.
            bytes: (whole as u64).min(checkpoints.len() as u64),
        },
    ];
    let ours = segments::list(dir)?;
    for number in segments::numbers(dir)? {
        let name = segments::file_name(number);
        let path = dir.join(&name);
        let bytes = match ours.iter().find(|segment| segment.number == number) {
            // From before the numbering: never written to again.
            None => bytes_of(dir, &name)?,
            Some(segment) if segment.first.is_none_or(|first| first >= newest.size) => continue,
            Some(_) => end_of(&path, newest.size)?,
        };
        files.push(FileExtent { name, path, bytes });
    }
    Ok(CoveredExtent { records: newest.size, files })
}

/// Where in a file the record `size` would begin, or the file's last whole line ends.
fn end_of(path: &Path, size: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut at = segments::place(&mut file, size)?;
    file.seek(SeekFrom::Start(at))?;
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    while segments::next_line(&mut reader, &mut line)? {
        if segments::sequence(&line).is_some_and(|seq| seq >= size) {
            break;
        }
        at += line.len() as u64 + 1;
    }
    Ok(at)
}

fn bytes_of(dir: &Path, name: &str) -> io::Result<u64> {
    Ok(fs::metadata(dir.join(name))?.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{LogPlace, record_of};
    use crate::{VerifyTrust, verify_dir};
    use ports::audit_sink::AuditSink as _;

    #[tokio::test]
    async fn a_copy_has_what_the_newest_checkpoint_covers_and_is_whole() {
        let place = LogPlace::new().with_records(&[3, 200]).await;
        let before = covered(&place.dir()).unwrap();
        // Nobody has signed these yet.
        let log = place.open();
        let more: Vec<_> = (0..50).map(|at| record_of(&format!("m{at}"), 1)).collect();
        log.append(more.into()).await.unwrap();
        let while_written = covered(&place.dir()).unwrap();
        assert_eq!(
            (while_written.records, before.records),
            (before.records, crate::records_in(&place.dir()).unwrap() - 50)
        );
        let copy = place.folder.path().join("copy");
        fs::create_dir(&copy).unwrap();
        for extent in &while_written.files {
            let bytes = fs::read(&extent.path).unwrap();
            let part = bytes.get(..usize::try_from(extent.bytes).unwrap()).unwrap();
            fs::write(copy.join(&extent.name), part).unwrap();
        }
        let report = verify_dir(&copy, &VerifyTrust::default()).unwrap();
        assert!(report.whole, "{:?}", report.faults);
        assert_eq!((report.records, report.covered), (before.records, before.records));
        log.close().await.unwrap();
    }

    #[test]
    fn where_there_is_no_log_nothing_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(covered(&folder.path().join("none")).unwrap(), CoveredExtent::default());
        assert_eq!(covered(folder.path()).unwrap(), CoveredExtent::default());
    }
}
