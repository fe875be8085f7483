//! Folders with everything below them: how large one is, opening it for readers, taking it away. Links are never followed.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// What a folder holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TreeSize {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// How much is in a folder. What goes away meanwhile is not counted.
pub(super) fn size(folder: &Path) -> io::Result<TreeSize> {
    let mut found = TreeSize::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else { continue };
            found.entries += 1;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                found.bytes = found.bytes.saturating_add(metadata.len());
            }
        }
    }
    Ok(found)
}

/// Everybody may read what is there, and nobody but the owner may change it.
pub(super) fn open_for_reading(folder: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    for path in below(folder)? {
        open_one(&path, owner)?;
    }
    Ok(())
}

/// The same for one file or folder.
pub(super) fn open_one(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if let Some((user, group)) = owner {
        lchown(path, Some(user), Some(group))?;
    }
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let runnable = if metadata.is_dir() || mode & 0o100 != 0 { 0o111 } else { 0 };
    let wanted = (mode & 0o700) | 0o444 | runnable;
    if mode & 0o777 == wanted { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(wanted)) }
}

/// What is in a folder as one digest: names, contents and where links lead.
pub(super) fn digest(folder: &Path) -> io::Result<Vec<u8>> {
    let mut paths = below(folder)?;
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let metadata = fs::symlink_metadata(&path)?;
        let name = path.strip_prefix(folder).unwrap_or(&path).as_os_str().as_encoded_bytes();
        hash.update(name);
        hash.update([0]);
        if metadata.is_symlink() {
            hash.update(fs::read_link(&path)?.as_os_str().as_encoded_bytes());
        } else if metadata.is_file() {
            hash.update(metadata.len().to_le_bytes());
            hash.update(fs::read(&path)?);
        }
    }
    Ok(hash.finalize().to_vec())
}

/// Takes a folder away, if it is there.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The folder and everything in it.
fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        at += 1;
        if fs::symlink_metadata(&path)?.is_dir() {
            for entry in fs::read_dir(&path)? {
                found.push(entry?.path());
            }
        }
    }
    Ok(found)
}
