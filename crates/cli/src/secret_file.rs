//! Files that hold a secret: written whole or not at all, readable by their owner only, never silently replaced.
//!
//! Invariants
//! - SECRET-1: a reader sees the old file, the whole new file, or none (temporary file, fsync, rename, fsync of the folder).
//! - SECRET-2: a file that other users can read is refused, because the secret may be known already.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::plain_file;

/// No secret of ours is longer; a larger file is some other file.
const BYTES_MAX: u64 = 16 * 1024;
/// Permission bits of everybody but owner and group.
const OTHERS: u32 = 0o007;
/// Permission bits of the group.
const GROUP: u32 = 0o070;

/// Why a secret could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFileError {
    #[error("`{name}` cannot be read: {source}")]
    Unreadable { name: String, source: io::Error },
    #[error("`{name}` cannot be written: {source}")]
    Unwritable { name: String, source: io::Error },
    #[error("`{name}` can be read by every user of this machine (mode {mode:o})")]
    Open { name: String, mode: u32 },
    #[error("`{name}` is not a text file of at most {BYTES_MAX} bytes")]
    NotText { name: String },
}

impl SecretFileError {
    /// Is there a file of this name already, which was not to be replaced?
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Unwritable { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// What to do.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                "put a plain file there".into()
            }
            Self::Unreadable { .. } => "run as the user that owns the file".into(),
            Self::Unwritable { .. } => "check the folder's owner and mode, and the free space of its disk".into(),
            Self::Open { name, .. } => {
                format!("chmod 600 {name}; if others may have read it, move it away so that a new one is made")
            }
            Self::NotText { .. } => "restore it from a backup, or move it away so that a new one is made".into(),
        }
    }
}

/// A secret as it was read.
pub(crate) struct SecretText {
    pub(crate) text: String,
    /// The group can read it too: worth a warning, since some set-ups mean it.
    pub(crate) group_readable: bool,
}

/// Reads a secret; `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<SecretText>, SecretFileError> {
    let name = path.display().to_string();
    let unreadable = |source| SecretFileError::Unreadable { name: name.clone(), source };
    let file = match plain_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(SecretFileError::Open { name, mode });
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match String::from_utf8(bytes) {
        Ok(text) if metadata.is_file() && u64::try_from(text.len()).is_ok_and(|length| length <= BYTES_MAX) => {
            Ok(Some(SecretText { text, group_readable: mode & GROUP != 0 }))
        }
        _ => Err(SecretFileError::NotText { name }),
    }
}

/// Writes a file that only its owner may read, where there is none yet: [`SecretFileError::is_taken`] otherwise.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), SecretFileError> {
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync_folder_of(path)
    };
    written().map_err(|source| SecretFileError::Unwritable { name: path.display().to_string(), source })
}

/// Writes a file that only its owner may read.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), SecretFileError> {
    write_whole(path, text).map_err(|source| SecretFileError::Unwritable { name: path.display().to_string(), source })
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    // Left behind by a crash in the middle of this function; never anything somebody relies on.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder_of(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back_and_only_for_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        assert!(read(&path).unwrap().is_none());
        write(&path, "s3cret").unwrap();
        assert_eq!(read(&path).unwrap().unwrap().text, "s3cret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_temporary_file_of_an_earlier_crash_does_not_stand_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(dir.path().join("secret.new"), "half").unwrap();
        write(&path, "whole").unwrap();
        assert_eq!(read(&path).unwrap().unwrap().text, "whole");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_a_group_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write(&path, "x").unwrap();
        for (mode, group_readable) in
            [(0o600, Some(false)), (0o400, Some(false)), (0o640, Some(true)), (0o644, None), (0o604, None)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).ok().flatten().map(|secret| secret.group_readable), group_readable, "{mode:o}");
        }
    }

    #[test]
    fn a_folder_binary_data_or_a_huge_file_is_not_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        for content in [vec![0xff, 0xfe], vec![b'a'; 20_000]] {
            write(&path, "").unwrap();
            fs::write(&path, content).unwrap();
            assert!(matches!(read(&path), Err(SecretFileError::NotText { .. })));
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(read(dir.path()).is_err());
    }
}
