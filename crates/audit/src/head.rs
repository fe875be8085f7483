//! How far another log has come, as this one writes it down; and how such words are found again.
//!
//! Instances of one installation each keep a log. Every log now and then has a record with the newest checkpoints of the
//! others (`log_heads_seen`), so a log that was shortened or made anew contradicts all of them, and whoever would hide that has
//! to make every one of them anew.
//!
//! Not here: where instances read each other's checkpoints (`ports::log_heads`), and the judgement (`verify`): what is
//! found here is believed as far as its signature goes, like any other checkpoint that somebody has kept.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::checkpoint::LogCheckpoint;
use crate::export::ExportHead;
use crate::line::HEADS_SEEN;
use crate::log_mark::LogMark;
use crate::note::{NoteError, SignedNote};
use crate::segments::{self, next_line};

/// The newest checkpoint of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    /// Whose log it is.
    pub origin: String,
    /// How many records it covers.
    pub size: u64,
    /// The root over them, in base64.
    pub root: String,
    /// The signed note.
    pub note: String,
}

impl SignedHead {
    /// What a note says, without asking who signed it.
    pub fn of(note: &str) -> Result<Self, NoteError> {
        let checkpoint = LogCheckpoint::of(&SignedNote::parse(note)?)?;
        let root = STANDARD.encode(checkpoint.root);
        Ok(Self { origin: checkpoint.origin, size: checkpoint.size, root, note: note.to_owned() })
    }
}

/// The part of a record that matters here.
#[derive(Deserialize)]
struct Words {
    action: String,
    #[serde(default)]
    heads: Vec<SignedHead>,
}

/// Whose log is in a directory.
pub fn log_of_dir(dir: &Path) -> io::Result<Option<String>> {
    Ok(LogMark::read(dir)?.map(|mark| mark.origin))
}

/// From whose log an export is.
pub fn log_of_export(path: &Path) -> io::Result<Option<String>> {
    let head = segments::first_line(path)?.and_then(|line| ExportHead::parse(&line));
    Ok(head.and_then(|head| SignedHead::of(head.checkpoints.last()?).ok()).map(|head| head.origin))
}

/// The checkpoints of `origin` that another log, in a directory or an export, has written down; as notes, in its order.
pub fn heads_of(origin: &str, other: &Path) -> io::Result<Vec<String>> {
    let mut notes = Vec::new();
    if other.is_dir() {
        for number in segments::numbers(other)? {
            gather(origin, &other.join(segments::file_name(number)), &mut notes)?;
        }
    } else {
        gather(origin, other, &mut notes)?;
    }
    Ok(notes)
}

fn gather(origin: &str, path: &Path, notes: &mut Vec<String>) -> io::Result<()> {
    let (mut reader, mut line) = (BufReader::new(File::open(path)?), Vec::new());
    while next_line(&mut reader, &mut line)? {
        // Few lines are about logs, so the others are not taken apart.
        if !line.windows(HEADS_SEEN.len()).any(|part| part == HEADS_SEEN.as_bytes()) {
            continue;
        }
        let words = serde_json::from_slice::<Words>(&line).ok().filter(|words| words.action == HEADS_SEEN);
        let heads = words.into_iter().flat_map(|words| words.heads);
        notes.extend(heads.filter(|head| head.origin == origin).map(|head| head.note));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::notes_in;
    use crate::stage::LogPlace;
    use crate::verify::{LogFault, VerifyTrust, verify_dir};

    #[tokio::test]
    async fn a_log_that_was_shortened_contradicts_what_another_has_written_down() {
        let (one, other) = (LogPlace::new().with_records(&[3, 4]).await, LogPlace::new().with_records(&[2]).await);
        let head = SignedHead::of(&one.open().checkpoint().await.unwrap()).unwrap();
        assert_eq!(head.size, 8, "the log has begun with a record of its own");
        other.open().bear_witness(vec![head.clone()]).await.unwrap();

        let origin = log_of_dir(&one.dir()).unwrap().unwrap();
        let witnessed = heads_of(&origin, &other.dir()).unwrap();
        assert_eq!(witnessed, [head.note]);
        assert_eq!(heads_of("another", &other.dir()).unwrap(), [""; 0]);
        let trust = VerifyTrust { keys: Vec::new(), witnessed };
        assert!(verify_dir(&one.dir(), &trust).unwrap().whole);
        assert!(verify_dir(&other.dir(), &VerifyTrust::default()).unwrap().whole, "what it wrote down is part of it");

        // Back to its first checkpoint, everything in its directory in step.
        let (lines, checkpoints) = (one.file(&segments::file_name(1)), one.file("checkpoints"));
        let text = std::fs::read_to_string(&lines).unwrap();
        std::fs::write(&lines, text.lines().take(4).flat_map(|line| [line, "\n"]).collect::<String>()).unwrap();
        let first = notes_in(&std::fs::read_to_string(&checkpoints).unwrap()).swap_remove(0);
        std::fs::write(&checkpoints, format!("{first}\n")).unwrap();
        std::fs::remove_file(one.file("principals.json")).unwrap();
        drop(one.open());
        assert!(verify_dir(&one.dir(), &VerifyTrust::default()).unwrap().whole, "by itself it cannot tell");
        let found = verify_dir(&one.dir(), &trust).unwrap().faults;
        assert_eq!(found, [LogFault::RolledBack { records: 5, witnessed: 8 }], "one more tells of the recovery");
    }
}
