//! Removals by date: a version whose date of removal has passed is recorded as removed, and those who wait for it are told.
//! (REG-013)
//!
//! Calls of such a version are refused without it; this is for the log, for subscribers, and for whoever looks.

use contract::event_name::EventName;
use contract::ids::Subject;
use ports::actor::SYSTEM_SUBJECT;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::event_announcer::VersionEvent;
use serde_json::json;

use crate::invoke::Kernel;

impl Kernel {
    /// Records that versions whose date has passed are removed, and tells of each.
    pub async fn record_removals(&self) {
        let Ok(by) = SYSTEM_SUBJECT.parse::<Subject>() else { return };
        let Ok(mut slot) = self.parts.recorder.reserve().await else { return };
        for version in self.registry().record_removals().await {
            let note = "remove (its date has passed)".to_owned();
            let record = self.unattended(&version.tenant, by.clone(), AuditAction::ToolLifecycleChanged, note);
            let (tool, number) = (Some(version.id.clone()), Some(version.version.clone()));
            if slot.record_durably(AuditRecord { tool, version: number, ..record }).await.is_err() {
                return;
            }
            if let Some(insights) = &self.insights {
                let (at, by) = (self.clock().now(), json!({ "by": SYSTEM_SUBJECT }));
                insights.happened(VersionEvent::about(&version, EventName::ToolVersionRemoved, at, by)).await;
            }
            slot = match self.parts.recorder.reserve().await {
                Ok(slot) => slot,
                Err(_) => return,
            };
        }
    }
}
