//! Scopes: what a call may touch, in the syntax of `required_permissions` (MAN-011, X-57, AUTH-013).
//!
//! | scope                       | covers                                                                               |
//! |-----------------------------|--------------------------------------------------------------------------------------|
//! | `*`                         | everything, also what no other scope could                                           |
//! | `kind:*`, `kind:a:*`        | all that begins so and goes on; the star stands alone after a colon                  |
//! | `filesystem:read:/data`     | reading `/data` and below, by whole segments (`path`); `write` likewise              |
//! | `filesystem:read:*`         | the same as `filesystem:read:/`                                                      |
//! | `network:https://host/path` | this origin at and below the path; more forms in `network`                           |
//! | any other kind              | itself, letter by letter                                                             |
//!
//! Writing does not include reading: a drop box is a right one may want to give. There are no other modes.
//!
//! A requirement is a scope too, and may have a star: a tool that asks for `network:https://*.example.com` needs all of
//! it. So there is one relation, and "A covers all that B covers" is the same question as "A covers B".
//!
//! Invariants
//! - SCP-1: `covers_scope` is reflexive and transitive; with that, `a.covers_scope(b)` exactly if for every requirement
//!   `r`, `b.covers(r)` implies `a.covers(r)`.
//! - SCP-2: a requirement that is not a scope (`..`, a backslash, an unknown mode …) is covered by `*` only, which says
//!   nothing about places and so cannot be talked into another.
//! - SCP-3: `covers` copies nothing.
//!
//! Not here: which scopes a tool needs (its manifest), and keeping it to them (the sandbox).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use network::Network;

mod host;
mod network;
mod path;
mod place;

pub use network::NetworkError;
pub(crate) use network::UrlScope;
pub use path::PathError;
pub(crate) use path::PathSubtree;
pub use place::{NetworkPlace, PlacePort, ScopeTarget};

/// Longest scope text.
pub(crate) const SCOPE_CHARS_MAX: usize = 1024;

/// A scope, granted or required. Two are equal when their texts are; `a.covers_scope(&b) && b.covers_scope(&a)` tells
/// whether they mean the same.
#[derive(Clone)]
pub struct PermissionScope {
    text: Box<str>,
    target: Target<Box<str>>,
}

/// Why a scope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// Not the general form.
    #[error(
        "a scope is `*` or `kind:what` without spaces, at most {SCOPE_CHARS_MAX} characters, for example `tool:*` or `network:https://api.example.com`"
    )]
    Shape,
    /// A star that would be taken for a pattern and is none.
    #[error("a star in a scope stands alone after the last colon, as in `tool:*`, or before the first dot of a host")]
    Star,
    /// Not a right on files.
    #[error("a scope of this kind is `filesystem:read:/path` or `filesystem:write:/path`")]
    Mode,
    /// The path of a right on files.
    #[error("the scope is refused: {0}")]
    Path(#[from] PathError),
    /// The place of a right on the network.
    #[error("the scope is refused: {0}")]
    Network(#[from] NetworkError),
}

/// What a scope means.
#[derive(Debug, Clone, Copy)]
enum Target<S> {
    Everything,
    /// `None` is both modes.
    Files(Option<Mode>, PathSubtree<S>),
    Network(Network<S>),
    /// All texts that begin with this and go on.
    Below(S),
    Exactly(S),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
}

// ----------------------------------------------------------------------------------------------------------- Scope

impl PermissionScope {
    /// The scope as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Does this granted scope cover the `required` one?
    ///
    /// ```
    /// # use gantry_policy::PermissionScope;
    /// let granted: PermissionScope = "filesystem:read:/data".parse().unwrap();
    /// assert!(granted.covers("filesystem:read:/data/x"));
    /// assert!(!granted.covers("filesystem:read:/database") && !granted.covers("filesystem:read:/data/../etc"));
    /// ```
    pub fn covers(&self, required: &str) -> bool {
        // The first two are the common cases, and cheaper than reading the text.
        matches!(self.target, Target::Everything)
            || *self.text == *required
            || (kind(&self.text) == kind(required)
                && Target::read(required).is_ok_and(|required| self.target.covers(&required)))
    }

    /// Does this scope cover whatever `other` covers?
    ///
    /// ```
    /// # use gantry_policy::PermissionScope;
    /// let granted: PermissionScope = "network:https://*.example.com".parse().unwrap();
    /// assert!(granted.covers_scope(&"network:https://*.eu.example.com/v1".parse().unwrap()));
    /// assert!(!granted.covers_scope(&"network:*".parse().unwrap()));
    /// ```
    pub fn covers_scope(&self, other: &Self) -> bool {
        self.target.covers(&other.target)
    }
}

impl FromStr for PermissionScope {
    type Err = ScopeError;
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Ok(Self { text: text.into(), target: Target::read(text)?.keep() })
    }
}

// ---------------------------------------------------------------------------------------------------------- Target

impl<'t> Target<&'t str> {
    fn read(text: &'t str) -> Result<Self, ScopeError> {
        if text == "*" {
            return Ok(Self::Everything);
        }
        let (kind, what) = text.split_once(':').ok_or(ScopeError::Shape)?;
        let fine = !kind.is_empty()
            && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            && !what.is_empty()
            && !what.chars().any(|c| c.is_whitespace() || c.is_control())
            && (text.len() <= SCOPE_CHARS_MAX || text.chars().count() <= SCOPE_CHARS_MAX);
        match kind {
            _ if !fine => Err(ScopeError::Shape),
            "filesystem" => Self::read_files(what),
            "network" => Ok(Self::Network(Network::read(what)?)),
            _ => match text.strip_suffix('*') {
                Some(prefix) if prefix.ends_with(':') && !prefix.contains('*') => Ok(Self::Below(prefix)),
                _ if text.contains('*') => Err(ScopeError::Star),
                _ => Ok(Self::Exactly(text)),
            },
        }
    }

    fn read_files(what: &'t str) -> Result<Self, ScopeError> {
        if what == "*" {
            return Ok(Self::Files(None, PathSubtree::ROOT));
        }
        let (mode, path) = what.split_once(':').ok_or(ScopeError::Mode)?;
        let mode = match mode {
            "read" => Mode::Read,
            "write" => Mode::Write,
            _ => return Err(ScopeError::Mode),
        };
        match path {
            "*" => Ok(Self::Files(Some(mode), PathSubtree::ROOT)),
            _ => Some(PathSubtree::read(path)?)
                .filter(|path| !path.has_star())
                .map(|path| Self::Files(Some(mode), path))
                .ok_or(ScopeError::Star),
        }
    }

    fn keep(self) -> Target<Box<str>> {
        match self {
            Self::Everything => Target::Everything,
            Self::Files(mode, path) => Target::Files(mode, path.keep()),
            Self::Network(place) => Target::Network(place.keep()),
            Self::Below(prefix) => Target::Below(prefix.into()),
            Self::Exactly(text) => Target::Exactly(text.into()),
        }
    }
}

impl<S: AsRef<str>> Target<S> {
    fn covers<T: AsRef<str>>(&self, other: &Target<T>) -> bool {
        match (self, other) {
            (Self::Everything, _) => true,
            (Self::Files(own, path), Target::Files(mode, below)) => {
                (own.is_none() || own == mode) && path.covers(below)
            }
            (Self::Network(place), Target::Network(inner)) => place.covers(inner),
            (Self::Below(prefix), Target::Exactly(text)) => goes_on(text.as_ref(), prefix.as_ref()),
            (Self::Below(prefix), Target::Below(longer)) => longer.as_ref().starts_with(prefix.as_ref()),
            (Self::Exactly(left), Target::Exactly(right)) => left.as_ref() == right.as_ref(),
            // Written out, so that a new kind of target is a decision and not an accident.
            (_, Target::Everything)
            | (Self::Files(..), Target::Network(_) | Target::Below(_) | Target::Exactly(_))
            | (Self::Network(_), Target::Files(..) | Target::Below(_) | Target::Exactly(_))
            | (Self::Below(_), Target::Files(..) | Target::Network(_))
            | (Self::Exactly(_), Target::Files(..) | Target::Network(_) | Target::Below(_)) => false,
        }
    }
}

/// What stands before the first colon.
fn kind(text: &str) -> Option<&str> {
    text.split_once(':').map(|(kind, _)| kind)
}

/// Does `text` begin with `prefix` and have something after it?
fn goes_on(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty())
}

// ------------------------------------------------------------------------------------------------ as text and data

impl fmt::Display for PermissionScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PermissionScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.text)
    }
}

impl PartialEq for PermissionScope {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PermissionScope {}

impl Hash for PermissionScope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for PermissionScope {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PermissionScope {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Serialize for PermissionScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PermissionScope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
