//! Unpacking layers: archives nobody trusts, into a directory nothing leads out of.
//!
//! Every name is resolved by the kernel as if the directory were the root of everything (`RESOLVE_IN_ROOT`), so a
//! symbolic link of an earlier entry leads where it would lead inside the container, and never outside. What is made is
//! made by the last part of the name in a directory that is held open.
//!
//! A layer is read twice: once to check its digest and to take away what it hides of the layers below, and once to make
//! what is in it. So nothing of a layer that is not what its digest says is ever made.
//!
//! Invariants
//! - LAYER-1: an entry whose name is absolute or contains `..` refuses the image.
//! - LAYER-2: only directories, files, and links are made. Devices, pipes and sockets are left out: `/dev` is ours.
//! - LAYER-3: permissions are the nine bits; no set-user, no set-group, no attributes, no owners.
//! - LAYER-4: an image has at most [`BYTES_MAX`] and [`ENTRIES_MAX`], however little its archives weigh.

use contract::hex::lower_hex;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::layout::{self, Layer};

/// Bytes of an unpacked image.
pub(super) const BYTES_MAX: u64 = 4 << 30;
/// Files, directories and links of an image.
pub(super) const ENTRIES_MAX: u64 = 500_000;
/// Directories in directories.
const DEPTH_MAX: usize = 128;

/// What is wrong with a layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("it does not match its digest")]
    Mismatch,
    #[error("an entry leads out of the image")]
    Escape,
    #[error("the image has more than {BYTES_MAX} bytes or {ENTRIES_MAX} entries")]
    TooLarge,
    #[error("it cannot be read or written")]
    Io(#[from] io::Error),
}

impl From<Errno> for LayerError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Unpacks all layers of the layout in `dir` over each other into `root`, which is empty.
pub(super) fn unpack_all(dir: &Path, layers: &[Layer], root: &Path) -> Result<(), LayerError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tree = Tree { root: rustix::fs::openat(CWD, root, flags, Mode::empty())? };
    let mut room = UnpackBudget { bytes: BYTES_MAX, entries: ENTRIES_MAX };
    for layer in layers {
        hide(dir, layer, &tree)?;
        make(dir, layer, &tree, &mut room)?;
    }
    Ok(())
}

/// What may still be unpacked. LAYER-4.
struct UnpackBudget {
    bytes: u64,
    entries: u64,
}

// --------------------------------------------------------------------------------------------------- the two readings

/// First reading: the digest, and the whiteouts.
fn hide(dir: &Path, layer: &Layer, tree: &Tree) -> Result<(), LayerError> {
    let mut hidden = Vec::new();
    let file = layout::plain_file(&layout::blob_path(dir, &layer.digest))?;
    let mut hashed = Hashed { inner: file, hasher: Sha256::new(), bytes: 0 };
    let mut entries = 0;
    {
        let mut archive = tar::Archive::new(decompressed(&mut hashed, layer.gzip).take(BYTES_MAX));
        for entry in archive.entries()? {
            let entry = entry?;
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(LayerError::TooLarge);
            }
            let path = inside(&entry.path_bytes())?;
            if let Some(name) = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(".wh.")) {
                hidden.push((path.parent().unwrap_or_else(|| Path::new("")).to_owned(), name.to_owned()));
            }
        }
    }
    // What follows the end of the archive belongs to the blob as well.
    io::copy(&mut hashed, &mut io::sink())?;
    if hashed.bytes != layer.size || lower_hex(&hashed.hasher.finalize()) != layer.digest {
        return Err(LayerError::Mismatch);
    }
    for (parent, name) in hidden {
        let Some(parent) = tree.existing(&parent)? else { continue };
        match name.as_str() {
            // The directory is opaque: nothing of what lies below shows through.
            ".wh..opq" => empty(&parent, 0)?,
            "" | "." | ".." => return Err(LayerError::Escape),
            // Other marks of the storage driver.
            marks if marks.starts_with(".wh.") => {}
            name => remove(&parent, OsStr::new(name), 0)?,
        }
    }
    Ok(())
}

/// Second reading: everything that is there.
fn make(dir: &Path, layer: &Layer, tree: &Tree, room: &mut UnpackBudget) -> Result<(), LayerError> {
    let file = layout::plain_file(&layout::blob_path(dir, &layer.digest))?;
    let mut archive = tar::Archive::new(decompressed(io::BufReader::new(file), layer.gzip).take(BYTES_MAX));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path_bytes())?;
        let Some(name) = path.file_name() else { continue };
        if name.as_bytes().starts_with(b".wh.") {
            continue;
        }
        room.entries = room.entries.checked_sub(1).ok_or(LayerError::TooLarge)?;
        let kind = entry.header().entry_type();
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o777);
        let parent = tree.parent(&path)?;
        match kind {
            EntryType::Directory => directory(&parent, name, mode)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                // One more than there is room for, so that it shows.
                let written = regular(&parent, name, mode, &mut (&mut entry).take(room.bytes.saturating_add(1)))?;
                room.bytes = room.bytes.checked_sub(written).ok_or(LayerError::TooLarge)?;
            }
            EntryType::Symlink => {
                let to = entry.link_name_bytes().ok_or(LayerError::Escape)?.into_owned();
                remove(&parent, name, 0)?;
                rustix::fs::symlinkat(to, &parent, name)?;
            }
            EntryType::Link => {
                let to = inside(&entry.link_name_bytes().ok_or(LayerError::Escape)?)?;
                let target = to.file_name().ok_or(LayerError::Escape)?;
                let beside = tree.existing(to.parent().unwrap_or_else(|| Path::new("")))?.ok_or(LayerError::Escape)?;
                if to != path {
                    remove(&parent, name, 0)?;
                    rustix::fs::linkat(&beside, target, &parent, name, AtFlags::empty())?;
                }
            }
            // LAYER-2.
            _ => {}
        }
    }
    Ok(())
}

fn decompressed<'r>(blob: impl Read + 'r, gzip: bool) -> Box<dyn Read + 'r> {
    if gzip { Box::new(MultiGzDecoder::new(blob)) } else { Box::new(blob) }
}

/// Counts and hashes what passes.
struct Hashed<R> {
    inner: R,
    hasher: Sha256,
    bytes: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        Ok(count)
    }
}

/// LAYER-1. The root itself is the empty path.
fn inside(name: &[u8]) -> Result<PathBuf, LayerError> {
    let mut path = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => path.push(part),
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return Err(LayerError::Escape),
        }
    }
    if path.components().count() > DEPTH_MAX { Err(LayerError::Escape) } else { Ok(path) }
}

// --------------------------------------------------------------------------------------------------------------- Tree

/// The directory that everything is made in.
struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// A directory inside, if there is one.
    fn existing(&self, path: &Path) -> Result<Option<OwnedFd>, LayerError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory an entry belongs into; made, if an archive left it out.
    fn parent(&self, path: &Path) -> Result<OwnedFd, LayerError> {
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        if let Some(dir) = self.existing(parent)? {
            return Ok(dir);
        }
        let mut so_far = PathBuf::new();
        for part in parent.components() {
            let above = self.existing(&so_far)?.ok_or(LayerError::Escape)?;
            so_far.push(part);
            if self.existing(&so_far)?.is_none() {
                directory(&above, part.as_os_str(), Mode::from_raw_mode(0o755))?;
            }
        }
        self.existing(parent)?.ok_or(LayerError::Escape)
    }
}

/// A directory stays one, with what is in it; anything else gives way.
fn directory(parent: &OwnedFd, name: &OsStr, mode: Mode) -> Result<(), LayerError> {
    // We must be able to put things into it, and to remove it one day.
    let mode = mode | Mode::RWXU;
    if kind_of(parent, name)? != Some(FileType::Directory) {
        remove(parent, name, 0)?;
        rustix::fs::mkdirat(parent, name, mode)?;
    }
    let dir = rustix::fs::openat(
        parent,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(rustix::fs::fchmod(dir, mode)?)
}

fn regular(parent: &OwnedFd, name: &OsStr, mode: Mode, contents: &mut impl Read) -> Result<u64, LayerError> {
    remove(parent, name, 0)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?);
    let written = io::copy(contents, &mut file)?;
    rustix::fs::fchmod(&file, mode)?;
    Ok(written)
}

fn kind_of(parent: impl AsFd, name: &OsStr) -> Result<Option<FileType>, LayerError> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes whatever has that name, with all that is in it. It is fine if nothing has.
fn remove(parent: &OwnedFd, name: &OsStr, depth: usize) -> Result<(), LayerError> {
    match kind_of(parent, name)? {
        None => Ok(()),
        Some(FileType::Directory) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            empty(&dir, depth)?;
            Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
        }
        Some(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
    }
}

/// Removes everything in a directory.
fn empty(dir: &OwnedFd, depth: usize) -> Result<(), LayerError> {
    if depth > DEPTH_MAX {
        return Err(LayerError::Escape);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&readable)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            remove(&readable, OsStr::from_bytes(name), depth + 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
