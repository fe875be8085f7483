//! `gantry tool new`: a tool folder to start from, with a program that already works.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use contract::ids::ToolId;
use serde_json::json;

use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod template;

/// Make a folder for a new tool
///
/// gantry tool new demo.word_count --template python
#[derive(Debug, Args)]
pub(crate) struct ToolNewCommand {
    /// The tool's id: `tool_id` or `namespace.tool_id`, in snake_case
    name: String,
    /// What to start from: a language, or a session that tells its progress (in Python)
    #[arg(long, alias = "lang", value_enum, default_value_t = ToolTemplate::Python)]
    template: ToolTemplate,
    /// Where to make the folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// What a tool can be started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolTemplate {
    Python,
    Node,
    /// Needs Node.js 22.18 or later
    #[value(name = "typescript", alias = "ts")]
    TypeScript,
    Bash,
    /// A WASM component; needs the target wasm32-wasip2
    #[value(alias = "wasm")]
    Rust,
    Session,
    /// Refused with what to do in its place
    #[value(hide = true)]
    Http,
}

impl ToolNewCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let id: ToolId = self.name.parse().map_err(|error: contract::ids::NameError| {
            CommandFailure::usage(error.to_string()).hint("for example: gantry tool new demo.word_count")
        })?;
        self.template.is_possible()?;
        let folder = self.dir.join(id.local());
        let files = files(&id, self.template);
        write(&folder, &files).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                CommandFailure::new(format!("`{}` is there already", folder.display()))
                    .hint("nothing was overwritten; choose another name or another --dir")
            }
            _ => CommandFailure::new(format!("`{}` cannot be made: {error}", folder.display())),
        })?;
        let names: Vec<&str> = files.iter().map(|file| file.name).collect();
        context.printer.answer(&json!({ "tool_id": id, "folder": folder, "files": names }), |_| {
            format!(
                "made {folder}\n\n{first}\nRun it while you write it, in a sandbox of its own; what you save is used by the next call:\n  \
                 gantry tool dev {folder}\nAdd it to the running server:\n  gantry tool add {folder}",
                folder = folder.display(),
                first = self.template.first_step(&folder),
            )
        });
        Ok(())
    }
}

struct NewFile {
    name: &'static str,
    mode: u32,
    text: String,
}

fn files(id: &ToolId, template: ToolTemplate) -> Vec<NewFile> {
    let namespace = id.namespace().map(|space| format!("namespace = \"{space}\"\n")).unwrap_or_default();
    let words = id.local().replace('_', " ");
    let name: String = words.chars().take(1).flat_map(char::to_uppercase).chain(words.chars().skip(1)).collect();
    let fill = |text: &str| {
        text.replace("@ID@", id.local())
            .replace("@NAMESPACE@", &namespace)
            .replace("@NAME@", &name)
            .replace("@PROVIDER@", id.namespace().unwrap_or("me"))
            .replace("@EXECUTION@", &template.execution())
            .replace("@TALK@", template.talk())
            .replace("@INPUT@", template.input())
            .replace("@PACKAGES@", template.packages())
            .replace("@FILE@", template.file())
            .replace("@RUN@", &template.run())
            .replace("@FULL_ID@", id.as_str())
    };
    let readme = if template == ToolTemplate::Rust {
        include_str!("templates/README-rust.md")
    } else {
        include_str!("templates/README.md")
    };
    let mut files = vec![
        NewFile { name: "tool.toml", mode: 0o644, text: fill(include_str!("templates/tool.toml")) },
        NewFile { name: template.file(), mode: 0o755, text: template.source().to_owned() },
        NewFile { name: "README.md", mode: 0o644, text: fill(readme) },
    ];
    if template == ToolTemplate::Rust {
        let cargo = fill(include_str!("templates/Cargo.toml.in"));
        files.push(NewFile { name: "Cargo.toml", mode: 0o644, text: cargo });
        files.push(NewFile { name: "build.sh", mode: 0o755, text: fill(include_str!("templates/build.sh")) });
    }
    files
}

/// Into a folder that was not there: `create_dir` refuses what exists, so nothing is ever overwritten.
fn write(folder: &Path, files: &[NewFile]) -> std::io::Result<()> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    fs::create_dir(folder)?;
    for NewFile { name, mode, text } in files {
        let path = folder.join(name);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(*mode).open(path)?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest_file;
    use contract::manifest::{Execution, ProcessProtocol};

    #[test]
    fn every_new_folder_has_a_manifest_that_is_admitted() {
        let dir = tempfile::tempdir().unwrap();
        let possible = ToolTemplate::value_variants().iter().filter(|template| **template != ToolTemplate::Http);
        for (index, template) in possible.enumerate() {
            for id in ["demo.word_count", "word_count"] {
                let id: ToolId = id.parse().unwrap();
                let folder = dir.path().join(format!("{index}{id}"));
                write(&folder, &files(&id, *template)).unwrap();
                let manifest = manifest_file::read(&folder).unwrap();
                assert_eq!(manifest.id().unwrap(), id);
                assert_eq!(manifest.name, "Word count");
                let is_session = matches!(
                    manifest.execution,
                    Some(Execution::Process { protocol: ProcessProtocol::Session, warm: true, .. })
                );
                assert_eq!(is_session, *template == ToolTemplate::Session);
                let readme = fs::read_to_string(folder.join("README.md")).unwrap();
                assert!(!readme.replace("@0.1.0", "").contains('@'), "{readme}");
            }
        }
    }

    #[test]
    fn what_is_there_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("x");
        fs::create_dir(&folder).unwrap();
        let id: ToolId = "word_count".parse().unwrap();
        assert!(write(&folder, &files(&id, ToolTemplate::Bash)).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
