//! Manifests on disk: `tool.toml`, `tool.json`, `tool.yaml` or `tool.yml`.

use std::io::Read;
use std::path::{Path, PathBuf};

use contract::error::ErrorCode;
use contract::manifest::{Manifest, ManifestError, ManifestFormat};

use crate::failure::CommandFailure;
use crate::plain_file;

/// The names a folder's manifest may have.
pub(crate) const NAMES: [&str; 4] = ["tool.toml", "tool.json", "tool.yaml", "tool.yml"];
/// A manifest is a page or two; the server takes no more than this either.
const BYTES_MAX: u64 = 1 << 20;

/// Why there is no manifest to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestFileError {
    #[error("`{name}` cannot be read: {source}")]
    Unreadable { name: String, source: std::io::Error },
    #[error("`{name}` has more than {BYTES_MAX} bytes, which is no manifest")]
    TooLarge { name: String },
    #[error("there is no file or folder `{name}` here")]
    Absent { name: String },
    #[error("`{name}` is neither a .toml, .json, .yaml nor .yml file")]
    Format { name: String },
    #[error("`{name}` has several manifests ({}): keep one", found.join(", "))]
    Several { name: String, found: Vec<&'static str> },
    #[error("`{name}` has no manifest: a tool folder has a tool.toml, tool.json or tool.yaml")]
    None { name: String },
    #[error("`{name}`: {error}")]
    Refused {
        name: String,
        error: ManifestError,
        /// What it says all the same, if it has the shape of a manifest: it may have been published under earlier rules.
        written: Option<Box<Manifest>>,
    },
}

impl ManifestFileError {
    /// Every single reason.
    pub(crate) fn reasons(&self) -> Vec<String> {
        match self {
            Self::Refused { error, .. } => error.findings().iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        }
    }
}

impl From<ManifestFileError> for CommandFailure {
    fn from(error: ManifestFileError) -> Self {
        match &error {
            ManifestFileError::Refused { name, .. } => Self::new(format!("`{name}` is not admitted"))
                .code(ErrorCode::E3105)
                .reasons(error.reasons())
                .hint("mend every reason; nothing was registered"),
            ManifestFileError::Absent { .. } => Self::new(error.to_string())
                .hint("name the tool's folder, or its manifest; `gantry tool new NAME` makes a folder to start from"),
            _ => Self::new(error.to_string()).hint("`gantry tool new NAME` makes a folder to start from"),
        }
    }
}

/// The manifest of a folder, if it has one.
pub(crate) fn in_folder(folder: &Path) -> Result<Option<PathBuf>, ManifestFileError> {
    let found: Vec<&'static str> = NAMES.into_iter().filter(|name| folder.join(name).is_file()).collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(folder.join(one))),
        _ => Err(ManifestFileError::Several { name: folder.display().to_string(), found }),
    }
}

/// Reads the manifest in `path`: a file, or a folder with one.
pub(crate) fn read(path: &Path) -> Result<Manifest, ManifestFileError> {
    let name = path.display().to_string();
    if path.is_dir() {
        let inside = in_folder(path)?.ok_or(ManifestFileError::None { name })?;
        return read(&inside);
    }
    if matches!(path.try_exists(), Ok(false)) {
        return Err(ManifestFileError::Absent { name });
    }
    let format = path.extension().and_then(|extension| ManifestFormat::from_extension(extension.to_str()?));
    let format = format.ok_or_else(|| ManifestFileError::Format { name: name.clone() })?;
    let file = plain_file::open(path).map_err(|source| ManifestFileError::Unreadable { name: name.clone(), source })?;
    parse(&name, &text_of(&name, file)?, format)
}

/// Reads a manifest from a stream; JSON, TOML or YAML is told by looking.
pub(crate) fn read_stream(name: &str, source: impl Read) -> Result<Manifest, ManifestFileError> {
    let text = text_of(name, source)?;
    let format = if text.trim_start().starts_with('{') {
        ManifestFormat::Json
    } else if toml::from_str::<toml::Table>(&text).is_ok() {
        ManifestFormat::Toml
    } else {
        ManifestFormat::Yaml
    };
    parse(name, &text, format)
}

fn text_of(name: &str, source: impl Read) -> Result<String, ManifestFileError> {
    let mut text = String::new();
    source
        .take(BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|source| ManifestFileError::Unreadable { name: name.to_owned(), source })?;
    if u64::try_from(text.len()).is_ok_and(|length| length <= BYTES_MAX) {
        Ok(text)
    } else {
        Err(ManifestFileError::TooLarge { name: name.to_owned() })
    }
}

fn parse(name: &str, text: &str, format: ManifestFormat) -> Result<Manifest, ManifestFileError> {
    let refused = |error, written: Option<Manifest>| {
        Err(ManifestFileError::Refused { name: name.to_owned(), error, written: written.map(Box::new) })
    };
    let document = match Manifest::document(text, format) {
        Ok(document) => document,
        Err(error) => return refused(error, None),
    };
    let written = Manifest::as_written(&document);
    Manifest::from_value(document).or_else(|error| refused(error, written))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The smallest process tool, under some version.
    pub(crate) fn smallest(version: &str) -> String {
        format!(
            r#"tool_id = "word_stats"
namespace = "demo"
version = "{version}"
name = "Word statistics"
description = "Counts words and characters of a text."
provider = "Demo"
protocol = "native"
side_effect_policy = "pure"
timeout_class = "standard"
parameters = {{ type = "object", properties = {{ text = {{ type = "string", description = "the text" }} }}, required = ["text"] }}
result_schema = {{ type = "object", properties = {{ words = {{ type = "integer" }} }}, required = ["words"] }}
[execution]
type = "process"
command = ["python3", "main.py"]
"#
        )
    }

    #[test]
    fn a_folder_a_file_and_a_stream_give_the_same_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let text = smallest("1.0.0");
        std::fs::write(dir.path().join("tool.toml"), &text).unwrap();
        let from_folder = read(dir.path()).unwrap();
        assert_eq!(read(&dir.path().join("tool.toml")).unwrap(), from_folder);
        assert_eq!(read_stream("stdin", text.as_bytes()).unwrap(), from_folder);
        let json = serde_json::to_string(&from_folder).unwrap();
        assert_eq!(read_stream("stdin", json.as_bytes()).unwrap(), from_folder);
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path()), Err(ManifestFileError::None { .. })));
        assert!(matches!(read(&dir.path().join("tool.toml")), Err(ManifestFileError::Absent { .. })));
        std::fs::write(dir.path().join("x.txt"), "").unwrap();
        assert!(matches!(read(&dir.path().join("x.txt")), Err(ManifestFileError::Format { .. })));
        std::fs::write(dir.path().join("tool.toml"), "tool_id = 'x'").unwrap();
        let refused = read(dir.path()).unwrap_err();
        assert!(refused.reasons().len() > 3, "every reason at once: {refused}");
        std::fs::write(dir.path().join("tool.json"), "{}").unwrap();
        assert!(matches!(read(dir.path()), Err(ManifestFileError::Several { .. })));
        assert!(matches!(
            read_stream("stdin", " ".repeat(2 << 20).as_bytes()),
            Err(ManifestFileError::TooLarge { .. })
        ));
    }
}
