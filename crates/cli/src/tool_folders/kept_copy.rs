//! The server's own directory of tool folders, `tools` in the data directory, and how a folder gets there.
//!
//! Invariants
//! - KEPT-1: a folder is there whole or not at all: it is copied beside its place under a hidden name, which nobody looks at, and
//!   moved there in one step.
//! - KEPT-2: what is there never changes. The same version with other files is refused: calls of one version must not run two
//!   programs.
//! - KEPT-4: what a folder held when it was put there is recorded beside it, as one digest over everything in it, and what differs
//!   from that is not run. It guards against slips and against tools, not against whoever owns the data directory, who can write
//!   both.
//! - KEPT-3: nothing outside of the folder comes in with it: links that lead out of it, and what is neither file nor folder, are
//!   refused.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use base::SaturatingFrom as _;
use contract::ids::ToolId;
use contract::version::Version;
use sha2::{Digest as _, Sha256};

use crate::data_dir::DataDir;
use crate::failure::CommandFailure;

/// Files and folders of one tool.
const ENTRIES_MAX: usize = 50_000;
/// Bytes of one tool.
const BYTES_MAX: u64 = 1 << 30;
/// What tools make for themselves, and what version control keeps: none of it belongs to the tool.
const LEFT_OUT: [&str; 5] = [".git", ".hg", ".svn", "__pycache__", ".DS_Store"];

/// By this file a folder says that it is a cache.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// Its name in the data directory.
const FOLDER: &str = "tools";

/// The directory, made if it is not there.
pub(crate) fn folder(data_dir: &DataDir) -> Result<PathBuf, CommandFailure> {
    data_dir.tools_dir()
}

/// What the folder of a version is called there.
pub(crate) fn name(id: &ToolId, version: &Version) -> String {
    format!("{id}-{version}")
}

/// What came of keeping a folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeepOutcome {
    /// It is there now.
    New(PathBuf),
    /// It was there, with the same files.
    AsBefore,
    /// It was there with other files than those that were put there, which are there again (KEPT-4).
    Restored,
}

/// What a kept folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// What was put there.
    AsAdded,
    /// Something else, or what cannot be read.
    Altered,
    /// It was put there by a release that recorded nothing.
    Unrecorded,
}

/// Copies a tool folder to where the server keeps them.
pub(crate) fn keep(
    data_dir: &DataDir,
    from: &Path,
    id: &ToolId,
    version: &Version,
) -> Result<KeepOutcome, CommandFailure> {
    let name = name(id, version);
    let kept = folder(data_dir)?;
    let place = kept.join(&name);
    let root = from.canonicalize().map_err(|error| unreadable(from, &error))?;
    if kept.canonicalize().is_ok_and(|kept| kept.starts_with(&root)) {
        return Err(CommandFailure::new("the data directory is inside of the tool's folder")
            .hint("keep the folder of a tool apart from the data: a folder of its own for each tool"));
    }
    let files = listed(&root)?;
    let digest = digest(&root, &files).map_err(|error| unreadable(from, &error))?;
    let is_there = place.try_exists().map_err(|error| unreadable(&place, &error))?;
    if is_there && is_same(&root, &place, &files) {
        return Ok(KeepOutcome::AsBefore);
    }
    if is_there && recorded(&place).as_ref() != Some(&digest) {
        return Err(CommandFailure::new(format!("`{id}` {version} is kept already, with other files"))
            .hint("raise `version` in the manifest: what was published never changes"));
    }
    let own = std::process::id();
    let (incoming, former) = (kept.join(format!(".{name}.{own}")), kept.join(format!(".{name}.{own}.former")));
    let copied = copy(&root, &incoming, &files)
        .and_then(|()| if is_there { fs::rename(&place, &former) } else { fs::write(record_of(&place), &digest) })
        .and_then(|()| fs::rename(&incoming, &place))
        .map_err(|error| {
            CommandFailure::new(format!("the folder cannot be copied to where the server keeps tools: {error}"))
        });
    if copied.is_err() {
        // Nothing looks at it; the next attempt begins anew.
        let _ = fs::remove_dir_all(&incoming);
    }
    if is_there && let Err(error) = fs::remove_dir_all(&former) {
        tracing::warn!(%error, "a folder that was altered stays in the data directory under a hidden name");
    }
    copied.map(|()| if is_there { KeepOutcome::Restored } else { KeepOutcome::New(place) })
}

/// Takes back what [`keep`] has just put there.
pub(crate) fn take_back(place: &Path) {
    if let Err(error) = fs::remove_dir_all(place).and_then(|()| fs::remove_file(record_of(place))) {
        tracing::warn!(%error, "a folder of a tool that is not registered stays in the data directory");
    }
}

/// Does a kept folder hold what was put there? Reads all of it.
pub(crate) fn content(place: &Path) -> CopyState {
    let Some(recorded) = recorded(place) else { return CopyState::Unrecorded };
    match listed(place).ok().and_then(|files| digest(place, &files).ok()) {
        Some(digest) if digest == recorded => CopyState::AsAdded,
        _ => CopyState::Altered,
    }
}

/// Records what a folder holds that was put there when nothing was recorded.
pub(crate) fn record(place: &Path) -> Result<(), CommandFailure> {
    let digest = digest(place, &listed(place)?).map_err(|error| unreadable(place, &error))?;
    fs::write(record_of(place), digest).map_err(|error| unreadable(place, &error))
}

/// The folders that are kept and do not hold what was put there, by their names, and how many there are in all.
pub(crate) fn altered(data_dir: &DataDir) -> (Vec<String>, usize) {
    let folders = super::find(&[data_dir.path().join(FOLDER)]).tools;
    let altered = folders.iter().filter(|tool| content(&tool.folder) == CopyState::Altered);
    let names = altered.map(|tool| tool.folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
    (names.collect(), folders.len())
}

/// Where it is recorded what a folder holds: under a hidden name, which is no tool's.
fn record_of(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.digest"))
}

fn recorded(place: &Path) -> Option<String> {
    fs::read_to_string(record_of(place)).ok()
}

/// One digest over names, kinds and contents.
fn digest(root: &Path, files: &[(PathBuf, Kind)]) -> std::io::Result<String> {
    let mut files: Vec<&(PathBuf, Kind)> = files.iter().collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    let mut whole = Sha256::new();
    // Each part with its length before it: no two folders are one text.
    let mut add = |part: &[u8]| {
        whole.update(u64::saturating_from(part.len()).to_be_bytes());
        whole.update(part);
    };
    for (way, kind) in files {
        add(way.as_os_str().as_bytes());
        match kind {
            Kind::Folder => add(b"folder"),
            Kind::Link(leads) => {
                add(b"link");
                add(leads.as_os_str().as_bytes());
            }
            Kind::File { runs } => {
                add(if *runs { b"program" } else { b"file" });
                let mut content = Sha256::new();
                std::io::copy(&mut fs::File::open(root.join(way))?, &mut content)?;
                add(&content.finalize());
            }
        }
    }
    let hex: String = whole.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}

/// What a folder holds, each by its way from the folder; folders before what is in them.
fn listed(root: &Path) -> Result<Vec<(PathBuf, Kind)>, CommandFailure> {
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
                return Err(CommandFailure::new(format!("`{}` is neither a file nor a folder", way.display()))
                    .hint("take it out of the tool's folder"));
            };
            found.push((way, kind));
            if found.len() > ENTRIES_MAX || bytes > BYTES_MAX {
                return Err(CommandFailure::new(format!(
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
fn inner_link(root: &Path, way: &Path) -> Result<PathBuf, CommandFailure> {
    let written = fs::read_link(root.join(way)).map_err(|error| unreadable(way, &error))?;
    let leads = root.join(way).canonicalize();
    if written.is_relative() && leads.is_ok_and(|leads| leads.starts_with(root)) {
        return Ok(written);
    }
    Err(CommandFailure::new(format!("`{}` is a link that leads out of the folder, or nowhere", way.display()))
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

fn unreadable(way: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be read: {error}", way.display()))
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

    fn keep_it(data: &DataDir, tool: &Path) -> Result<KeepOutcome, CommandFailure> {
        keep(data, tool, &"demo.greet".parse().unwrap(), &Version::parse("1.0.0").unwrap())
    }

    #[test]
    fn a_folder_is_kept_whole_and_readable_and_only_once() {
        let (_dir, data, tool) = stage();
        let Ok(KeepOutcome::New(place)) = keep_it(&data, &tool) else { panic!("not kept") };
        assert_eq!(place.file_name().unwrap(), "demo.greet-1.0.0");
        assert_eq!(fs::read_to_string(place.join("run")).unwrap(), "echo");
        assert!(!place.join("__pycache__").try_exists().unwrap() && !place.join("target").try_exists().unwrap());
        assert_eq!(fs::metadata(place.join("lib/run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(keep_it(&data, &tool).unwrap(), KeepOutcome::AsBefore);
        assert_eq!(fs::read_dir(data.tools_dir().unwrap()).unwrap().count(), 2, "nothing half-made is left");
        take_back(&place);
        assert_eq!(fs::read_dir(data.tools_dir().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_kept_folder_that_was_changed_is_found_and_the_folder_it_came_from_puts_it_back() {
        let (_dir, data, tool) = stage();
        let Ok(KeepOutcome::New(place)) = keep_it(&data, &tool) else { panic!("not kept") };
        type Change = fn(&Path);
        let changes: [(&str, Change); 5] = [
            ("another content", |place| fs::write(place.join("lib/run.sh"), "rm").unwrap()),
            ("one more file", |place| fs::write(place.join("lib/more.sh"), "").unwrap()),
            ("one file less", |place| fs::remove_file(place.join("lib/run.sh")).unwrap()),
            ("a program that was none", |place| {
                fs::set_permissions(place.join("tool.toml"), Permissions::from_mode(0o755)).unwrap();
            }),
            ("a link out of it", |place| symlink("/etc/passwd", place.join("out")).unwrap()),
        ];
        for (what, change) in changes {
            assert_eq!(content(&place), CopyState::AsAdded, "{what}");
            assert_eq!(altered(&data), (vec![], 1), "{what}");
            change(&place);
            assert_eq!(content(&place), CopyState::Altered, "{what}");
            assert_eq!(altered(&data), (vec!["demo.greet-1.0.0".to_owned()], 1), "{what}");
            assert_eq!(keep_it(&data, &tool).unwrap(), KeepOutcome::Restored, "{what}");
            assert_eq!(fs::read_dir(data.tools_dir().unwrap()).unwrap().count(), 2, "{what}");
        }
        // What tools make for themselves is not theirs.
        fs::create_dir_all(place.join("lib/__pycache__")).unwrap();
        assert_eq!(content(&place), CopyState::AsAdded);
        // Other files than those that were added put nothing back.
        fs::write(place.join("lib/run.sh"), "rm").unwrap();
        fs::write(tool.join("lib/run.sh"), "echo twice").unwrap();
        assert!(keep_it(&data, &tool).unwrap_err().hint.unwrap().contains("raise `version`"));
        assert_eq!(content(&place), CopyState::Altered);
    }

    #[test]
    fn a_folder_from_a_release_that_recorded_nothing_is_recorded_as_it_is_found() {
        let (_dir, data, tool) = stage();
        let Ok(KeepOutcome::New(place)) = keep_it(&data, &tool) else { panic!("not kept") };
        fs::remove_file(record_of(&place)).unwrap();
        assert_eq!(content(&place), CopyState::Unrecorded);
        record(&place).unwrap();
        assert_eq!(content(&place), CopyState::AsAdded);
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
