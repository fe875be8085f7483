//! What is on this machine, for the inference of permissions.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use upstreams::import::{self, ClosedPath, ImportMachine, PathKind};

use super::nobody;

/// Links that are followed from one path, as the kernel does.
const LINKS_MAX: usize = 40;
/// Bytes of a file that are looked at.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 1_000;

/// The machine this runs on, the environment it runs in, and the file that is read.
#[derive(Debug)]
pub(crate) struct ThisMachine<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// In full; none if it is no file.
    pub(crate) file: Option<PathBuf>,
    /// Are packages installed here when a server is added?
    pub(crate) keeps_packages: bool,
}

impl ImportMachine for ThisMachine<'_> {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        let found = std::fs::metadata(path).ok()?;
        Some(if found.is_dir() { PathKind::Folder } else { PathKind::File })
    }

    fn programs(&self, name: &str) -> Vec<PathBuf> {
        let Some(path) = self.environment.get("PATH") else { return Vec::new() };
        let found = std::env::split_paths(path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
        found.filter(|file| file.is_file()).collect()
    }

    fn really(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn links(&self, path: &Path) -> Vec<PathBuf> {
        let mut links = Vec::new();
        let mut done = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = parts(path);
        while let Some(part) = rest.pop() {
            if part.as_os_str() == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            match std::fs::read_link(&next) {
                Ok(to) if links.len() < LINKS_MAX => {
                    if to.is_absolute() {
                        done = PathBuf::from("/");
                    }
                    rest.extend(parts(&to));
                    links.push(next);
                }
                _ => done = next,
            }
        }
        links
    }

    fn text(&self, path: &Path) -> Option<String> {
        let mut bytes = Vec::new();
        crate::plain_file::open(path).ok()?.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(error) => {
                let end = error.utf8_error().valid_up_to();
                let mut bytes = error.into_bytes();
                bytes.truncate(end);
                String::from_utf8(bytes).ok()
            }
        }
    }

    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX);
        let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.sort();
        found
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).cloned()
    }

    fn file(&self) -> Option<PathBuf> {
        self.file.clone()
    }

    fn is_gantry(&self, program: &str) -> bool {
        let found = if program.contains('/') {
            Some(PathBuf::from(program))
        } else {
            self.programs(program).into_iter().next()
        };
        let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
        found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| Some(found) == own)
    }

    fn keeps_packages(&self) -> bool {
        self.keeps_packages
    }

    /// Where Gantry is root, servers are nobody: a folder for its owner alone is closed to them.
    fn closed(&self, path: &Path, write: bool) -> Option<ClosedPath> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let found = std::fs::metadata(path).ok()?;
        let needed = if write { nobody::READ | nobody::WRITE } else { nobody::READ };
        let closed = if !nobody::may(path, &found, needed) {
            path.to_owned()
        } else if write && found.is_dir() {
            nobody::closed_below(path)?
        } else {
            return None;
        };
        let place = closed.display();
        let shown = path.display();
        let (word, rights) = if write { ("write to", "rwX") } else { ("read", "rX") };
        if self.opens_secrets(path) {
            let why = format!(
                "it runs as nobody, because Gantry runs as root, and could not {word} `{place}`, which nobody else should: \
                 give it a folder of its own that has no secrets in it"
            );
            return Some(ClosedPath { why, command: None });
        }
        let why = format!("it runs as nobody, because Gantry runs as root, and could not {word} `{place}`");
        let quoted = crate::shell_word::quoted(&shown.to_string());
        // For this one alone, where there is a way; else for everybody on the machine.
        let command = if self.programs("setfacl").is_empty() {
            format!("chmod -R o+{rights} {quoted}")
        } else {
            let user = nobody::NOBODY;
            // What is made there later, too.
            let later = if found.is_dir() { format!(" -m d:u:{user}:{rights}") } else { String::new() };
            format!("setfacl -R -m u:{user}:{rights}{later} {quoted}")
        };
        Some(ClosedPath { why, command: Some(command) })
    }
}

impl ThisMachine<'_> {
    /// Is it where the system keeps its own?
    pub(crate) fn is_systems(&self, path: &Path) -> bool {
        import::is_system(&self.really(path))
    }

    /// Is it a home, a folder with homes in it, or the data directory of a Gantry? Whoever opens these to one server opens keys and
    /// tokens to everybody on the machine.
    fn opens_secrets(&self, path: &Path) -> bool {
        let homes = ["/root", "/home"].map(PathBuf::from).into_iter().chain(self.variable("HOME").map(PathBuf::from));
        path.parent() == Some(Path::new("/home"))
            || homes.into_iter().any(|home| home.starts_with(path))
            || path.ancestors().any(|place| place.join(crate::data_dir::ADMIN_TOKEN).symlink_metadata().is_ok())
            || super::trial::is_secret_place(path)
    }
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn machine(environment: &BTreeMap<String, String>) -> ThisMachine<'_> {
        ThisMachine { environment, file: None, keeps_packages: false }
    }

    #[test]
    fn homes_and_data_directories_are_never_to_be_opened_to_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let (data, notes) = (dir.path().join("data"), dir.path().join("notes"));
        for folder in [&data, &notes] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(data.join(crate::data_dir::ADMIN_TOKEN), "x").unwrap();
        let environment = BTreeMap::from([("HOME".to_owned(), "/var/people/ada".to_owned())]);
        let machine = machine(&environment);
        let home = Path::new("/home").join("ada");
        for path in [&*data, Path::new("/root"), Path::new("/home"), &*home, Path::new("/var/people")] {
            assert!(machine.opens_secrets(path), "{}", path.display());
        }
        for path in [&*notes, &*home.join("notes"), Path::new("/var/people/ada/notes"), Path::new("/srv")] {
            assert!(!machine.opens_secrets(path), "{}", path.display());
        }
    }

    #[test]
    fn every_link_on_the_way_is_told_where_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("v1/bin")).unwrap();
        std::fs::create_dir(root.join("venv")).unwrap();
        std::fs::write(root.join("v1/bin/python3.1"), "\u{7f}ELF\u{ff}").unwrap();
        symlink("v1", root.join("newest")).unwrap();
        symlink("python3.1", root.join("v1/bin/python3")).unwrap();
        symlink(root.join("newest/bin/python3"), root.join("venv/python")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let nothing = BTreeMap::new();
        let machine = machine(&nothing);
        let links = machine.links(&root.join("venv/../venv/python"));
        assert_eq!(links, ["venv/python", "newest", "v1/bin/python3"].map(|name| root.join(name)));
        assert_eq!(machine.links(&root.join("v1/bin/python3.1")), [""; 0].map(PathBuf::from));
        assert_eq!(machine.links(&root.join("loop")).len(), LINKS_MAX);
        assert_eq!(machine.entries(&root.join("v1/bin")).len(), 2);
        assert!(machine.entries(&root.join("absent")).is_empty());
    }

    #[test]
    fn of_a_file_as_much_is_read_as_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let (script, program) = (dir.path().join("script"), dir.path().join("program"));
        std::fs::write(&script, "#!/usr/bin/env node\n").unwrap();
        std::fs::write(&program, b"ab\xff\xffcd").unwrap();
        let nothing = BTreeMap::new();
        assert_eq!(machine(&nothing).text(&script).as_deref(), Some("#!/usr/bin/env node\n"));
        assert_eq!(machine(&nothing).text(&program).as_deref(), Some("ab"));
        assert_eq!(machine(&nothing).text(dir.path()), None);
    }
}
