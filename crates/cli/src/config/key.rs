//! One configuration key: its name, what values it takes, its default, and its documentation.
//!
//! The same constant is read by the parser, by `gantry doctor` and by the generated reference page, so that none of them
//! can say something else than the others.

use std::fmt;
use std::ops::RangeInclusive;

/// One key.
#[derive(Debug)]
pub(crate) struct ConfigKey {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: KeyKind,
    /// As it would be written in the environment; `None` means unset.
    pub(crate) default: Option<&'static str>,
    /// What holds when the key is unset.
    pub(crate) unset: &'static str,
    /// For people, with the unit.
    pub(crate) doc: &'static str,
    pub(crate) since: &'static str,
}

/// What values a key takes.
#[derive(Debug)]
pub(crate) enum KeyKind {
    Text,
    /// Text that is never shown.
    Secret,
    Flag,
    Integer(RangeInclusive<u64>),
    Choice(&'static [&'static str]),
    /// Several texts; in the environment separated by commas.
    List,
    /// Lists by name: in the file a table of tables with one list of this name each, or a table of lists; in the environment
    /// `name=one|two,other=three`, which is also how they are kept.
    Named(&'static str),
    /// Any number of tables of the same shape; kept, and given in the environment, as JSON: there in one array.
    Tables,
}

/// A value that fits its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum KeyValue {
    Text(String),
    Secret(String),
    Flag(bool),
    Integer(u64),
    List(Vec<String>),
}

impl ConfigKey {
    /// The variable that overrides the key.
    pub(crate) fn variable(&self) -> String {
        format!("GANTRY_{}__{}", self.section.to_uppercase(), self.name.to_uppercase())
    }

    /// The key as people write it in messages.
    pub(crate) fn title(&self) -> String {
        format!("[{}] {}", self.section, self.name)
    }

    /// From the environment or a default.
    pub(crate) fn parse(&self, text: &str) -> Result<KeyValue, String> {
        let wrong = || Err(format!("must be {}", self.kind));
        match &self.kind {
            KeyKind::Text => Ok(KeyValue::Text(text.to_owned())),
            KeyKind::Secret => Ok(KeyValue::Secret(text.to_owned())),
            KeyKind::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Ok(KeyValue::Flag(true)),
                "false" | "0" | "no" | "off" => Ok(KeyValue::Flag(false)),
                _ => wrong(),
            },
            KeyKind::Integer(range) => match text.parse() {
                Ok(number) if range.contains(&number) => Ok(KeyValue::Integer(number)),
                _ => wrong(),
            },
            KeyKind::Choice(words) if words.contains(&text) => Ok(KeyValue::Text(text.to_owned())),
            KeyKind::Choice(_) => wrong(),
            KeyKind::Named(_) => {
                let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
                if parts.iter().any(|part| !part.contains('=')) {
                    return wrong();
                }
                Ok(KeyValue::List(parts.into_iter().map(str::to_owned).collect()))
            }
            KeyKind::Tables => match serde_json::from_str::<Vec<serde_json::Map<String, serde_json::Value>>>(text) {
                Ok(tables) => Ok(KeyValue::List(
                    tables.into_iter().map(|table| serde_json::Value::Object(table).to_string()).collect(),
                )),
                Err(_) if text.is_empty() => Ok(KeyValue::List(Vec::new())),
                Err(_) => wrong(),
            },
            KeyKind::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(KeyValue::List(parts.map(str::to_owned).collect()))
            }
        }
    }

    /// From a value of the file.
    pub(crate) fn read(&self, value: &toml::Value) -> Result<KeyValue, String> {
        match (&self.kind, value) {
            (KeyKind::Text | KeyKind::Secret | KeyKind::Choice(_), toml::Value::String(text)) => self.parse(text),
            (KeyKind::Flag, toml::Value::Boolean(flag)) => Ok(KeyValue::Flag(*flag)),
            (KeyKind::Integer(_), toml::Value::Integer(number)) => self.parse(&number.to_string()),
            (KeyKind::List, toml::Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
                texts.map(KeyValue::List).ok_or_else(|| format!("must be {}", self.kind))
            }
            (KeyKind::Named(member), toml::Value::Table(sets)) => {
                let all = sets.iter().map(|(name, set)| named(name, set, member)).collect::<Option<Vec<_>>>();
                all.map(KeyValue::List).ok_or_else(|| format!("must be {}", self.kind))
            }
            (KeyKind::Tables, toml::Value::Array(tables)) if tables.iter().all(toml::Value::is_table) => {
                let all = tables.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
                all.map(KeyValue::List).map_err(|_| format!("must be {}", self.kind))
            }
            _ => Err(format!("must be {}", self.kind)),
        }
    }
}

/// `name=one|two` of a list, or of a table that has nothing but it.
fn named(name: &str, set: &toml::Value, member: &str) -> Option<String> {
    let items = match set {
        toml::Value::Array(items) => items,
        toml::Value::Table(table) if table.len() == 1 => table.get(member)?.as_array()?,
        _ => return None,
    };
    let texts = items.iter().map(|item| item.as_str()).collect::<Option<Vec<_>>>()?;
    Some(format!("{name}={}", texts.join("|")))
}

impl fmt::Display for KeyKind {
    /// Completes "must be …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text | Self::Secret => f.write_str("text"),
            Self::Flag => f.write_str("true or false"),
            Self::Integer(range) => write!(f, "a whole number from {} to {}", range.start(), range.end()),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::List => f.write_str("a list of texts"),
            Self::Named(member) => write!(f, "tables by name, each with `{member} = […]`"),
            Self::Tables => f.write_str("any number of tables; in the environment a JSON array of objects"),
        }
    }
}

impl KeyValue {
    /// Would part of it be hidden where settings are shown?
    pub(crate) fn holds_secret(&self) -> bool {
        match self {
            Self::Secret(text) => !text.is_empty(),
            Self::Text(text) => without_secrets(text) != *text,
            Self::List(items) => items.iter().any(|item| without_secrets(item) != *item),
            Self::Flag(_) | Self::Integer(_) => false,
        }
    }
}

impl fmt::Display for KeyValue {
    /// As `gantry doctor` shows it: secrets hidden, also those inside URLs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&without_secrets(text)),
            Self::Secret(text) if text.is_empty() => f.write_str("(empty)"),
            Self::Secret(_) => f.write_str("(hidden)"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::List(items) => {
                let shown: Vec<String> = items.iter().map(|item| without_secrets(item)).collect();
                f.write_str(&shown.join(", "))
            }
        }
    }
}

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text, a URL or a table in JSON, without what URLs hold in confidence.
fn without_secrets(text: &str) -> String {
    if text.starts_with('{')
        && let Ok(mut table) = serde_json::from_str::<serde_json::Value>(text)
    {
        hide_in(&mut table);
        return table.to_string();
    }
    without_credentials(text)
}

fn hide_in(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = without_credentials(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(hide_in),
        serde_json::Value::Object(members) => members.values_mut().for_each(hide_in),
        _ => {}
    }
}

/// What a query may say openly; everything else in one may be a key to what it leads to.
const OPEN_IN_QUERIES: &[&str] = &["sslmode", "sslrootcert", "application_name", "connect_timeout", "mode", "cache"];

/// A URL without the secret part of its user information and without the values of its query.
fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // A password that should have been encoded can have any sign in it. In addresses of stores nothing else has an `@`.
    let is_store = matches!(scheme, "postgres" | "postgresql" | "redis" | "rediss");
    let password_end = rest.rfind('@').filter(|_| is_store).unwrap_or(0);
    let authority_end =
        rest.get(password_end..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(rest.len(), |at| password_end + at);
    let (authority, tail) = rest.split_at(authority_end);
    let authority = match authority.rsplit_once('@') {
        Some((user_info, host)) => {
            let user = user_info.split(':').next().unwrap_or_default();
            format!("{user}:(hidden)@{host}")
        }
        None => authority.to_owned(),
    };
    let Some((path, query)) = tail.split_once('?') else { return format!("{scheme}://{authority}{tail}") };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if !OPEN_IN_QUERIES.contains(&name) => format!("{name}=(hidden)"),
        _ => pair.to_owned(),
    });
    format!("{scheme}://{authority}{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: KeyKind) -> ConfigKey {
        ConfigKey { section: "server", name: "x", kind, default: None, unset: "", doc: "", since: "0.1" }
    }

    #[test]
    fn values_are_taken_only_in_the_shape_the_key_has() {
        let cases = [
            (KeyKind::Flag, "true", Some(KeyValue::Flag(true))),
            (KeyKind::Flag, "off", Some(KeyValue::Flag(false))),
            (KeyKind::Flag, "maybe", None),
            (KeyKind::Integer(1..=10), "10", Some(KeyValue::Integer(10))),
            (KeyKind::Integer(1..=10), "11", None),
            (KeyKind::Integer(1..=10), "-1", None),
            (KeyKind::Integer(1..=10), "1.5", None),
            (KeyKind::Choice(&["human", "json"]), "json", Some(KeyValue::Text("json".into()))),
            (KeyKind::Choice(&["human", "json"]), "JSON5", None),
            (KeyKind::List, "a, b,,", Some(KeyValue::List(vec!["a".into(), "b".into()]))),
            (KeyKind::Tables, "", Some(KeyValue::List(Vec::new()))),
            (KeyKind::Tables, r#"[{"a": 1}, {}]"#, Some(KeyValue::List(vec![r#"{"a":1}"#.into(), "{}".into()]))),
            (KeyKind::Tables, r#"[1]"#, None),
        ];
        for (kind, text, expected) in cases {
            let key = key(kind);
            assert_eq!(key.parse(text).ok(), expected, "{text} for {}", key.kind);
        }
    }

    #[test]
    fn the_file_must_use_the_right_toml_type() {
        assert!(key(KeyKind::Integer(0..=9)).read(&toml::Value::String("3".into())).is_err());
        assert!(key(KeyKind::Flag).read(&toml::Value::Integer(1)).is_err());
        assert!(key(KeyKind::List).read(&toml::Value::String("a".into())).is_err());
        assert!(key(KeyKind::List).read(&toml::Value::Array(vec![toml::Value::Integer(1)])).is_err());
    }

    #[test]
    fn secrets_are_never_shown() {
        assert_eq!(KeyValue::Secret("sk-123".into()).to_string(), "(hidden)");
        assert_eq!(format!("{:?}", KeyValue::Secret("sk-123".into())), "(hidden)");
        for (url, shown) in [
            ("postgres://me:pw@host/db", "postgres://me:(hidden)@host/db"),
            ("redis://:pw@host:6379", "redis://:(hidden)@host:6379"),
            ("sqlite:some/file.db", "sqlite:some/file.db"),
            ("http://host/a@b", "http://host/a@b"),
            ("https://siem.example/x?token=pw&a=b", "https://siem.example/x?token=(hidden)&a=(hidden)"),
            ("http://u:pw@host:1/?token=pw", "http://u:(hidden)@host:1/?token=(hidden)"),
            ("postgres://me:pw@host/db?sslmode=require", "postgres://me:(hidden)@host/db?sslmode=require"),
            ("postgres://me:p/w?#@host/db", "postgres://me:(hidden)@host/db"),
            (
                r#"{"kind":"http","url":"https://x/y?token=pw"}"#,
                r#"{"kind":"http","url":"https://x/y?token=(hidden)"}"#,
            ),
        ] {
            let value = KeyValue::Text(url.into());
            assert_eq!(value.to_string(), shown);
            assert_eq!(value.holds_secret(), url != shown, "{url}");
            assert_eq!(KeyValue::List(vec!["plain".into(), url.into()]).holds_secret(), url != shown, "{url}");
        }
    }
}
