//! `[secrets]`: where the credentials of tools come from.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::PrivatePath;
use super::problems::SectionProblems;
use super::section::ConfigSection;

/// Where the credentials of tools come from.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct SecretsKeys {
    /// Folder with the credentials of tools: the file `<tenant>/<name>` is what `credentials:name` gives to a tool that a
    /// caller of that tenant calls. Files must be readable by their owner only (mode 600). Read anew for every call.
    #[schemars(extend("x-unset" = "`secrets` in the data directory"))]
    pub(super) dir: Option<PrivatePath>,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct SecretsSection {
    dir: Option<PathBuf>,
}

impl ConfigSection for SecretsKeys {
    const NAME: &'static str = "secrets";
    type Checked = SecretsSection;

    fn checked(self, _: &mut SectionProblems<'_>) -> SecretsSection {
        SecretsSection { dir: self.dir.map(Into::into) }
    }
}

impl SecretsSection {
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
