//! What this machine offers against tools nobody trusts: mechanism by mechanism, then a real sandbox, then the levels.
//!
//! The mechanisms say *why* something is missing; whether a sandbox can be made is found out by making one, as the user
//! who asks and with the launcher the server would use. The levels are the words that manifests and `[isolation]` use.
//!
//! What is missing is only a fault if somebody relies on it: without any process tool in the configured folders a machine
//! without namespaces is worth a warning, and a level that nobody demands is merely absent.

use std::sync::Arc;
use std::time::Duration;

use contract::manifest::Isolation;
use executors::{OperatorReach, ToolConfinement, ToolDirectories, WasmConfig, WasmExecutor};
use ports::clock::Clock;
use ports::secret_source::NoSecrets;
use sandbox::egress::SystemResolver;
use sandbox::oci::{OciRuntime, RuntimeKind};
use sandbox::{LauncherCommand, MechanismOffer, MechanismState, ProgramExit, Sandbox, SandboxSpec, SpawnError};

use super::{Finding, Health};
use crate::config::GantryConfig;
use crate::machine::SystemClock;

/// The program that is run in a sandbox: it does nothing, and every system has it.
const PROGRAM: &str = "/bin/true";
/// How often it is run once the launcher is there; the middle one is told.
const RUNS: usize = 5;
/// How long all of it may take.
const TRIAL_MAX: Duration = Duration::from_secs(10);

/// Everything there is to say. `process_tools`: how many of them the configured folders hold.
pub(super) async fn findings(config: &GantryConfig, process_tools: usize) -> Vec<Finding> {
    let fault = if process_tools > 0 && !config.process.unsandboxed { Health::Bad } else { Health::Notable };
    let mut findings: Vec<Finding> = sandbox::offers().into_iter().map(|offer| mechanism(offer, fault)).collect();
    let trial = trial(config).await;
    let works = trial.is_ok();
    findings.push(match trial {
        Ok(detail) => Finding::well("sandbox", detail),
        Err((detail, hint)) => Finding::at(fault, "sandbox", detail, hint),
    });
    findings.extend([process(config, works, fault), wasm(), gvisor(config).await, microvm(config)]);
    findings
}

fn mechanism(MechanismOffer { mechanism, standing }: MechanismOffer, fault: Health) -> Finding {
    match standing {
        MechanismState::There(text) => Finding::well(mechanism, text),
        MechanismState::Weaker { detail, fix } => Finding::warning(mechanism, detail, fix),
        MechanismState::Missing { detail, fix } => Finding::at(
            fault,
            mechanism,
            format!("{detail}; without it no sandbox can be made, and process tools are refused (E3405)"),
            fix,
        ),
    }
}

// ---------------------------------------------------------------------------------------------------------- the trial

/// Makes sandboxes as the server would, or says why that fails and what to do.
async fn trial(config: &GantryConfig) -> Result<String, (String, String)> {
    let sandbox = Sandbox::new(LauncherCommand::own_executable(crate::LAUNCHER_ARGUMENT), 1);
    let clock = SystemClock::start();
    let all = async {
        // The first one also starts the launcher, which a server does once.
        run(&sandbox, config, &clock).await?;
        let mut times = Vec::new();
        for _ in 0..RUNS {
            times.push(run(&sandbox, config, &clock).await?);
        }
        times.sort_unstable();
        Ok(times.get(RUNS / 2).copied().unwrap_or_default())
    };
    match tokio::time::timeout(TRIAL_MAX, all).await {
        Ok(Ok(time)) => {
            Ok(format!("made one and ran {PROGRAM} in it, {:.1} ms from start to end", time.as_secs_f64() * 1_000.0))
        }
        Ok(Err(trouble)) => Err(trouble),
        Err(_) => Err((
            format!("none could be made within {} seconds", TRIAL_MAX.as_secs()),
            "is the machine under heavy load? try again".to_owned(),
        )),
    }
}

async fn run(sandbox: &Sandbox, config: &GantryConfig, clock: &SystemClock) -> Result<Duration, (String, String)> {
    let mut spec = SandboxSpec::new([PROGRAM]);
    spec.system.clone_from(&config.sandbox.system_paths);
    let before = clock.monotonic();
    let mut child = sandbox.spawn(spec).await.map_err(|error| not_made(&error))?;
    let ended = child.wait().await;
    match ended.exit {
        ProgramExit::Code(0) => Ok(clock.monotonic().saturating_sub(before)),
        other => Err((
            format!("{PROGRAM} did not end well inside: {other:?}"),
            "a program may need more of the system than `[sandbox] system_paths` shows".to_owned(),
        )),
    }
}

fn not_made(error: &SpawnError) -> (String, String) {
    let hint = match error {
        SpawnError::Step(failure) if !failure.detail.is_empty() => failure.detail.clone(),
        SpawnError::NoLauncher(cause) | SpawnError::NotOrdered(cause) | SpawnError::System(cause) => cause.to_string(),
        _ => "look at the mechanisms above".to_owned(),
    };
    (format!("none can be made: {error}"), hint)
}

// ---------------------------------------------------------------------------------------------------------- the levels

fn process(config: &GantryConfig, works: bool, fault: Health) -> Finding {
    const WHAT: &str = "level process";
    if config.process.unsandboxed {
        Finding::warning(
            WHAT,
            "switched off: process tools run with the rights of the server",
            "only for tools you wrote or have read; unset `[process] unsandboxed` to put them into sandboxes again",
        )
    } else if works {
        Finding::well(WHAT, "process tools run in a sandbox each")
    } else {
        Finding::at(
            fault,
            WHAT,
            "process tools are refused (E3405)",
            "`gantry serve --unsandboxed-processes` runs them without isolation, if you trust them",
        )
    }
}

/// Opens the engine as a server does, without its cache.
fn wasm() -> Finding {
    const WHAT: &str = "level wasm";
    let confinement = ToolConfinement::new(OperatorReach::default(), Arc::new(NoSecrets), Arc::new(SystemResolver));
    match WasmExecutor::open(WasmConfig::default(), ToolDirectories::default(), confinement) {
        Ok(_) => Finding::well(WHAT, "WASM components run in an instance each; counts as `process`"),
        Err(error) => Finding::warning(
            WHAT,
            format!("WASM tools cannot run on this machine: {error}"),
            "the engine reserves address space: look at `ulimit -v`",
        ),
    }
}

async fn gvisor(config: &GantryConfig) -> Finding {
    const WHAT: &str = "level gvisor";
    match gvisor_runtime().await {
        Ok(found) => Finding::well(WHAT, found),
        Err(missing) => absent(WHAT, config, Isolation::Gvisor, &missing),
    }
}

/// The same discovery and the same proof that a call goes through, so that this never says more than a call would get.
async fn gvisor_runtime() -> Result<String, String> {
    let Some(runtime) = OciRuntime::find(RuntimeKind::Runsc) else {
        return Err("gVisor (`runsc`) is not installed".to_owned());
    };
    let sandbox = Sandbox::new(LauncherCommand::own_executable(crate::LAUNCHER_ARGUMENT), 1);
    match tokio::time::timeout(TRIAL_MAX, runtime.proved(&sandbox)).await {
        Ok(Ok(proof)) => Ok(format!("gVisor (`runsc` {}) ran a program", proof.version)),
        Ok(Err(unusable)) => Err(format!("{unusable}: {}", unusable.reason)),
        Err(_) => Err(format!("`runsc` did not answer within {} seconds", TRIAL_MAX.as_secs())),
    }
}

fn microvm(config: &GantryConfig) -> Finding {
    absent("level microvm", config, Isolation::Microvm, "this server runs no virtual machines")
}

/// Missing: a fault only if the configuration demands it.
fn absent(what: &'static str, config: &GantryConfig, level: Isolation, missing: &str) -> Finding {
    let detail = format!("{missing}; calls that demand it are refused (E3405)");
    if config.isolation.demands(level) {
        Finding::failed(what, detail, "install it, or take it out of `[isolation] demands`")
    } else {
        Finding::absent(what, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn config(variables: &[(&str, &str)]) -> GantryConfig {
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>();
        GantryConfig::from_sources(None, &environment, Vec::new()).unwrap()
    }

    #[test]
    fn what_is_missing_is_a_fault_only_for_those_who_rely_on_it() {
        let missing = || MechanismOffer {
            mechanism: "seccomp",
            standing: MechanismState::Missing { detail: "gone".into(), fix: "bring it back".into() },
        };
        assert_eq!(mechanism(missing(), Health::Bad).health, Health::Bad);
        assert_eq!(mechanism(missing(), Health::Notable).health, Health::Notable);
        let weaker = MechanismOffer {
            mechanism: "Landlock",
            standing: MechanismState::Weaker { detail: "old".into(), fix: "renew it".into() },
        };
        assert_eq!(mechanism(weaker, Health::Bad).health, Health::Notable);

        let plain = config(&[]);
        assert_eq!(microvm(&plain).health, Health::Absent);
        let demanding = config(&[("GANTRY_ISOLATION__DEMANDS", "microvm tag=untrusted")]);
        assert_eq!(microvm(&demanding).health, Health::Bad);
        assert_eq!(process(&plain, false, Health::Bad).health, Health::Bad);
        assert_eq!(process(&plain, true, Health::Bad).health, Health::Well);
        let off = config(&[("GANTRY_PROCESS__UNSANDBOXED", "true")]);
        assert_eq!(process(&off, true, Health::Bad).health, Health::Notable);
    }
}
