//! One call of one component: a fresh store, one instance, one function, and everything gone afterwards.
//!
//! Invariants
//! - GUEST-1: nothing of a call is left for the next one; not even of the same tool and tenant (EXEC-021).
//! - GUEST-2: a guest gives its thread away at every tick, so dropping its future ends it.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::{Engine, Store};

use super::host::ToolError;
use super::limits::{HANDLES_MAX, HOSTCALL_BYTES_MAX, Seen};
use super::loaded::{Entry, LoadedComponent};
use super::metered::CpuTime;
use super::outbound::{Outbound, Traffic};
use super::state::State;
use super::streams::{LogStream, ResultStream, TooMuchOutput};

/// How a call came to its end.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) seen: Seen,
    pub(super) cpu: Duration,
    pub(super) traffic: Traffic,
    pub(super) log: String,
}

/// What the guest itself did.
pub(super) enum Outcome {
    /// It gave a result.
    Answered(Vec<u8>),
    /// It said that it failed.
    Failed(ToolError),
    /// It left with a code that is not zero.
    Exited(i32),
    /// More output than a result may have.
    TooMuch,
    /// It does not have the function a tool has.
    WrongShape(wasmtime::Error),
    /// It could not be made to run.
    NotStarted(wasmtime::Error),
    /// It was stopped for what it did.
    Trapped(wasmtime::Error),
}

/// What is needed to run a guest once.
pub(super) struct Guest {
    pub(super) loaded: Arc<LoadedComponent>,
    pub(super) engine: Engine,
    pub(super) state: State,
    pub(super) parameters: String,
    pub(super) stdout: ResultStream,
    pub(super) log: LogStream,
    pub(super) gate: Arc<dyn Outbound>,
}

impl Guest {
    /// Runs it to its end. The CPU is counted by whoever polls.
    pub(super) async fn run(self, cpu: CpuTime) -> Ended {
        let mut store = store(&self.engine, self.state);
        let outcome = match &self.loaded.entry {
            Entry::Tool { .. } => invoke(&self.loaded, &mut store, &self.parameters).await,
            Entry::Command(_) => command(&self.loaded, &mut store, &self.stdout).await,
        };
        let outcome = outcome.unwrap_or_else(|outcome| outcome);
        let seen = store.data().limiter.seen();
        // What the guest has left open ends here, before it is judged.
        drop(store);
        Ended { outcome, seen, cpu: cpu.used(), traffic: self.gate.traffic(), log: self.log.last_lines() }
    }
}

/// A store that is limited and interrupted.
pub(super) fn store(engine: &Engine, state: State) -> Store<State> {
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    // GUEST-2.
    store.set_epoch_deadline(1);
    store.epoch_deadline_async_yield_and_update(1);
    store.set_hostcall_fuel(HOSTCALL_BYTES_MAX);
    store.set_max_component_handles(HANDLES_MAX);
    store
}

async fn invoke(loaded: &LoadedComponent, store: &mut Store<State>, parameters: &str) -> Result<Outcome, Outcome> {
    let Entry::Tool { pre, invoke } = &loaded.entry else { return Err(Outcome::Exited(-1)) };
    let instance = pre.instantiate_async(&mut *store).await.map_err(started)?;
    let function = instance
        .get_typed_func::<(&str,), (Result<String, ToolError>,)>(&mut *store, invoke)
        .map_err(Outcome::WrongShape)?;
    let (answer,) = function.call_async(&mut *store, (parameters,)).await.map_err(ended)?;
    Ok(answer.map_or_else(Outcome::Failed, |text| Outcome::Answered(text.into_bytes())))
}

async fn command(
    loaded: &LoadedComponent,
    store: &mut Store<State>,
    stdout: &ResultStream,
) -> Result<Outcome, Outcome> {
    let Entry::Command(pre) = &loaded.entry else { return Err(Outcome::Exited(-1)) };
    let command = pre.instantiate_async(&mut *store).await.map_err(started)?;
    let run = command.wasi_cli_run().call_run(&mut *store).await;
    let written = || stdout.take().map_or_else(|TooMuchOutput| Outcome::TooMuch, Outcome::Answered);
    match run {
        Ok(Ok(())) => Ok(written()),
        Ok(Err(())) => Err(Outcome::Exited(1)),
        Err(error) => Err(match ended(error) {
            Outcome::Exited(0) => written(),
            other => other,
        }),
    }
}

/// Code of the guest may run while it is made, so that can end in the same ways.
fn started(error: wasmtime::Error) -> Outcome {
    match ended(error) {
        Outcome::Trapped(error) if !error.is::<wasmtime::Trap>() => Outcome::NotStarted(error),
        other => other,
    }
}

fn ended(error: wasmtime::Error) -> Outcome {
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return Outcome::Exited(exit.0);
    }
    if error.is::<TooMuchOutput>() {
        return Outcome::TooMuch;
    }
    Outcome::Trapped(error)
}
