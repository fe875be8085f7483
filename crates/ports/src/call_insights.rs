//! Call insights: whoever learns from calls that have ended how tools fare, what they cost, and what agents want.
//!
//! The kernel tells what happens and asks two things back: what a call costs, and how well a version fares. Nothing here may hold
//! up or fail a call. What is asked on the way of a call is answered from memory, under locks that nobody holds for longer than a
//! few additions.
//!
//! Not here: what is learned and who may know it (`insights`), and who is told of events (`event_announcer`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use contract::cost::Costs;
use contract::error::Refusal;
use contract::ids::{Subject, TenantId, ToolId};

use crate::audit_sink::RecordedActor;
use crate::event_announcer::VersionEvent;
use crate::executor::ResourceUsage;
use crate::tool_version::ToolVersion;

/// Call that has ended: whose it was, of which tool, what became of it, and what it took.
#[derive(Debug)]
pub struct CallEnding<'a> {
    pub who: &'a RecordedActor,
    pub session: Option<&'a str>,
    pub tool: &'a ToolVersion,
    /// There if it came to no result.
    pub refusal: Option<&'a Refusal>,
    pub took: Duration,
    /// Nothing, if an earlier call used it.
    pub usage: ResourceUsage,
    pub costs: Costs,
    /// Was it answered with what an earlier call came to?
    pub replayed: bool,
}

/// Learns from calls.
#[async_trait]
pub trait CallInsights: Send + Sync + fmt::Debug {
    /// Counts a call that has come to its end. Each call is told once.
    fn ended(&self, call: &CallEnding<'_>);

    /// The costs of a call of this version that used so much and took so long; `units` were counted from its parameters.
    fn bill(&self, tool: &ToolVersion, usage: ResourceUsage, units: Option<u64>, took: Duration) -> Costs;

    /// The health score of a version, from 0 to 1, and the calls it is made of; `None` without calls. (RES-013)
    fn score(&self, tool: &ToolVersion) -> Option<(f64, u64)>;

    /// Notes that an agent found tools that it may not use. (ANALYT-003)
    fn found_out_of_reach(&self, tenant: &TenantId, agent: &Subject, tools: &[ToolId]);

    /// Tells of an event of a version. It is in the log before the answer; subscribers are told if that is possible now, and
    /// not later. (OBS-011)
    async fn happened(&self, event: VersionEvent);
}
