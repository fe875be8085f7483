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
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use base::MutexExt as _;
use contract::ids::{TenantId, ToolId};
pub use policy::WhyUnavailable;
use ports::registry_store::ToolQuarantine;
use tokio::sync::watch;

use crate::registry::RegisteredTool;

/// Whose tool: the tenant it was published by, and its id.
pub type ToolKey = (TenantId, ToolId);

/// What people have taken out of use (REG-024).
pub(crate) type QuarantinedTools = HashMap<ToolKey, Arc<ToolQuarantine>>;

/// What cannot be called at the moment. Everything else can.
#[derive(Debug)]
pub struct ToolAvailability {
    missing: ArcSwap<HashMap<ToolKey, WhyUnavailable>>,
    /// Apart, because a server that comes back must not put back into use what a person has taken out of it.
    quarantined: ArcSwap<QuarantinedTools>,
    /// Orders writers. Readers never take it.
    writing: Mutex<()>,
    generation: watch::Sender<u64>,
}

impl Default for ToolAvailability {
    fn default() -> Self {
        Self {
            missing: ArcSwap::default(),
            quarantined: ArcSwap::default(),
            writing: Mutex::new(()),
            generation: watch::Sender::new(0),
        }
    }
}

impl ToolAvailability {
    /// Why a tool cannot be called, if it cannot.
    pub fn why_not(&self, tenant: &TenantId, tool: &ToolId) -> Option<WhyUnavailable> {
        if self.quarantine_of(tenant, tool).is_some() {
            return Some(WhyUnavailable::Quarantined);
        }
        let missing = self.missing.load();
        // Almost always empty; then no key is made.
        if missing.is_empty() {
            return None;
        }
        missing.get(&(tenant.clone(), tool.clone())).copied()
    }

    /// Is what is left of a tool history, which nobody is offered and no list shows? So it is with those of removed servers.
    pub fn is_history(&self, tool: &RegisteredTool) -> bool {
        let missing = self.missing.load();
        !missing.is_empty()
            && missing.get(&(tool.tenant.clone(), tool.id.clone())) == Some(&WhyUnavailable::ServerRemoved)
    }

    /// The quarantine that a person has put a tool into, if one has.
    pub fn quarantine_of(&self, tenant: &TenantId, tool: &ToolId) -> Option<Arc<ToolQuarantine>> {
        let quarantined = self.quarantined.load();
        if quarantined.is_empty() {
            return None;
        }
        quarantined.get(&(tenant.clone(), tool.clone())).cloned()
    }

    /// Says what people have taken out of use: all of it, whatever was said before.
    pub(crate) fn set_quarantined(&self, quarantined: &Arc<QuarantinedTools>) {
        let _order = self.writing.lock_unpoisoned();
        if *self.quarantined.swap(Arc::clone(quarantined)) != **quarantined {
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    /// Says of some tools why they cannot be called, or with `None` that they can. All of it at once.
    pub fn set(&self, changes: impl IntoIterator<Item = (ToolKey, Option<WhyUnavailable>)>) {
        let _order = self.writing.lock_unpoisoned();
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

    /// The present value of [`ToolAvailability::generation`].
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
        let availability = ToolAvailability::default();
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

    #[test]
    fn what_a_person_has_taken_out_of_use_stays_out_whatever_its_server_says() {
        let availability = ToolAvailability::default();
        let (home, tool) = key("demo.echo");
        let held = ToolQuarantine {
            tenant: home.clone(),
            tool: tool.clone(),
            reason: "it lies".into(),
            by: "admin".parse().unwrap(),
            by_tenant: home.clone(),
            at: ports::clock::UnixMillis(1),
        };
        availability.set_quarantined(&Arc::new([(key("demo.echo"), Arc::new(held))].into()));
        availability.set([(key("demo.echo"), None)]);
        assert_eq!(availability.why_not(&home, &tool), Some(WhyUnavailable::Quarantined));
        availability.set_quarantined(&Arc::default());
        assert_eq!(availability.why_not(&home, &tool), None);
    }
}
