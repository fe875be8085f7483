//! Invocation ids that callers bring along: one id is one call within its tenant, whoever made it. (X-39, decision 0079)
//!
//! An id that the ledger, the queue or a running call of this process knows is refused. The words are the same whoever has
//! it and whatever became of that call, so they say no more than "taken". Only the very same call, of the same owner with the
//! same tool, parameters and key, may come again under its id: where calls are claimed it is answered with what came of it.
//!
//! ```text
//! waited for, without effects   running calls · jobs · the ledger
//! waited for, with effects      running calls · jobs · the ledger, which refuses it as it is begun
//! in the background             running calls · the ledger · jobs, which refuse it as it is kept
//! ```
//!
//! Who holds an id keeps it from the question to the end of the call, so two calls of one process cannot both find it free.
//! A call that brought no id is asked nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;
use contract::canonical::{self, Digest};
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use policy::CallOwner;
use ports::job_store::{JobDetail, JobKey, JobStore};
use ports::ledger::{IdempotencyKey, Intent};
use ports::redactor::Redactor;
use serde_json::{Value, json};

use crate::ledger::CallKey;

/// What makes two calls under one id the same call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallIdentity {
    pub(crate) owner: CallOwner,
    pub(crate) tool: ToolId,
    pub(crate) parameters: Digest,
    pub(crate) key: Option<IdempotencyKey>,
    /// Is the call claimed before it runs, so that a second one is answered with what came of the first?
    pub(crate) is_claimed: bool,
}

impl CallIdentity {
    /// Is this the call that the line of the ledger is about?
    pub(crate) fn is_of(&self, intent: &Intent) -> bool {
        (&self.owner, &self.tool, &self.parameters, &self.key)
            == (&intent.caller, &intent.tool, &intent.parameters, &intent.key)
    }
}

/// Which ids are in use.
#[derive(Debug, Default)]
pub(crate) struct InvocationIds {
    /// As many as there are calls at once.
    running: Arc<Mutex<HashMap<JobKey, CallIdentity>>>,
    /// Where jobs are kept, if this server has any.
    jobs: Option<Arc<dyn JobStore>>,
}

/// An id that is in use until this is dropped.
#[derive(Debug)]
pub struct IdHold {
    running: Arc<Mutex<HashMap<JobKey, CallIdentity>>>,
    key: JobKey,
}

impl InvocationIds {
    /// Those of the calls of this process, and of the jobs that are kept there.
    pub(crate) fn new(jobs: Option<Arc<dyn JobStore>>) -> Self {
        Self { running: Arc::default(), jobs }
    }

    /// Holds an id that a caller brought, unless another call runs under it. `None` for the same call once more.
    pub(crate) fn hold(&self, key: &JobKey, call: CallIdentity) -> Result<Option<IdHold>, Refusal> {
        let mut running = lock(&self.running);
        match running.get(key) {
            Some(runs) if call.is_claimed && *runs == call => Ok(None),
            Some(_) => Err(taken()),
            None => Ok(Some(self.note(&mut running, key, call))),
        }
    }

    /// Holds the id of a job that is begun: it has its id already, whoever else runs under it.
    pub(crate) fn hold_for_job(&self, key: &JobKey, call: CallIdentity) -> Option<IdHold> {
        let mut running = lock(&self.running);
        (!running.contains_key(key)).then(|| self.note(&mut running, key, call))
    }

    fn note(&self, running: &mut HashMap<JobKey, CallIdentity>, key: &JobKey, call: CallIdentity) -> IdHold {
        running.insert(key.clone(), call);
        IdHold { running: Arc::clone(&self.running), key: key.clone() }
    }

    /// Is there no job with this id, or only one that is the same call?
    pub(crate) async fn free_of_jobs(
        &self,
        key: &JobKey,
        call: &CallIdentity,
        digest: Digest,
        (own, redactor): (&CallKey, &dyn Redactor),
    ) -> Result<(), Refusal> {
        let Some(jobs) = &self.jobs else { return Ok(()) };
        match jobs.find(key).await.map_err(|error| error.refusal())? {
            Some(job) if !is_same_job(&job, &call.owner, digest, (own, redactor)) => Err(taken()),
            _ => Ok(()),
        }
    }
}

impl Drop for IdHold {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.key);
    }
}

fn lock(running: &Mutex<HashMap<JobKey, CallIdentity>>) -> MutexGuard<'_, HashMap<JobKey, CallIdentity>> {
    running.lock_unpoisoned()
}

/// What tells the jobs of two calls apart besides their keys.
pub fn job_digest(tool: &ToolId, parameters: &Value) -> Digest {
    canonical::digest(&json!([tool, parameters]))
}

/// Is this job the same call? Of one that is done its key is not kept any more; what had effects is asked about in the ledger.
pub(crate) fn is_same_job(
    job: &JobDetail,
    owner: &CallOwner,
    digest: Digest,
    (own, redactor): (&CallKey, &dyn Redactor),
) -> bool {
    let text = |path: &str| job.payload.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let same_key = || {
        let mut key = CallKey {
            given: text("/request/execution_options/idempotency_key"),
            turn_group: text("/request/execution_options/turn_group_id"),
            session: text("/request/agent_context/session_id"),
            wait: own.wait,
        };
        key.hide(redactor);
        key == *own
    };
    job.record.owner == *owner && job.digest == digest && (job.payload.is_null() || same_key())
}

/// The one answer about an id that is in use.
pub fn taken() -> Refusal {
    Refusal::new(ErrorCode::E3410, "this invocation id is taken")
        .hint("leave `invocation_id` out, or use a new UUID for a new call; nothing was run")
        .retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> JobKey {
        let id = format!("00000000-0000-7000-8000-0000000000{n:02}").parse().unwrap();
        JobKey { tenant: "acme".parse().unwrap(), id }
    }

    fn call(owner: &str, is_claimed: bool) -> CallIdentity {
        CallIdentity {
            owner: owner.parse().unwrap(),
            tool: "demo.pay".parse().unwrap(),
            parameters: canonical::digest(&json!({})),
            key: None,
            is_claimed,
        }
    }

    #[test]
    fn an_id_is_held_by_one_call_until_that_has_ended() {
        let ids = InvocationIds::default();
        let held = ids.hold(&key(1), call("alice", true)).unwrap();
        assert!(held.is_some());
        assert!(ids.hold(&key(1), call("alice", true)).unwrap().is_none(), "the same call waits for the first");
        let others = ids.hold(&key(1), call("mallory", true)).unwrap_err();
        assert_eq!(others, taken());
        assert!(ids.hold(&key(2), call("mallory", true)).unwrap().is_some());
        assert!(ids.hold_for_job(&key(1), call("mallory", true)).is_none(), "a job takes nobody's id away");
        drop(held);
        assert!(ids.hold(&key(1), call("mallory", true)).unwrap().is_some());
    }

    #[test]
    fn what_nobody_would_answer_with_the_first_outcome_is_no_repetition() {
        let ids = InvocationIds::default();
        let _held = ids.hold(&key(1), call("alice", false)).unwrap();
        assert_eq!(ids.hold(&key(1), call("alice", false)).unwrap_err(), taken());
    }
}
