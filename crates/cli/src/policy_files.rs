//! Policies in files: a `.cedar` file, or a folder of them, read as one text.
//!
//! Cedar counts lines in the whole text; people want the line of their file. [`PolicyText`] remembers where each file
//! begins and tells places as `file:line:column`.
//!
//! Not here: what the text means (`policy::Policies`), and putting it in force ([`follower`]).

use std::io::Read as _;
use std::path::{Path, PathBuf};

use base::SaturatingFrom as _;
use policy::{POLICY_TEXT_BYTES_MAX, Policies, PolicyProblem};

use crate::failure::CommandFailure;
use crate::plain_file;

pub(crate) mod follower;

/// The extension of files with policies.
const EXTENSION: &str = "cedar";

/// The text of some files, one after the other.
#[derive(Debug, Default)]
pub(crate) struct PolicyText {
    pub(crate) text: String,
    /// Where each file begins.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    /// Lines of the text before it.
    lines_before: usize,
}

impl PolicyText {
    /// Reads files and folders, in the order given; a folder's files in the order of their names.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, CommandFailure> {
        let mut whole = Self::default();
        for path in paths {
            for file in files_of(path)? {
                let text = text_of(&file)?;
                whole.add(file.display().to_string(), &text)?;
            }
        }
        Ok(whole)
    }

    /// Every problem of the text, each with its place; empty if it can be put in force.
    pub(crate) fn compile(&self) -> Result<Policies, Vec<PlacedFinding>> {
        Policies::compile(&self.text).map_err(|problems| problems.iter().map(|problem| self.place(problem)).collect())
    }

    /// A finding with the file it is in.
    pub(crate) fn place(&self, problem: &PolicyProblem) -> PlacedFinding {
        let line = problem.position.line;
        let part = self.parts.iter().rev().find(|part| part.lines_before < line).or_else(|| self.parts.first());
        let (file, before) = part.map_or(("policies", 0), |part| (part.name.as_str(), part.lines_before));
        PlacedFinding {
            file: file.to_owned(),
            line: line.saturating_sub(before).max(1),
            column: problem.position.column,
            policy: problem.policy.clone(),
            message: problem.message.clone(),
            help: problem.help.clone(),
        }
    }

    fn add(&mut self, name: String, text: &str) -> Result<(), CommandFailure> {
        self.parts.push(Part { name, lines_before: self.text.matches('\n').count() });
        self.text.push_str(text);
        // So that the next file begins on a line of its own, even after a comment without an end.
        if !self.text.ends_with('\n') && !text.is_empty() {
            self.text.push('\n');
        }
        if self.text.len() > POLICY_TEXT_BYTES_MAX {
            return Err(CommandFailure::new(format!(
                "the policies are longer than {POLICY_TEXT_BYTES_MAX} bytes together"
            ))
            .hint("check that these are the files you mean"));
        }
        Ok(())
    }
}

/// A finding with its place, as compilers write it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {}{message}{}", self.about(), self.advice())]
pub(crate) struct PlacedFinding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) policy: Option<String>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl PlacedFinding {
    fn about(&self) -> String {
        self.policy.as_ref().map(|policy| format!("policy `{policy}`: ")).unwrap_or_default()
    }

    fn advice(&self) -> String {
        self.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default()
    }

    /// For `--json`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "file": self.file, "line": self.line, "column": self.column, "policy": self.policy,
            "message": self.message, "help": self.help,
        })
    }
}

/// The files behind a path. A folder without any is a mistake: its policies would be none, and none permit nothing.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let unreadable = |error: std::io::Error| {
        CommandFailure::new(format!("policies cannot be read from `{}`: {error}", path.display()))
            .hint("name a .cedar file or a folder of them")
    };
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && file.extension().is_some_and(|extension| extension == EXTENSION) && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(CommandFailure::new(format!("there are no .{EXTENSION} files in `{}`", path.display()))
            .hint("policies that permit nothing would refuse every call; write at least one"));
    }
    files.sort();
    Ok(files)
}

fn text_of(file: &Path) -> Result<String, CommandFailure> {
    let mut text = String::new();
    let most = u64::saturating_from(POLICY_TEXT_BYTES_MAX).saturating_add(1);
    let read = plain_file::open(file).and_then(|opened| opened.take(most).read_to_string(&mut text));
    read.map_err(|error| {
        CommandFailure::new(format!("policies cannot be read from `{}`: {error}", file.display()))
            .hint("policies are UTF-8 text; check the path and its permissions")
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "@id(\"all\")\npermit (principal, action, resource);";
    const WRONG: &str = "// first line\npermit (principal, action, resource) when { resource.colour == \"red\" };\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names_and_places_are_those_of_its_files() {
        let dir = folder(&[("b.cedar", WRONG), ("a.cedar", FINE), (".hidden.cedar", "{"), ("notes.txt", "{")]);
        let text = PolicyText::read(&[dir.path().to_owned()]).unwrap();
        assert!(text.text.starts_with(FINE) && text.text.ends_with(WRONG));
        let problems = text.compile().unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].file.ends_with("b.cedar") && problems[0].line == 2, "{problems:?}");
        assert!(problems[0].to_string().contains("b.cedar:2:") && problems[0].to_string().contains("colour"));
    }

    #[test]
    fn files_that_are_fine_alone_may_clash_together() {
        let dir = folder(&[("a.cedar", FINE), ("b.cedar", FINE)]);
        let (a, b) = (dir.path().join("a.cedar"), dir.path().join("b.cedar"));
        assert!(PolicyText::read(std::slice::from_ref(&a)).unwrap().compile().is_ok());
        let problems = PolicyText::read(&[a, b]).unwrap().compile().unwrap_err();
        assert!(problems[0].file.ends_with("b.cedar"), "{problems:?}");
    }

    #[test]
    fn no_policies_at_all_are_a_mistake() {
        let dir = folder(&[("notes.txt", "x")]);
        assert!(PolicyText::read(&[dir.path().to_owned()]).unwrap_err().message.contains("no .cedar files"));
        assert!(PolicyText::read(&[dir.path().join("nowhere.cedar")]).unwrap_err().message.contains("nowhere.cedar"));
    }
}
