//! Event of a version: something happened once to it that somebody waits for. (OBS-011)
//!
//! An alert is raised and resolved; this is told and done. It goes to the log, and to the subscribers of the tenant that owns the
//! tool as `tool.event`. What cannot be put into the queue of deliveries is in the log only.

use ports::event_announcer::VersionEvent;

use super::Insights;

impl Insights {
    /// Tells.
    pub(crate) async fn happened(&self, event: VersionEvent) {
        let VersionEvent { name, tenant, tool, version, data, .. } = &event;
        tracing::info!(event = name.as_str(), %tenant, %tool, %version, %data, "{name}");
        let Some(announcer) = &self.parts.announcer else { return };
        if let Err(refusal) = announcer.announce_version_event(&event).await {
            tracing::warn!(event = name.as_str(), %tool, code = %refusal.code, error = &refusal as &dyn std::error::Error, "an event is not delivered");
        }
    }
}
