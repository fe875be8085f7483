//! Lines of a log by the batch, read and hashed on all cores: what costs most in a check needs no order. What is found is
//! handed on in order.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::thread;

use serde::Deserialize;

use crate::merkle::{TreeHash, leaf_hash};
use crate::segments;

/// A batch ends with the line that passes this many bytes.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// Most threads that read at once.
const HANDS_MAX: usize = 8;
/// Fewer lines than this are not worth a thread.
const SHARE_MIN: usize = 64;

/// What is read of a line. Borrowed where nothing is escaped.
#[derive(Deserialize)]
pub(super) struct Facts<'a> {
    #[serde(borrow)]
    pub(super) at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) tenant: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) subject: Option<Cow<'a, str>>,
    pub(super) principal_seq: Option<u64>,
    #[serde(default)]
    pub(super) principal_era: u64,
    #[serde(borrow)]
    pub(super) action: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) former_key: Option<Cow<'a, str>>,
    pub(super) first_record: Option<u64>,
    pub(super) last_record: Option<u64>,
}

/// A line, looked at.
pub(super) struct Looked<'a> {
    /// Its number and what it says; nothing if it is no record.
    pub(super) record: Option<(u64, Facts<'a>)>,
    pub(super) leaf: TreeHash,
}

impl<'a> Looked<'a> {
    fn at(line: &'a [u8]) -> Self {
        let record = segments::sequence(line).zip(serde_json::from_slice(line).ok());
        Self { record, leaf: leaf_hash(line) }
    }
}

/// A batch of lines. The room is used again.
#[derive(Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
    /// The line that is being read.
    last: Vec<u8>,
    torn: bool,
}

impl Lines {
    /// Reads the next batch; `false` if there is none.
    pub(super) fn read(&mut self, reader: &mut impl BufRead) -> io::Result<bool> {
        self.bytes.clear();
        self.ends.clear();
        while self.bytes.len() < BATCH_BYTES {
            if !segments::next_line(reader, &mut self.last)? {
                // What is left of it is gone with the next look.
                self.torn |= !self.last.is_empty();
                break;
            }
            self.bytes.extend_from_slice(&self.last);
            self.ends.push(self.bytes.len());
        }
        Ok(!self.ends.is_empty())
    }

    /// Whether the last line of what was read had no end. Asked once for each file, at its end.
    pub(super) fn take_torn(&mut self) -> bool {
        std::mem::take(&mut self.torn)
    }

    /// Looks at every line of the batch, and hands them on in order.
    pub(super) fn each(&self, mut take: impl FnMut(Looked<'_>)) {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(HANDS_MAX);
        let share = self.ends.len().div_ceil(cores).max(SHARE_MIN);
        if share >= self.ends.len() {
            return self.part(0, share).for_each(take);
        }
        thread::scope(|scope| {
            let starts = (0..self.ends.len()).step_by(share);
            let parts: Vec<_> =
                starts.map(|from| scope.spawn(move || self.part(from, share).collect::<Vec<_>>())).collect();
            for part in parts {
                match part.join() {
                    Ok(looked) => looked.into_iter().for_each(&mut take),
                    // A check that fell over must not pass for one that found nothing.
                    Err(fault) => std::panic::resume_unwind(fault),
                }
            }
        });
    }

    fn part(&self, from: usize, count: usize) -> impl Iterator<Item = Looked<'_>> {
        let mut start = from.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        self.ends.iter().skip(from).take(count).map(move |end| {
            let line = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            Looked::at(line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_order_however_many_look_at_them() {
        for count in [0, 1, SHARE_MIN, SHARE_MIN + 1, 10_000, 60_000] {
            let text: String = (0..count).map(|n| format!("{{\"seq\":{n},\"at\":\"t{n}\"}}\n")).collect();
            let mut reader = text.as_bytes();
            let (mut lines, mut next) = (Lines::default(), 0);
            while lines.read(&mut reader).unwrap() {
                lines.each(|looked| {
                    let (seq, facts) = looked.record.unwrap();
                    assert_eq!((seq, facts.at.as_deref()), (next, Some(format!("t{next}").as_str())));
                    assert_eq!(looked.leaf, leaf_hash(format!("{{\"seq\":{next},\"at\":\"t{next}\"}}").as_bytes()));
                    next += 1;
                });
            }
            assert_eq!(next, count as u64);
            assert!(!lines.take_torn());
        }
    }

    #[test]
    fn a_torn_line_is_said_to_be_one_and_not_looked_at() {
        let mut lines = Lines::default();
        let mut reader = &b"{\"seq\":0,\"at\":\"t\"}\n{\"seq\":1"[..];
        let mut count = 0;
        while lines.read(&mut reader).unwrap() {
            lines.each(|_| count += 1);
        }
        assert_eq!((count, lines.take_torn(), lines.take_torn()), (1, true, false));
    }
}
