//! The run: canary, stage and gateway are put up, and every probe is run bare and under each isolation.
//!
//! What a probe says is only half of the verdict. After each call the runner looks for itself: does a process of the
//! probe live on, is the canary as it was and has nobody called there, is the gateway alive and no larger than before.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::canary::EscapeCanary;
use super::gateway::EscapeGateway;
use super::registry::{self, BareProbe, EscapeProbe, ProbeIsolation};
use super::stage::{self, EscapeStage};
use super::verdict::{self, BareOutcome, ProbeOutcome};
use super::{bare, traces};

/// Log bytes that one call may cost. A flood is a gigabyte.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Memory that the gateway may hold after a call.
const MEMORY_KIB_MAX: u64 = 768 << 10;

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct SuitePlan {
    /// The folder `escape/` of the repository.
    pub(crate) folder: PathBuf,
    /// The server under attack.
    pub(crate) binary: PathBuf,
    pub(crate) isolations: Vec<ProbeIsolation>,
    /// Only this probe.
    pub(crate) only: Option<String>,
    /// Whether harmless probes are also run outside. They need root to mean anything.
    pub(crate) bare: bool,
    /// Runs harmless probes through a server without sandbox: everything then gets out, which shows that this suite can
    /// see it. Components are always in theirs; they are given the canary's directory instead.
    pub(crate) rehearse: bool,
}

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct SuiteLine {
    pub(crate) id: String,
    pub(crate) family: String,
    pub(crate) title: String,
    pub(crate) bare: BareOutcome,
    pub(crate) outcomes: Vec<(ProbeIsolation, ProbeOutcome)>,
}

/// All of them.
#[derive(Debug, Serialize)]
pub(crate) struct SuiteReport {
    pub(crate) lines: Vec<SuiteLine>,
}

/// What has been put up for the run.
struct Scene {
    plan: SuitePlan,
    probes: Vec<EscapeProbe>,
    // In this order, so that the gateway goes first and the canary last.
    gateway: EscapeGateway,
    stage: EscapeStage,
    canary: EscapeCanary,
}

/// Runs the plan.
pub(crate) fn run(plan: &SuitePlan) -> Result<SuiteReport> {
    let mut scene = Scene::set(plan)?;
    let mut lines: Vec<SuiteLine> = Vec::new();
    for number in 0..scene.probes.len() {
        lines.push(scene.bare(number)?);
    }
    for &isolation in &plan.isolations {
        let unavailable = scene.unavailable(isolation)?;
        for (number, line) in lines.iter_mut().enumerate() {
            let outcome = match &unavailable {
                Some(message) => ProbeOutcome::Unavailable(message.clone()),
                None => scene.attack(number, isolation)?,
            };
            line.outcomes.push((isolation, outcome));
        }
    }
    Ok(SuiteReport { lines })
}

/// Eight letters that no other run has.
fn run_name() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id())).chars().take(8).collect()
}

impl Scene {
    fn set(plan: &SuitePlan) -> Result<Self> {
        let mut probes = registry::read(&plan.folder)?;
        if let Some(only) = &plan.only {
            probes.retain(|probe| probe.id == *only);
            anyhow::ensure!(!probes.is_empty(), "there is no probe `{only}`");
        }
        let run = run_name();
        let canary = EscapeCanary::start(&plan.folder, &format!("canary-{run}"))?;
        // Bare runs use the folders of the process sandbox.
        let mut isolations = plan.isolations.clone();
        if !isolations.contains(&ProbeIsolation::Process) {
            isolations.push(ProbeIsolation::Process);
        }
        let stage = EscapeStage::set(plan, &run, &probes, &isolations, &canary)?;
        let tools: Vec<PathBuf> = isolations.iter().map(|&isolation| stage.tools(isolation)).collect();
        let more: &[&str] = if plan.rehearse { &["--unsandboxed-processes"] } else { &[] };
        let gateway = EscapeGateway::start(&plan.binary, &stage, &tools, &canary, more)?;
        Ok(Self { plan: plan.clone(), probes, gateway, stage, canary })
    }

    fn probe(&self, number: usize) -> Result<&EscapeProbe> {
        self.probes.get(number).context("there is no such probe")
    }

    /// What a probe is told: where everything is that it must not get.
    fn parameters(&self, probe: &EscapeProbe, isolation: ProbeIsolation, mode: &str, step: u32) -> Value {
        let mut parameters = self.canary.parameters().clone();
        let folder = self.stage.folder(isolation, stage::BYSTANDER);
        parameters.insert("probe".into(), json!(probe.id));
        parameters.insert("folder".into(), json!(self.stage.folder(isolation, &probe.id)));
        parameters.insert("mode".into(), json!(mode));
        parameters.insert("step".into(), json!(step));
        parameters.insert("data_dir".into(), json!(self.stage.data()));
        parameters.insert("bystander".into(), json!(folder));
        parameters.insert("api".into(), json!(self.gateway.address().to_string()));
        Value::Object(parameters)
    }

    fn bare(&self, number: usize) -> Result<SuiteLine> {
        let probe = self.probe(number)?;
        let run = self.plan.bare && probe.is_harmless();
        let mut ran = bare::BareRun { written: Vec::new(), left: false };
        if run {
            let folder = self.stage.folder(ProbeIsolation::Process, &probe.id);
            let (command, tag) = (self.stage.command(probe, number), self.stage.tag(number));
            for step in 1..=probe.calls {
                let parameters = self.parameters(probe, ProbeIsolation::Process, "bare", step);
                ran = bare::run(&folder, &command, &tag, &parameters, &self.canary)?;
            }
        }
        let bare = match probe.bare {
            BareProbe::Never | BareProbe::None => verdict::of_bare(probe, &[], false),
            _ if run => verdict::of_bare(probe, &ran.written, ran.left),
            _ => BareOutcome::NotShown("not asked for".to_owned()),
        };
        let (id, family, title) = (probe.id.clone(), probe.family.clone(), probe.title.clone());
        Ok(SuiteLine { id, family, title, bare, outcomes: Vec::new() })
    }

    /// Why an isolation cannot be had here, as the honest tool is told. Any other failure of it is for the probes to meet.
    fn unavailable(&self, isolation: ProbeIsolation) -> Result<Option<String>> {
        let answer = self.gateway.invoke(&stage::tool_id(isolation, stage::BYSTANDER), &json!({}))?;
        let refused = answer.pointer("/error/code").and_then(Value::as_str) == Some(verdict::NO_SUCH_ISOLATION);
        let message = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        Ok(refused.then(|| message.to_owned()))
    }

    /// Runs one probe as a tool and judges it.
    fn attack(&mut self, number: usize, isolation: ProbeIsolation) -> Result<ProbeOutcome> {
        let probe = self.probe(number)?;
        if let Some(why) = probe.not_under(isolation) {
            return Ok(ProbeOutcome::Inapplicable(why.to_owned()));
        }
        if self.plan.rehearse && !probe.is_harmless() {
            return Ok(ProbeOutcome::Inapplicable("never without a sandbox".to_owned()));
        }
        let before = (self.gateway.log_bytes(), self.canary.status()?.visitors);
        let probe = self.probe(number)?;
        let mode = if self.plan.rehearse { "bare" } else { "sandboxed" };
        let mut answer = Value::Null;
        for step in 1..=probe.calls {
            let parameters = self.parameters(probe, isolation, mode, step);
            answer = self.gateway.invoke(&stage::tool_id(isolation, &probe.id), &parameters)?;
        }
        let outcome = verdict::of_answer(probe.expected(isolation), &answer);
        // What the runner sees with its own eyes outweighs whatever the tool said.
        Ok(self.evidence(number, before)?.map_or(outcome, ProbeOutcome::Escaped))
    }

    /// Traces of an escape that nobody reported.
    fn evidence(&mut self, number: usize, (log_bytes, visitors): (u64, u64)) -> Result<Option<String>> {
        let tag = self.stage.tag(number);
        let left = traces::left_behind(&tag);
        traces::end(&left);
        let status = self.canary.status().context("the canary was killed")?;
        anyhow::ensure!(self.gateway.is_alive(), "the gateway was killed by `{}`", self.probe(number)?.id);
        let found = if !left.is_empty() {
            format!("{} of its processes outlived the call", left.len())
        } else if !status.intact {
            "the canary was changed".to_owned()
        } else if status.visitors != visitors {
            "it was seen at the canary's door".to_owned()
        } else if self.gateway.log_bytes().saturating_sub(log_bytes) > LOG_BYTES_MAX {
            "the gateway's log took the flood".to_owned()
        } else if self.gateway.memory_kib() > MEMORY_KIB_MAX {
            "the gateway's memory took the flood".to_owned()
        } else {
            return Ok(None);
        };
        Ok(Some(found))
    }
}
