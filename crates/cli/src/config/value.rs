//! The value of a configuration key, and how much of it is shown.

use std::fmt;

use serde_json::Value;

/// A value that fits its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyValue {
    value: Value,
    is_secret: bool,
}

impl KeyValue {
    pub(super) fn new(value: Value, is_secret: bool) -> Self {
        Self { value, is_secret }
    }

    /// The value itself, secrets included.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// The value of the same key with something else in it.
    #[must_use]
    pub(super) fn with(&self, value: Value) -> Self {
        Self { value, is_secret: self.is_secret }
    }

    /// Would part of it be hidden where settings are shown?
    pub(crate) fn holds_secret(&self) -> bool {
        match &self.value {
            Value::String(text) if self.is_secret => !text.is_empty(),
            value => without_secrets(value) != *value,
        }
    }

    /// A text, or a list of them, as it is written in a variable.
    pub(crate) fn variable_text(&self) -> Option<String> {
        match &self.value {
            _ if self.is_secret => None,
            Value::String(text) => Some(text.clone()),
            Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|all| all.join(",")),
            _ => None,
        }
    }
}

impl fmt::Display for KeyValue {
    /// As `gantry doctor` shows it: secrets hidden, also those inside URLs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::String(text) if self.is_secret && text.is_empty() => f.write_str("(empty)"),
            Value::String(_) if self.is_secret => f.write_str("(hidden)"),
            value => f.write_str(&shown(&without_secrets(value))),
        }
    }
}

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text as it is, a list with commas, lists by name as in the environment, tables in JSON.
fn shown(value: &Value) -> String {
    let texts = |items: &[Value], separator| items.iter().map(shown).collect::<Vec<_>>().join(separator);
    let is_named = |members: &serde_json::Map<String, Value>| members.values().all(Value::is_array);
    match value {
        Value::String(text) => text.clone(),
        Value::Array(tables) if tables.iter().any(Value::is_object) => {
            tables.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => texts(items, ", "),
        Value::Object(lists) if is_named(lists) => {
            let list = |(name, items): (&String, &Value)| {
                format!("{name}={}", texts(items.as_array().map_or(&[], Vec::as_slice), "|"))
            };
            lists.iter().map(list).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// The same without what URLs in it hold in confidence.
fn without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => without_credentials(text).into(),
        Value::Array(items) => items.iter().map(without_secrets).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), without_secrets(member))).collect()
        }
        other => other.clone(),
    }
}

/// Has a text, which may be a URL, something that is not shown?
pub(crate) fn holds_credentials(text: &str) -> bool {
    without_credentials(text) != text
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
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let secret = KeyValue::new("sk-123".into(), true);
        assert_eq!((secret.to_string(), format!("{secret:?}")), ("(hidden)".to_owned(), "(hidden)".to_owned()));
        assert!(secret.holds_secret() && secret.variable_text().is_none());
        for (url, shown) in [
            ("postgres://me:pw@host/db", "postgres://me:(hidden)@host/db"),
            ("redis://:pw@host:6379", "redis://:(hidden)@host:6379"),
            ("sqlite:some/file.db", "sqlite:some/file.db"),
            ("http://host/a@b", "http://host/a@b"),
            ("https://siem.example/x?token=pw&a=b", "https://siem.example/x?token=(hidden)&a=(hidden)"),
            ("http://u:pw@host:1/?token=pw", "http://u:(hidden)@host:1/?token=(hidden)"),
            ("postgres://me:pw@host/db?sslmode=require", "postgres://me:(hidden)@host/db?sslmode=require"),
            ("postgres://me:p/w?#@host/db", "postgres://me:(hidden)@host/db"),
        ] {
            let value = KeyValue::new(url.into(), false);
            assert_eq!(value.to_string(), shown);
            assert_eq!(value.holds_secret(), url != shown, "{url}");
            assert_eq!(KeyValue::new(json!(["plain", url]), false).holds_secret(), url != shown, "{url}");
        }
        let tables = KeyValue::new(json!([{ "kind": "http", "url": "https://x/y?token=pw" }]), false);
        assert_eq!(tables.to_string(), r#"{"kind":"http","url":"https://x/y?token=(hidden)"}"#);
        assert!(tables.holds_secret());
    }

    #[test]
    fn values_are_shown_as_people_write_them() {
        for (value, text) in [
            (json!("a"), "a"),
            (json!(3), "3"),
            (json!(false), "false"),
            (json!(["a", "b"]), "a, b"),
            (json!([]), ""),
            (json!({ "a": ["x", "y"], "b": [] }), "a=x|y, b="),
            (json!([{ "a": [1] }]), r#"{"a":[1]}"#),
        ] {
            assert_eq!(KeyValue::new(value, false).to_string(), text);
        }
    }
}
