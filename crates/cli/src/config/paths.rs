//! Paths in the configuration: a key that names files or folders of this machine has a type that says what they are to the server.
//!
//! Two things follow from the types and from nothing else: which places are kept from tools (`reach`), and which values are
//! resolved against the folder of the configuration file they stand in.
//!
//! Invariants
//! - PATHS-1: what a configuration file says is the same wherever the server is started: a relative path in it is one in the
//!   folder of the file. In the environment and in flags it is one in the working directory.
//! - PATHS-2: a value without a path stays as it is, byte for byte.
//!
//! Not here: `--data-dir` and `--config`, which are no settings; what a tool may be given (`executors::confinement`).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use store::postgres;

use super::key::ConfigKey;
use super::settings::{EffectiveSettings, all_keys};
use super::value::KeyValue;

/// Where a schema says which paths are in a text.
pub(super) const PATHS: &str = "x-paths";

/// What a file or folder is to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathRole {
    /// It holds what is the server's own: records, secrets, private keys. No tool is given it, nor sees a folder that has it.
    Private,
    /// It decides what the server does, runs or trusts. It is no secret, but who may write it may do everything.
    Control,
    /// It bounds what tools are given and is no place of the server's.
    Bound,
}

/// Where in a text the path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathShape {
    /// It is the text.
    Text,
    /// The same, and the section refuses what does not begin with `/`.
    AbsoluteText,
    /// What stands behind the first `=`.
    AfterEquals,
    /// `sqlite:PATH`.
    SqliteAddress,
    /// `sslrootcert=FILE` in the address of a database.
    DatabaseRoots,
}

/// One path that a text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathUse {
    pub(super) role: PathRole,
    pub(super) shape: PathShape,
}

impl PathUse {
    const fn of(role: PathRole, shape: PathShape) -> Self {
        Self { role, shape }
    }
}

/// The paths that the texts of a type have.
pub(crate) trait PathMeaning: 'static {
    const USE: PathUse;
}

/// A text with a path, of a type that says what the path is.
pub(crate) struct PathText<M> {
    text: String,
    meaning: PhantomData<fn() -> M>,
}

/// The server's own.
pub(crate) type PrivatePath = PathText<PrivateMeaning>;
/// What it goes by.
pub(crate) type ControlPath = PathText<ControlMeaning>;
/// What tools may be given at most.
pub(crate) type BoundPath = PathText<BoundMeaning>;
/// The same, which begins with `/`.
pub(crate) type AbsoluteBoundPath = PathText<AbsoluteBoundMeaning>;
/// `NAME=FOLDER`, what the server goes by.
pub(crate) type NamedControlPath = PathText<NamedControlMeaning>;

/// For [`PrivatePath`].
pub(crate) enum PrivateMeaning {}
/// For [`ControlPath`].
pub(crate) enum ControlMeaning {}
/// For [`BoundPath`].
pub(crate) enum BoundMeaning {}
/// For [`AbsoluteBoundPath`].
pub(crate) enum AbsoluteBoundMeaning {}
/// For [`NamedControlPath`].
pub(crate) enum NamedControlMeaning {}

impl PathMeaning for PrivateMeaning {
    const USE: PathUse = PathUse::of(PathRole::Private, PathShape::Text);
}
impl PathMeaning for ControlMeaning {
    const USE: PathUse = PathUse::of(PathRole::Control, PathShape::Text);
}
impl PathMeaning for BoundMeaning {
    const USE: PathUse = PathUse::of(PathRole::Bound, PathShape::Text);
}
impl PathMeaning for AbsoluteBoundMeaning {
    const USE: PathUse = PathUse::of(PathRole::Bound, PathShape::AbsoluteText);
}
impl PathMeaning for NamedControlMeaning {
    const USE: PathUse = PathUse::of(PathRole::Control, PathShape::AfterEquals);
}

impl<M> PathText<M> {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), meaning: PhantomData }
    }

    /// As it is written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

impl<M> AsRef<str> for PathText<M> {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl<M> From<PathText<M>> for PathBuf {
    fn from(path: PathText<M>) -> Self {
        path.text.into()
    }
}

impl<M> fmt::Debug for PathText<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl<M> Serialize for PathText<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de, M> Deserialize<'de> for PathText<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl<M: PathMeaning> JsonSchema for PathText<M> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PathText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", PATHS: [M::USE] })
    }
}

/// Every path in force that has this role, as it stands in the configuration.
pub(crate) fn paths_in(settings: &EffectiveSettings, role: PathRole) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for key in all_keys() {
        let Some((value, _)) = settings.get(key) else { continue };
        let mut value = value.value().clone();
        visit(&key.schema, &mut value, &mut |path_use, path| {
            if path_use.role == role {
                found.push(PathBuf::from(path));
            }
            path.to_owned()
        });
    }
    found
}

/// The value with every relative path in it resolved against a folder (PATHS-1).
pub(crate) fn resolved(key: &ConfigKey, value: &KeyValue, folder: &Path) -> KeyValue {
    let mut full = value.value().clone();
    visit(&key.schema, &mut full, &mut |path_use, path| match path_use.shape {
        PathShape::AbsoluteText => path.to_owned(),
        _ if Path::new(path).is_absolute() => path.to_owned(),
        // A folder whose name is no text cannot stand in a value; it is refused before (`ConfigFile`).
        _ => folder.join(path).display().to_string(),
    });
    value.with(full)
}

/// Does the key name files?
pub(crate) fn names_files(key: &ConfigKey) -> bool {
    says_paths(&key.schema)
}

fn says_paths(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key(PATHS) || members.values().any(says_paths),
        Value::Array(items) => items.iter().any(says_paths),
        _ => false,
    }
}

/// Replaces each path in a value, wherever the schema says that there is one.
fn visit(schema: &Value, value: &mut Value, replace: &mut dyn FnMut(PathUse, &str) -> String) {
    match value {
        Value::String(text) => {
            for path_use in uses(schema) {
                *text = path_use.shape.map(std::mem::take(text), &mut |path| replace(path_use, path));
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| visit(schema, item, replace));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(schema) = schema.get("properties").and_then(|known| known.get(name)) {
                    visit(schema, member, replace);
                }
            }
        }
        _ => {}
    }
    for schema in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        visit(schema, value, replace);
    }
}

fn uses(schema: &Value) -> Vec<PathUse> {
    // INVARIANT: only types of ours say it, with values of this very type.
    schema.get(PATHS).and_then(|uses| Vec::deserialize(uses).ok()).unwrap_or_default()
}

impl PathShape {
    /// The text with the path in it replaced. An empty path is none: it stands for an unset key.
    fn map(self, text: String, replace: &mut dyn FnMut(&str) -> String) -> String {
        match self {
            Self::Text | Self::AbsoluteText if text.is_empty() => text,
            Self::Text | Self::AbsoluteText => replace(&text),
            Self::AfterEquals => match text.split_once('=') {
                Some((name, path)) if !path.trim().is_empty() => format!("{name}={}", replace(path.trim())),
                _ => text,
            },
            Self::SqliteAddress => {
                match text.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path)) {
                    Some("" | ":memory:") | None => text,
                    Some(path) => format!("sqlite:{}", replace(path)),
                }
            }
            Self::DatabaseRoots => match postgres::root_certificates(&text).as_deref().and_then(Path::to_str) {
                Some(file) if text.starts_with("postgres") && !file.is_empty() => {
                    postgres::with_root_certificates(&text, &replace(file))
                }
                _ => text,
            },
        }
    }
}

#[cfg(test)]
mod tests;
