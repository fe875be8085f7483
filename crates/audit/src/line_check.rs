//! The check of the older files of a log after it was opened: slowly, beside the calls.
//!
//! A start reads the newest files only (`inspection`), so that it takes the same time however long the log is. The edge of the
//! tree before them is proven by that. Here the lines before the edge are read and hashed, and must lead to it.
//!
//! Bounds: [`AT_ONCE`] records and one batch of bytes at a time, then a pause as long as [`PAUSE`]. One pass for each start.

use std::sync::Arc;
use std::time::Duration;

use ports::audit_sink::{AuditError, AuditSink as _};

use crate::file_log::{FileLog, blocking};
use crate::line::OwnWord;
use crate::merkle::{TreeFrontier, leaf_hash};
use crate::reader::LogReader;
use crate::tree_file::{LeafReader, TreeFile};

/// Records read at once.
const AT_ONCE: usize = 2_048;
/// After each batch, so that calls have the disk and a core: some ten megabytes in a second are read.
const PAUSE: Duration = Duration::from_millis(50);

/// A record is missing or is not what was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineFault {
    /// It is one of these, the last one too; a single one if the tree file tells which.
    pub first: u64,
    pub last: u64,
}

/// How far the check has come.
#[derive(Debug)]
struct Progress {
    reader: LogReader,
    tree: Arc<TreeFile>,
    leaves: LeafReader,
    /// Where the lines must lead.
    due: TreeFrontier,
    edge: TreeFrontier,
    /// The first line that the tree file knows otherwise.
    suspect: Option<u64>,
}

impl FileLog {
    /// Reads the records that were not read when the log was opened. A fault is written down in the log itself.
    pub async fn check_lines(&self) -> Result<Option<LineFault>, AuditError> {
        let (due, tree) =
            self.with_writer(|writer| Ok((std::mem::take(&mut writer.unread), Arc::clone(&writer.tree)))).await?;
        let (leaves, edge) = (LeafReader::default(), TreeFrontier::default());
        let mut progress = Progress { reader: self.reader(), tree, leaves, due, edge, suspect: None };
        let mut fault = None;
        while fault.is_none() && progress.edge.size() < progress.due.size() {
            if progress.edge.size() > 0 {
                self.clock().sleep(PAUSE).await;
            }
            (progress, fault) = blocking(move || {
                let fault = progress.step()?;
                Ok((progress, fault))
            })
            .await?;
        }
        if let Some(LineFault { first, last }) = fault {
            self.found_fault();
            let now = self.clock().now();
            self.with_writer(move |writer| writer.append_own(OwnWord::FaultFound { first, last }, now)).await?;
            self.sync().await?;
        }
        Ok(fault)
    }
}

impl Progress {
    fn step(&mut self) -> std::io::Result<Option<LineFault>> {
        let (next, end) = (self.edge.size(), self.due.size());
        let most = usize::try_from(end - next).unwrap_or(AT_ONCE).min(AT_ONCE);
        let entries = match self.reader.read(next, most) {
            Ok(entries) if entries.is_empty() => return Ok(Some(LineFault { first: next, last: end - 1 })),
            Ok(entries) => entries,
            // A line is missing, moved or no record; those before it in this batch may be good.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Ok(Some(LineFault { first: next, last: end - 1 }));
            }
            Err(error) => return Err(error),
        };
        for entry in entries {
            let leaf = leaf_hash(entry.line.as_bytes());
            if self.leaves.leaf(&self.tree, entry.seq).is_some_and(|known| known != leaf) {
                self.suspect.get_or_insert(entry.seq);
            }
            self.edge.push(leaf, |_| ());
        }
        Ok((self.edge.size() == end && self.edge != self.due).then(|| {
            let (first, last) = self.suspect.map_or((0, end - 1), |seq| (seq, seq));
            LineFault { first, last }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::segments::file_name;
    use crate::stage::{LogPlace, lines};

    /// Several files, of which a start reads the newest only.
    async fn place() -> LogPlace {
        let mut place = LogPlace::new();
        (place.options.file_bytes_max, place.options.read_bytes_max) = (2_000, 1);
        place.with_records(&[5, 5, 5, 5, 5]).await
    }

    #[tokio::test]
    async fn older_files_are_read_after_the_start_and_a_whole_log_has_no_fault() {
        let place = place().await;
        assert!(lines(&place.file(&file_name(1))).len() > 1);
        let log = place.open();
        assert!(log.with_writer(|writer| Ok(writer.unread.size())).await.unwrap() > 5);
        assert_eq!(log.check_lines().await.unwrap(), None);
        assert!(log.is_whole());
        assert_eq!(log.check_lines().await.unwrap(), None, "there is nothing left to read");
    }

    #[tokio::test]
    async fn a_record_that_was_changed_or_removed_long_ago_is_found_and_written_down() {
        for is_removed in [false, true] {
            let place = place().await;
            let path = place.file(&file_name(1));
            let text = fs::read_to_string(&path).unwrap();
            let changed = if is_removed {
                text.lines().enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| format!("{line}\n")).collect()
            } else {
                text.replacen("\"note\":\"n1\"", "\"note\":\"nX\"", 1)
            };
            fs::write(&path, changed).unwrap();
            let log = place.open();
            let fault = log.check_lines().await.unwrap().unwrap();
            assert!(fault.first <= 2 && 2 <= fault.last, "{fault:?}");
            assert!(is_removed || fault == LineFault { first: 2, last: 2 }, "{fault:?}");
            assert!(!log.is_whole());
            log.close().await.unwrap();
            let newest = *crate::segments::numbers(&place.dir()).unwrap().last().unwrap();
            let last = lines(&place.file(&file_name(newest))).pop().unwrap();
            assert_eq!((&last["action"], &last["first_record"]), (&"log_fault_found".into(), &fault.first.into()));
        }
    }
}
