//! Packages of npm and PyPI that servers are started from: installed once, pinned, and shown to the server for reading only.
//!
//! `npx` and `uvx` look a package up at each start, which needs the network, takes seconds, and runs tomorrow whatever is
//! published tomorrow. So a package is installed once, when the server is added, into a folder of the installation
//! (decision 0090). A description names the package by its pin; where the folder lies is each instance's own matter.
//!
//! Invariants
//! - PKG-1: the parts of a pin are single names of files, so that no pin leads out of the folder of packages.
//! - PKG-2: a package is mounted for reading, at [`PACKAGE_ROOT`], whatever the permissions of the server say.
//!
//! Not here: installing one (`gantry server add`), and who may name one (`admission`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where a server sees its package. No permission can name a path there.
pub const PACKAGE_ROOT: &str = "/tool";

/// Longest name of a package, and of a version.
const NAME_CHARS_MAX: usize = 214;
const VERSION_CHARS_MAX: usize = 128;
/// Characters of a digest in the name of a folder.
const DIGEST_CHARS_SHOWN: usize = 16;
/// How a digest begins, and how many hexadecimal digits follow.
const DIGEST_KIND: &str = "sha256:";
const DIGEST_DIGITS: usize = 64;
/// Words of a runner that are kept.
const WORDS_MAX: usize = 64;

/// Where a package comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageRegistry {
    Npm,
    Pypi,
}

/// One version of a package, with everything it needs, as it was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackagePin {
    pub registry: PackageRegistry,
    pub name: String,
    pub version: String,
    /// `sha256:` and the digest of the lock file, in which every package has a digest of its own.
    pub digest: String,
    /// The words that named it, such as `npx -y name@latest`, without the arguments of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
}

impl PackageRegistry {
    /// Its word in paths and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
        }
    }

    /// Arguments in front of the server's own: a script behind its interpreter.
    pub fn leading_args(self) -> usize {
        match self {
            Self::Npm => 0,
            Self::Pypi => 1,
        }
    }
}

impl PackagePin {
    /// Its folder below the folder of packages; `None` if a part of it is no name (PKG-1).
    pub fn folder(&self) -> Option<PathBuf> {
        let digits = self.digest.strip_prefix(DIGEST_KIND)?;
        let is_digest = digits.len() == DIGEST_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let version = self.version.as_str();
        let is_version = version.len() <= VERSION_CHARS_MAX && is_file_name(version);
        let name = self.name.as_str();
        let mut parts = name.strip_prefix('@').map_or(name, |scoped| scoped).split('/');
        let (first, second) = (parts.next()?, parts.next());
        let is_name = name.len() <= NAME_CHARS_MAX
            && is_file_name(first)
            && second.is_none_or(is_file_name)
            && second.is_some() == name.starts_with('@')
            && parts.next().is_none();
        if !(is_digest && is_version && is_name && self.written.len() <= WORDS_MAX) {
            return None;
        }
        let shown = digits.get(..DIGEST_CHARS_SHOWN)?;
        Some(Path::new(self.registry.as_str()).join(name).join(format!("{version}-{shown}")))
    }

    /// For people: `name 1.2.3 (pinned, sha256:0123456789ab)`.
    pub fn sentence(&self) -> String {
        let digest = self.digest.get(..DIGEST_KIND.len() + 12).unwrap_or(&self.digest);
        format!("{} {} (pinned, {digest})", self.name, self.version)
    }
}

/// A name of one file that is no step elsewhere.
fn is_file_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '!' | '~');
    !text.is_empty() && !text.starts_with('.') && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(name: &str, version: &str, digest: &str) -> PackagePin {
        PackagePin {
            registry: PackageRegistry::Npm,
            name: name.into(),
            version: version.into(),
            digest: digest.into(),
            written: Vec::new(),
        }
    }

    #[test]
    fn no_pin_leads_out_of_the_folder_of_packages() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let fine = pin("@scope/name", "1.2.3-rc.1+x", &digest);
        assert_eq!(fine.folder().unwrap(), Path::new("npm/@scope/name/1.2.3-rc.1+x-0123456789abcdef"));
        assert_eq!(fine.sentence(), "@scope/name 1.2.3-rc.1+x (pinned, sha256:0123456789ab)");
        for (name, version) in [
            ("..", "1"),
            ("@../x", "1"),
            ("@a/../b", "1"),
            ("a/b", "1"),
            ("@a", "1"),
            ("/etc", "1"),
            ("", "1"),
            ("a", ""),
            ("a", ".."),
            ("a", "1/2"),
            ("a\0b", "1"),
        ] {
            assert_eq!(pin(name, version, &digest).folder(), None, "{name} {version}");
        }
        for wrong in ["", "sha256:", "sha256:xyz", "md5:0123", digest.trim_end_matches('f')] {
            assert_eq!(pin("a", "1", wrong).folder(), None, "{wrong}");
        }
    }
}
