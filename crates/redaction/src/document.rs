//! JSON: what a member's name or its description says, and what is in its texts, at every depth (VALID-011, VALID-014).
//!
//! Names of members are texts as well, and so is JSON inside of a string. Numbers are looked at as they are written, because
//! a card number is one without quotes too.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use crate::description::{ValueDescription, ValuePart};
use crate::embedded::EmbeddedText;
use crate::engine::{RedactionEngine, ScanBuffers};
use crate::findings::REDACTED;
use crate::normalised_name::normalised;
use crate::numbers::NumberHint;

/// Deepest value that is redacted. The readers of requests allow less.
const DEPTH_MAX: usize = 128;
/// Characters of a number that is looked at: nothing that must not be seen is shorter.
const SHORTEST_NUMBER: usize = 9;
/// The smallest one without a sign that has so many.
const SMALLEST_NUMBER: u64 = 100_000_000;

/// Under these names a pair says what its `value` is: variables of containers, headers, settings.
const LABELS: [&str; 4] = ["name", "key", "header", "variable"];
/// What a pair says is under this one.
const LABELLED: &str = "value";
/// Longest label, or option of a command, that is looked at.
const LABEL_BYTES_MAX: usize = 64;

/// Why something could not be redacted. It must not be written then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedactionError {
    /// The value has more levels than the engine goes down.
    #[error("the value is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

impl RedactionEngine {
    /// The value with words in place of what must not be seen; `description` is what is known of the value, if anything.
    pub fn value(&self, value: &Value, description: Option<&dyn ValueDescription>) -> Result<Value, RedactionError> {
        self.shown(value, description).map(Cow::into_owned)
    }

    /// The same, without a copy of a value in which nothing has to go.
    pub fn shown<'a>(
        &self,
        value: &'a Value,
        description: Option<&dyn ValueDescription>,
    ) -> Result<Cow<'a, Value>, RedactionError> {
        Ok(self.walked(value, description, false)?.map_or(Cow::Borrowed(value), Cow::Owned))
    }

    /// The value with [`REDACTED`] in place of what its sensitive fields hold: those that `description` marks, and those whose
    /// name says so, also in JSON that stands in a string. Texts and names are not looked at. Nothing if there are none.
    pub fn fields(
        &self,
        value: &Value,
        description: Option<&dyn ValueDescription>,
    ) -> Result<Option<Value>, RedactionError> {
        self.walked(value, description, true)
    }

    fn walked(
        &self,
        value: &Value,
        description: Option<&dyn ValueDescription>,
        fields_only: bool,
    ) -> Result<Option<Value>, RedactionError> {
        let mut walk = Walk { engine: self, room: ScanBuffers::default(), fields_only };
        if is_marked(description) && !value.is_null() {
            return Ok(Some(Value::String(REDACTED.to_owned())));
        }
        walk.value(value, description, Place { depth: 0, nested: 0, hint: NumberHint::default() })
    }

    /// The value with [`REDACTED`] in place of every member with one of these names, at every depth, also in JSON that stands
    /// in a string. Nothing else changes.
    pub fn members(&self, value: &mut Value, names: &[impl AsRef<str>]) {
        masked_members(value, names, 0);
    }
}

/// Whether a name is one of these, or looks like one.
fn is_one_of(name: &str, names: &[impl AsRef<str>]) -> bool {
    let name = normalised(name);
    names.iter().any(|hidden| normalised(hidden.as_ref()) == name)
}

/// Whether anything was masked.
fn masked_members(value: &mut Value, names: &[impl AsRef<str>], nested: usize) -> bool {
    match value {
        Value::Object(members) => members.iter_mut().fold(false, |masked, (name, member)| {
            if is_one_of(name, names) {
                *member = Value::String(REDACTED.to_owned());
                return true;
            }
            masked_members(member, names, nested) || masked
        }),
        Value::Array(items) => {
            // Every one of them is looked at, also after one that was masked.
            let masked = items.iter_mut().filter_map(|item| masked_members(item, names, nested).then_some(()));
            masked.count() > 0
        }
        Value::String(text) => {
            let inner = match EmbeddedText::of(text, nested) {
                EmbeddedText::Documents(inner) => inner,
                EmbeddedText::Nothing => return false,
                // Whether one of the members stands there cannot be told.
                EmbeddedText::Unreadable => {
                    REDACTED.clone_into(text);
                    return true;
                }
            };
            let masked = inner.changed(|document| Ok::<_, Infallible>(masked_members(document, names, nested + 1)));
            let Ok(Some(masked)) = masked else { return false };
            *text = masked;
            true
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Where in a document something stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    depth: usize,
    nested: usize,
    hint: NumberHint,
}

struct Walk<'a> {
    engine: &'a RedactionEngine,
    room: ScanBuffers,
    /// Only what fields hold is looked at, not what stands in texts, numbers and names.
    fields_only: bool,
}

fn is_marked(description: Option<&dyn ValueDescription>) -> bool {
    description.and_then(ValueDescription::is_sensitive) == Some(true)
}

impl Walk<'_> {
    /// What is shown in place of a value; nothing if it can be shown as it is. Most can, and are not copied then.
    fn value(
        &mut self,
        value: &Value,
        description: Option<&dyn ValueDescription>,
        place: Place,
    ) -> Result<Option<Value>, RedactionError> {
        if place.depth > DEPTH_MAX {
            return Err(RedactionError::TooDeep);
        }
        let below = Place { depth: place.depth + 1, ..place };
        Ok(match value {
            Value::Null | Value::Bool(_) => None,
            Value::Number(number) => self.number(number, place.hint).map(Value::String),
            Value::String(text) => self.text(text, description, place)?.map(Value::String),
            Value::Array(items) => self.array(items, description, below)?.map(Value::Array),
            Value::Object(members) => self.object(members, description, below)?.map(Value::Object),
        })
    }

    fn number(&mut self, number: &Number, hint: NumberHint) -> Option<String> {
        if self.fields_only || number.as_u64().is_some_and(|number| number < SMALLEST_NUMBER) {
            return None;
        }
        let text = number.to_string();
        if text.len() < SHORTEST_NUMBER {
            return None;
        }
        self.engine.text_in(&text, hint, &mut self.room)
    }

    fn array(
        &mut self,
        items: &[Value],
        description: Option<&dyn ValueDescription>,
        place: Place,
    ) -> Result<Option<Vec<Value>>, RedactionError> {
        let mut redacted: Option<Vec<Value>> = None;
        let mut follows_option = false;
        for (index, item) in items.iter().enumerate() {
            let described = description.and_then(|description| description.part(ValuePart::Item(index)));
            let described = described.as_deref();
            let shown = match item {
                Value::Null => None,
                _ if is_marked(described) => Some(Value::String(REDACTED.to_owned())),
                Value::String(text) if follows_option && !text.is_empty() => Some(Value::String(REDACTED.to_owned())),
                _ => self.value(item, described, place)?,
            };
            follows_option = self.is_secret_option(item);
            match (shown, &mut redacted) {
                (None, None) => {}
                (shown, Some(redacted)) => redacted.push(shown.unwrap_or_else(|| item.clone())),
                (Some(shown), None) => {
                    let mut so_far = Vec::with_capacity(items.len());
                    so_far.extend_from_slice(items.get(..index).unwrap_or_default());
                    so_far.push(shown);
                    redacted = Some(so_far);
                }
            }
        }
        Ok(redacted)
    }

    /// Whether an argument of a command is an option whose value is the next one: `--password`, `-token`.
    fn is_secret_option(&self, item: &Value) -> bool {
        let Value::String(text) = item else { return false };
        let Some(name) = text.strip_prefix('-') else { return false };
        text.len() <= LABEL_BYTES_MAX && !name.contains(['=', ' ', ':']) && self.engine.facts(name).hides
    }

    /// Whether one member says that the `value` beside it is a secret: `{"name": "DB_PASSWORD", "value": "…"}`.
    fn is_labelled_secret(&self, members: &Map<String, Value>) -> bool {
        members.contains_key(LABELLED)
            && LABELS.iter().filter_map(|label| members.get(*label)?.as_str()).any(|label| {
                label.len() <= LABEL_BYTES_MAX && !label.contains(char::is_whitespace) && self.engine.facts(label).hides
            })
    }

    fn object(
        &mut self,
        members: &Map<String, Value>,
        description: Option<&dyn ValueDescription>,
        place: Place,
    ) -> Result<Option<Map<String, Value>>, RedactionError> {
        let (mut changed, mut renamed) = (Vec::new(), false);
        let labelled = self.is_labelled_secret(members);
        let names = description.and_then(|description| description.part(ValuePart::Names));
        let hides_names = is_marked(names.as_deref());
        for (name, member) in members {
            let facts = self.engine.facts(name);
            let described = description.and_then(|description| description.part(ValuePart::Member(name)));
            let described = described.as_deref();
            let said = described.and_then(ValueDescription::is_sensitive);
            let hides = facts.hides || (labelled && name == LABELLED);
            let told = said == Some(true) || (hides && said.is_none() && holds(name, facts.counts_tokens, member));
            let shown = if told {
                Some(Value::String(REDACTED.to_owned()))
            } else {
                self.value(member, described, Place { hint: facts.hint, ..place })?
            };
            let new_name = if hides_names { Some(REDACTED.into()) } else { facts.shown.filter(|_| !self.fields_only) };
            renamed |= new_name.is_some();
            if shown.is_some() || new_name.is_some() {
                changed.push((name, new_name, shown));
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        Ok(Some(rewritten(members, changed, renamed)))
    }

    /// What is shown in place of a text, the JSON in it looked at if it is some; nothing if it can be shown as it is.
    fn text(
        &mut self,
        text: &str,
        description: Option<&dyn ValueDescription>,
        place: Place,
    ) -> Result<Option<String>, RedactionError> {
        let content = description.and_then(|description| description.part(ValuePart::Content));
        let content = content.as_deref();
        if is_marked(content) {
            return Ok(Some(REDACTED.to_owned()));
        }
        let inner = match EmbeddedText::of(text, place.nested) {
            EmbeddedText::Documents(inner) => Some(inner),
            EmbeddedText::Nothing => None,
            EmbeddedText::Unreadable => return Ok(Some(REDACTED.to_owned())),
        };
        if let Some(inner) = inner {
            let below = Place { nested: place.nested + 1, depth: place.depth + 1, hint: place.hint };
            let redacted = inner.changed(|document| {
                let redacted = self.value(document, content, below)?;
                let is_changed = redacted.is_some();
                redacted.into_iter().for_each(|redacted| *document = redacted);
                Ok::<_, RedactionError>(is_changed)
            })?;
            if let Some(redacted) = redacted {
                if self.fields_only {
                    return Ok(Some(redacted));
                }
                return Ok(self.engine.text_in(&redacted, place.hint, &mut self.room).or(Some(redacted)));
            }
        }
        if self.fields_only {
            return Ok(None);
        }
        Ok(self.engine.text_in(text, place.hint, &mut self.room))
    }
}

/// A member that is not shown as it is: its name, and what stands in place of the name and of the value.
type Changed<'a> = (&'a String, Option<Arc<str>>, Option<Value>);

/// The members, some of them changed; `changed` is in their order. Two names can become the same word; both members stay.
fn rewritten(members: &Map<String, Value>, changed: Vec<Changed<'_>>, renamed: bool) -> Map<String, Value> {
    let mut changed = changed.into_iter().peekable();
    let now = members.iter().map(|(name, member)| {
        let found = changed.next_if(|(other, _, _)| std::ptr::eq(*other, name));
        let (new_name, shown) = found.map_or((None, None), |(_, new_name, shown)| (new_name, shown));
        (new_name.as_deref().unwrap_or(name).to_owned(), shown.unwrap_or_else(|| member.clone()))
    });
    if !renamed {
        return now.collect();
    }
    let mut redacted = Map::new();
    for (name, member) in now {
        redacted.insert(free_name(&redacted, name), member);
    }
    redacted
}

/// Whether a member with the name of a secret can hold one: a number of tokens cannot, nor the working directory.
fn holds(name: &str, counts_tokens: bool, member: &Value) -> bool {
    match member {
        Value::Null | Value::Bool(_) => false,
        Value::Number(_) => !counts_tokens,
        Value::String(text) => {
            let directory = name.eq_ignore_ascii_case("pwd") && text.starts_with('/');
            !text.is_empty() && !directory
        }
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

fn free_name(members: &Map<String, Value>, name: String) -> String {
    if !members.contains_key(&name) {
        return name;
    }
    (2_usize..).map(|count| format!("{name} {count}")).find(|other| !members.contains_key(other)).unwrap_or(name)
}
