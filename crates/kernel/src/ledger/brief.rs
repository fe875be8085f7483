//! Calls of tools without effects that were made with a key: remembered by this process, for as long as there is room.
//!
//! Nothing is lost when one is forgotten, because making such a call again does no harm. So nothing is written: a key saves
//! work here and does not protect anything. What came to no result is not remembered at all.
//!
//! Bounded in entries and in bytes; the oldest make room. What runs is bounded by the calls in flight. The lock is held for
//! a look at a map and never across a wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::canonical::Digest;
use contract::ids::{TenantId, ToolId};
use ports::ledger::{IdempotencyKey, Intent};
use tokio::sync::watch;

use super::{FirstCall, KeptResult};

/// Outcomes that are remembered.
const ENTRIES_MAX: usize = 10_000;
/// What their results take together, as JSON.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// All of them.
#[derive(Debug, Default, Clone)]
pub(super) struct Brief(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    by_name: HashMap<Name, Line>,
    /// What is done, oldest first. A name that was forgotten or used anew meanwhile has another serial.
    done: VecDeque<(Name, u64)>,
    bytes: usize,
    serial: u64,
}

type Name = (TenantId, ToolId, IdempotencyKey);

#[derive(Debug)]
struct Line {
    serial: u64,
    parameters: Digest,
    first: FirstCall,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Those who wait hear when it is dropped.
    Running(watch::Sender<()>),
    Done {
        kept: Box<KeptResult>,
        bytes: usize,
        until: Duration,
    },
}

/// What is known of a call that wants to begin.
pub(super) enum Look {
    /// It may run.
    New(NotedKey),
    /// It runs: look again when this changes.
    Runs(FirstCall, watch::Receiver<()>),
    Done(FirstCall, Box<KeptResult>),
    /// The name stands for a call with other parameters.
    OtherParameters(FirstCall),
}

/// A call that has its name. Dropped without a result, the name is free again.
#[derive(Debug)]
pub(crate) struct NotedKey {
    lines: Brief,
    name: Name,
    serial: u64,
    window: Duration,
}

impl Brief {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock_unpoisoned()
    }

    /// Looks for the call, and gives it its name if nobody has that. Without a key there is nothing to look for.
    pub(super) fn look(&self, intent: &Intent, now: Duration) -> Option<Look> {
        let name = (intent.tenant.clone(), intent.tool.clone(), intent.key.clone()?);
        let mut lines = self.lines();
        if let Some(line) = lines.by_name.get(&name).filter(|line| line.holds(now)) {
            let first = line.first.clone();
            return Some(match &line.state {
                _ if line.parameters != intent.parameters => Look::OtherParameters(first),
                State::Running(changes) => Look::Runs(first, changes.subscribe()),
                State::Done { kept, .. } => Look::Done(first, kept.clone()),
            });
        }
        lines.forget(&name);
        lines.serial += 1;
        let serial = lines.serial;
        let line = Line {
            serial,
            parameters: intent.parameters,
            first: FirstCall { invocation: intent.invocation, version: intent.version.clone() },
            state: State::Running(watch::Sender::new(())),
        };
        lines.by_name.insert(name.clone(), line);
        drop(lines);
        Some(Look::New(NotedKey { lines: self.clone(), name, serial, window: intent.window }))
    }
}

impl Line {
    fn holds(&self, now: Duration) -> bool {
        match self.state {
            State::Running(_) => true,
            State::Done { until, .. } => now < until,
        }
    }
}

impl Lines {
    fn forget(&mut self, name: &Name) {
        if let Some(Line { state: State::Done { bytes, .. }, .. }) = self.by_name.remove(name) {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Forgets the oldest until the bounds hold; says how many.
    fn make_room(&mut self) -> usize {
        let mut forgotten = 0;
        while (self.bytes > BYTES_MAX || self.done.len() > ENTRIES_MAX)
            && let Some((name, serial)) = self.done.pop_front()
        {
            if self.by_name.get(&name).is_some_and(|line| line.serial == serial) {
                self.forget(&name);
                forgotten += 1;
            }
        }
        forgotten
    }
}

impl NotedKey {
    /// Remembers what came of it. Says how many others were forgotten for it before their time.
    pub(super) fn keep(self, kept: KeptResult, now: Duration) -> usize {
        let bytes = kept.result.to_string().len();
        let mut lines = self.lines.lines();
        let Some(line) = lines.by_name.get_mut(&self.name).filter(|line| line.serial == self.serial) else { return 0 };
        line.state = State::Done { kept: Box::new(kept), bytes, until: now.saturating_add(self.window) };
        lines.bytes = lines.bytes.saturating_add(bytes);
        lines.done.push_back((self.name.clone(), self.serial));
        lines.make_room()
    }
}

impl Drop for NotedKey {
    fn drop(&mut self) {
        let mut lines = self.lines.lines();
        let runs = |line: &Line| line.serial == self.serial && matches!(line.state, State::Running(_));
        if lines.by_name.get(&self.name).is_some_and(runs) {
            lines.by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::canonical;
    use contract::ids::TraceId;
    use contract::manifest::SideEffectPolicy;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use ports::clock::UnixMillis;
    use ports::ledger::OwnerId;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn intent(key: &str, parameters: &Value) -> Intent {
        Intent {
            invocation: "018f0000-0000-7000-8000-000000000001".parse().unwrap(),
            trace: TraceId::from_bytes([1; 16]),
            tenant: TenantId::home(),
            caller: "agent-1".parse().unwrap(),
            tool: "demo.echo".parse().unwrap(),
            version: "1.0.0".parse().unwrap(),
            effects: SideEffectPolicy::Pure,
            key: Some(IdempotencyKey { scope: "s".into(), key: key.into() }),
            parameters: canonical::digest(parameters),
            window: HOUR,
            owner: OwnerId(Uuid::nil()),
            queued_act: None,
        }
    }

    fn done(brief: &Brief, key: &str, result: Value, now: Duration) -> usize {
        let Some(Look::New(noted)) = brief.look(&intent(key, &json!({})), now) else { panic!("{key} is new") };
        noted.keep(KeptResult::of_person(result, None, UnixMillis(0)), now)
    }

    #[test]
    fn an_outcome_is_remembered_for_its_window_and_a_failure_not_at_all() {
        let brief = Brief::default();
        let wish = intent("k", &json!({}));
        let failed = brief.look(&wish, Duration::ZERO);
        assert!(matches!(brief.look(&wish, Duration::ZERO), Some(Look::Runs(..))));
        drop(failed);
        assert_eq!(done(&brief, "k", json!({ "n": 1 }), Duration::ZERO), 0);
        assert!(
            matches!(brief.look(&wish, HOUR - Duration::from_millis(1)), Some(Look::Done(_, kept)) if kept.result == json!({ "n": 1 }))
        );
        let other = intent("k", &json!({ "a": 1 }));
        assert!(matches!(brief.look(&other, Duration::ZERO), Some(Look::OtherParameters(_))));
        assert!(matches!(brief.look(&wish, HOUR), Some(Look::New(_))), "the window is over");
        assert_eq!(brief.lines().bytes, 0);
        assert!(brief.look(&Intent { key: None, ..wish }, HOUR).is_none());
    }

    #[test]
    fn the_oldest_make_room_by_number_and_by_size() {
        let brief = Brief::default();
        for number in 0..ENTRIES_MAX {
            assert_eq!(done(&brief, &number.to_string(), json!(1), Duration::ZERO), 0);
        }
        assert_eq!(done(&brief, "one more", json!(1), Duration::ZERO), 1);
        assert!(
            matches!(brief.look(&intent("0", &json!({})), Duration::ZERO), Some(Look::New(_))),
            "the oldest is gone"
        );
        let forgotten = done(&brief, "large", json!("x".repeat(BYTES_MAX - 2)), Duration::ZERO);
        assert_eq!(forgotten, ENTRIES_MAX, "all others");
        let lines = brief.lines();
        assert_eq!((lines.bytes, lines.done.len(), lines.by_name.len()), (BYTES_MAX, 1, 1));
    }

    #[test]
    fn a_result_that_is_larger_than_all_the_room_is_not_remembered() {
        let brief = Brief::default();
        assert_eq!(done(&brief, "k", json!("x".repeat(BYTES_MAX)), Duration::ZERO), 1);
        let lines = brief.lines();
        assert_eq!((lines.bytes, lines.by_name.len()), (0, 0));
    }
}
