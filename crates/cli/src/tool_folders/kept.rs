//! The server's own directory of tool folders, `tools` in the data directory, and how a folder gets there.
//!
//! Invariants
//! - KEPT-1: a folder is there whole or not at all: it is copied beside its place under a hidden name, which nobody looks at, and
//!   moved there in one step.
//! - KEPT-2: what is there never changes. The same version with other files is refused: calls of one version must not run two
//!   programs.
//! - KEPT-3: nothing outside of the folder comes in with it: links that lead out of it, and what is neither file nor folder, are
//!   refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use contract::ids::ToolId;
use contract::version::Version;

use crate::data_dir::DataDir;
use crate::failure::Failure;

/// Files and folders of one tool.
const ENTRIES_MAX: usize = 50_000;
/// Bytes of one tool.
const BYTES_MAX: u64 = 1 << 30;
/// What tools make for themselves, and what version control keeps: none of it belongs to the tool.
const LEFT_OUT: [&str; 5] = [".git", ".hg", ".svn", "__pycache__", ".DS_Store"];

/// By this file a folder says that it is a cache.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// The directory, made if it is not there.
pub(crate) fn folder(data_dir: &DataDir) -> Result<PathBuf, Failure> {
    data_dir.tools_dir()
}

/// What the folder of a version is called there.
pub(crate) fn name(id: &ToolId, version: &Version) -> String {
    format!("{id}-{version}")
}

/// What came of keeping a folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is there now.
    New(PathBuf),
    /// It was there, with the same files.
    AsBefore,
}

/// Copies a tool folder to where the server keeps them.
pub(crate) fn keep(data_dir: &DataDir, from: &Path, id: &ToolId, version: &Version) -> Result<Kept, Failure> {
    let name = name(id, version);
    let kept = folder(data_dir)?;
    let place = kept.join(&name);
    let root = from.canonicalize().map_err(|error| unreadable(from, &error))?;
    if kept.canonicalize().is_ok_and(|kept| kept.starts_with(&root)) {
        return Err(Failure::new("the data directory is inside of the tool's folder")
            .hint("keep the folder of a tool apart from the data: a folder of its own for each tool"));
    }
    let files = listed(&root)?;
    if place.try_exists().map_err(|error| unreadable(&place, &error))? {
        return match is_same(&root, &place, &files) {
            true => Ok(Kept::AsBefore),
            false => Err(Failure::new(format!("`{id}` {version} is kept already, with other files"))
                .hint("raise `version` in the manifest: what was published never changes")),
        };
    }
    let incoming = kept.join(format!(".{name}.{}", std::process::id()));
    let copied = copy(&root, &incoming, &files)
        .and_then(|()| fs::rename(&incoming, &place))
        .map_err(|error| Failure::new(format!("the folder cannot be copied to where the server keeps tools: {error}")));
    if copied.is_err() {
        // Nothing looks at it; the next attempt begins anew.
        let _ = fs::remove_dir_all(&incoming);
    }
    copied.map(|()| Kept::New(place))
}

/// Takes back what [`keep`] has just put there.
pub(crate) fn take_back(place: &Path) {
    if let Err(error) = fs::remove_dir_all(place) {
        tracing::warn!(%error, "a folder of a tool that is not registered stays in the data directory");
    }
}

/// What a folder holds, each by its way from the folder; folders before what is in them.
fn listed(root: &Path) -> Result<Vec<(PathBuf, Kind)>, Failure> {
    let mut found = Vec::new();
    let mut bytes = 0_u64;
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        let entries = fs::read_dir(root.join(&dir)).map_err(|error| unreadable(&dir, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&dir, &error))?;
            if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let way = dir.join(entry.file_name());
            let facts = entry.metadata().map_err(|error| unreadable(&way, &error))?;
            // What says of itself that it is a cache can be made again: the `target` of Cargo, caches of test programs.
            if facts.is_dir() && root.join(&way).join(CACHE_TAG).is_file() {
                continue;
            }
            let kind = if facts.is_dir() {
                open.push(way.clone());
                Kind::Folder
            } else if facts.is_file() {
                bytes = bytes.saturating_add(facts.len());
                Kind::File { runs: facts.permissions().mode() & 0o111 != 0 }
            } else if facts.is_symlink() {
                Kind::Link(inner_link(root, &way)?)
            } else {
                return Err(Failure::new(format!("`{}` is neither a file nor a folder", way.display()))
                    .hint("take it out of the tool's folder"));
            };
            found.push((way, kind));
            if found.len() > ENTRIES_MAX || bytes > BYTES_MAX {
                return Err(Failure::new(format!(
                    "the folder is too large to be kept: more than {ENTRIES_MAX} files or {} MiB",
                    BYTES_MAX >> 20
                ))
                .hint("start the server with --tools DIR to run it where it is"));
            }
        }
    }
    Ok(found)
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Folder,
    File {
        runs: bool,
    },
    /// Where it leads, as it is written.
    Link(PathBuf),
}

/// Where a link leads, if that is inside of the folder (KEPT-3).
fn inner_link(root: &Path, way: &Path) -> Result<PathBuf, Failure> {
    let written = fs::read_link(root.join(way)).map_err(|error| unreadable(way, &error))?;
    let leads = root.join(way).canonicalize();
    if written.is_relative() && leads.is_ok_and(|leads| leads.starts_with(root)) {
        return Ok(written);
    }
    Err(Failure::new(format!("`{}` is a link that leads out of the folder, or nowhere", way.display()))
        .hint("put the file itself there"))
}

fn copy(root: &Path, to: &Path, files: &[(PathBuf, Kind)]) -> std::io::Result<()> {
    // What a run that was ended has left.
    if to.try_exists()? {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir(to)?;
    fs::set_permissions(to, Permissions::from_mode(0o755))?;
    for (way, kind) in files {
        let (from, to) = (root.join(way), to.join(way));
        match kind {
            Kind::Folder => fs::create_dir(&to)?,
            Kind::File { .. } => fs::copy(&from, &to).map(drop)?,
            Kind::Link(leads) => symlink(leads, &to)?,
        }
        // Tools run as nobody, and their author's mask may have been for one person only.
        match kind {
            Kind::Folder | Kind::File { runs: true } => fs::set_permissions(&to, Permissions::from_mode(0o755))?,
            Kind::File { runs: false } => fs::set_permissions(&to, Permissions::from_mode(0o644))?,
            Kind::Link(_) => {}
        }
    }
    Ok(())
}

/// Has the folder that is kept the same files as the one that is given?
fn is_same(root: &Path, kept: &Path, files: &[(PathBuf, Kind)]) -> bool {
    let Ok(there) = listed(kept) else { return false };
    let sorted = |files: &[(PathBuf, Kind)]| {
        let mut files = files.to_vec();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        files
    };
    let same_content = |way: &Path| match (fs::read(root.join(way)), fs::read(kept.join(way))) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    sorted(files) == sorted(&there)
        && files.iter().filter(|(_, kind)| matches!(kind, Kind::File { .. })).all(|(way, _)| same_content(way))
}

fn unreadable(way: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{}` cannot be read: {error}", way.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage() -> (tempfile::TempDir, DataDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("greet");
        fs::create_dir_all(tool.join("lib")).unwrap();
        fs::create_dir_all(tool.join("__pycache__")).unwrap();
        fs::create_dir_all(tool.join("target")).unwrap();
        fs::write(tool.join("target/CACHEDIR.TAG"), "x").unwrap();
        fs::write(tool.join("tool.toml"), "x").unwrap();
        fs::write(tool.join("lib/run.sh"), "echo").unwrap();
        fs::set_permissions(tool.join("lib/run.sh"), Permissions::from_mode(0o700)).unwrap();
        symlink("lib/run.sh", tool.join("run")).unwrap();
        let data = DataDir::at(dir.path().join("data"));
        (dir, data, tool)
    }

    fn keep_it(data: &DataDir, tool: &Path) -> Result<Kept, Failure> {
        keep(data, tool, &"demo.greet".parse().unwrap(), &Version::parse("1.0.0").unwrap())
    }

    #[test]
    fn a_folder_is_kept_whole_and_readable_and_only_once() {
        let (_dir, data, tool) = stage();
        let Ok(Kept::New(place)) = keep_it(&data, &tool) else { panic!("not kept") };
        assert_eq!(place.file_name().unwrap(), "demo.greet-1.0.0");
        assert_eq!(fs::read_to_string(place.join("run")).unwrap(), "echo");
        assert!(!place.join("__pycache__").try_exists().unwrap() && !place.join("target").try_exists().unwrap());
        assert_eq!(fs::metadata(place.join("lib/run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(keep_it(&data, &tool).unwrap(), Kept::AsBefore);
        assert_eq!(fs::read_dir(data.tools_dir().unwrap()).unwrap().count(), 1, "nothing half-made is left");
    }

    #[test]
    fn the_same_version_with_other_files_is_refused() {
        let (_dir, data, tool) = stage();
        keep_it(&data, &tool).unwrap();
        fs::write(tool.join("lib/run.sh"), "echo twice").unwrap();
        assert!(keep_it(&data, &tool).unwrap_err().hint.unwrap().contains("raise `version`"));
    }

    #[test]
    fn links_out_of_the_folder_and_strange_files_do_not_come_in() {
        for target in ["/etc/passwd", "../secret", "nowhere"] {
            let (dir, data, tool) = stage();
            fs::write(dir.path().join("secret"), "s").unwrap();
            symlink(target, tool.join("link")).unwrap();
            let failure = keep_it(&data, &tool).unwrap_err();
            assert!(failure.message.contains("`link`"), "{failure:?}");
            assert_eq!(fs::read_dir(data.tools_dir().unwrap()).unwrap().count(), 0);
        }
        let (_dir, data, tool) = stage();
        let _socket = std::os::unix::net::UnixListener::bind(tool.join("socket")).unwrap();
        assert!(keep_it(&data, &tool).unwrap_err().message.contains("neither a file nor a folder"));
    }

    #[test]
    fn a_folder_around_the_data_is_refused() {
        let (dir, _, _) = stage();
        fs::write(dir.path().join("tool.toml"), "x").unwrap();
        let data = DataDir::at(dir.path().join("data"));
        assert!(keep_it(&data, dir.path()).unwrap_err().message.contains("inside of the tool's folder"));
    }
}
