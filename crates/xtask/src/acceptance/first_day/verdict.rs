//! What is expected of each server of the file, and whether it came true.
//!
//! A server works: it lists its tools and answers two calls. Or it says why not, for a reason of its own (no key, no browser, no
//! database), in words that are expected here. Everything else is a finding.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::gateway::Place;

/// Characters of a message that the table shows.
const SHOWN_CHARS_MAX: usize = 160;

/// What is expected of one server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    /// What it needs besides, if it cannot work everywhere.
    needs: Option<String>,
    /// What Gantry cannot do yet, if it would work without Gantry.
    gap: Option<String>,
    /// Words of the table of the import, for one that does not start.
    fails: Option<String>,
    /// The same for one that is not taken, or kept and not started.
    refused: Option<String>,
    off: Option<String>,
    /// The command that the table has for it.
    helps: Option<String>,
    /// What is given it before it is called.
    #[serde(default)]
    before: Vec<String>,
    #[serde(default)]
    calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    with: Map<String, Value>,
    /// What stands in its answer.
    says: Option<String>,
    /// What stands in its answer where the server does not have what it needs.
    #[serde(rename = "else")]
    otherwise: Option<String>,
}

/// What came of one server.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// As it stands in the file.
    pub(super) written: String,
    pub(super) tools: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Works,
    /// It cannot work here, for this reason of its own, and says so.
    Own {
        needs: String,
        message: String,
    },
    /// It would work without Gantry, and it is known why not with it.
    Gap {
        why: String,
        message: String,
    },
    Unexpected(String),
}

/// All expectations, by the name of the server.
pub(super) fn expectations() -> Result<BTreeMap<String, Expectation>> {
    serde_json::from_str(include_str!("expectations.json")).context("the expectations cannot be read")
}

impl Expectation {
    /// Looks at what the import said of the server, then calls its tools.
    pub(super) fn judge(&self, name: &str, imported: Option<&Value>, place: &Place) -> Result<Row> {
        let text = |pointer: &str| imported.and_then(|one| one.pointer(pointer)?.as_str()).unwrap_or_default();
        let (result, what, command) = (text("/trial/result"), text("/trial/what"), text("/trial/command"));
        let tools = imported.and_then(|one| one.pointer("/tools/known")?.as_u64()).unwrap_or_default();
        let told = [("fails", &self.fails), ("refused", &self.refused), ("off", &self.off)];
        let told = told.into_iter().find_map(|(word, expected)| Some((word, expected.as_deref()?)));
        let outcome = match told {
            Some((word, expected)) if result == word && what.contains(expected) => match &self.helps {
                Some(helps) if helps != command => {
                    Outcome::Unexpected(format!("the table proposes `{command}` and not `{helps}`"))
                }
                _ => self.own(what),
            },
            None if result == "works" => self.called(name, place)?,
            _ => Outcome::Unexpected(format!("the import says `{result}`: {}", shown(what))),
        };
        Ok(Row { name: name.to_owned(), written: String::new(), tools, outcome })
    }

    fn own(&self, message: &str) -> Outcome {
        let message = shown(message);
        match &self.gap {
            Some(why) => Outcome::Gap { why: why.clone(), message },
            None => Outcome::Own { needs: self.needs.clone().unwrap_or_else(|| "something else".into()), message },
        }
    }

    fn called(&self, name: &str, place: &Place) -> Result<Outcome> {
        if !self.before.is_empty() {
            let words: Vec<String> = self.before.iter().map(|word| filled_in(word, place)).collect();
            let output = place.cli(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Ok(Outcome::Unexpected(format!("`gantry {}` fails: {}", words.join(" "), shown(&said))));
            }
        }
        let mut own = None;
        for call in &self.calls {
            let tool = format!("{}.{}", name.replace('-', "_"), call.tool);
            let with = filled_in(&Value::Object(call.with.clone()).to_string(), place);
            let output = place.cli(&["call", &tool, "--params", &with])?;
            let said = said(&output.stdout, &output.stderr);
            let is_expected = |words: &Option<String>| words.as_ref().is_some_and(|words| said.contains(words));
            if is_expected(&call.otherwise) {
                own = own.or(Some(said));
            } else if !output.status.success() || (call.says.is_some() && !is_expected(&call.says)) {
                return Ok(Outcome::Unexpected(format!("{tool}: {}", shown(&said))));
            }
        }
        Ok(own.map_or(Outcome::Works, |said| self.own(&said)))
    }
}

/// The variables of the file as Gantry fills them in.
fn filled_in(text: &str, place: &Place) -> String {
    text.replace("${WORK}", &place.work.display().to_string()).replace("${DATABASE_HOST}", place.database_host())
}

/// Every text of an answer; what is no JSON is text.
fn said(stdout: &[u8], stderr: &[u8]) -> String {
    let mut texts = Vec::new();
    match serde_json::from_slice::<Value>(stdout) {
        Ok(answer) => collect(&answer, &mut texts),
        Err(_) => texts.push(String::from_utf8_lossy(stdout).into_owned()),
    }
    // What the tool said stands in a frame; the rest is Gantry's.
    let words = String::from_utf8_lossy(stderr);
    let framed: Vec<&str> = words.lines().filter_map(|line| line.trim_start().strip_prefix('│')).collect();
    texts.push(if framed.is_empty() { words.into_owned() } else { framed.join("\n") });
    texts.join("\n")
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => members.values().for_each(|member| collect(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut chars = line.chars();
    let short: String = chars.by_ref().take(SHOWN_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_of_the_file_is_expected_to_do_something() {
        let machine = include_str!("mcp.json");
        for (name, expectation) in expectations().unwrap() {
            // The second one of a name gets a number.
            let written = name.trim_end_matches("-2");
            assert!(machine.contains(&format!("\"{written}\": {{")), "{name} is not in the file");
            let told = [&expectation.fails, &expectation.refused, &expectation.off].into_iter().flatten().count();
            assert_eq!((told, expectation.calls.len()), if told == 0 { (0, 2) } else { (1, 0) }, "{name}");
            let has_reason = expectation.needs.is_some() != expectation.gap.is_some();
            let needs_reason = told > 0 || expectation.calls.iter().any(|call| call.otherwise.is_some());
            assert_eq!(has_reason, needs_reason, "{name}");
            assert!(expectation.calls.iter().all(|call| call.says.is_some() || call.otherwise.is_some()), "{name}");
        }
    }

    #[test]
    fn what_an_answer_says_is_found_wherever_it_stands() {
        let answer = br#"{"content":[{"type":"text","text":"a \"b\""}]}"#;
        assert!(said(answer, b"").contains("a \"b\""));
        assert!(said(b"plain", b"warning").contains("plain\nwarning"));
        assert_eq!(said(b"", "error: x\n  │ its own words\nhint: y".as_bytes()).trim(), "its own words");
        assert_eq!(shown("a\n  b"), "a b");
    }
}
