//! The host's functions for files, by their numbers: no library between the attempt and the refusal.

use std::io::Read as _;
use std::os::wasi::io::FromRawFd as _;

#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    fn path_open(
        dir: i32,
        lookup: i32,
        path: *const u8,
        len: usize,
        how: i32,
        rights: i64,
        inheriting: i64,
        flags: i32,
        opened: *mut i32,
    ) -> i32;
    fn path_unlink_file(dir: i32, path: *const u8, len: usize) -> i32;
    fn path_symlink(target: *const u8, target_len: usize, dir: i32, path: *const u8, len: usize) -> i32;
    fn path_link(
        from_dir: i32,
        lookup: i32,
        from: *const u8,
        from_len: usize,
        to_dir: i32,
        to: *const u8,
        to_len: usize,
    ) -> i32;
    fn path_rename(from_dir: i32, from: *const u8, from_len: usize, to_dir: i32, to: *const u8, to_len: usize) -> i32;
    fn fd_fdstat_get(fd: i32, answer: *mut u8) -> i32;
    fn fd_prestat_get(fd: i32, answer: *mut u8) -> i32;
    fn fd_close(fd: i32) -> i32;
}

/// The number of the one directory the probe has been given.
pub const GIVEN: i32 = 3;
pub const CREATE_NEW: i32 = 1 | 4;
pub const DIRECTORY: i32 = 2;

const FOLLOW_LINKS: i32 = 1;
const READ: i64 = 1 << 1;
const WRITE: i64 = 1 << 6;
const READ_DIRECTORY: i64 = 1 << 14;

/// What may be done with what is opened.
#[derive(Clone, Copy)]
pub enum For {
    Reading,
    Writing,
    Listing,
}

/// Opens a path below the given directory, with whatever the path says; the number of the error otherwise.
pub fn open(path: &str, how: i32, purpose: For) -> Result<std::fs::File, i32> {
    let rights = match purpose {
        For::Reading => READ,
        For::Writing => READ | WRITE,
        For::Listing => READ | READ_DIRECTORY,
    };
    let mut opened = -1;
    // SAFETY: the pointers are to live memory of the stated length; a new descriptor belongs to nobody else.
    unsafe {
        match path_open(GIVEN, FOLLOW_LINKS, path.as_ptr(), path.len(), how, rights, rights, 0, &mut opened) {
            0 => Ok(std::fs::File::from_raw_fd(opened)),
            error => Err(error),
        }
    }
}

pub fn unlink(path: &str) -> i32 {
    // SAFETY: as in `open`.
    unsafe { path_unlink_file(GIVEN, path.as_ptr(), path.len()) }
}

pub fn symlink(target: &str, path: &str) -> i32 {
    // SAFETY: as in `open`.
    unsafe { path_symlink(target.as_ptr(), target.len(), GIVEN, path.as_ptr(), path.len()) }
}

pub fn link(from: &str, to: &str) -> i32 {
    // SAFETY: as in `open`.
    unsafe { path_link(GIVEN, 0, from.as_ptr(), from.len(), GIVEN, to.as_ptr(), to.len()) }
}

pub fn rename(from: &str, to: &str) -> i32 {
    // SAFETY: as in `open`.
    unsafe { path_rename(GIVEN, from.as_ptr(), from.len(), GIVEN, to.as_ptr(), to.len()) }
}

/// Whether a number stands for something that is open.
pub fn is_open(fd: i32) -> bool {
    let mut answer = [0_u64; 4];
    // SAFETY: the answer is larger than the 24 bytes that are written.
    unsafe { fd_fdstat_get(fd, answer.as_mut_ptr().cast()) == 0 }
}

/// Whether a number stands for a directory that was given.
pub fn is_given(fd: i32) -> bool {
    let mut answer = [0_u64; 2];
    // SAFETY: the answer is larger than the 8 bytes that are written.
    unsafe { fd_prestat_get(fd, answer.as_mut_ptr().cast()) == 0 }
}

pub fn close(fd: i32) {
    // SAFETY: nothing uses the descriptor afterwards.
    unsafe { fd_close(fd) };
}

/// Whether a file holds the marker.
pub fn holds(file: &mut std::fs::File, marker: &str) -> bool {
    let mut content = Vec::new();
    let _ = file.take(1 << 20).read_to_end(&mut content); // Whatever came before an error counts.
    content.windows(marker.len()).any(|part| part == marker.as_bytes())
}

/// Where the host puts strings it returns.
#[no_mangle]
pub unsafe extern "C" fn cabi_realloc(old: *mut u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
    use std::alloc::{alloc, realloc, Layout};
    if len == 0 {
        return align as *mut u8;
    }
    let moved = if old_len == 0 {
        alloc(Layout::from_size_align_unchecked(len, align))
    } else {
        realloc(old, Layout::from_size_align_unchecked(old_len, align), len)
    };
    if moved.is_null() {
        std::process::abort();
    }
    moved
}
