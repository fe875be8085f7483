//! Beside their places: what was unpacked and is not checked yet.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use audit::VerifyTrust;
use base::SaturatingFrom as _;
use store::transfer::{HeldJobs, MoveError, ReplaceError, check_backup, hold_jobs, put_in_place};

use super::{open, unusable};
use crate::backup_file::{BackupHead, DATABASE};
use crate::data_dir::DataDir;
use crate::failure::CommandFailure;
use crate::store_place::StorePlace;

/// What is on its way back. Dropped, it takes away what has not arrived.
pub(super) struct Staging {
    data_dir: PathBuf,
    audit_dir: PathBuf,
    /// The store's file; none if the store is elsewhere.
    store: Option<PathBuf>,
    force: bool,
    stamp: String,
}

impl Staging {
    pub(super) fn new(data_dir: &DataDir, audit_dir: &Path, place: &StorePlace, force: bool, stamp: &str) -> Self {
        let store = match place {
            StorePlace::Sqlite(path) => Some(path.clone()),
            StorePlace::Postgres(_) => None,
        };
        let (data_dir, audit_dir) = (data_dir.path().to_owned(), audit_dir.to_owned());
        Self { data_dir, audit_dir, store, force, stamp: stamp.to_owned() }
    }

    /// Before anything is read: is there something that nobody said may go? Everything at once, with what is in the way in
    /// the database, which is never moved aside.
    pub(super) fn refuse_what_is_there(
        &self,
        head: &BackupHead,
        database: Option<MoveError>,
    ) -> Result<(), CommandFailure> {
        match (self.refuse_files(head), database) {
            (files, None) => files,
            (Ok(()), Some(error)) => Err(CommandFailure::new(error.to_string()).hint("nothing was changed")),
            (Err(files), Some(error)) => Err(CommandFailure::new("the backup cannot be restored there")
                .reasons(vec![error.to_string(), files.message])
                .hint("another database, and another data directory or --force, which moves files aside; nothing was changed")),
        }
    }

    fn refuse_files(&self, head: &BackupHead) -> Result<(), CommandFailure> {
        if self.force {
            return Ok(());
        }
        let audit = (head.audit_records > 0 && is_filled(&self.audit_dir)).then(|| self.audit_dir.clone());
        let secrets = head.has_keys.then(|| self.data_dir.join("keys").join("signing.pem"));
        let there =
            self.store.iter().cloned().chain(audit).chain(secrets).find(|path| path.try_exists().unwrap_or(true));
        match there {
            None => Ok(()),
            Some(path) => Err(CommandFailure::new(format!("there is a `{}` already", path.display()))
                .hint("restore into another data directory, or move it aside with --force; nothing was changed")),
        }
    }

    /// Unpacks everything of a backup that has files only.
    pub(super) fn unpack(&self, file: &Path) -> Result<(), CommandFailure> {
        open(file)?.each(|name, content| self.take(name, content)).map_err(|error| unusable(file, &error))?;
        Ok(())
    }

    /// Ends the jobs of the unpacked store that must not be begun; says how many.
    pub(super) fn hold_jobs(&self, held: &HeldJobs) -> Result<u64, CommandFailure> {
        let Some(store) = &self.store else { return Ok(0) };
        let ended = hold_jobs(&beside(store), held);
        let ended = ended.map_err(|error| CommandFailure::new(error.to_string()).hint("nothing was changed"))?;
        Ok(u64::saturating_from(ended))
    }

    /// Puts one file of the backup beside its place.
    pub(super) fn take(&self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let to = match (name.split_once('/'), &self.store) {
            (_, Some(store)) if name == DATABASE => beside(store),
            (Some(("audit", file)), _) if is_plain(file) && !file.contains('/') => beside(&self.audit_dir).join(file),
            (Some(("data", file)), _) if is_plain(file) => self.secrets().join(file),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("`{name}` does not belong into a backup"),
                ));
            }
        };
        if let Some(folder) = to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&to)?;
        io::copy(content, &mut file)?;
        file.sync_all()
    }

    /// Checks what was unpacked, and moves it to where it belongs. What was there before is now at the paths answered.
    pub(super) fn put_in_place(&self) -> Result<Vec<PathBuf>, CommandFailure> {
        let mut aside = Vec::new();
        let staged_audit = beside(&self.audit_dir);
        let has_audit = staged_audit.is_dir();
        if has_audit {
            let report = audit::verify_dir(&staged_audit, &VerifyTrust::default())
                .map_err(|error| cannot(&staged_audit, &error))?;
            if !report.whole {
                return Err(CommandFailure::new("the audit log in the backup is not whole").hint("nothing was changed"));
            }
        }
        if let Some(store) = &self.store {
            let staged = beside(store);
            check_backup(&staged)
                .map_err(|error| CommandFailure::new(error.to_string()).hint("nothing was changed"))?;
            let moved = put_in_place(&staged, store, self.force, &self.stamp).map_err(|error| match error {
                ReplaceError::Exists { .. } => {
                    CommandFailure::new(error.to_string()).hint("move it aside with --force")
                }
                other => {
                    CommandFailure::new(other.to_string()).hint("stop the server that uses it; nothing was changed")
                }
            })?;
            aside.extend(moved);
        }
        if has_audit {
            aside.extend(self.replace(&self.audit_dir, &staged_audit)?);
        }
        let secrets = self.secrets();
        if secrets.is_dir() {
            for name in ["keys", "admin.token", "webhook.key"] {
                let (staged, place) = (secrets.join(name), self.data_dir.join(name));
                if staged.try_exists().unwrap_or(true) {
                    aside.extend(self.replace(&place, &staged)?);
                }
            }
        }
        Ok(aside)
    }

    /// Moves one thing to its place, and what is there aside.
    fn replace(&self, place: &Path, staged: &Path) -> Result<Option<PathBuf>, CommandFailure> {
        let mut aside = None;
        if is_filled(place) {
            let mut name = place.as_os_str().to_owned();
            name.push(format!(".replaced-{}", self.stamp));
            fs::rename(place, &name).map_err(|error| cannot(place, &error))?;
            aside = Some(PathBuf::from(name));
        }
        if let Some(folder) = place.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| cannot(folder, &error))?;
        }
        fs::rename(staged, place).map_err(|error| cannot(place, &error))?;
        let synced = File::open(place).and_then(|place| place.sync_all());
        synced.map_err(|error| cannot(place, &error))?;
        Ok(aside)
    }

    fn secrets(&self) -> PathBuf {
        self.data_dir.join("secrets.restoring")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What arrived is not there any more, and most often there is nothing.
        let _ = fs::remove_dir_all(beside(&self.audit_dir));
        let _ = fs::remove_dir_all(self.secrets());
        if let Some(store) = &self.store {
            let _ = fs::remove_file(beside(store));
        }
    }
}

/// Where something waits that is to become this.
fn beside(place: &Path) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(".restoring");
    name.into()
}

/// A file, or a folder with something in it.
fn is_filled(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.is_file(),
    }
}

/// A name that leads nowhere else.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

fn cannot(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be put in place: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_backup_leads_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::at(folder.path().join("data"));
        let place = StorePlace::Sqlite(folder.path().join("data/gantry.db"));
        let staging = Staging::new(&data, &folder.path().join("data/audit"), &place, false, "1");
        for name in ["audit/log.json", "data/keys/signing.pem", DATABASE] {
            staging.take(name, &mut &b"x"[..]).unwrap();
        }
        for name in
            ["audit/../x", "/etc/passwd", "data//etc/x", "data/../../x", "audit/a/b", "other", "audit/", "store/x"]
        {
            staging.take(name, &mut &b"x"[..]).unwrap_err();
        }
        drop(staging);
        let left = fs::read_dir(data.path()).unwrap().count();
        assert_eq!(left, 0, "what has not arrived is gone");
    }
}
