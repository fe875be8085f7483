//! The place the servers of the file work in: notes, a repository, a virtual environment, a `node_modules`.
//!
//! It lies beside the installed services, because servers may be given paths there, and is made anew each time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Folders that servers write to. Where Gantry is root they run as nobody.
const WRITABLE: [&str; 6] = ["notes", "my notes", "memory", "repo", "db", "sheets"];

/// The folder; taken away when it is dropped.
pub(super) struct Stage {
    folder: PathBuf,
}

impl Stage {
    pub(super) fn build() -> Result<Self> {
        let services = test_servers::folder()?;
        let stage = Self { folder: services.join(format!("first-day-{}", std::process::id())) };
        fs::create_dir_all(&stage.folder).with_context(|| format!("cannot make `{}`", stage.folder.display()))?;
        for name in WRITABLE.into_iter().chain(["project", "npm"]) {
            fs::create_dir(stage.at(name))?;
        }
        for notes in ["notes", "my notes"] {
            fs::write(stage.at(notes).join("todo.md"), "buy milk\n")?;
        }
        fs::write(stage.at("project/wrong.js"), "var x = 1;\n")?;
        fs::write(stage.at("project/right.js"), "const x = 1;\n")?;
        fs::write(stage.at("project/eslint.config.mjs"), "export default [{ rules: { \"no-var\": \"error\" } }];\n")?;
        fs::write(stage.at("mcp.json"), include_str!("mcp.json"))?;
        stage.repository()?;
        stage.environment()?;
        let packages =
            ["@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-memory@2026.8.31"];
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
        run(Command::new("npm").args(install).args(packages).current_dir(stage.at("npm")))?;
        for name in WRITABLE {
            open(&stage.at(name))?;
        }
        Ok(stage)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn repository(&self) -> Result<()> {
        let repo = self.at("repo");
        let git = || {
            let mut command = Command::new("git");
            command.args(["-c", "user.name=A", "-c", "user.email=a@example.com"]).current_dir(&repo);
            command
        };
        run(git().args(["init", "--quiet", "--initial-branch=main"]))?;
        fs::write(repo.join("note.txt"), "hello\n")?;
        run(git().args(["add", "note.txt"]))?;
        run(git().args(["commit", "--quiet", "--message", "first note"]))
    }

    /// By the interpreter of the system, as a person would who has no other.
    fn environment(&self) -> Result<()> {
        let venv = self.at("venv");
        let uv = test_servers::kit("uv")?.join("bin/uv");
        run(Command::new(&uv).args(["venv", "--quiet", "--no-project", "--python", "/usr/bin/python3"]).arg(&venv))?;
        let install = ["pip", "install", "--quiet", "--python"];
        run(Command::new(&uv).args(install).arg(venv.join("bin/python")).args(["mcp-server-time", "mcp-server-git"]))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left over is in nobody's way.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// `chmod -R o+rwX`, which is what the import proposes where there is no other way.
fn open(path: &Path) -> Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(());
    }
    let more = if found.is_dir() { 0o007 } else { 0o006 };
    fs::set_permissions(path, Permissions::from_mode(found.permissions().mode() | more))?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            open(&entry?.path())?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{name}`"))?;
    ensure!(output.status.success(), "`{name}` failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
