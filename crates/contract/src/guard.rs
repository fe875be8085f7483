//! Input guards: text that would be dangerous where a tool puts it is refused, never quietly changed.
//! (VALID-005, VALID-007, VALID-008, X-16, DESIGN §8.4)
//!
//! The first defence is construction: argument lists, bound parameters, URL builders. A guard is the second, for tools
//! that hand text to something that would *read* it, and only the author knows which: so nothing is guarded unless the
//! schema says `"x-guard": "shell"` (or a list of guards) beside the property, and unannotated text is data. Each guard
//! is one file with one function from a text to the rule it broke. Rules are meant to be precise, because a guard
//! that refuses honest text is soon switched off; where a rule cannot tell, its file says so and a test shows it.
//!
//! ```text
//! parameters schema ─▶ InputGuards::compile (once per version) ─▶ check(value)  ─▶ [Breach]        input_guard = "reject"
//!                                                          └▶ strip(&mut value), then check_stripped      = "strip"
//! ```
//!
//! Invariants
//! - GUARD-1: a schema without annotations costs nothing; with some, only the annotated places are walked.
//! - GUARD-2: a breach names place, guard and rule, and never quotes the value.
//! - GUARD-3: every rule runs in time linear in the text, whatever the text.
//! - GUARD-4: where branches leave open whether an annotation applies, it does: too strict, never too lax.
//! - GUARD-5: `strip` of what `strip` gave changes nothing. It runs before validation (VALID-005), so that what is
//!   validated is what runs.
//!
//! Not here: when guards are asked (the kernel's validate phase), DNS (the guarded HTTP client looks at addresses after
//! resolution), results of tools (output policy).

mod annotation;
#[cfg(test)]
mod expectations;
mod html;
mod path;
mod places;
mod shell;
mod sql;
mod url;

use std::fmt;
use std::ops::BitOr;

use serde::Serialize;
use serde_json::Value;

pub use self::annotation::misuses;
use self::places::{Found, Places};
use crate::schema::VIOLATIONS_MAX;

/// The keyword beside a property.
pub const KEYWORD: &str = "x-guard";

/// What a text must not be able to do where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardKind {
    /// Start a command, redirect or substitute when put on a shell's line.
    Shell,
    /// Leave its literal when put into a statement.
    Sql,
    /// Execute when put on a page.
    Html,
    /// Lead out of the directory it is joined to.
    Path,
    /// Lead to anything but a public web address.
    Url,
}

/// One text in an annotated place that broke a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardBreach {
    /// JSON pointer to the text; for a property name, to the object that has it.
    pub path: String,
    pub guard: GuardKind,
    /// The rule, in words that do not repeat the text.
    pub reason: &'static str,
}

/// The annotated places of one schema.
///
/// ```
/// use gantry_contract::guard::{GuardKind, InputGuards};
/// use serde_json::json;
///
/// let guards = InputGuards::compile(&json!({
///     "type": "object",
///     "properties": { "file": { "type": "string", "x-guard": "path" }, "note": { "type": "string" } }
/// }));
/// assert!(guards.check(&json!({ "file": "reports/may.txt", "note": "; DROP TABLE documents;--" })).is_empty());
///
/// let breaches = guards.check(&json!({ "file": "../../etc/passwd" }));
/// assert_eq!((breaches[0].path.as_str(), breaches[0].guard), ("/file", GuardKind::Path));
/// ```
#[derive(Debug, Default)]
pub struct InputGuards {
    places: Places,
}

impl InputGuards {
    /// Collects the annotated places of a parameter schema. An annotation holds for the text there and, if the value is
    /// an array or an object, for every text in it.
    pub fn compile(parameters: &Value) -> Self {
        Self { places: Places::plan(parameters) }
    }

    /// Is nothing guarded?
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Every broken rule, at most [`VIOLATIONS_MAX`]; one per text and guard.
    pub fn check(&self, value: &Value) -> Vec<GuardBreach> {
        self.breaches(value, |found| found.guards)
    }

    /// The rules that [`InputGuards::strip`] has no cure for: paths, addresses and property names. Deleting `..` from a path
    /// makes another path that nobody asked for.
    pub fn check_stripped(&self, value: &Value) -> Vec<GuardBreach> {
        self.breaches(value, |found| if found.is_name { found.guards } else { found.guards.without_strippable() })
    }

    /// Deletes what the shell, sql and html guards object to most, as older systems did, and gives the JSON pointers of
    /// the texts that are now different. It damages honest text, which is why it is not the default (X-16).
    pub fn strip(&self, value: &mut Value) -> Vec<String> {
        let mut changes = Vec::new();
        self.places.walk(value, &mut |found| {
            if !found.is_name
                && let Some(text) = stripped(found.text, found.guards)
            {
                changes.push((found.path.to_owned(), text));
            }
        });
        for (path, text) in &mut changes {
            if let Some(place) = value.pointer_mut(path) {
                *place = Value::String(std::mem::take(text));
            }
        }
        changes.into_iter().map(|(path, _)| path).collect()
    }

    fn breaches(&self, value: &Value, relevant: impl Fn(&Found<'_>) -> GuardSet) -> Vec<GuardBreach> {
        let mut breaches = Vec::new();
        self.places.walk(value, &mut |found| {
            for guard in relevant(found).iter() {
                if breaches.len() < VIOLATIONS_MAX
                    && let Some(reason) = guard.broken_by(found.text)
                {
                    breaches.push(GuardBreach { path: found.path.to_owned(), guard, reason });
                }
            }
        });
        breaches
    }
}

fn stripped(text: &str, guards: GuardSet) -> Option<String> {
    let mut now = text.to_owned();
    // One guard's deletion can join what another looks for, so they take turns until all are content; each turn but the
    // last makes the text shorter, and a text that needs more turns than this is nothing but an attack.
    for _ in 0..STRIP_TURNS_MAX {
        let before = now.len();
        for guard in guards.iter() {
            now = match guard {
                GuardKind::Shell => shell::strip(&now),
                GuardKind::Sql => sql::strip(&now),
                GuardKind::Html => html::strip(&now),
                GuardKind::Path | GuardKind::Url => now,
            };
        }
        if now.len() == before {
            return (now != text).then_some(now);
        }
    }
    Some(String::new())
}

/// After this many turns of deleting, the rest is deleted too.
const STRIP_TURNS_MAX: usize = 16;

// ------------------------------------------------------------------------------------------------------------ Guard

impl GuardKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Shell, Self::Sql, Self::Html, Self::Path, Self::Url];

    /// The word in the schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Sql => "sql",
            Self::Html => "html",
            Self::Path => "path",
            Self::Url => "url",
        }
    }

    /// The guard of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guard| guard.as_str() == name)
    }

    /// The rule that `text` breaks, if any.
    ///
    /// ```
    /// use gantry_contract::guard::GuardKind;
    /// assert!(GuardKind::Sql.broken_by("O'Brien").is_none());
    /// assert!(GuardKind::Sql.broken_by("x' OR '1'='1").is_some());
    /// ```
    pub fn broken_by(self, text: &str) -> Option<&'static str> {
        match self {
            Self::Shell => shell::broken_by(text),
            Self::Sql => sql::broken_by(text),
            Self::Html => html::broken_by(text),
            Self::Path => path::broken_by(text),
            Self::Url => url::broken_by(text),
        }
    }
}

impl fmt::Display for GuardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// --------------------------------------------------------------------------------------------------------- GuardSet

/// Some of the five guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct GuardSet(u8);

impl GuardSet {
    const ALL: Self = Self(0b1_1111);

    fn of(guard: GuardKind) -> Self {
        Self(match guard {
            GuardKind::Shell => 1,
            GuardKind::Sql => 1 << 1,
            GuardKind::Html => 1 << 2,
            GuardKind::Path => 1 << 3,
            GuardKind::Url => 1 << 4,
        })
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = GuardKind> {
        GuardKind::ALL.into_iter().filter(move |guard| self.0 & Self::of(*guard).0 != 0)
    }

    fn without_strippable(self) -> Self {
        Self(self.0 & (Self::of(GuardKind::Path) | Self::of(GuardKind::Url)).0)
    }
}

impl BitOr for GuardSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests;
