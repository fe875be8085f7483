//! Secrets a tool was given do not come back out of it: their exact values are taken out of results and logs
//! (DESIGN §6.4).
//!
//! A tool that prints its request, or an error with the header in it, does so without malice; this is for that. Besides
//! the value itself the forms are found in which programs put a value into text: JSON-escaped, percent-encoded, base64 (also
//! in the middle of something longer, as in `Basic …`), hexadecimal; the last two also in lines and in groups ([`loose`]),
//! the first two character by character and one in the other ([`escaped`]).
//! A tool that *wants* to smuggle a secret out (reversed,
//! split over two strings, encrypted) can; what stops it is that it may reach only the hosts it declares.
//!
//! Invariants
//! - SCRUB-1: no string of a scrubbed value, keys included, contains a secret in any of these forms. Where replacing
//!   would itself produce one (a secret that is part of its own name), the whole string goes.
//! - SCRUB-2: a number that is exactly a secret is replaced too.
//!
//! Secrets shorter than [`SECRET_BYTES_MIN`] are not looked for: they would be found by accident everywhere. If two
//! keys of one object become equal, one of the two members is kept.
//!
//! Not here: where secrets come from. The cost is one search of the text for each form, about twenty a secret. The forms
//! are made anew for every call, in microseconds: whoever kept them would keep secrets longer than the call (DESIGN §6.4).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use contract::error::Refusal;
use serde_json::Value;

use self::escaped::Plain;
use self::loose::Digits;

mod escaped;
mod loose;

/// The shortest secret that is looked for.
pub const SECRET_BYTES_MIN: usize = 4;
/// Lines of a secret that are shorter are not looked for by themselves: the first line of a key file says nothing.
const LINE_BYTES_MIN: usize = 32;

/// What stands for a string that could not be scrubbed piece by piece.
const ALL_GONE: &str = "[redacted]";

/// Takes secrets out of values and text. The default knows none.
#[derive(Default)]
pub struct SecretScrubber {
    /// Longest first, so that a form inside another does not break it up.
    forms: Vec<Form>,
    digits: Vec<Digits>,
    plain: Vec<Plain>,
}

struct Form {
    text: String,
    label: String,
    /// The secret itself, not an encoding of it.
    exact: bool,
}

/// Takes `secrets`, pairs of name and value, out of a value.
pub fn scrub(value: Value, secrets: &[(&str, &str)]) -> Value {
    SecretScrubber::new(secrets).value(value)
}

impl SecretScrubber {
    /// Prepares for pairs of name and value. Names are shown; values never.
    pub fn new(secrets: &[(&str, &str)]) -> Self {
        let (mut forms, mut digits) = (Vec::new(), Vec::new());
        for (name, secret) in secrets.iter().filter(|(_, secret)| secret.len() >= SECRET_BYTES_MIN) {
            let label = format!("[secret {name}]");
            forms.push(Form { text: (*secret).to_owned(), label: label.clone(), exact: true });
            // A key in several lines may come out one line at a time.
            let lines = secret.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN && line != secret);
            forms.extend(lines.map(|line| Form { text: line.to_owned(), label: label.clone(), exact: true }));
            digits.extend(loose::digits(secret, &label));
            forms.extend(encodings(secret).into_iter().map(|text| Form { text, label: label.clone(), exact: false }));
        }
        forms.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then_with(|| a.text.cmp(&b.text)));
        let exact = forms.iter().filter(|form| form.exact);
        let plain = exact.filter_map(|form| Plain::of(&form.text, &form.label)).collect();
        Self { forms, digits, plain }
    }

    /// Nothing to look for?
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// A value without secrets.
    pub fn value(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::Null | Value::Bool(_) => value,
            Value::Number(number) => {
                let written = number.to_string();
                match self.forms.iter().find(|form| form.exact && form.text == written) {
                    Some(form) => Value::String(self.text(&form.label).into_owned()),
                    None => Value::Number(number),
                }
            }
            Value::String(text) => Value::String(self.owned(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(key, value)| (self.owned(key), self.value(value))).collect()
            }
        }
    }

    /// Text without secrets, for example a line of a log.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.replaced(text).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// A refusal without secrets: message, hint and details.
    pub fn refusal(&self, mut refusal: Refusal) -> Refusal {
        refusal.message = self.owned(refusal.message);
        refusal.hint = refusal.hint.map(|hint| self.owned(hint));
        refusal.details = refusal.details.map(|details| Box::new(self.value(*details)));
        refusal.reason = refusal.reason.map(|reason| Box::new(reason.map_texts(|text| self.owned(text))));
        refusal
    }

    fn finds(&self, text: &str) -> bool {
        self.forms.iter().any(|form| text.contains(&form.text))
            || loose::finds(text, &self.digits)
            || escaped::finds(text, &self.plain)
    }

    fn owned(&self, text: String) -> String {
        self.replaced(&text).unwrap_or(text)
    }

    /// `None` if there is nothing to replace.
    fn replaced(&self, text: &str) -> Option<String> {
        if !self.finds(text) {
            return None;
        }
        // Digits first, because they may stand around what else would be found.
        let replaced = self.forms.iter().fold(without(text, loose::places(text, &self.digits)), |text, form| {
            if text.contains(&form.text) { text.replace(&form.text, &form.label) } else { text }
        });
        let replaced = without(&replaced, escaped::places(&replaced, &self.plain));
        // SCRUB-1. The labels are text too, and may have grown together with what stands beside them.
        [replaced, ALL_GONE.to_owned()].into_iter().find(|text| !self.finds(text)).or_else(|| Some(String::new()))
    }
}

/// The text with labels in these places.
fn without(text: &str, places: Vec<(Range<usize>, &str)>) -> String {
    let (mut rest, mut end) = (String::with_capacity(text.len()), 0);
    for (range, label) in places {
        rest.push_str(text.get(end..range.start).unwrap_or_default());
        rest.push_str(label);
        end = range.end;
    }
    rest.push_str(text.get(end..).unwrap_or_default());
    rest
}

/// Shows how many forms there are, never one.
impl fmt::Debug for SecretScrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubber").field("forms", &self.forms.len()).finish()
    }
}

// -------------------------------------------------------------------------------------------------------- encodings

/// The forms in which programs put a value into text, without the value itself.
fn encodings(secret: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let json = json_escaped(secret);
    forms.insert(json.replace('/', "\\/"));
    forms.insert(ascii_escaped(&json));
    forms.insert(json);
    // What the standard keeps, and besides it JavaScript, paths, and forms.
    for kept in ["-._~", "-._~!*'()", "-._~/", "-._*"] {
        let upper = percent_encoded(secret, kept);
        forms.insert(upper.replace("%20", "+"));
        forms.insert(lower_escapes(&upper));
        forms.insert(upper);
    }
    // A byte can stand at three places in a group of base64.
    for padding in [&b""[..], b"\0", b"\0\0"] {
        let (before, bytes) = (padding.len(), [padding, secret.as_bytes()].concat());
        forms.insert(core_of(&STANDARD_NO_PAD.encode(&bytes), before, bytes.len()));
        forms.insert(core_of(&URL_SAFE_NO_PAD.encode(&bytes), before, bytes.len()));
    }
    forms.remove(secret);
    forms
}

/// The characters of a base64 text that depend on the bytes from `from` to `to` only, wherever these stand in it.
fn core_of(encoded: &str, from: usize, to: usize) -> String {
    let (first, end) = ((from * 8).div_ceil(6), to * 8 / 6);
    encoded.chars().skip(first).take(end.saturating_sub(first)).collect()
}

fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// As writers do that keep to ASCII: `é` is `\u00e9`.
fn ascii_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => escaped.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

fn percent_encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// `%2F` as `%2f`; the rest stays.
fn lower_escapes(encoded: &str) -> String {
    let mut digits = 0_u8;
    encoded
        .chars()
        .map(|c| {
            if c == '%' {
                digits = 2;
                c
            } else if digits > 0 {
                digits -= 1;
                c.to_ascii_lowercase()
            } else {
                c
            }
        })
        .collect()
}

/// Places in their order, each without what one before it has of it.
fn without_overlaps<L>(mut found: Vec<(Range<usize>, L)>) -> Vec<(Range<usize>, L)> {
    found.sort_by_key(|(range, _)| (range.start, range.end));
    let mut end = 0;
    found.retain_mut(|(range, _)| {
        range.start = range.start.max(end);
        end = end.max(range.end);
        range.start < range.end
    });
    found
}

#[cfg(test)]
mod tests;
