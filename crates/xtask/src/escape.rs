//! `cargo xtask escape`: two hundred hostile tools against the sandbox, printed as a table.
//!
//! Each probe is run three times over: bare, as a plain child with all our rights, to prove that it would have worked;
//! then as a tool of the real binary under each isolation it applies to. The probes are in `escape/`, in Python, because
//! hostile tools come in any language but ours, and because whoever wants to check one should be able to read it.
//!
//! The modules below are also built into the black-box tests (`tests/escape.rs`), which is why they know neither this
//! command nor the workspace.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use self::registry::ProbeIsolation;
use self::suite::SuitePlan;
use self::table::SuiteTally;
use crate::workspace;

mod bare;
mod canary;
mod gateway;
mod registry;
mod stage;
mod suite;
mod table;
mod traces;
mod verdict;

const USAGE: &str = "\
usage: cargo xtask escape [--json] [--only ID] [--isolation process|gvisor|wasm]... [--no-bare] [--rehearse]
                          [--binary PATH] [--list]";

/// The command. Fails if anything got out, or if anything is left open.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let mut asked = Asked::read(arguments)?;
    if asked.list {
        for probe in registry::read(&asked.plan.folder)? {
            println!("{:<36}{:<12}a tool that {}", probe.id, probe.family, probe.title);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if asked.plan.binary.as_os_str().is_empty() {
        asked.plan.binary = build()?;
    }
    if asked.plan.bare && !is_root() {
        eprintln!("bare runs are left out: they prove something only as root");
        asked.plan.bare = false;
    }
    let report = suite::run(&asked.plan)?;
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table::render(&report));
    }
    Ok(if SuiteTally::of(&report).is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the command line says.
struct Asked {
    plan: SuitePlan,
    json: bool,
    list: bool,
}

impl Asked {
    fn read(arguments: &[String]) -> Result<Self> {
        let plan = SuitePlan {
            folder: workspace::root().join("escape"),
            binary: PathBuf::new(),
            isolations: Vec::new(),
            only: None,
            bare: true,
            rehearse: false,
        };
        let mut asked = Self { plan, json: false, list: false };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value\n\n{USAGE}"));
            match word.as_str() {
                "--json" => asked.json = true,
                "--list" => asked.list = true,
                "--no-bare" => asked.plan.bare = false,
                "--rehearse" => asked.plan.rehearse = true,
                "--only" => asked.plan.only = Some(value()?.clone()),
                "--binary" => asked.plan.binary = PathBuf::from(value()?),
                "--isolation" => asked.plan.isolations.push(isolation(value()?)?),
                unknown => bail!("`{unknown}` is not understood\n\n{USAGE}"),
            }
        }
        if asked.plan.isolations.is_empty() {
            asked.plan.isolations =
                if asked.plan.rehearse { vec![ProbeIsolation::Process] } else { ProbeIsolation::ALL.to_vec() };
        }
        Ok(asked)
    }
}

fn isolation(word: &str) -> Result<ProbeIsolation> {
    let found = ProbeIsolation::ALL.into_iter().find(|isolation| isolation.as_str() == word);
    found.with_context(|| format!("there is no isolation `{word}`\n\n{USAGE}"))
}

/// The binary as cargo builds it; it must be the code at hand that is attacked.
fn build() -> Result<PathBuf> {
    let output = workspace::cargo()
        .args(["build", "--package", "gantry", "--message-format", "json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "gantry does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let path = built.filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from)).next_back();
    path.context("cargo does not say where gantry is")
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_more_than_enough_probes_and_each_has_its_function() {
        let folder = workspace::root().join("escape");
        let probes = registry::read(&folder).unwrap();
        assert!(probes.len() >= 70, "{}", probes.len());
        for probe in &probes {
            let program = std::fs::read_to_string(folder.join("probes").join(&probe.file)).unwrap();
            if probe.not_under(ProbeIsolation::Process).is_some() {
                continue;
            }
            let function = format!("@probe\ndef {}(parameters):", probe.id);
            assert!(probe.command.is_some() || program.contains(&function), "`{}` has no function", probe.id);
        }
        let is_function = |probe: &registry::EscapeProbe| {
            probe.command.is_none() && probe.not_under(ProbeIsolation::Process).is_none()
        };
        for file in probes.iter().map(|probe| &probe.file).collect::<std::collections::BTreeSet<_>>() {
            let program = std::fs::read_to_string(folder.join("probes").join(file)).unwrap();
            let listed = probes.iter().filter(|probe| probe.file == *file && is_function(probe)).count();
            assert_eq!(program.matches("@probe\n").count(), listed, "{file} has probes that nobody runs");
        }
    }

    #[test]
    fn the_command_line_is_read_strictly() {
        let read = |words: &[&str]| Asked::read(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap().plan.isolations, ProbeIsolation::ALL);
        assert_eq!(read(&["--rehearse"]).unwrap().plan.isolations, [ProbeIsolation::Process]);
        assert_eq!(read(&["--isolation", "gvisor"]).unwrap().plan.isolations, [ProbeIsolation::Gvisor]);
        assert_eq!(read(&["--only", "fork_bomb"]).unwrap().plan.only.as_deref(), Some("fork_bomb"));
        for wrong in [&["--isolation", "none"][..], &["--only"], &["fork_bomb"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
