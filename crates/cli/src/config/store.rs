//! `[store]`: where the durable truth is.

use std::path::{Path, PathBuf};

use super::key::{Key, Kind};
use super::settings::{Problem, Settings};

/// Which store.
pub(crate) const URL: Key = Key {
    section: "store",
    name: "url",
    kind: Kind::Text,
    default: None,
    unset: "`gantry.db` in the data directory",
    doc: "`sqlite:PATH`, a file on this machine's own disk. `postgres://…` is not in this build and is refused.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&URL];

/// The section's values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoreSection {
    /// `None`: in the data directory.
    file: Option<PathBuf>,
}

impl StoreSection {
    pub(super) fn read(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Self> {
        match parse(settings.text(&URL)) {
            Ok(section) => Some(section),
            Err(message) => {
                problems.push(Problem::new(URL.title(), message));
                None
            }
        }
    }

    /// The database file.
    pub(crate) fn file(&self, data_dir: &Path) -> PathBuf {
        self.file.clone().unwrap_or_else(|| data_dir.join("gantry.db"))
    }
}

/// Messages do not repeat the URL: it may hold a password.
fn parse(url: Option<&str>) -> Result<StoreSection, String> {
    let Some(url) = url else { return Ok(StoreSection { file: None }) };
    match url.strip_prefix("sqlite:") {
        Some("" | ":memory:") => {
            Err("`sqlite:` needs the path of a file, for example sqlite:/var/lib/gantry/gantry.db".into())
        }
        // `sqlite:///abs/path` is how other programs write it.
        Some(path) => Ok(StoreSection { file: Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path))) }),
        None if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Err("PostgreSQL is not in this build; use sqlite:PATH, or leave it out for a file in the data directory"
                .into())
        }
        None => Err("must be sqlite:PATH".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_is_a_store() {
        let dir = Path::new("/data");
        for (url, expected) in [
            (None, Some("/data/gantry.db")),
            (Some("sqlite:x.db"), Some("x.db")),
            (Some("sqlite:/abs/x.db"), Some("/abs/x.db")),
            (Some("sqlite:///abs/x.db"), Some("/abs/x.db")),
            (Some("sqlite:"), None),
            (Some("sqlite::memory:"), None),
            (Some("postgresql://x"), None),
            (Some("/abs/x.db"), None),
        ] {
            assert_eq!(parse(url).ok().map(|section| section.file(dir)), expected.map(PathBuf::from), "{url:?}");
        }
    }
}
