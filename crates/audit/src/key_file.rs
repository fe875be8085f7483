//! Where the key that signs checkpoints is kept: one file in the data directory, readable by its owner only.
//!
//! A key belongs to one log, whose origin is its name. It is replaced whole: the next key waits beside it (`….next`) until
//! the log has said so under the former one, and only then takes its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ports::entropy::Entropy;

use crate::note::NoteSigner;

/// A new key under this name.
pub(crate) fn fresh(name: &str, entropy: &dyn Entropy) -> NoteSigner {
    let mut seed = [0; 32];
    entropy.fill(&mut seed);
    NoteSigner::from_seed(name, &seed)
}

/// Reads a key; `None` if there is no file.
pub(crate) fn read(path: &Path) -> io::Result<Option<NoteSigner>> {
    match fs::read_to_string(path) {
        Ok(text) => NoteSigner::from_secret_text(text.trim_end())
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a key durably. One that stands there is for another log and is put aside.
pub(crate) fn write(path: &Path, signer: &NoteSigner) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    if let Some(former) = read(path)? {
        let word: String = former.verifier().name().chars().filter(char::is_ascii_alphanumeric).collect();
        fs::rename(path, path.with_extension(format!("{word}.former")))?;
    }
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(format!("{}\n", signer.to_secret_text()).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// Where the next key waits.
pub(crate) fn next(path: &Path) -> PathBuf {
    path.with_extension("next")
}

/// The next key takes its place.
pub(crate) fn promote(path: &Path) -> io::Result<()> {
    fs::rename(next(path), path)?;
    sync_folder(path)
}

/// The next key is given up, if there is one.
pub(crate) fn discard_next(path: &Path) -> io::Result<()> {
    match fs::remove_file(next(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
