//! `[secrets]`: where the credentials of tools come from.

use std::path::{Path, PathBuf};

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

const DIR: ConfigKey = ConfigKey {
    section: "secrets",
    name: "dir",
    kind: KeyKind::Text,
    default: None,
    unset: "`secrets` in the data directory",
    doc: "Folder with the credentials of tools: the file `<tenant>/<name>` is what `credentials:name` gives to a tool that a \
          caller of that tenant calls. Files must be readable by their owner only (mode 600). Read anew for every call.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&DIR];

/// The section's values.
#[derive(Debug)]
pub(crate) struct SecretsSection {
    dir: Option<PathBuf>,
}

impl SecretsSection {
    pub(super) fn read(settings: &EffectiveSettings) -> Self {
        Self { dir: settings.text(&DIR).map(PathBuf::from) }
    }

    /// The folder.
    pub(crate) fn dir(&self, data_dir: &Path) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| data_dir.join("secrets"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_the_data_directory_unless_they_are_elsewhere() {
        let data = Path::new("/data");
        assert_eq!(SecretsSection { dir: None }.dir(data), data.join("secrets"));
        assert_eq!(SecretsSection { dir: Some("/mnt/s".into()) }.dir(data), Path::new("/mnt/s"));
    }
}
