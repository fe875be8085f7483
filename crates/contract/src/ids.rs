//! Names of things: tools, tenants, agents, invocations, traces. Newtypes, because two `String`s that can be swapped
//! will be.
//!
//! A tool is written `namespace.tool_id` or, without a namespace, `tool_id` (DESIGN §8.8, MAN-003). Both parts follow
//! `^[a-z][a-z0-9_]*$`, so the written form is unambiguous and safe in paths, metrics and log lines.
//!
//! Not here: how ids are made (the port `Entropy`), and which names models see (the MCP door shortens them).

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Shortest and longest `tool_id` (MAN-003).
pub const TOOL_ID_CHARS: std::ops::RangeInclusive<usize> = 3..=255;
/// Longest namespace, tenant and alias.
pub const NAME_CHARS_MAX: usize = 255;
/// The tenant of the zero-configuration profile, whose tools are the shared catalogue (VIS-001, DESIGN §8.7).
pub const HOME_TENANT: &str = "local";
/// Longest DID or other subject name (STORE-004).
pub const SUBJECT_CHARS_MAX: usize = 500;

/// Why a name was refused. The message says what a right one looks like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The tool part has a wrong shape or length.
    #[error(
        "tool id `{given}` must be 3 to 255 characters of a-z, 0-9 and _, starting with a letter, optionally after `namespace.`"
    )]
    ToolId { given: String },
    /// The part before the dot has a wrong shape or length.
    #[error("namespace `{given}` must be 1 to 255 characters of a-z, 0-9 and _, starting with a letter")]
    Namespace { given: String },
    /// A tenant, alias or subject has characters that do not belong in a name.
    #[error("{what} `{given}` must be 1 to {max} printable characters without spaces or control characters")]
    Plain { what: &'static str, given: String, max: usize },
    /// Not a UUID.
    #[error("invocation id `{given}` is not a UUID")]
    InvocationId { given: String },
    /// Not 32 hex digits, or all of them zero.
    #[error("trace id `{given}` is not 32 hexadecimal digits with one that is not zero")]
    TraceId { given: String },
}

/// Does `text` match `^[a-z][a-z0-9_]*$`?
pub fn is_snake_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Cuts a refused value to something that fits an error message.
fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    let mut out: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if text.chars().count() > SHOWN_CHARS_MAX {
        out.push('…');
    }
    out
}

// ---------------------------------------------------------------------------------------------------------- ToolId

/// The canonical name of a tool: `namespace.tool_id` or `tool_id`. Cheap to clone.
///
/// ```
/// use gantry_contract::ids::ToolId;
/// let id: ToolId = "demo.word_stats".parse().unwrap();
/// assert_eq!((id.namespace(), id.local()), (Some("demo"), "word_stats"));
/// assert!("Demo.WordStats".parse::<ToolId>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolId(Arc<str>);

impl ToolId {
    /// Joins an optional namespace and the manifest's `tool_id`.
    pub fn new(namespace: Option<&str>, local: &str) -> Result<Self, NameError> {
        if !is_snake_word(local) || !TOOL_ID_CHARS.contains(&local.len()) {
            return Err(NameError::ToolId { given: shown(local) });
        }
        match namespace {
            None => Ok(Self(local.into())),
            Some(space) if is_snake_word(space) && space.len() <= NAME_CHARS_MAX => {
                Ok(Self(format!("{space}.{local}").into()))
            }
            Some(space) => Err(NameError::Namespace { given: shown(space) }),
        }
    }

    /// The whole written form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the dot, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('.').map(|(space, _)| space)
    }

    /// The part after the dot: the manifest's `tool_id`.
    pub fn local(&self) -> &str {
        self.0.split_once('.').map_or(&*self.0, |(_, local)| local)
    }
}

/// So that maps can be asked by what a caller wrote; what is no tool id is in no map.
impl Borrow<str> for ToolId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('.') {
            Some((space, local)) => Self::new(Some(space), local),
            None => Self::new(None, text),
        }
    }
}

// ------------------------------------------------------------------------------------------------ plain text names

/// Characters that are not seen, or that turn around what is: two names that look alike would not be.
///
/// Unicode's `Default_Ignorable_Code_Point` and `Bidi_Control`, the format characters that stand before digits, musical and
/// shorthand controls, and what is drawn as nothing though it counts as a letter or a symbol.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A printable name without spaces: tenants, agents, token ids.
fn check_plain(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    let fine = !text.is_empty()
        && text.chars().count() <= max
        && text.chars().all(|c| !c.is_whitespace() && !c.is_control() && !is_invisible(c));
    if fine { Ok(()) } else { Err(NameError::Plain { what, given: shown(text), max }) }
}

macro_rules! plain_name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                check_plain($what, text, $max)?;
                Ok(Self(text.into()))
            }
        }

        text_traits!($name);
    };
}

/// `Display`, `Debug`, serde and JSON Schema for a newtype over text that has `as_str` and `FromStr`.
macro_rules! text_traits {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    };
}

text_traits!(ToolId);

plain_name!(
    /// A tenant. The zero-configuration tenant is [`TenantId::home`].
    TenantId,
    "tenant",
    NAME_CHARS_MAX
);
plain_name!(
    /// Who calls: a DID, or a plain name such as `admin`.
    Subject,
    "subject",
    SUBJECT_CHARS_MAX
);

impl TenantId {
    /// The tenant whose tools are the shared catalogue ([`HOME_TENANT`]). Does not allocate.
    pub fn home() -> Self {
        static HOME: LazyLock<TenantId> = LazyLock::new(|| TenantId(HOME_TENANT.into()));
        HOME.clone()
    }

    /// Is this [`TenantId::home`]?
    pub fn is_home(&self) -> bool {
        self.as_str() == HOME_TENANT
    }
}

// ----------------------------------------------------------------------------------------------------- InvocationId

/// One call of one tool. The caller may bring a UUID of its own; otherwise the kernel makes a UUIDv7 (X-39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "Uuid_")]
pub struct InvocationId(pub Uuid);

/// How a UUID shows in the published schemas.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "exists only for its schema")]
struct Uuid_(#[schemars(extend("format" = "uuid"))] String);

impl fmt::Display for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for InvocationId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Uuid::try_parse(text).map(Self).map_err(|_| NameError::InvocationId { given: shown(text) })
    }
}

impl<'de> Deserialize<'de> for InvocationId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

// ---------------------------------------------------------------------------------------------------------- TraceId

/// The W3C trace id that joins everything one call does: 16 bytes, not all zero, written as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// From random bytes; all zero is replaced, because the standard forbids it.
    pub fn from_bytes(mut bytes: [u8; 16]) -> Self {
        if bytes == [0; 16] {
            bytes[15] = 1;
        }
        Self(bytes)
    }

    /// The bytes, as they go over the wire.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Takes the trace id out of a `traceparent` header, `None` if the header is not valid (then a new one is made).
    ///
    /// ```
    /// use gantry_contract::ids::TraceId;
    /// let id = TraceId::from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    /// assert_eq!(id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    /// ```
    pub fn from_traceparent(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lower_hex =
            |s: &str, n| s.len() == n && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let sound = lower_hex(version, 2)
            && version != "ff"
            && lower_hex(trace, 32)
            && lower_hex(span, 16)
            && lower_hex(flags, 2)
            && span.bytes().any(|b| b != b'0')
            && (version != "00" || parts.next().is_none());
        if !sound {
            return None;
        }
        let value = u128::from_str_radix(trace, 16).ok().filter(|v| *v != 0)?;
        Some(Self(value.to_be_bytes()))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for TraceId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = plain.then(|| u128::from_str_radix(text, 16).ok()).flatten().filter(|value| *value != 0);
        value.map(|value| Self(value.to_be_bytes())).ok_or_else(|| NameError::TraceId { given: shown(text) })
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl Serialize for TraceId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for TraceId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TraceId".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_ids_are_snake_case_with_at_most_one_namespace() {
        for good in ["abc", "calculator", "demo.word_stats", "a.bcd", "x9_.y_1_"] {
            assert_eq!(good.parse::<ToolId>().unwrap().to_string(), good);
        }
        let long = "a".repeat(256);
        for bad in ["", "ab", "a.b", "Calc", "9abc", "_abc", "a-b-c", "a.b.cde", ".abc", "abc.", "ab c", "äbc", &long]
        {
            assert!(bad.parse::<ToolId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_look_like_others_by_what_is_not_seen_are_refused() {
        let unseen = "\u{ad}\u{34f}\u{61c}\u{115f}\u{180e}\u{200b}\u{202e}\u{2060}\u{2800}\u{3164}\u{fe0f}\u{feff}\u{600}\u{1d173}\u{e0041}\u{e0100}";
        for c in unseen.chars() {
            for name in [format!("{c}admin"), format!("ad{c}min"), format!("admin{c}")] {
                assert!(
                    name.parse::<Subject>().is_err() && name.parse::<TenantId>().is_err(),
                    "{}",
                    name.escape_unicode()
                );
            }
        }
        for name in ["admin", "Jürgen", "山田", "did:key:z6Mk", "агент"] {
            assert!(name.parse::<Subject>().is_ok(), "{name}");
        }
    }

    #[test]
    fn a_refused_name_is_shown_short_and_without_control_characters() {
        let message = format!("x\u{1b}[31m{}", "y".repeat(500)).parse::<ToolId>().unwrap_err().to_string();
        assert!(message.len() < 300 && !message.contains('\u{1b}'), "{message}");
    }

    #[test]
    fn traceparent_headers_that_break_the_standard_are_ignored() {
        for bad in [
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceId::from_traceparent(bad), None, "{bad}");
        }
        assert!(TraceId::from_traceparent("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some());
    }
}
