//! Tools that are published but cannot be called at the moment, and why: their server is down, or says something else about
//! them than what was accepted (REG-022, REG-023).
//!
//! The registry is durable and says what was published; this is of the moment and says what of it is to be had. It lives
//! beside the registry, because a server that comes and goes must not write to the store each time.
//!
//! Invariants
//! - AVAIL-1: a tool that is not available is offered to nobody and runs for nobody, whatever it is called by.
//! - AVAIL-2: reading takes no lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use contract::ids::{TenantId, ToolId};
pub use policy::WhyUnavailable;
use tokio::sync::watch;

/// Whose tool: the tenant it was published by, and its id.
pub type ToolKey = (TenantId, ToolId);

/// What cannot be called at the moment. Everything else can.
#[derive(Debug)]
pub struct Availability {
    missing: ArcSwap<HashMap<ToolKey, WhyUnavailable>>,
    /// Orders writers. Readers never take it.
    writing: Mutex<()>,
    generation: watch::Sender<u64>,
}

impl Default for Availability {
    fn default() -> Self {
        Self { missing: ArcSwap::default(), writing: Mutex::new(()), generation: watch::Sender::new(0) }
    }
}

impl Availability {
    /// Why a tool cannot be called, if it cannot.
    pub fn why_not(&self, tenant: &TenantId, tool: &ToolId) -> Option<WhyUnavailable> {
        let missing = self.missing.load();
        // Almost always empty; then no key is made.
        if missing.is_empty() {
            return None;
        }
        missing.get(&(tenant.clone(), tool.clone())).copied()
    }

    /// Says of some tools why they cannot be called, or with `None` that they can. All of it at once.
    pub fn set(&self, changes: impl IntoIterator<Item = (ToolKey, Option<WhyUnavailable>)>) {
        let _order = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = HashMap::clone(&self.missing.load());
        let mut changed = false;
        for (tool, why) in changes {
            let before = match why {
                Some(why) => missing.insert(tool, why),
                None => missing.remove(&tool),
            };
            changed |= before != why;
        }
        if changed {
            self.missing.store(Arc::new(missing));
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    /// How many tools cannot be called for this reason.
    pub fn how_many(&self, why: WhyUnavailable) -> usize {
        self.missing.load().values().filter(|reason| **reason == why).count()
    }

    /// The present value of [`Availability::generation`].
    pub fn current_generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Rises with every change.
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tool: &str) -> ToolKey {
        (TenantId::home(), tool.parse().unwrap())
    }

    #[test]
    fn only_what_was_said_to_be_missing_is_and_only_real_changes_are_news() {
        let availability = Availability::default();
        let (home, tool) = key("demo.echo");
        assert_eq!(availability.why_not(&home, &tool), None);
        availability.set([(key("demo.echo"), Some(WhyUnavailable::Quarantined))]);
        assert_eq!(availability.why_not(&home, &tool), Some(WhyUnavailable::Quarantined));
        let generation = *availability.generation().borrow();
        availability.set([(key("demo.echo"), Some(WhyUnavailable::Quarantined)), (key("demo.other"), None)]);
        assert_eq!(*availability.generation().borrow(), generation, "nothing new was said");
        availability.set([(key("demo.echo"), None)]);
        assert_eq!(availability.why_not(&home, &tool), None);
        assert_eq!(*availability.generation().borrow(), generation + 1);
    }
}
