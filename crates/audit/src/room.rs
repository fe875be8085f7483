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

/// The rest of a file is not taken if it is more than this part of what is free: a disk that is nearly full is not filled for
/// the sake of order.
const FREE_SHARE: u64 = 16;

/// How much room a file of this length is to have ahead, where so much is free.
fn wanted(bytes: u64, bytes_max: u64, free: u64) -> u64 {
    let rest = bytes_max.saturating_sub(bytes);
    if bytes < FILLED_FROM_BYTES || rest > free / FREE_SHARE { AHEAD_BYTES } else { rest.max(AHEAD_BYTES) }
}

/// Takes room behind the end of a file of `bytes`, which will have `bytes_max`. How much, or nothing if the disk is full.
pub(crate) fn take_ahead(file: &File, bytes: u64, bytes_max: u64) -> io::Result<Option<u64>> {
    let free = rustix::fs::fstatvfs(file).map_or(0, |place| place.f_bavail.saturating_mul(place.f_frsize));
    let wanted = wanted(bytes, bytes_max, free);
    if take(file, bytes, wanted)? {
        return Ok(Some(wanted));
    }
    // Part of it may have been taken; what is behind the end of the file goes back.
    file.set_len(bytes)?;
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
        let (file, plenty) = (64 << 20, 1 << 40);
        assert_eq!(wanted(0, file, plenty), AHEAD_BYTES);
        assert_eq!(wanted(1 << 20, file, plenty), 63 << 20);
        assert_eq!(wanted(1 << 20, file, 1 << 29), AHEAD_BYTES, "there is not much left");
        assert_eq!(wanted(file - 1, file, plenty), AHEAD_BYTES);
        assert_eq!(wanted(65 << 20, file, plenty), AHEAD_BYTES);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(take_ahead(&file, 0, 64 << 20).unwrap(), Some(AHEAD_BYTES));
        assert_eq!(file.metadata().unwrap().len(), 0);
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
