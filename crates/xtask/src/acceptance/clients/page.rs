//! The table of clients for the terminal, and `docs/clients.md`.

use std::fmt::Write as _;

use serde_json::Value;

pub(super) const PAGE: &str = "docs/clients.md";

const INTRODUCTION: &str = "\
# Clients

Written by `cargo xtask acceptance clients --write`. Each client library is used as its documentation says, first with an MCP server
alone, over stdio, then with the same server behind Gantry, through both of its doors. What works alone works through the door; \"no such thing\" is what the
library has no way to do, or does not do with the server alone either. The command fails when something works alone and not through
the door. The programs are in `crates/xtask/src/acceptance/clients/`.
";

/// Longest text of a client in the table.
const SHOWN_CHARS_MAX: usize = 120;

/// What a client may offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    Tools,
    Structured,
    Image,
    Progress,
    Cancel,
    Elicitation,
}

impl Feature {
    /// Where the programs say what it came to.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Structured => "structured",
            Self::Image => "image",
            Self::Progress => "progress",
            Self::Cancel => "cancel",
            Self::Elicitation => "elicitation",
        }
    }
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Works,
    NoSuchThing,
    /// It works alone and not through the door, where this was found.
    Lost(String),
}

impl Verdict {
    pub(super) fn of(direct: bool, behind: bool, found: &Value) -> Self {
        match (direct, behind) {
            (_, true) => Self::Works,
            (false, false) => Self::NoSuchThing,
            (true, false) => Self::Lost(found.to_string().chars().take(SHOWN_CHARS_MAX).collect()),
        }
    }
}

/// A client.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) version: String,
    /// Of the protocol, if the client says which it spoke.
    pub(super) revision: String,
    pub(super) transport: &'static str,
    pub(super) verdicts: Vec<(Feature, Verdict)>,
}

impl Row {
    /// Features that were lost; listing tools is one that every client has.
    pub(super) fn lost(&self) -> usize {
        let is_lost = |(feature, verdict): &&(Feature, Verdict)| match verdict {
            Verdict::Lost(_) => true,
            Verdict::NoSuchThing => *feature == Feature::Tools,
            Verdict::Works => false,
        };
        self.verdicts.iter().filter(is_lost).count()
    }
}

const NOTES: &str = "\
LangChain (JS) gives the model a text as a block written in JSON where a result has structure or `_meta`, which results of Gantry have.
";

/// Everything, as Markdown, with what libraries do over one transport only.
pub(super) fn page(rows: &[Row], limits: &[&str]) -> String {
    let limits: String = limits.iter().map(|limit| format!("{limit}. ")).collect();
    format!("{INTRODUCTION}\n{}\n{}\n{NOTES}", table(rows), limits.trim_end())
}

/// The clients.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| client | version | revision | transport | tools | structured result | image | progress | cancel | elicitation |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _ = write!(text, "| {} | {} | {} | {} |", row.name, row.version, row.revision, row.transport);
        for (_, verdict) in &row.verdicts {
            let word = match verdict {
                Verdict::Works => "works".to_owned(),
                Verdict::NoSuchThing => "no such thing".to_owned(),
                Verdict::Lost(found) => format!("**lost**: {}", found.replace('|', "\\|")),
            };
            let _ = write!(text, " {word} |");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_works_and_what_the_client_lacks() {
        let verdicts = vec![
            (Feature::Tools, Verdict::of(true, true, &Value::Null)),
            (Feature::Progress, Verdict::of(false, false, &Value::Null)),
            (Feature::Cancel, Verdict::of(true, false, &Value::from("a|b"))),
        ];
        let row = Row { name: "x", version: "1".into(), revision: "–".into(), transport: "stdio", verdicts };
        assert_eq!(row.lost(), 1);
        let text = table(&[row]);
        assert!(text.contains("| x | 1 | – | stdio | works | no such thing | **lost**: \"a\\|b\" |"), "{text}");
    }
}
