//! One event, one line.
//!
//! Invariants
//! - LINE-1: whatever stands in a field, a line has one end and no character that a terminal obeys: control characters, and
//!   those that turn the direction of text or hide, are written as escapes.
//! - LINE-2: a line is bounded: of a value that is too long the beginning is written.
//! - LINE-3: an event within a call has `invocation_id` and `trace_id`: the fields of the spans around it are its own.
//! - LINE-4: the texts of an event within a call have been through the redaction: what went wrong may have been said by a tool.
//!
//! Not here: what is said at all (`logging`), and the redaction of what a tool says outside of a call, which whoever logs it
//! cleans first. Events outside of calls keep the addresses and names the operator has configured.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::traces::TraceRedaction;

/// Characters of one value.
const VALUE_CHARS_MAX: usize = 8_192;
/// Characters of a value that are looked at: it is redacted before it is cut, because half a secret looks like none.
const READ_CHARS_MAX: usize = 4 * VALUE_CHARS_MAX;
/// The field that is the message.
const MESSAGE: &str = "message";
/// The fields by which an event within a call is known: that of the span around it, and that of events elsewhere that
/// belong to a call.
const INVOCATION: [&str; 2] = ["invocation_id", "invocation"];
/// Fields that name what this server itself has made or registered. They are not redacted.
const OWN_NAMES: [&str; 8] =
    ["invocation_id", "trace_id", "invocation", "tool", "tool_name", "version", "tenant", "tenant_id"];

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Human { colour: bool },
    Json,
}

/// Writes events as lines.
pub(super) struct Lines {
    look: Look,
    redaction: TraceRedaction,
    write: Box<dyn Fn(&str) + Send + Sync>,
}

impl Lines {
    pub(super) fn to_stderr(look: Look, redaction: TraceRedaction) -> Self {
        // A log that cannot be written has nowhere to say so.
        Self { look, redaction, write: Box::new(|line| drop(std::io::stderr().lock().write_all(line.as_bytes()))) }
    }
}

impl Lines {
    /// LINE-4.
    fn redact(&self, fields: &mut Map<String, Value>) {
        for (name, value) in fields {
            if let Value::String(text) = value
                && !OWN_NAMES.contains(&name.as_str())
                && let std::borrow::Cow::Owned(redacted) = self.redaction.apply(text)
            {
                *text = redacted;
            }
        }
    }
}

/// LINE-2.
fn shorten(value: &mut Value) {
    if let Value::String(text) = value
        && let Some((end, _)) = text.char_indices().nth(VALUE_CHARS_MAX)
    {
        text.truncate(end);
        text.push('…');
    }
}

/// What a span around events says.
struct SpanFields(Map<String, Value>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut said = SpanFields(Map::new());
        attributes.record(&mut Fields(&mut said.0));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(said);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(said) = span.extensions_mut().get_mut::<SpanFields>()
        {
            values.record(&mut Fields(&mut said.0));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        // LINE-3. The innermost wins, and the event itself over all of them.
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(said) = span.extensions().get::<SpanFields>() {
                fields.extend(said.0.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        event.record(&mut Fields(&mut fields));
        if INVOCATION.iter().any(|name| fields.contains_key(*name)) {
            self.redact(&mut fields);
        }
        fields.values_mut().for_each(shorten);
        let mut time = String::new();
        // A clock that cannot be read leaves its place empty.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let about = event.metadata();
        (self.write)(&self.look.line(&time, *about.level(), about.target(), fields));
    }
}

impl Look {
    /// LINE-1.
    fn line(self, time: &str, level: Level, target: &str, mut fields: Map<String, Value>) -> String {
        let message = fields.remove(MESSAGE).unwrap_or_default();
        let mut line = String::new();
        // Writing into a string does not fail.
        let _ = match self {
            Self::Json => json(&mut line, time, level, target, message, fields),
            Self::Human { colour } => human(&mut line, time, level, colour, &message, &fields),
        };
        line.push('\n');
        line
    }
}

fn json(
    line: &mut String,
    time: &str,
    level: Level,
    target: &str,
    message: Value,
    fields: Map<String, Value>,
) -> fmt::Result {
    let mut object = Map::new();
    object.insert("timestamp".to_owned(), time.into());
    object.insert("level".to_owned(), level.as_str().into());
    object.insert(MESSAGE.to_owned(), message);
    object.insert("target".to_owned(), target.into());
    for (key, value) in fields {
        // A field by the name of one of these is kept, but does not take its place.
        let key = if object.contains_key(&key) { format!("{key}_") } else { key };
        object.insert(key, value);
    }
    for c in Value::Object(object).to_string().chars() {
        match c {
            _ if !is_obeyed(c) => line.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(line, "\\u{unit:04x}"))?,
        }
    }
    Ok(())
}

fn human(
    line: &mut String,
    time: &str,
    level: Level,
    colour: bool,
    message: &Value,
    fields: &Map<String, Value>,
) -> fmt::Result {
    let paint = match level {
        _ if !colour => "",
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        _ => "\u{1b}[34m",
    };
    let plain = if paint.is_empty() { "" } else { "\u{1b}[0m" };
    write!(line, "{time} {paint}{:>5}{plain} ", level.as_str())?;
    harmless(line, message.as_str().unwrap_or_default())?;
    for (key, value) in fields {
        line.push(' ');
        harmless(line, key)?;
        line.push('=');
        match value.as_str() {
            // A text with blanks, or none, would not be seen as one.
            Some(text) if text.is_empty() || text.contains([' ', '"']) => {
                line.push('"');
                harmless(line, &text.replace('"', "\\\""))?;
                line.push('"');
            }
            Some(text) => harmless(line, text)?,
            None => write!(line, "{value}")?,
        }
    }
    Ok(())
}

fn harmless(line: &mut String, text: &str) -> fmt::Result {
    for c in text.chars() {
        match c {
            _ if is_obeyed(c) => write!(line, "{}", c.escape_unicode())?,
            _ => line.push(c),
        }
    }
    Ok(())
}

/// Is this a character that a terminal, or whoever reads a line, obeys instead of showing it?
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Takes fields as JSON.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }

    fn text(&mut self, field: &Field, text: &dyn fmt::Display) {
        let mut short = Short { text: String::new(), left: READ_CHARS_MAX };
        // It ends with an error when there is enough.
        let _ = write!(short, "{text}");
        self.set(field, short.text.into());
    }
}

struct Short {
    text: String,
    left: usize,
}

impl fmt::Write for Short {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(c);
        }
        Ok(())
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format_args!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, &value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let causes = std::iter::successors(Some(value), |error| error.source());
        let all: Vec<String> = causes.take(8).map(ToString::to_string).collect();
        self.text(field, &all.join(": "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt as _;

    /// What is written while `work` runs.
    fn written(look: Look, work: impl FnOnce()) -> String {
        let text = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&text);
        let redaction = TraceRedaction::new(|text| text.replace("hunter2", "[REDACTED]").into());
        let lines = Lines { look, redaction, write: Box::new(move |line| kept.lock().unwrap().push_str(line)) };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        text.lock().unwrap().clone()
    }

    const HOSTILE: &str = "a\nb\r\u{1b}[31m\u{202e}\u{9b}31m\u{2028}\"c\" {\"level\":\"ERROR\"} \u{0}";

    #[test]
    fn hostile_texts_stay_in_their_field_and_on_their_line() {
        for look in [Look::Json, Look::Human { colour: false }] {
            let text = written(look, || {
                tracing::warn!(text = HOSTILE, level = "none", number = 7, "it said {HOSTILE}");
            });
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.trim_end().chars().all(|c| !is_obeyed(c)), "{text:?}");
            if look == Look::Json {
                let line: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(line["text"], HOSTILE);
                assert_eq!(
                    (&line["level"], &line["level_"], &line["number"]),
                    (&"WARN".into(), &"none".into(), &7.into())
                );
                assert_eq!(line["message"], format!("it said {HOSTILE}"));
            }
        }
    }

    #[test]
    fn every_line_within_a_call_has_its_ids() {
        let text = written(Look::Json, || {
            let call = tracing::info_span!("call", invocation_id = %"i-1", trace_id = %"t-1");
            call.in_scope(|| {
                tracing::info!("first");
                tracing::info_span!("inner", trace_id = "other")
                    .in_scope(|| tracing::info!(trace_id = "own", "second"));
            });
            tracing::info!("third");
        });
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, second, third] = &lines[..] else { panic!("{text}") };
        assert_eq!((&first["invocation_id"], &first["trace_id"]), (&"i-1".into(), &"t-1".into()));
        assert_eq!((&second["invocation_id"], &second["trace_id"]), (&"i-1".into(), &"own".into()));
        assert!(third.get("invocation_id").is_none());
        let text = written(Look::Human { colour: false }, || tracing::error!(tool = "a b", n = 1, "failed"));
        assert!(
            text.ends_with("ERROR failed tool=\"a b\" n=1\n") || text.ends_with("ERROR failed n=1 tool=\"a b\"\n"),
            "{text}"
        );
    }

    #[test]
    fn texts_within_a_call_are_redacted_and_names_are_not() {
        let text = written(Look::Json, || {
            let call = tracing::info_span!("call", invocation_id = %"hunter2", trace_id = %"t-1");
            call.in_scope(|| tracing::warn!(tool = "hunter2", error = "it said hunter2", n = 2, "no {}", "hunter2"));
            tracing::warn!(invocation = "i-1", error = %"hunter2", "elsewhere");
            tracing::warn!(address = "hunter2", "configured");
        });
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [within, elsewhere, outside] = &lines[..] else { panic!("{text}") };
        assert_eq!((&within["invocation_id"], &within["tool"]), (&"hunter2".into(), &"hunter2".into()));
        assert_eq!((&within["error"], &within["message"]), (&"it said [REDACTED]".into(), &"no [REDACTED]".into()));
        assert_eq!((&elsewhere["error"], &outside["address"]), (&"[REDACTED]".into(), &"hunter2".into()));
    }

    #[test]
    fn a_value_without_end_is_cut() {
        let long = "x".repeat(VALUE_CHARS_MAX * 3);
        let text = written(Look::Json, || tracing::info!(long, "m"));
        assert!(text.len() < VALUE_CHARS_MAX + 300, "{}", text.len());
    }
}
