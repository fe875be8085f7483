//! How many calls of one agent that run code of a tool's author run at once (EXEC-005, decision 0034).
//!
//! Limits of a call say how much *one* call may use; without a number of calls they bound nothing. One more than allowed is
//! refused and does not wait: a tool may call tools in its agent's name, and a call that waits for a place its own parent
//! holds would wait for ever. A job has no parent that waits for it: it may wait for its place before it begins, for as long
//! as the queue lets it (`jobs::bench`). Counted per instance, because what is protected are the cores and the memory of this
//! machine.
//!
//! Invariants
//! - CONC-1: of one (tenant, subject) never more than the limit hold a place.
//! - CONC-2: a place is given back whichever way the call ends; an agent without calls takes up no memory.
//!
//! Not here: which calls need a place (`phases/execute`), how many sandboxes live at once whosever they are (`sandbox`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use serde_json::json;
use tokio::sync::Notify;

/// Agents are spread over so many locks, each held for one look-up.
const SHARDS: usize = 16;

/// Whose calls are counted together.
type Agent = (TenantId, Subject);

/// The calls that run, by agent.
#[derive(Debug)]
pub(crate) struct Concurrency {
    limit: u32,
    hasher: RandomState,
    shards: [Mutex<HashMap<Agent, u32>>; SHARDS],
    /// Somebody has given a place back.
    freed: Notify,
}

/// One running call's place. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    calls: Arc<Concurrency>,
    agent: Agent,
}

impl Concurrency {
    /// At most `limit` calls of one agent.
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self { limit, hasher: RandomState::new(), shards: Default::default(), freed: Notify::new() })
    }

    /// A place for one more call of this agent, if it has one left.
    pub(crate) fn place(self: &Arc<Self>, tenant: &TenantId, subject: &Subject) -> Result<Place, Refusal> {
        let agent = (tenant.clone(), subject.clone());
        let Some(mut shard) = self.shard(&agent) else { return Err(self.refusal()) };
        match shard.entry(agent.clone()) {
            Entry::Occupied(running) if *running.get() >= self.limit => return Err(self.refusal()),
            Entry::Vacant(_) if self.limit == 0 => return Err(self.refusal()),
            entry => *entry.or_default() += 1,
        }
        drop(shard);
        Ok(Place { calls: Arc::clone(self), agent })
    }

    /// The same, as soon as there is one. It may never be: whoever calls bounds the wait.
    pub(crate) async fn place_in_time(self: &Arc<Self>, tenant: &TenantId, subject: &Subject) -> Place {
        loop {
            // Before the look: what is given back after it is heard of.
            let freed = self.freed.notified();
            if let Ok(place) = self.place(tenant, subject) {
                return place;
            }
            freed.await;
        }
    }

    fn shard(&self, agent: &Agent) -> Option<MutexGuard<'_, HashMap<Agent, u32>>> {
        // Taken from the hash's low bits, so it is below the number of shards; the cast loses only bits that are masked.
        let number = usize::try_from(self.hasher.hash_one(agent) % SHARDS as u64).unwrap_or_default();
        self.shards.get(number).map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn refusal(&self) -> Refusal {
        let limit = self.limit;
        Refusal::new(
            ErrorCode::E3003,
            format!("{limit} calls of this agent run in processes or guests of this server, and no more may at once"),
        )
        .hint("call again when one of them has ended; nothing was run")
        .details(json!({ "concurrent_calls_per_agent": limit }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(mut shard) = self.calls.shard(&self.agent) else { return };
        if let Some(running) = shard.get_mut(&self.agent) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                shard.remove(&self.agent);
            }
        }
        drop(shard);
        self.calls.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running(calls: &Concurrency) -> usize {
        calls.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn the_next_call_is_refused_with_the_limit_and_may_be_tried_again() {
        let calls = Concurrency::new(2);
        let (tenant, agent) = ("acme".parse().unwrap(), "agent-1".parse().unwrap());
        let first = calls.place(&tenant, &agent).unwrap();
        let _second = calls.place(&tenant, &agent).unwrap();
        let refusal = calls.place(&tenant, &agent).unwrap_err();
        assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3003, None), "as the table has it: retryable");
        assert_eq!(refusal.details.as_deref(), Some(&json!({ "concurrent_calls_per_agent": 2 })));
        drop(first);
        calls.place(&tenant, &agent).unwrap();
    }

    #[test]
    fn the_same_name_in_another_tenant_is_another_agent() {
        let calls = Concurrency::new(1);
        let agent = "agent-1".parse().unwrap();
        let _ours = calls.place(&"acme".parse().unwrap(), &agent).unwrap();
        calls.place(&"zeta".parse().unwrap(), &agent).unwrap();
        calls.place(&"acme".parse().unwrap(), &agent).unwrap_err();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// CONC-1 and CONC-2 against a model that counts.
        #[test]
        fn no_agent_ever_holds_more_than_the_limit_and_nothing_is_left(
            limit in 0_u32..4,
            steps in prop::collection::vec((0_usize..5, any::<bool>()), 0..80),
        ) {
            let calls = Concurrency::new(limit);
            let tenant = "acme".parse().unwrap();
            let agents: Vec<Subject> = (0..5).map(|n| format!("agent-{n}").parse().unwrap()).collect();
            let mut held: Vec<Vec<Place>> = agents.iter().map(|_| Vec::new()).collect();
            for (agent, begins) in steps {
                if begins {
                    let place = calls.place(&tenant, &agents[agent]);
                    prop_assert_eq!(place.is_ok(), held[agent].len() < limit as usize);
                    held[agent].extend(place.ok());
                } else {
                    held[agent].pop();
                }
                prop_assert_eq!(running(&calls), held.iter().filter(|places| !places.is_empty()).count());
            }
            held.clear();
            prop_assert_eq!(running(&calls), 0);
        }
    }
}
