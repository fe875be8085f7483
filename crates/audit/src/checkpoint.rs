//! Checkpoints (C2SP tlog-checkpoint): how large the log was, and its root, signed; and the file of all of them.
//!
//! ```text
//! gantry-audit/7c9d…          whose log
//! 4096                        how many records
//! bFq1…=                      the root of the tree over them
//! time 2027-01-15T08:00:00Z   when it was signed, by the clock of whoever signed
//! mac hmac-sha256-128         every line after it carries a code of this kind (`line_mac`)
//! end                         only of the last one: the server has stopped in order, nothing comes after it
//!
//! — gantry-audit/7c9d… x08go…
//! ```
//!
//! The file `checkpoints` has one note after the other with an empty line between them. It is appended to, and a note that
//! a crash tore is cut off when the log is opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ports::clock::UnixMillis;

use crate::merkle::TreeHash;
use crate::note::{NoteError, NoteKey, NoteSigner, SignedNote};

/// The file's name.
pub(crate) const NAME: &str = "checkpoints";
/// How much of the end of the file is read to find the newest: many notes.
const TAIL_BYTES: u64 = 64 * 1024;
/// How a line with a time begins.
const TIME_HEAD: &str = "time ";
/// The line that says that records after the checkpoint carry codes.
const MAC_LINE: &str = "mac hmac-sha256-128";
/// The line of an orderly end.
const END_LINE: &str = "end";

/// What a checkpoint says. Believed only as far as its note was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCheckpoint {
    pub origin: String,
    pub size: u64,
    pub root: TreeHash,
    /// When it was signed, if it says so.
    pub time: Option<String>,
    /// Whoever signed it writes a code into every record.
    pub has_macs: bool,
    /// It is the last word of a server that has stopped in order.
    pub is_end: bool,
}

impl LogCheckpoint {
    /// The note that says it.
    pub(crate) fn sign(signer: &NoteSigner, size: u64, root: &TreeHash, now: UnixMillis, is_end: bool) -> String {
        let origin = signer.verifier().name().to_owned();
        let end = if is_end { format!("{END_LINE}\n") } else { String::new() };
        let root = STANDARD.encode(root);
        signer.sign(&format!("{origin}\n{size}\n{root}\n{TIME_HEAD}{now}\n{MAC_LINE}\n{end}"))
    }

    /// What a note's text says, without asking who signed it.
    pub fn of(note: &SignedNote) -> Result<Self, NoteError> {
        let mut lines = note.text().lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(NoteError::Malformed);
        };
        let number: u64 = size.parse().map_err(|_| NoteError::Malformed)?;
        let root = STANDARD.decode(root).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(NoteError::Malformed)?;
        // One way to write each number, so that two notes never say the same in two ways.
        if origin.is_empty() || number.to_string() != size {
            return Err(NoteError::Malformed);
        }
        let mut made =
            Self { origin: origin.to_owned(), size: number, root, time: None, has_macs: false, is_end: false };
        for line in lines {
            match line.strip_prefix(TIME_HEAD) {
                Some(time) if made.time.is_none() => made.time = Some(time.to_owned()),
                _ => {
                    made.has_macs |= line == MAC_LINE;
                    made.is_end |= line == END_LINE;
                }
            }
        }
        Ok(made)
    }

    /// What a note says, if this key has signed it and it is about the key's own log.
    pub fn verified(note: &str, key: &NoteKey) -> Result<Self, NoteError> {
        let note = SignedNote::parse(note)?;
        note.verify(key)?;
        let checkpoint = Self::of(&note)?;
        if checkpoint.origin == key.name() { Ok(checkpoint) } else { Err(NoteError::UnknownKey) }
    }
}

/// Takes a file of notes apart. The last one may be torn and is then left out.
pub fn notes_in(text: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let mut rest = text;
    while let Some((body, after)) = rest.split_once("\n\n") {
        let end = after.find("\n\n").map(|at| at + 1).or_else(|| after.ends_with('\n').then_some(after.len()));
        let Some((signatures, next)) = end.and_then(|end| after.split_at_checked(end)) else { break };
        notes.push(format!("{body}\n\n{signatures}"));
        rest = next.strip_prefix('\n').unwrap_or(next);
    }
    notes
}

/// Appends a note to a file of notes.
pub(crate) fn append_note(path: &Path, note: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("{note}\n").as_bytes())?;
    file.sync_data()
}

/// The newest whole note of the log, after cutting off one that is torn.
pub(crate) fn newest(dir: &Path) -> io::Result<Option<String>> {
    let path = dir.join(NAME);
    let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (start, tail) = tail_of(&mut file)?;
    if let Some(whole) = whole_length(&tail) {
        file.set_len(start + whole as u64)?;
    }
    Ok(last_in(&tail))
}

/// The newest whole note of a log that somebody else may be writing.
pub(crate) fn newest_to_read(dir: &Path) -> io::Result<Option<String>> {
    match File::open(dir.join(NAME)) {
        Ok(mut file) => Ok(last_in(&tail_of(&mut file)?.1)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn tail_of(file: &mut File) -> io::Result<(u64, String)> {
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    // The beginning may be in the middle of a letter; a place that moved would cut the wrong bytes off.
    let skip = bytes.iter().position(|byte| byte.is_ascii()).unwrap_or(0);
    let text = String::from_utf8_lossy(bytes.get(skip..).unwrap_or_default()).into_owned();
    Ok((start + skip as u64, text))
}

fn last_in(tail: &str) -> Option<String> {
    // A note is the two last paragraphs; the tail may begin in the middle of one.
    let whole = tail.get(..whole_length(tail).unwrap_or(tail.len()))?.strip_suffix("\n\n")?;
    let mut paragraphs = whole.rsplit("\n\n");
    let (signatures, text) = (paragraphs.next()?, paragraphs.next()?);
    Some(format!("{text}\n\n{signatures}\n"))
}

/// How much of it is whole notes; `None` if all of it is. A note ends with an empty line after its signatures.
fn whole_length(tail: &str) -> Option<usize> {
    let mut end = tail.len();
    loop {
        let part = tail.get(..end)?;
        let at = part.rfind("\n\n")? + 2;
        let last = tail.get(..at)?.strip_suffix("\n\n")?.rsplit("\n\n").next()?;
        if last.starts_with('\u{2014}') {
            return (at < tail.len()).then_some(at);
        }
        end = at - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn note(size: u64) -> String {
        LogCheckpoint::sign(
            &NoteSigner::from_seed("a/log", &[1; 32]),
            size,
            &[9; 32],
            UnixMillis(1_800_000_000_000),
            false,
        )
    }

    #[test]
    fn a_checkpoint_is_what_its_note_says() {
        let key = NoteSigner::from_seed("a/log", &[1; 32]).verifier();
        let checkpoint = LogCheckpoint::verified(&note(7), &key).unwrap();
        assert_eq!((checkpoint.size, checkpoint.root, checkpoint.origin.as_str()), (7, [9; 32], "a/log"));
        assert_eq!(checkpoint.time.as_deref(), Some("2027-01-15T08:00:00.000Z"));
        assert!(checkpoint.has_macs && !checkpoint.is_end);
        let forged = note(7).replace("\n7\n", "\n8\n");
        assert_eq!(LogCheckpoint::verified(&forged, &key), Err(NoteError::WrongSignature));
        let signer = NoteSigner::from_seed("a/log", &[1; 32]);
        let root = STANDARD.encode([9; 32]);
        for text in [
            format!("a/log\n07\n{root}\n"),
            format!("a/log\n7\n{}\n", "AAAA"),
            "a/log\n7\n".to_owned(),
            format!("b/log\n7\n{root}\n"),
        ] {
            assert!(LogCheckpoint::verified(&signer.sign(&text), &key).is_err(), "{text}");
        }
    }

    #[test]
    fn an_orderly_end_is_part_of_what_is_signed() {
        let signer = NoteSigner::from_seed("a/log", &[1; 32]);
        let end = LogCheckpoint::sign(&signer, 7, &[9; 32], UnixMillis(1_800_000_000_000), true);
        assert!(LogCheckpoint::verified(&end, &signer.verifier()).unwrap().is_end);
        let without = end.replace("\nend\n", "\n");
        assert_eq!(LogCheckpoint::verified(&without, &signer.verifier()), Err(NoteError::WrongSignature));
        // As versions signed that had neither.
        let former = signer.sign(&format!("a/log\n7\n{}\ntime t\n", STANDARD.encode([9; 32])));
        let former = LogCheckpoint::verified(&former, &signer.verifier()).unwrap();
        assert!(!former.has_macs && !former.is_end && former.time.as_deref() == Some("t"));
    }

    #[test]
    fn the_newest_is_found_and_a_torn_one_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        assert_eq!(newest(dir.path()).unwrap(), None);
        // Enough that the beginning is not looked at.
        fs::write(&path, format!("{}\n", note(1)).repeat(399)).unwrap();
        let last = note(400);
        append_note(&path, &last).unwrap();
        assert_eq!(newest(dir.path()).unwrap().as_ref(), Some(&last));
        let whole = std::fs::read(&path).unwrap();
        let torn = note(401);
        for cut in [1, 9, 60, 70, torn.len() - 1] {
            let part = &torn.as_bytes()[..cut];
            std::fs::write(&path, [&whole[..], part].concat()).unwrap();
            assert_eq!(newest_to_read(dir.path()).unwrap().as_ref(), Some(&last), "{cut}");
            assert_eq!(newest(dir.path()).unwrap().as_ref(), Some(&last), "{cut}");
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{cut}");
        }
        let all = notes_in(&String::from_utf8(whole).unwrap());
        assert_eq!((all.len(), &all[399]), (400, &last));
        assert_eq!(notes_in(&note(3)), [note(3)], "a single note without the empty line after it");
    }
}
