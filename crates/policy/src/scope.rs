//! Scopes: what a call may touch, in the syntax of `required_permissions` (MAN-011, X-57).
//!
//! A granted scope covers a required one when both are equal, when the granted one is `*`, or when it ends in `:*` and
//! the required one continues from there. There is no other magic: `filesystem:read:/data` covers itself only.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest scope text.
const SCOPE_CHARS_MAX: usize = 1024;

/// A scope, granted or required.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Box<str>);

/// Why a scope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a scope is `*` or `kind:what` without spaces, at most {SCOPE_CHARS_MAX} characters, for example `tool:*` or `network:https://api.example.com`"
)]
pub struct ScopeError;

impl Scope {
    /// The scope as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Does this granted scope cover the `required` one?
    ///
    /// ```
    /// # use gantry_policy::Scope;
    /// let granted: Scope = "network:*".parse().unwrap();
    /// assert!(granted.covers("network:https://api.example.com"));
    /// assert!(!granted.covers("networks:x") && !granted.covers("filesystem:read:/"));
    /// ```
    pub fn covers(&self, required: &str) -> bool {
        match &*self.0 {
            "*" => true,
            text => match text.strip_suffix('*') {
                Some(prefix) => prefix.ends_with(':') && required.starts_with(prefix) && required.len() > prefix.len(),
                None => text == required,
            },
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let fine = text.chars().count() <= SCOPE_CHARS_MAX
            && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
            && (text == "*"
                || text.split_once(':').is_some_and(|(kind, what)| {
                    !what.is_empty() && !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
                }));
        if fine { Ok(Self(text.into())) } else { Err(ScopeError) }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_only_after_a_colon_and_never_for_nothing() {
        let covers = |granted: &str, required| granted.parse::<Scope>().unwrap().covers(required);
        assert!(covers("*", "anything:at:all"));
        assert!(covers("filesystem:read:*", "filesystem:read:/data"));
        assert!(!covers("filesystem:read:/data*", "filesystem:read:/database"));
        assert!(!covers("filesystem:*", "filesystem:"));
        assert!(!covers("filesystem:read:/data", "filesystem:read:/data/x"));
    }

    #[test]
    fn malformed_scopes_are_refused() {
        for bad in ["", "x", ":x", "x:", "X:y", "a b:c", "a:b c", "a:\u{7}"] {
            assert!(bad.parse::<Scope>().is_err(), "{bad:?}");
        }
    }
}
