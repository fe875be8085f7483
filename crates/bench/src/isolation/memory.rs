//! What an interpreter costs that waits for its next call, and what the launcher and its prepared processes cost.
//!
//! The proportional share is counted: what processes have in common is divided among them, so that the shares of all add
//! up to what the machine has lost. As many bare interpreters with the same script stand beside.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::hello::interpreter;
use super::tools::{ToolServer, WARM_TOOLS};
use crate::load::Connection;
use crate::machine;

/// Interpreters of one tool; the server keeps no more.
const OF_ONE_TOOL: usize = 4;
/// A call that waits keeps its interpreter, so that the next call starts another.
const WAIT_MS: u64 = 300;
/// How often it is tried to have all of them at once.
const ATTEMPTS_MAX: usize = 5;
/// Memory is read when processes had this long to settle.
const SETTLE: Duration = Duration::from_millis(500);

/// In MiB.
#[derive(Serialize)]
pub(super) struct Memory {
    /// Interpreters that wait.
    pub(super) interpreters: usize,
    /// Proportional share of one of them, its sandbox's first process included.
    pub(super) each_mib: f64,
    /// Of that, the first process.
    pub(super) first_process_mib: f64,
    /// Proportional share of a bare interpreter with the same script, among as many.
    pub(super) bare_mib: f64,
    pub(super) launcher_resident_mib: f64,
    pub(super) launcher_mib: f64,
    /// First processes that wait for an order, each with the process that will be the program.
    pub(super) spares: usize,
    /// Proportional share of one of these pairs.
    pub(super) spare_mib: f64,
    pub(super) spare_resident_mib: f64,
}

/// Lets all warm tools be called at once and looks at what stays.
pub(super) async fn measure(tool_server: &ToolServer) -> Result<Memory> {
    let mut found = Found::default();
    for _ in 0..ATTEMPTS_MAX {
        call_all(tool_server).await?;
        tokio::time::sleep(SETTLE).await;
        found = Found::below(tool_server.server.pid())?;
        if found.sandboxes.len() >= WARM_TOOLS.len() * OF_ONE_TOOL {
            break;
        }
    }
    let launcher = found.launcher.context("the server has no launcher")?;
    ensure!(!found.sandboxes.is_empty(), "no interpreter waits");
    let interpreters = found.sandboxes.len();
    let firsts =
        found.sandboxes.iter().map(|tree| machine::proportional_mib(tree.first)).collect::<Result<Vec<_>>>()?;
    let others = found.sandboxes.iter().flat_map(|tree| &tree.others);
    let others = others.map(|pid| machine::proportional_mib(*pid)).collect::<Result<Vec<_>>>()?;
    let waiting = || found.spares.iter().flat_map(|tree| tree.others.iter().chain([&tree.first]));
    let spares = waiting().map(|pid| machine::proportional_mib(*pid)).collect::<Result<Vec<_>>>()?;
    let resident = waiting().map(|pid| machine::resident_mib(*pid)).collect::<Result<Vec<_>>>()?;
    let share = |sum: f64, count: usize| sum / u32::try_from(count.max(1)).map_or(1.0, f64::from);
    let first_process_mib = share(firsts.iter().sum(), interpreters);
    Ok(Memory {
        interpreters,
        each_mib: first_process_mib + share(others.iter().sum(), interpreters),
        first_process_mib,
        bare_mib: bare(&tool_server.script(WARM_TOOLS[0], "main.py"), interpreters).await?,
        launcher_resident_mib: machine::resident_mib(launcher)?,
        launcher_mib: machine::proportional_mib(launcher)?,
        spares: found.spares.len(),
        spare_mib: share(spares.iter().sum(), found.spares.len()),
        spare_resident_mib: share(resident.iter().sum(), found.spares.len()),
    })
}

async fn call_all(tool_server: &ToolServer) -> Result<()> {
    let parameters = json!({ "name": "memory", "wait_ms": WAIT_MS });
    let mut tasks = JoinSet::new();
    for tool in WARM_TOOLS {
        for _ in 0..OF_ONE_TOOL {
            let (traffic, address) = (tool_server.traffic(tool, &parameters), tool_server.server.address);
            tasks.spawn(async move { Connection::open(address).await?.timed(&traffic).await });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a connection's task died")??;
    }
    Ok(())
}

/// The same share of bare interpreters, each waiting for a line that never comes.
async fn bare(script: &Path, count: usize) -> Result<f64> {
    let python = interpreter()?;
    let mut all = Bare(Vec::new());
    for _ in 0..count {
        let mut command = Command::new(&python);
        command.arg(script).env_clear().stdin(Stdio::piped()).stdout(Stdio::null());
        all.0.push(command.spawn().context("python3 cannot be started")?);
    }
    tokio::time::sleep(SETTLE).await;
    let shares = all.0.iter().map(|child| machine::proportional_mib(child.id())).collect::<Result<Vec<_>>>()?;
    Ok(shares.iter().sum::<f64>() / u32::try_from(count).map_or(1.0, f64::from))
}

/// Ended when dropped.
struct Bare(Vec<Child>);

impl Drop for Bare {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processes of a server, by what they are.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    launcher: Option<u32>,
    sandboxes: Vec<Tree>,
    spares: Vec<Tree>,
}

/// How the launcher names the process that will be a program, and the one that cleans up.
const WAITING: &str = "gantry-waiting";
const SWEEPER: &str = "gantry-sweeper";

/// A first process and everything inside.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    first: u32,
    others: Vec<u32>,
}

impl Found {
    fn below(server: u32) -> Result<Self> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut names = HashMap::new();
        for entry in std::fs::read_dir("/proc").context("processes cannot be listed")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            // A process may have ended since it was listed.
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            if let Some((pid, parent)) = pid.zip(field_of(&status, "PPid:").and_then(|number| number.parse().ok())) {
                children.entry(parent).or_default().push(pid);
                names.insert(pid, field_of(&status, "Name:").unwrap_or_default().to_owned());
            }
        }
        Ok(Self::among(&children, &names, server))
    }

    /// The server's only child is the launcher; its children are the sweeper and first processes; those whose only child
    /// still waits are spare.
    fn among(children: &HashMap<u32, Vec<u32>>, names: &HashMap<u32, String>, server: u32) -> Self {
        let is = |pid: u32, name: &str| names.get(&pid).is_some_and(|own| own == name);
        let of = |pid: u32| children.get(&pid).map(Vec::as_slice).unwrap_or_default();
        let launcher = of(server).first().copied();
        let mut found = Self { launcher, ..Self::default() };
        for &first in launcher.map(of).unwrap_or_default().iter().filter(|pid| !is(**pid, SWEEPER)) {
            let mut others = of(first).to_vec();
            let mut next = 0;
            while let Some(&pid) = others.get(next) {
                others.extend(of(pid));
                next += 1;
            }
            let waits = others.iter().all(|pid| is(*pid, WAITING));
            let kind = if waits { &mut found.spares } else { &mut found.sandboxes };
            kind.push(Tree { first, others });
        }
        found
    }
}

fn field_of<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_parents() {
        let children = HashMap::from([
            (1, vec![2, 90]),
            (2, vec![3]),
            (3, vec![4, 5, 8]),
            (4, vec![6]),
            (5, vec![9]),
            (6, vec![7]),
        ]);
        let names = [(6, "python3"), (7, WAITING), (8, SWEEPER), (9, WAITING)];
        let names = names.into_iter().map(|(pid, name)| (pid, name.to_owned())).collect();
        let found = Found::among(&children, &names, 2);
        let sandboxes = vec![Tree { first: 4, others: vec![6, 7] }];
        let spares = vec![Tree { first: 5, others: vec![9] }];
        assert_eq!(found, Found { launcher: Some(3), sandboxes, spares });
        assert_eq!(Found::among(&children, &names, 90), Found::default());
        let status = "Name:\tx\nPid:\t4\nPPid:\t3\n";
        assert_eq!((field_of(status, "PPid:"), field_of(status, "Name:")), (Some("3"), Some("x")));
    }
}
