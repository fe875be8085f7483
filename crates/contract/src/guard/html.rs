//! The html guard: text on a page must not execute.
//!
//! Markup as such passes (`<b>`, `a < b`, `<3`). Refused are the elements that run or fetch something by themselves,
//! attributes that handle events, and addresses that are programs. The text is looked at as a browser would see it: letter
//! case folded, character references decoded (so `&lt;script&gt;` counts, since some tools decode before they render), and
//! tabs and line breaks inside a scheme ignored.
//!
//! Decided for precision: `JavaScript: The Good Parts` is a title; an address that is a program needs a place where
//! addresses stand and one of the signs without which a program does nothing. `one = 1` is no event handler outside of a
//! tag; `onclick=` is, anywhere, because the text may be pasted into a tag.
//!
//! Not here: sanitising for display. A tool that renders foreign markup wants an allow-list of elements, not this.

mod references;

use references::decoded;

/// Elements that execute, embed, redirect or change how the rest of the page is read.
const ELEMENTS: [&str; 14] = [
    "script", "iframe", "frame", "frameset", "object", "embed", "applet", "meta", "base", "link", "style", "svg",
    "math", "portal",
];

/// Beginnings of the event attributes that exist; enough where no tag is in sight.
const EVENTS: [&str; 73] = [
    "onabort",
    "onactivate",
    "onafter",
    "onanimation",
    "onauxclick",
    "onbefore",
    "onbegin",
    "onblur",
    "onbounce",
    "oncancel",
    "oncanplay",
    "onchange",
    "onclick",
    "onclose",
    "oncommand",
    "oncontextmenu",
    "oncopy",
    "oncuechange",
    "oncut",
    "ondblclick",
    "ondrag",
    "ondrop",
    "onduration",
    "onemptied",
    "onend",
    "onerror",
    "onfinish",
    "onfocus",
    "onformdata",
    "onfullscreen",
    "ongotpointer",
    "onhashchange",
    "oninput",
    "oninvalid",
    "onkey",
    "onload",
    "onlostpointer",
    "onmessage",
    "onmouse",
    "onoffline",
    "ononline",
    "onpage",
    "onpaste",
    "onpause",
    "onplay",
    "onpointer",
    "onpopstate",
    "onprogress",
    "onratechange",
    "onreadystate",
    "onrepeat",
    "onreset",
    "onresize",
    "onscroll",
    "onsearch",
    "onseek",
    "onselect",
    "onshow",
    "onstalled",
    "onstart",
    "onstorage",
    "onsubmit",
    "onsuspend",
    "ontimeupdate",
    "ontoggle",
    "ontouch",
    "ontransition",
    "onunhandled",
    "onunload",
    "onvolume",
    "onwaiting",
    "onwebkit",
    "onwheel",
];

const SCHEMES: [&str; 3] = ["javascript:", "vbscript:", "livescript:"];

/// Media types whose `data:` addresses are pages.
const PAGES: [&str; 3] = ["text/html", "image/svg+xml", "application/xhtml+xml"];

/// A program without any of these has no effect.
const PROGRAM_SIGNS: [char; 9] = ['(', '`', '=', '[', '{', ';', '\\', '%', '&'];

pub(super) fn broken_by(text: &str) -> Option<&'static str> {
    let page = decoded(text);
    let mut scan = Scan { at: At::Text, before: None, solid_before: None, has_signs: page.rfind(PROGRAM_SIGNS) };
    let mut rest = page.as_str();
    while let Some(c) = rest.chars().next() {
        let offset = page.len() - rest.len();
        let tail = rest.get(c.len_utf8()..).unwrap_or_default();
        if let Some(rule) = scan.rule_at(c, rest, tail, offset) {
            return Some(rule);
        }
        scan.step(c, tail);
        rest = tail;
    }
    None
}

/// Deletes script elements, `javascript:` and `on…=`, again until there is nothing left to delete.
pub(super) fn strip(text: &str) -> String {
    let mut now = text.to_owned();
    for _ in 0..STRIP_ROUNDS_MAX {
        let next = stripped_once(&now);
        if next.len() == now.len() {
            return next;
        }
        now = next;
    }
    // Nested that deep, it is nothing but an attack.
    String::new()
}

/// After this many rounds of deleting, the rest is deleted too.
const STRIP_ROUNDS_MAX: usize = 16;

// ------------------------------------------------------------------------------------------------------------- scan

/// What the reading is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Text,
    Tag,
    /// A quoted value in a tag, with its quote.
    Value(char),
}

/// Where the reading is.
#[derive(Debug)]
struct Scan {
    at: At,
    before: Option<char>,
    /// The last character that is not white space.
    solid_before: Option<char>,
    /// Where the last sign is without which a program does nothing.
    has_signs: Option<usize>,
}

impl Scan {
    fn rule_at(&self, c: char, rest: &str, tail: &str, offset: usize) -> Option<&'static str> {
        match c {
            '<' => {
                let name = tag_name(tail.strip_prefix('/').unwrap_or(tail));
                ELEMENTS.contains(&name).then_some("it has an element that executes or embeds")
            }
            'o' if self.is_attribute_start() => {
                let name = attribute_name(rest);
                let assigned = rest.get(name.len()..).is_some_and(|after| after.trim_start().starts_with('='));
                let handles =
                    if self.at == At::Tag { name.len() > 2 && name.starts_with("on") } else { is_event(name) };
                (assigned && handles).then_some("it has an event handler")
            }
            'j' | 'v' | 'l' if self.is_address_start() => {
                let program = SCHEMES.iter().find_map(|scheme| after_loosely(rest, scheme))?;
                let start = offset + (rest.len() - program.len());
                self.has_signs.is_some_and(|at| at >= start).then_some("it has an address that is a program")
            }
            'd' if !self.before.is_some_and(char::is_alphanumeric) => {
                let media = after_loosely(rest, "data:")?;
                PAGES
                    .iter()
                    .any(|page| after_loosely(media, page).is_some())
                    .then_some("it has a `data:` address that is a page")
            }
            _ => None,
        }
    }

    /// Attributes start behind white space, a slash or a quote; or where the text does.
    fn is_attribute_start(&self) -> bool {
        self.before.is_none_or(|c| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '`' | '\u{b}'))
    }

    /// Addresses stand in tags, at the start of the text, and behind `=`, quotes and brackets.
    fn is_address_start(&self) -> bool {
        if self.before.is_some_and(char::is_alphanumeric) {
            return false;
        }
        self.at != At::Text || self.solid_before.is_none_or(|c| matches!(c, '=' | '"' | '\'' | '`' | '(' | '<' | ','))
    }

    fn step(&mut self, c: char, tail: &str) {
        self.at = match (self.at, c) {
            (At::Text, '<') if tail.starts_with(|c: char| c.is_ascii_alphabetic()) => At::Tag,
            (At::Tag, '>') => At::Text,
            // Elsewhere in a tag a quote is a letter like any other.
            (At::Tag, '"' | '\'') if self.solid_before == Some('=') => At::Value(c),
            (At::Value(quote), _) if quote == c => At::Tag,
            (at, _) => at,
        };
        self.before = Some(c);
        if !c.is_whitespace() && !c.is_control() {
            self.solid_before = Some(c);
        }
    }
}

fn tag_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Names of attributes; the bound keeps a text that is one long word linear.
fn attribute_name(text: &str) -> &str {
    const NAME_CHARS_MAX: usize = 64;
    let end = text
        .char_indices()
        .take(NAME_CHARS_MAX)
        .find(|(_, c)| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_'))
        .map_or_else(|| text.len().min(NAME_CHARS_MAX), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

fn is_event(name: &str) -> bool {
    EVENTS.iter().any(|event| name.starts_with(event))
}

/// What follows `word`, if `text` starts with it once tabs and line breaks are ignored, as browsers do in addresses.
fn after_loosely<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let mut chars = text.chars();
    for wanted in word.chars() {
        let found = chars.by_ref().find(|c| !matches!(c, '\t' | '\n' | '\r'))?;
        if found != wanted {
            return None;
        }
    }
    Some(chars.as_str())
}

// ------------------------------------------------------------------------------------------------------------ strip

fn stripped_once(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let last_end = lower.rfind("</script");
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let (Some(rest), Some(c)) = (lower.get(at..), text.get(at..).and_then(|rest| rest.chars().next())) {
        match deletion(rest, at, last_end, out.chars().next_back()) {
            Some(length) => at += length,
            None => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

/// How many bytes to delete here; never none.
fn deletion(rest: &str, at: usize, last_end: Option<usize>, before: Option<char>) -> Option<usize> {
    if rest.starts_with("<script") || rest.starts_with("</script") {
        // With its content if it has an end further on, else the tag alone.
        let ends = last_end.is_some_and(|end| end > at) && rest.starts_with("<script");
        let from = if ends { rest.find("</script")? } else { 0 };
        let tag = rest.get(from..)?;
        return Some(from + tag.find('>').map_or(tag.len(), |end| end + 1));
    }
    if rest.starts_with("javascript:") {
        return Some("javascript:".len());
    }
    if rest.starts_with("on") && !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        let name = attribute_name(rest);
        let after = rest.get(name.len()..)?;
        let assigned = after.trim_start();
        if name.len() > 2 && assigned.starts_with('=') {
            return Some(name.len() + (after.len() - assigned.len()) + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests;
