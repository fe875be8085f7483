//! `gantry tool new`: a tool folder to start from, with a program that already works.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use contract::ids::ToolId;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;

/// Make a folder for a new tool
///
/// gantry tool new demo.word_count --template python
#[derive(Debug, Args)]
pub(crate) struct New {
    /// The tool's id: `tool_id` or `namespace.tool_id`, in snake_case
    name: String,
    /// What to start from: a language, or a session that tells its progress (in Python)
    #[arg(long, alias = "lang", value_enum, default_value_t = Template::Python)]
    template: Template,
    /// Where to make the folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// What a tool can be started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    Python,
    Node,
    Bash,
    Session,
}

impl Template {
    fn file(self) -> &'static str {
        match self {
            Self::Python | Self::Session => "main.py",
            Self::Node => "main.mjs",
            Self::Bash => "main.sh",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Python | Self::Session => "python3",
            Self::Node => "node",
            Self::Bash => "bash",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Python => include_str!("templates/main.py"),
            Self::Node => include_str!("templates/main.mjs"),
            Self::Bash => include_str!("templates/main.sh"),
            Self::Session => include_str!("templates/session.py"),
        }
    }

    /// What `[execution]` says about it besides the command.
    fn protocol(self) -> &'static str {
        match self {
            Self::Python | Self::Node | Self::Bash => "",
            Self::Session => {
                "protocol = \"gantry/1\"                  # one JSON-RPC message per line, on stdin and stdout\n\
                 warm = true                            # the process stays for the next call of the same tenant\n"
            }
        }
    }

    /// How one talks to it, for its README.
    fn talk(self) -> &'static str {
        match self {
            Self::Python | Self::Node | Self::Bash => {
                "parameters as JSON on stdin, result as JSON on stdout, the log on\nstderr, a non-zero exit for an error."
            }
            Self::Session => {
                "one JSON-RPC message per line on stdin and stdout, the log on\nstderr. The process may serve one call after another."
            }
        }
    }

    /// A first call by hand.
    fn input(self) -> &'static str {
        match self {
            Self::Python | Self::Node | Self::Bash => r#"{"name": "Ada"}"#,
            Self::Session => {
                r#"{"jsonrpc": "2.0", "id": 1, "method": "invoke", "params": {"parameters": {"name": "Ada"}}}"#
            }
        }
    }
}

impl New {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let id: ToolId = self.name.parse().map_err(|error: contract::ids::NameError| {
            Failure::usage(error.to_string()).hint("for example: gantry tool new demo.word_count")
        })?;
        let folder = self.dir.join(id.local());
        let files = files(&id, self.template);
        write(&folder, &files).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::new(format!("`{}` is there already", folder.display()))
                .hint("nothing was overwritten; choose another name or another --dir"),
            _ => Failure::new(format!("`{}` cannot be made: {error}", folder.display())),
        })?;
        let names: Vec<&str> = files.iter().map(|file| file.name).collect();
        context.printer.answer(&json!({ "tool_id": id, "folder": folder, "files": names }), |_| {
            format!(
                "made {folder}\n\nTry it by itself:\n  cd {folder} && echo '{input}' | {program} {file}\nAdd it to the running server, in a sandbox of its own:\n  \
                 gantry tool add {folder}\nOr serve it from where it is, while you write it:\n  gantry serve --tools {folder}",
                folder = folder.display(),
                input = self.template.input(),
                program = self.template.program(),
                file = self.template.file(),
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

fn files(id: &ToolId, template: Template) -> Vec<NewFile> {
    let namespace = id.namespace().map(|space| format!("namespace = \"{space}\"\n")).unwrap_or_default();
    let run = format!("{} {}", template.program(), template.file());
    let words = id.local().replace('_', " ");
    let name: String = words.chars().take(1).flat_map(char::to_uppercase).chain(words.chars().skip(1)).collect();
    let fill = |text: &str| {
        text.replace("@ID@", id.local())
            .replace("@NAMESPACE@", &namespace)
            .replace("@NAME@", &name)
            .replace("@PROVIDER@", id.namespace().unwrap_or("me"))
            .replace("@COMMAND@", &format!("[\"{}\", \"{}\"]", template.program(), template.file()))
            .replace("@PROTOCOL@", template.protocol())
            .replace("@TALK@", template.talk())
            .replace("@INPUT@", template.input())
            .replace("@FILE@", template.file())
            .replace("@RUN@", &run)
            .replace("@FULL_ID@", id.as_str())
    };
    vec![
        NewFile { name: "tool.toml", mode: 0o644, text: fill(include_str!("templates/tool.toml")) },
        NewFile { name: template.file(), mode: 0o755, text: template.source().to_owned() },
        NewFile { name: "README.md", mode: 0o644, text: fill(include_str!("templates/README.md")) },
    ]
}

/// Into a folder that was not there: `create_dir` refuses what exists, so nothing is ever overwritten.
fn write(folder: &Path, files: &[NewFile]) -> std::io::Result<()> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    fs::create_dir(folder)?;
    for NewFile { name, mode, text } in files {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(*mode).open(folder.join(name))?;
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
        for (index, template) in Template::value_variants().iter().enumerate() {
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
                assert_eq!(is_session, *template == Template::Session);
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
        assert!(write(&folder, &files(&id, Template::Bash)).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
