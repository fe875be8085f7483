//! Whom to believe: the keys handed in, and those that the log names under them.
//!
//! A new key is believed once a record that names it is covered by a checkpoint of a key that is. A former key is believed
//! about the checkpoints before the rotation, if the record that names it is covered by a believed one: whoever has only
//! the newest key can check the whole log.

use crate::checkpoint::LogCheckpoint;
use crate::note::{NoteError, NoteKey, SignedNote};

use super::{LogFault, VerifyTrust};

/// A checkpoint that waits for its number of records.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) checkpoint: LogCheckpoint,
    note: SignedNote,
    /// The how-manieth it was: of one size, the first is asked first.
    order: usize,
    /// Kept by somebody else.
    pub(super) is_witnessed: bool,
}

/// Keys and checkpoints.
#[derive(Debug)]
pub(super) struct Signatures {
    pub(super) keys: Vec<NoteKey>,
    pub(super) key_given: bool,
    /// By size, the largest first: the next one is the last.
    due: Vec<Due>,
    /// Keys that a record has named and no believed checkpoint has covered yet.
    named: Vec<NoteKey>,
    /// Checkpoints that led to the right root under a key that nobody has vouched for yet.
    doubtful: Vec<Due>,
    pub(super) faults: Vec<LogFault>,
}

impl Signatures {
    pub(super) fn new(trust: &VerifyTrust, own_key: Option<&str>) -> Self {
        let own = own_key.and_then(|key| key.parse().ok());
        let keys = if trust.keys.is_empty() { own.into_iter().collect() } else { trust.keys.clone() };
        let mut made = Self {
            keys,
            key_given: !trust.keys.is_empty(),
            due: Vec::new(),
            named: Vec::new(),
            doubtful: Vec::new(),
            faults: Vec::new(),
        };
        made.take(&trust.witnessed, true);
        made
    }

    /// The log's own checkpoints.
    pub(super) fn own(&mut self, notes: &[String]) {
        self.take(notes, false);
    }

    fn take(&mut self, notes: &[String], is_witnessed: bool) {
        for text in notes {
            let parsed = SignedNote::parse(text).and_then(|note| Ok((LogCheckpoint::of(&note)?, note)));
            match parsed {
                Ok((checkpoint, note)) => {
                    let order = self.due.len();
                    self.due.push(Due { checkpoint, note, order, is_witnessed });
                }
                Err(error) => self.faults.push(LogFault::ForgedCheckpoint { size: None, why: error.to_string() }),
            }
        }
        self.due.sort_by_key(|due| std::cmp::Reverse((due.checkpoint.size, due.order)));
    }

    /// The checkpoint of exactly this many records, if one is due; those of fewer are passed.
    pub(super) fn due_at(&mut self, size: u64) -> Option<Due> {
        while self.due.last().is_some_and(|due| due.checkpoint.size < size) {
            self.due.pop();
        }
        if self.due.last()?.checkpoint.size == size { self.due.pop() } else { None }
    }

    /// How many records the next checkpoint covers.
    pub(super) fn next_size(&self) -> Option<u64> {
        self.due.last().map(|due| due.checkpoint.size)
    }

    /// What is left at the end: checkpoints of more records than there are.
    pub(super) fn rest(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.due)
    }

    /// A record names a new key and the one it follows.
    pub(super) fn name(&mut self, keys: [Option<&str>; 2]) {
        self.named.extend(keys.into_iter().flatten().filter_map(|key| key.parse().ok()));
    }

    /// Is it signed by somebody who is believed? Then the keys named before it are believed too.
    pub(super) fn believe(&mut self, due: &Due) -> Result<(), NoteError> {
        let mut why = NoteError::UnknownKey;
        for key in &self.keys {
            match due.note.verify(key) {
                Ok(()) if due.checkpoint.origin == key.name() => {
                    for key in self.named.drain(..) {
                        if !self.keys.contains(&key) {
                            self.keys.push(key);
                        }
                    }
                    return Ok(());
                }
                Ok(()) => {}
                Err(error) => why = if error == NoteError::WrongSignature { error } else { why },
            }
        }
        Err(why)
    }

    /// It leads to the right root, but nobody vouches for its key so far.
    pub(super) fn doubt(&mut self, due: Due) {
        self.doubtful.push(due);
    }

    /// At the end: the doubtful checkpoints under all keys that are believed by now. Answers how many are good.
    pub(super) fn settle(&mut self) -> u64 {
        let mut good = 0;
        for due in std::mem::take(&mut self.doubtful) {
            match self.believe(&due) {
                Ok(()) => good += 1,
                Err(error) => self.faults.push(forged(&due, error)),
            }
        }
        good
    }
}

/// The fault of a checkpoint that is not to be believed.
pub(super) fn forged(due: &Due, why: NoteError) -> LogFault {
    LogFault::ForgedCheckpoint { size: Some(due.checkpoint.size), why: why.to_string() }
}
