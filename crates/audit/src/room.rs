//! Room on the disk for the records of calls that were let in already.
//!
//! A call is let in before its record is written, and most answers do not wait for that. So a disk that fills up must be
//! noticed while there is still room for all records that were promised: room ahead of the end of the files is taken before
//! it is needed, without changing their length, and when no more can be had, no call is let in (E3801) while what was
//! promised still fits.
//!
//! Invariants
//! - ROOM-1: while calls are let in, at least [`AHEAD_BYTES_MIN`] of lines fit without asking the disk for more. That is more
//!   than the records that usually wait; thousands of calls with the longest records at once could be more.
//! - ROOM-2: a file system that cannot keep room has none to run out of: then the log is as before, and a failed write tells.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Lines that always fit.
pub(crate) const AHEAD_BYTES_MIN: u64 = 2 * 1024 * 1024;
/// Taken at once.
pub(crate) const AHEAD_BYTES: u64 = 2 * AHEAD_BYTES_MIN;
/// Hashes of as many records, if they are short ones.
pub(crate) const TREE_BYTES: u64 = 1024 * 1024;

/// From this length on a file will be filled, so that the room for all of its rest is taken at once. Taken bit by bit it comes
/// to lie in many pieces, of which the system then has to keep account with every sync.
const FILLED_FROM_BYTES: u64 = 1024 * 1024;

/// How much room a file of this length is to have ahead.
pub(crate) fn wanted(bytes: u64, bytes_max: u64) -> u64 {
    if bytes < FILLED_FROM_BYTES { AHEAD_BYTES } else { bytes_max.saturating_sub(bytes).max(AHEAD_BYTES) }
}

/// Takes room for `bytes` from `offset` on, or for [`AHEAD_BYTES`] if there is not so much. How much, or nothing.
pub(crate) fn take_most(file: &File, offset: u64, bytes: u64) -> io::Result<Option<u64>> {
    for bytes in [bytes, AHEAD_BYTES] {
        if take(file, offset, bytes)? {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Takes room for `bytes` from `offset` on. `Ok(false)` if the disk is full, or as full as this user may make it.
pub(crate) fn take(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes) {
        Ok(()) => Ok(true),
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn room_is_taken_without_a_change_of_the_length() {
        let file = tempfile::tempfile().unwrap();
        assert!(take(&file, 100, AHEAD_BYTES).unwrap());
        let found = file.metadata().unwrap();
        assert_eq!(found.len(), 0);
        assert!(found.blocks() * 512 >= AHEAD_BYTES, "{} blocks", found.blocks());
        file.set_len(0).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < AHEAD_BYTES, "and given back");
    }

    #[test]
    fn a_file_that_will_be_filled_gets_all_its_room_and_every_file_enough() {
        assert_eq!(wanted(0, 64 << 20), AHEAD_BYTES);
        assert_eq!(wanted(1 << 20, 64 << 20), 63 << 20);
        assert_eq!(wanted((64 << 20) - 1, 64 << 20), AHEAD_BYTES);
        assert_eq!(wanted(65 << 20, 64 << 20), AHEAD_BYTES);
        let file = tempfile::tempfile().unwrap();
        if let Ok(taken) = take_most(&file, 0, 1 << 43) {
            assert_eq!(taken, Some(AHEAD_BYTES), "what there is not is not taken");
        }
    }

    #[test]
    fn more_than_any_disk_has_is_refused_and_no_error() {
        let file = tempfile::tempfile().unwrap();
        // Some file systems refuse so large a file before they look for room.
        if let Ok(taken) = take(&file, 0, 1 << 43) {
            assert!(!taken);
        }
    }
}
