//! What stands in the folder that a template makes, and what the machine needs for it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::ToolTemplate;
use crate::failure::CommandFailure;

/// Where the sandbox looks for programs.
const SANDBOX_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The first Node.js that runs TypeScript without being told to.
const NODE_MIN: (u32, u32) = (22, 18);

impl ToolTemplate {
    /// Can what it makes run here, as it is made?
    pub(super) fn is_possible(self) -> Result<(), CommandFailure> {
        match self {
            Self::Http => Err(CommandFailure::usage("there are no tools yet that are nothing but an HTTP API")
                .hint("write a tool that calls the API, with `network:https://…` in its `required_permissions`: --template python")),
            Self::TypeScript => runs_typescript(node_version()),
            Self::Python | Self::Node | Self::Bash | Self::Rust | Self::Session => Ok(()),
        }
    }

    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Python | Self::Session => "main.py",
            Self::Node => "main.mjs",
            Self::TypeScript => "main.ts",
            Self::Bash => "main.sh",
            Self::Rust => "src/main.rs",
            Self::Http => "",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Python | Self::Session => "python3",
            Self::Node | Self::TypeScript => "node",
            Self::Bash => "bash",
            Self::Rust | Self::Http => "",
        }
    }

    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Python => include_str!("../templates/main.py"),
            Self::Node => include_str!("../templates/main.mjs"),
            Self::TypeScript => include_str!("../templates/main.ts"),
            Self::Bash => include_str!("../templates/main.sh"),
            Self::Rust => include_str!("../templates/main.rs"),
            Self::Session => include_str!("../templates/session.py"),
            Self::Http => "",
        }
    }

    /// The program as it is run by hand.
    pub(super) fn run(self) -> String {
        format!("{} {}", self.program(), self.file())
    }

    /// What `[execution]` says.
    pub(super) fn execution(self) -> String {
        if self == Self::Rust {
            return "type = \"wasm\"\ncomponent = \"tool.wasm\"                # made by build.sh\n".to_owned();
        }
        let (program, file) = (self.program(), self.file());
        let session = "protocol = \"gantry/1\"                  # one JSON-RPC message per line, on stdin and stdout\n\
                       warm = true                            # the process stays for the next call of the same tenant\n";
        let protocol = if self == Self::Session { session } else { "" };
        format!("type = \"process\"\ncommand = [\"{program}\", \"{file}\"]\n{protocol}")
    }

    /// How one talks to it, for its README.
    pub(super) fn talk(self) -> &'static str {
        match self {
            Self::Session => {
                "one JSON-RPC message per line on stdin and stdout, the log on\nstderr. The process may serve one call after another."
            }
            Self::Python | Self::Node | Self::TypeScript | Self::Bash | Self::Rust | Self::Http => {
                "parameters as JSON on stdin, result as JSON on stdout, the log on\nstderr, a non-zero exit for an error."
            }
        }
    }

    /// The file that names its packages, for its README.
    pub(super) fn packages(self) -> &'static str {
        match self {
            Self::Node | Self::TypeScript => "`dependencies` of a `package.json`",
            Self::Python | Self::Session | Self::Bash | Self::Rust | Self::Http => "`requirements.txt`",
        }
    }

    /// A first call by hand.
    pub(super) fn input(self) -> &'static str {
        match self {
            Self::Session => {
                r#"{"jsonrpc": "2.0", "id": 1, "method": "invoke", "params": {"parameters": {"name": "Ada"}}}"#
            }
            Self::Python | Self::Node | Self::TypeScript | Self::Bash | Self::Rust | Self::Http => r#"{"name": "Ada"}"#,
        }
    }

    /// What to do first.
    pub(super) fn first_step(self, folder: &Path) -> String {
        let folder = folder.display();
        match self {
            Self::Rust => {
                format!("Build it (Rust 1.82 or later, `rustup target add wasm32-wasip2`):\n  {folder}/build.sh")
            }
            _ => format!("Try it by itself:\n  cd {folder} && echo '{}' | {}", self.input(), self.run()),
        }
    }
}

/// What the Node.js says that the sandbox finds; `None` if there is none.
#[expect(clippy::disallowed_methods, reason = "asks a program of the system for its version; no tool runs here")]
fn node_version() -> Option<String> {
    let mut node = Command::new("/usr/bin/env");
    node.args([&format!("PATH={SANDBOX_PATH}"), "node", "--version"]).stdin(Stdio::null());
    let said = node.output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn runs_typescript(version: Option<String>) -> Result<(), CommandFailure> {
    let (major, minor) = NODE_MIN;
    let wanted = format!("TypeScript is run by Node.js {major}.{minor} or later, as it is written");
    let hint = "install a newer Node.js in /usr or /usr/local, where the sandbox finds it, or take --template node";
    let Some(version) = version else {
        return Err(CommandFailure::new(format!("{wanted}, and this machine has none")).hint(hint));
    };
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    // 23 got it in the middle, and is over.
    if found >= NODE_MIN && (found.0 != 23 || found.1 >= 6) {
        return Ok(());
    }
    Err(CommandFailure::new(format!("{wanted}, and this machine has {version}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typescript_needs_a_node_that_takes_types_away() {
        for (version, runs) in [
            (None, false),
            (Some("v20.20.2"), false),
            (Some("v22.17.1"), false),
            (Some("v22.18.0"), true),
            (Some("v23.5.0"), false),
            (Some("v23.6.0"), true),
            (Some("v24.0.0"), true),
            (Some("nonsense"), false),
        ] {
            assert_eq!(runs_typescript(version.map(str::to_owned)).is_ok(), runs, "{version:?}");
        }
    }
}
