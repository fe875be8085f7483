//! Masks: a folder that holds the server's own data is given to an MCP server with that data covered. (decision 0102)
//!
//! Somebody starts Gantry in a project, where its data lies in `.gantry`, and the MCP servers are for that project. What is covered
//! is an empty folder or file inside, which cannot be moved or written there.
//!
//! Invariants
//! - MASK-1: every private path below a given folder is covered, or the folder is not given. What is not there yet cannot be covered.
//! - MASK-2: a folder is given for writing only if what is covered lies in it directly. Whoever may rename a folder between the two
//!   could put another one in its place, which Gantry would read at its next start.
//! - MASK-3: for writing, the configuration file that a next start would read is covered too, and has to be there for that.
//!
//! Not here: making the empty folder and file (`cli`), and tools, whose folders must not hold such data at all.

use std::path::{Path, PathBuf};

use contract::error::{ErrorCode, Refusal};
use sandbox::{MountAccess, SandboxMount};

/// What is shown in place of what is covered.
#[derive(Debug, Clone)]
pub struct PathMasks {
    /// An empty folder.
    pub folder: PathBuf,
    /// An empty file.
    pub file: PathBuf,
    /// The configuration file that a next start would read, whether it is there or not.
    pub config_file: PathBuf,
}

impl PathMasks {
    /// What covers these private paths below a folder that is given, if all of them can be covered.
    pub(super) fn over(
        &self,
        given: &Path,
        access: MountAccess,
        private: &[PathBuf],
    ) -> Result<Vec<SandboxMount>, Refusal> {
        let is_below = |path: &&PathBuf| path.starts_with(given) && path.as_path() != given;
        let mut covered: Vec<&Path> = private.iter().filter(is_below).map(PathBuf::as_path).collect();
        let config = self.config_file.as_path();
        if config.starts_with(given) {
            match config.symlink_metadata() {
                Ok(_) => covered.push(config),
                Err(_) if access == MountAccess::Write => return Err(unwritten(given, config)),
                Err(_) => {}
            }
        }
        covered.sort();
        // What lies in something that is covered is covered with it.
        let mut outermost: Vec<&Path> = Vec::new();
        for path in covered {
            if !outermost.iter().any(|above| path.starts_with(above)) {
                outermost.push(path);
            }
        }
        outermost.into_iter().map(|path| self.mask(given, access, path)).collect()
    }

    fn mask(&self, given: &Path, access: MountAccess, path: &Path) -> Result<SandboxMount, Refusal> {
        if access == MountAccess::Write && path.parent() != Some(given) {
            return Err(uncovered(given));
        }
        let found = path.symlink_metadata().map_err(|_| uncovered(given))?;
        let source = match (found.is_dir(), found.is_file()) {
            (true, _) => &self.folder,
            (_, true) => &self.file,
            // A link leads to what has to be covered.
            _ => return Err(uncovered(given)),
        };
        Ok(SandboxMount { source: source.clone(), target: path.to_owned(), access: MountAccess::Read })
    }
}

fn uncovered(given: &Path) -> Refusal {
    let message = format!("`{}` holds data of this Gantry that cannot be covered in it", given.display());
    Refusal::new(ErrorCode::E3405, message)
        .hint("give a narrower folder, or move the data directory (`--data-dir`) to a place of its own")
        .retryable(false)
}

fn unwritten(given: &Path, config: &Path) -> Refusal {
    let (given, config) = (given.display(), config.display());
    let message = format!("who may write to `{given}` could give this Gantry a configuration file at its next start");
    Refusal::new(ErrorCode::E3405, message)
        .hint(format!(
            "`touch {config}` makes an empty one, which is covered then: nothing has to stand in it. Reading alone needs none, and a \
             data directory elsewhere (`gantry serve --data-dir`) neither"
        ))
        .retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_covered_or_the_folder_is_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (project, data) = (root.join("project"), root.join("project/.gantry"));
        std::fs::create_dir_all(data.join("audit")).unwrap();
        let config_file = project.join("gantry.toml");
        let masks = PathMasks { folder: data.join("mask/folder"), file: data.join("mask/file"), config_file };
        let private = [data.clone(), data.join("gantry.db"), data.join("audit")];
        let seen = masks.over(&project, MountAccess::Read, &private).unwrap();
        let mount = |source: &Path, target: &Path| SandboxMount {
            source: source.into(),
            target: target.into(),
            access: MountAccess::Read,
        };
        assert_eq!(seen, [mount(&masks.folder, &data)]);
        assert!(masks.over(&project, MountAccess::Write, &private).unwrap_err().message.contains("configuration file"));
        std::fs::write(&masks.config_file, "").unwrap();
        for access in [MountAccess::Read, MountAccess::Write] {
            let seen = masks.over(&project, access, &private).unwrap();
            assert_eq!(seen, [mount(&masks.folder, &data), mount(&masks.file, &masks.config_file)]);
        }
        assert!(masks.over(&root, MountAccess::Read, &private).is_ok());
        assert!(masks.over(&root, MountAccess::Write, &private).is_err(), "`project` could be renamed");
        let absent = [project.join("not-there.db")];
        assert!(masks.over(&project, MountAccess::Read, &absent).is_err());
        std::os::unix::fs::symlink(&data, project.join("link")).unwrap();
        assert!(masks.over(&project, MountAccess::Read, &[project.join("link")]).is_err());
        assert_eq!(masks.over(Path::new("/elsewhere"), MountAccess::Write, &private).unwrap(), []);
    }
}
