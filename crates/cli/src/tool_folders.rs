//! Tools on disk: folders with a manifest and whatever it runs. (DESIGN §3)
//!
//! A directory given by `--tools` is a tool folder itself, or contains tool folders; deeper ones are not looked for.
//! [`kept_copy`] is the server's own directory of them, into which `gantry tool add` copies. [`loader`] publishes what is found and tells the process executor where each tool lives; [`watcher`] does it again
//! when something changes.

use std::path::{Path, PathBuf};

use contract::manifest::Manifest;

use crate::manifest_file::{self, ManifestFileError};

pub(crate) mod kept_copy;
pub(crate) mod loader;
pub(crate) mod watcher;

/// Subfolders of one directory that are looked into; the rest is named in a warning.
const FOLDERS_MAX: usize = 10_000;

/// One tool folder.
#[derive(Debug)]
pub(crate) struct ToolFolder {
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Result<Manifest, ManifestFileError>,
}

/// Everything under some directories.
#[derive(Debug, Default)]
pub(crate) struct FoundFolders {
    pub(crate) tools: Vec<ToolFolder>,
    /// Directories whose changes matter.
    pub(crate) watched: Vec<PathBuf>,
    /// What could not be looked at.
    pub(crate) troubles: Vec<String>,
}

/// Looks for tool folders, in a stable order.
pub(crate) fn find(dirs: &[PathBuf]) -> FoundFolders {
    let mut found = FoundFolders::default();
    for dir in dirs {
        // Absolute, because a process tool runs with its folder as working directory.
        match dir.canonicalize() {
            Ok(dir) => look_into(&dir, &mut found),
            Err(error) => found.troubles.push(format!("tools directory `{}` cannot be read: {error}", dir.display())),
        }
    }
    found
}

fn look_into(dir: &Path, found: &mut FoundFolders) {
    found.watched.push(dir.to_owned());
    if take(dir, found) {
        return;
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            found.troubles.push(format!("tools directory `{}` cannot be read: {error}", dir.display()));
            return;
        }
    };
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_candidate(path)).collect();
    folders.sort();
    if folders.len() > FOLDERS_MAX {
        found.troubles.push(format!("`{}` has more than {FOLDERS_MAX} folders; the rest is left out", dir.display()));
        folders.truncate(FOLDERS_MAX);
    }
    for folder in folders {
        // Watched even without a manifest: it may be written a moment later.
        take(&folder, found);
        found.watched.push(folder);
    }
}

fn is_candidate(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.is_dir()
}

/// Takes the folder if it is a tool folder.
fn take(folder: &Path, found: &mut FoundFolders) -> bool {
    let manifest = match manifest_file::in_folder(folder) {
        Ok(None) => return false,
        Ok(Some(path)) => manifest_file::read(&path),
        Err(error) => Err(error),
    };
    found.tools.push(ToolFolder { folder: folder.to_owned(), manifest });
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest_file::tests::smallest;

    #[test]
    fn a_directory_is_a_tool_folder_or_contains_them() {
        let dir = tempfile::tempdir().unwrap();
        for (folder, text) in
            [("b", smallest("1.0.0")), ("a", "broken".into()), (".hidden", smallest("1.0.0")), ("empty", String::new())]
        {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
            if !text.is_empty() {
                std::fs::write(dir.path().join(folder).join("tool.toml"), text).unwrap();
            }
        }
        let found = find(&[dir.path().to_owned()]);
        let names: Vec<_> =
            found.tools.iter().map(|t| (t.folder.file_name().unwrap().to_str().unwrap(), t.manifest.is_ok())).collect();
        assert_eq!(names, [("a", false), ("b", true)]);
        assert_eq!(found.watched.len(), 4, "the directory and its three visible folders");
        let itself = find(&[dir.path().join("b")]);
        assert_eq!((itself.tools.len(), itself.watched.len()), (1, 1));
        assert_eq!(find(&[dir.path().join("nowhere")]).troubles.len(), 1);
    }
}
