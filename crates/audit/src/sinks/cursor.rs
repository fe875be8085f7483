//! How far a sink has come: a file of one line, replaced as a whole.
//!
//! The new text is written beside, made durable, and renamed over the old one; then the directory is made durable. So after
//! a crash there is the old position or the new one, and never half of one. A file that cannot be understood is not taken
//! for "nothing delivered yet": that would deliver years of records again, so somebody has to say that it is meant.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Longest cursor file. One is some fifty bytes long.
const FILE_BYTES_MAX: u64 = 4096;

/// Why there is no cursor.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    #[error(
        "the cursor of sink `{sink}` cannot be read or written: check the owner and mode of the `sinks` folder beside the audit files"
    )]
    Io {
        sink: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the cursor of sink `{sink}` is damaged: remove `sinks/{sink}.cursor` beside the audit files to deliver everything again"
    )]
    Damaged { sink: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    sink: String,
    next: u64,
}

/// A sink's position.
#[derive(Debug)]
pub struct SinkCursor {
    dir: PathBuf,
    sink: String,
    /// The first record that was not acknowledged yet; `None`: the sink has never had one.
    next: Option<u64>,
    /// Must it outlive a crash of the machine?
    durable: bool,
}

impl SinkCursor {
    /// Opens the cursor of a sink in `dir`, making the directory if need be. `sink` must be a word: it becomes a file name.
    ///
    /// # Errors
    /// When there is one and it cannot be read or understood.
    pub fn open(dir: &Path, sink: &str) -> Result<Self, CursorError> {
        let failed = |source| CursorError::Io { sink: sink.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let next = Self::peek(dir, sink)?;
        Ok(Self { dir: dir.to_owned(), sink: sink.to_owned(), next, durable: true })
    }

    /// The same for a sink that knows by itself how far it has come and is asked at every start: a crash of the machine may
    /// put the cursor back, so moving it waits for no disk.
    #[must_use]
    pub fn known_elsewhere(self) -> Self {
        Self { durable: false, ..self }
    }

    /// How far the sink has come, without being the one who moves it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn peek(dir: &Path, sink: &str) -> Result<Option<u64>, CursorError> {
        let mut text = String::new();
        let read =
            File::open(path(dir, sink, "cursor")).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => match serde_json::from_str::<Text>(&text) {
                Ok(found) if found.sink == sink => Ok(Some(found.next)),
                _ => Err(CursorError::Damaged { sink: sink.to_owned() }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(CursorError::Damaged { sink: sink.to_owned() })
            }
            Err(source) => Err(CursorError::Io { sink: sink.to_owned(), source }),
        }
    }

    /// The first record that was not acknowledged yet.
    pub fn next(&self) -> u64 {
        self.next.unwrap_or(0)
    }

    /// Has it ever been written?
    pub fn is_new(&self) -> bool {
        self.next.is_none()
    }

    /// Whose it is.
    pub fn sink(&self) -> &str {
        &self.sink
    }

    /// The directory it is in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Moves it, durably unless it is [known elsewhere](Self::known_elsewhere).
    ///
    /// # Errors
    /// When it could not be made durable; it then stands where it stood, or at `next` after a restart.
    pub async fn advance(&mut self, next: u64) -> Result<(), CursorError> {
        let (dir, sink, durable) = (self.dir.clone(), self.sink.clone(), self.durable);
        let written = tokio::task::spawn_blocking(move || {
            let text = serde_json::to_string(&Text { sink: sink.clone(), next })?;
            replace(&dir, &sink, "cursor", &text, durable)
        });
        let written = written.await.unwrap_or_else(|gone| Err(io::Error::other(gone)));
        written.map_err(|source| CursorError::Io { sink: self.sink.clone(), source })?;
        self.next = Some(next);
        Ok(())
    }
}

fn path(dir: &Path, sink: &str, kind: &str) -> PathBuf {
    dir.join(format!("{sink}.{kind}"))
}

/// Puts a new text in place of the old one, as a whole.
pub(super) fn replace(dir: &Path, sink: &str, kind: &str, text: &str, durable: bool) -> io::Result<()> {
    let new = path(dir, sink, &format!("{kind}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&new, path(dir, sink, kind))?;
    if durable {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// A text that [`replace`] has put there.
pub(super) fn text_of(dir: &Path, sink: &str, kind: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path(dir, sink, kind))?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_position_outlives_its_cursor() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("sinks");
        let mut cursor = SinkCursor::open(&place, "siem").unwrap();
        assert!(cursor.is_new() && cursor.next() == 0);
        cursor.advance(7).await.unwrap();
        cursor.advance(9).await.unwrap();
        drop(cursor);
        let cursor = SinkCursor::open(&place, "siem").unwrap();
        assert!(!cursor.is_new() && cursor.next() == 9);
        assert_eq!(SinkCursor::peek(&place, "other").unwrap(), None);
        assert!(!path(&place, "siem", "cursor.new").try_exists().unwrap());
    }

    #[tokio::test]
    async fn a_torn_write_beside_the_cursor_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        SinkCursor::open(dir.path(), "siem").unwrap().advance(7).await.unwrap();
        fs::write(path(dir.path(), "siem", "cursor.new"), "{\"sink\":\"si").unwrap();
        assert_eq!(SinkCursor::open(dir.path(), "siem").unwrap().next(), 7);
    }

    #[test]
    fn what_is_no_cursor_is_not_taken_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        for damage in
            ["", "7", "{\"sink\":\"siem\"}", "{\"sink\":\"other\",\"next\":7}", "{\"sink\":\"siem\",\"next\":-1}"]
        {
            fs::write(path(dir.path(), "siem", "cursor"), damage).unwrap();
            assert!(matches!(SinkCursor::open(dir.path(), "siem"), Err(CursorError::Damaged { .. })), "{damage}");
        }
        fs::write(path(dir.path(), "siem", "cursor"), b"\xff\xfe").unwrap();
        assert!(matches!(SinkCursor::open(dir.path(), "siem"), Err(CursorError::Damaged { .. })));
    }
}
