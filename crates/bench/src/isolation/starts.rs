//! From the start of a program that does nothing until nothing of it is left: bare, in our sandbox, in others'.
//!
//! A bare start is `fork` and `exec` as the standard library does them, with three pipes and an empty environment. Ours
//! goes through the launcher of the measured binary, and ends when it is told that no process of the program is left.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::oci::{ContainerRoot, OciRuntime, RuntimeKind};
use sandbox::{LauncherCommand, ProgramExit, Sandbox, SandboxChild, SandboxSpec};
use serde::Serialize;

use super::peers::{self, NOTHING, Program};
use super::{Scale, Times};
use crate::scenarios::median;

/// What the measured binary is told to be a launcher by.
const LAUNCHER_ARGUMENT: &str = "sandbox-launcher";
/// Sandboxes at once; here there is one.
const SANDBOXES_MAX: usize = 16;
/// Starts of each before anything is counted.
const WARM_UP: usize = 3;
/// All cores, so that nobody is throttled: a container runtime needs more CPU than a default limit gives.
const MILLICORES: u64 = 2000;

/// The table of starts.
#[derive(Serialize)]
pub(super) struct Starts {
    pub(super) rows: Vec<Row>,
    /// Our sandbox in terms of the bare start of the same round, median of all rounds.
    pub(super) of_bare: Option<f64>,
    /// And in terms of bubblewrap's.
    pub(super) of_bwrap: Option<f64>,
}

/// One way to start.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) what: &'static str,
    /// Why there are no times.
    pub(super) missing: Option<String>,
    pub(super) times: Option<Times>,
    /// Best in terms of the best bare start.
    pub(super) best_of_bare: Option<f64>,
    /// In terms of the bare start of the same round, median of all rounds.
    pub(super) median_of_bare: Option<f64>,
}

/// One of those who take turns.
struct Contender {
    what: &'static str,
    way: Result<Way, String>,
    /// Takes part in every so many rounds.
    every: usize,
}

enum Way {
    Program(Program),
    Sandbox(Sandbox),
    Container(Sandbox, OciRuntime),
}

/// Places of those who are compared by name.
const BARE: usize = 0;
const OURS: usize = 1;
const BWRAP: usize = 2;

/// All rounds.
pub(super) async fn measure(gantry: &Path, scale: &Scale) -> Result<Starts> {
    let folder = tempfile::Builder::new().prefix("gantry-bench-").tempdir().context("no temporary folder")?;
    let launch = LauncherCommand { program: gantry.to_owned(), arguments: vec![LAUNCHER_ARGUMENT.into()] };
    let sandbox = Sandbox::new(launch.clone(), SANDBOXES_MAX);
    // A launcher prepares for more of what it was asked last; with one for both, containers would spoil the next start.
    let containers = Sandbox::new(launch, SANDBOXES_MAX);
    let mut contenders = vec![
        Contender { what: "bare fork and exec", way: Ok(Way::Program(Program::new(NOTHING, &[]))), every: 1 },
        Contender { what: "process sandbox", way: Ok(Way::Sandbox(sandbox.clone())), every: 1 },
        Contender { what: "`bwrap`", way: peers::bwrap().map(Way::Program).ok_or_else(not_installed), every: 1 },
    ];
    contenders.extend(runtimes(&containers, folder.path(), scale.containers_every).await);
    for contender in &mut contenders {
        contender.warm_up().await;
    }
    for place in [BARE, OURS] {
        if let Some(Contender { way: Err(why), what, .. }) = contenders.get(place) {
            anyhow::bail!("{what}: {why}");
        }
    }
    let mut rounds = Vec::with_capacity(scale.starts);
    for number in 0..scale.starts {
        rounds.push(round(&contenders, number).await?);
    }
    let row = |(place, contender): (usize, &Contender)| row(contender, place, &rounds);
    let mut rows = contenders.iter().enumerate().map(row).collect::<Result<Vec<_>>>()?;
    rows.insert(BWRAP, in_a_row(&sandbox, scale.starts).await?);
    Ok(Starts { rows, of_bare: paired(&rounds, OURS, BARE), of_bwrap: paired(&rounds, OURS, BWRAP) })
}

async fn runtimes(sandbox: &Sandbox, folder: &Path, every: usize) -> Vec<Contender> {
    let mut all = Vec::new();
    for (kind, alone, through_us) in [
        (RuntimeKind::Runc, "`runc` by itself", "`runc` by our sandbox"),
        (RuntimeKind::Runsc, "`runsc` (gVisor) by itself", "`runsc` (gVisor) by our sandbox"),
    ] {
        let found = OciRuntime::find(kind).ok_or_else(not_installed);
        let own = match &found {
            Ok(runtime) => by_itself(runtime, sandbox, folder).await.map_err(|error| format!("{error:#}")),
            Err(why) => Err(why.clone()),
        };
        let ours = found.map(|runtime| Way::Container(sandbox.clone(), runtime));
        all.push(Contender { what: alone, way: own, every });
        all.push(Contender { what: through_us, way: ours, every });
    }
    all
}

fn not_installed() -> String {
    "not installed".to_owned()
}

async fn by_itself(runtime: &OciRuntime, sandbox: &Sandbox, folder: &Path) -> Result<Way> {
    let platform = runtime.proved(sandbox).await.map_err(|unusable| anyhow::anyhow!(unusable.reason))?.platform;
    Ok(Way::Program(peers::runtime(runtime, platform, folder)?))
}

/// Everybody once, forwards or backwards.
async fn round(contenders: &[Contender], number: usize) -> Result<Vec<Option<Duration>>> {
    let mut times = vec![None; contenders.len()];
    let mut turns: Vec<_> = contenders.iter().zip(&mut times).collect();
    if number % 2 == 1 {
        turns.reverse();
    }
    for (contender, time) in turns {
        if let Ok(way) = &contender.way
            && number.is_multiple_of(contender.every)
        {
            *time = Some(way.once().await.with_context(|| contender.what)?);
        }
    }
    Ok(times)
}

/// Our sandbox without a pause for its preparations: the next start comes the moment the last is gone.
async fn in_a_row(sandbox: &Sandbox, count: usize) -> Result<Row> {
    let (bare, ours) = (Way::Program(Program::new(NOTHING, &[])), Way::Sandbox(sandbox.clone()));
    let mut all = [Vec::new(), Vec::new()];
    for (way, times) in [bare, ours].iter().zip(&mut all) {
        for _ in 0..count {
            times.push(way.once().await?);
        }
    }
    let [bare, ours] = [Times::of(&all[0])?, Times::of(&all[1])?];
    Ok(Row {
        what: "process sandbox, nothing else between two starts",
        missing: None,
        times: Some(ours),
        best_of_bare: Some(ours.best_us / bare.best_us),
        median_of_bare: Some(ours.median_us / bare.median_us),
    })
}

fn row(contender: &Contender, place: usize, rounds: &[Vec<Option<Duration>>]) -> Result<Row> {
    let column = |place: usize| rounds.iter().filter_map(|round| *round.get(place)?).collect::<Vec<_>>();
    let what = contender.what;
    if let Err(why) = &contender.way {
        return Ok(Row { what, missing: Some(why.clone()), times: None, best_of_bare: None, median_of_bare: None });
    }
    let (times, bare) = (Times::of(&column(place))?, Times::of(&column(BARE))?);
    Ok(Row {
        what,
        missing: None,
        times: Some(times),
        best_of_bare: Some(times.best_us / bare.best_us),
        median_of_bare: paired(rounds, place, BARE),
    })
}

/// The median over the rounds in which both took part of one in terms of the other.
fn paired(rounds: &[Vec<Option<Duration>>], one: usize, other: usize) -> Option<f64> {
    let ratio = |round: &Vec<Option<Duration>>| {
        let (one, other) = ((*round.get(one)?)?, (*round.get(other)?)?);
        Some(one.as_secs_f64() / other.as_secs_f64())
    };
    let ratios: Vec<f64> = rounds.iter().filter_map(ratio).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

// -------------------------------------------------------------------------------------------------- Contender and Way

impl Contender {
    /// Who cannot do it does not take part, and the table says why.
    async fn warm_up(&mut self) {
        for _ in 0..WARM_UP {
            if let Ok(way) = &self.way
                && let Err(error) = way.once().await
            {
                self.way = Err(format!("does not work here: {error:#}"));
            }
        }
    }
}

impl Way {
    async fn once(&self) -> Result<Duration> {
        match self {
            Self::Program(program) => program.once(),
            Self::Sandbox(sandbox) => {
                let start = Instant::now();
                let child = sandbox.spawn(nothing()).await?;
                gone(child, start).await
            }
            Self::Container(sandbox, runtime) => {
                let start = Instant::now();
                let child = runtime.spawn(sandbox, nothing(), ContainerRoot::HostSystem).await?;
                gone(child, start).await
            }
        }
    }
}

fn nothing() -> SandboxSpec {
    let mut spec = SandboxSpec::new([NOTHING]);
    spec.limits.cpu_millicores = MILLICORES;
    spec
}

async fn gone(mut child: SandboxChild, start: Instant) -> Result<Duration> {
    let ended = child.wait().await;
    let taken = start.elapsed();
    ensure!(ended.exit == ProgramExit::Code(0), "it ended with {:?}", ended.exit);
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let ms = |value| Some(Duration::from_millis(value));
        let rounds = [vec![ms(1), ms(2)], vec![ms(10), ms(30)], vec![ms(1), None], vec![ms(5), ms(5)]];
        assert!((paired(&rounds, 1, 0).unwrap() - 2.0).abs() < 0.001);
        assert_eq!(paired(&rounds, 2, 0), None);
    }

    #[tokio::test]
    async fn who_is_not_there_does_not_take_part_and_is_named() {
        let bare = Contender { what: "bare", way: Ok(Way::Program(Program::new(NOTHING, &[]))), every: 1 };
        let missing = Contender { what: "other", way: Err(not_installed()), every: 1 };
        let mut broken = Contender { what: "broken", way: Ok(Way::Program(Program::new("/bin/false", &[]))), every: 1 };
        broken.warm_up().await;
        let contenders = [bare, missing, broken];
        let rounds = [round(&contenders, 0).await.unwrap(), round(&contenders, 1).await.unwrap()];
        assert!(row(&contenders[0], 0, &rounds).unwrap().times.is_some());
        assert_eq!(row(&contenders[1], 1, &rounds).unwrap().missing.as_deref(), Some("not installed"));
        assert!(row(&contenders[2], 2, &rounds).unwrap().missing.unwrap().contains("does not work here"));
    }
}
