//! One look at one server: from what it lists to what is offered. The order of the steps is the safety of it (CAT-1,
//! CAT-2); see the head of `catalogue`.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::Execution;
use contract::version::Version;
use futures_util::stream::{self, StreamExt as _};
use kernel::WhyUnavailable;
use ports::server_administration::ToolProblem;
use ports::upstream_store::{PinChange, PinRecord, PinState, PinsPut, ToolDefinition};
use serde_json::Value;

use super::descriptor::{self, NO_ANSWER, NOT_ADMITTED, Offer};
use super::manifest::{Taken, document, versioned};
use super::source::DefinitionInspection;
use super::{KnownServer, ServerCatalogue, ServerKey, key_of};
use crate::pins::{self, PinOutcome, SeenTool};
use crate::tool_names;

/// Publications that are under way at once; the store gathers them into few commits.
const PUBLISHED_AT_ONCE: usize = 32;

/// What came of one look, by the names the tools have here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntakeReport {
    /// Seen for the first time and offered.
    pub admitted: Vec<ToolId>,
    /// Seen for the first time, and held back because of what a scan found.
    pub held: Vec<ToolId>,
    /// The server says something that was not accepted.
    pub quarantined: Vec<ToolId>,
    /// The server says again what was accepted.
    pub released: Vec<ToolId>,
    /// The server does not offer it any more.
    pub withdrawn: Vec<ToolId>,
}

/// How often a look, or a decision, is judged again because another instance was quicker.
pub(super) const JUDGED_MAX: usize = 4;

/// A pin that changes, and why.
struct Change {
    outcome: PinOutcome,
    pin: PinRecord,
}

impl ServerCatalogue {
    /// Looks at what a server offers, and acts upon it.
    pub async fn refresh(&self, tenant: &TenantId, server: &str) -> Result<IntakeReport, Refusal> {
        let key = (tenant.clone(), server.to_owned());
        let turn = self.turn(&key);
        let _turn = turn.lock().await;
        self.refresh_in_turn(&key).await
    }

    /// The same, for whoever has the turn already.
    pub(super) async fn refresh_in_turn(&self, key: &ServerKey) -> Result<IntakeReport, Refusal> {
        if self.known(key)?.is_disabled() {
            return Err(switched_off(&key.1));
        }
        let listed = match self.parts.supervision.list_tools(&key.0, &key.1).await {
            Ok(listed) => listed,
            Err(refusal) => {
                let message = refusal.message.clone();
                self.note(key, vec![ToolProblem { tool: String::new(), code: NO_ANSWER, message }]);
                return Err(refusal);
            }
        };
        // Thousands of schemas are compiled here; calls must not wait for it.
        let offer = tokio::task::spawn_blocking(move || descriptor::offer(&listed)).await.map_err(unlooked)?;
        for _ in 0..JUDGED_MAX {
            // What is known is compared after the server has been heard, which may have taken a while.
            self.catch_up().await?;
            let kept = self.known(key)?;
            let mut changes = self.judged(&kept, &offer).await?;
            self.take_away(&changes);
            let mut problems = offer.problems.clone();
            let failed = self.publish_new(&kept, &mut changes).await;
            for (tool, refusal) in failed {
                changes.retain(|change| change.pin.upstream_tool != tool);
                problems.add(&tool, NOT_ADMITTED, refusal.message);
            }
            self.note(key, problems.0);
            let round = round(&changes);
            if self.keep(&kept, changes).await? {
                return Ok(round);
            }
        }
        Err(outdated(&key.1))
    }

    /// What follows for each tool from what its server says. Nothing is changed yet.
    async fn judged(&self, kept: &KnownServer, offer: &Offer) -> Result<Vec<Change>, Refusal> {
        let now = self.parts.kernel.clock().now();
        let mut changes = Vec::new();
        for (name, pin) in &kept.pins {
            let seen = offer.tools.get(name);
            let outcome = pins::judge(Some(pin), seen.map(|definition| SeenTool { definition, blocked: false }));
            if outcome != PinOutcome::Keep {
                let pin = PinRecord { seen_at: now, ..pins::follow(pin, outcome, seen, &[]) };
                changes.push(Change { outcome, pin });
            }
        }
        let known: BTreeMap<String, ToolId> =
            kept.pins.iter().map(|(name, pin)| (name.clone(), pin.tool.clone())).collect();
        let is_taken = self.taken_names(kept);
        let names = tool_names::tool_ids(&kept.namespace(), offer.tools.keys().map(String::as_str), &known, is_taken);
        for (name, tool) in names {
            let Some(definition) = offer.tools.get(&name) else { continue };
            let pin = PinRecord {
                tenant: kept.record.tenant.clone(),
                server: kept.record.name.clone(),
                upstream_tool: name,
                tool,
                version: None,
                accepted: Some(definition.clone()),
                proposed: None,
                state: PinState::Accepted,
                findings: Vec::new(),
                classification: None,
                seen_at: now,
            };
            changes.push(Change { outcome: PinOutcome::Admit, pin });
        }
        self.inspected(kept, offer, changes).await
    }

    /// Adds what a scan finds in what is new, and holds back what it stops.
    async fn inspected(&self, kept: &KnownServer, offer: &Offer, changes: Vec<Change>) -> Result<Vec<Change>, Refusal> {
        let said = |change: &Change| offer.tools.get(&change.pin.upstream_tool).map(|it| it.value.clone());
        let definitions: Vec<Value> = changes.iter().filter_map(said).collect();
        if definitions.is_empty() {
            return Ok(changes);
        }
        let siblings: Vec<String> = offer.tools.keys().cloned().collect();
        let foreign = self.foreign_names(kept);
        let inspector = Arc::clone(&self.parts.inspector);
        let inspect = move || inspector.inspect(&definitions, &siblings, &foreign);
        let mut inspections = tokio::task::spawn_blocking(inspect).await.map_err(unlooked)?.into_iter();
        let mut out = Vec::with_capacity(changes.len());
        for mut change in changes {
            if offer.tools.contains_key(&change.pin.upstream_tool) {
                // An inspector that says nothing has not looked, and what was not looked at is held back.
                let unseen = || DefinitionInspection { findings: Vec::new(), blocks: true };
                let DefinitionInspection { findings, blocks } = inspections.next().unwrap_or_else(unseen);
                change.pin.findings = findings;
                if blocks && change.outcome == PinOutcome::Admit {
                    change.outcome = PinOutcome::Hold;
                    change.pin.state = PinState::Quarantined;
                    change.pin.proposed = change.pin.accepted.take();
                }
            }
            out.push(change);
        }
        Ok(out)
    }

    /// Whatever may not be offered goes now; whatever is new must not be seen before its pin is durable.
    fn take_away(&self, changes: &[Change]) {
        let closed = changes.iter().filter_map(|change| match change.outcome {
            PinOutcome::Admit | PinOutcome::Hold | PinOutcome::Quarantine => {
                Some((key_of(&change.pin), Some(WhyUnavailable::Quarantined)))
            }
            PinOutcome::Withdraw => Some((key_of(&change.pin), Some(WhyUnavailable::Withdrawn))),
            PinOutcome::Release | PinOutcome::Keep => None,
        });
        self.parts.kernel.availability().set(closed);
    }

    /// Publishes what is seen for the first time. Answers what was not admitted, and why.
    async fn publish_new(&self, kept: &KnownServer, changes: &mut [Change]) -> Vec<(String, Refusal)> {
        let new = changes.iter().enumerate().filter(|(_, change)| change.outcome == PinOutcome::Admit);
        let work: Vec<(usize, PinRecord)> = new.map(|(index, change)| (index, change.pin.clone())).collect();
        let mut published = stream::iter(work)
            .map(|(index, pin)| async move { (index, self.publish(kept, &pin).await) })
            .buffer_unordered(PUBLISHED_AT_ONCE);
        let mut failed = Vec::new();
        while let Some((index, outcome)) = published.next().await {
            let Some(change) = changes.get_mut(index) else { continue };
            match outcome {
                Ok(version) => change.pin.version = Some(version),
                Err(refusal) => failed.push((change.pin.upstream_tool.clone(), refusal)),
            }
        }
        failed
    }

    /// Publishes what is accepted of a tool, under the version that is honest about it (CAT-1).
    pub(super) async fn publish(&self, kept: &KnownServer, pin: &PinRecord) -> Result<Version, Refusal> {
        let Some(ToolDefinition { value, .. }) = &pin.accepted else {
            return Err(Refusal::new(ErrorCode::E3000, "nothing of this tool is accepted").retryable(false));
        };
        let taken = Taken {
            server: &pin.server,
            upstream_tool: &pin.upstream_tool,
            tool: &pin.tool,
            definition: value,
            classification: pin.classification,
            upkeep: kept.upkeep(),
        };
        let kernel = &self.parts.kernel;
        let published = kernel.registry().snapshot().tool(&pin.tenant, &pin.tool).cloned();
        let (document, now, by) = (document(taken), kernel.clock().now(), &kept.record.added_by);
        let (document, version) = match published {
            None => versioned(document, None, now),
            Some(before) => {
                let comparing = move || versioned(document, Some(&before), now);
                kernel.compare_definitions(&pin.tenant, by, comparing).await?
            }
        };
        kernel.take_in(&pin.tenant, document, by).await?;
        Ok(version)
    }

    /// Makes the changes durable, and then visible, all at once. False, and nothing is stored, if they were judged by what is
    /// not so any more.
    async fn keep(&self, judged: &KnownServer, changes: Vec<Change>) -> Result<bool, Refusal> {
        let kernel = &self.parts.kernel;
        let (tenant, by) = (&judged.record.tenant, &judged.record.added_by);
        for Change { outcome, pin } in &changes {
            let said = match outcome {
                PinOutcome::Hold => "held back at first sight",
                PinOutcome::Quarantine => "quarantined: its server says something else",
                PinOutcome::Release => "released: its server says again what was accepted",
                PinOutcome::Withdraw => "withdrawn by its server",
                // Recorded as a registration.
                PinOutcome::Admit | PinOutcome::Keep => continue,
            };
            let noted = kernel.server_changes(tenant, by, &pin.tool, said.to_owned()).await;
            match noted {
                Ok(()) => {}
                // What cannot be recorded is not given back; it is taken away all the same.
                Err(refusal) if *outcome == PinOutcome::Release => return Err(refusal),
                Err(refusal) => tracing::error!(tool = %pin.tool, code = %refusal.code, "{said}, unrecorded"),
            }
        }
        let pins: Vec<PinRecord> = changes.into_iter().map(|change| change.pin).collect();
        self.store_pins(judged, pins, true).await
    }

    /// Stores pins of a server, which were judged by what was known of it then, and acts upon them. False, and nothing is
    /// stored, if another instance has changed one of them since (CAT-6). With `answers` the server has just been heard.
    pub(super) async fn store_pins(
        &self,
        judged: &KnownServer,
        pins: Vec<PinRecord>,
        answers: bool,
    ) -> Result<bool, Refusal> {
        let key = &(judged.record.tenant.clone(), judged.record.name.clone());
        let has_changed = !pins.is_empty();
        let storing = self.storing.read().await;
        if has_changed {
            let read = |pin: &PinRecord| judged.pins.get(&pin.upstream_tool).cloned();
            let changes: Vec<PinChange> =
                pins.iter().map(|pin| PinChange { read: read(pin), pin: pin.clone() }).collect();
            match self.parts.store.put_pins(&key.0, &key.1, &changes).await.map_err(|error| error.refusal())? {
                PinsPut::Kept => {}
                PinsPut::ServerGone => return Err(gone(key)),
                PinsPut::Outdated => return Ok(false),
            }
        }
        {
            let mut servers = self.table();
            let Some(kept) = servers.get_mut(key) else { return Err(gone(key)) };
            kept.answers |= answers;
            kept.pins.extend(pins.into_iter().map(|pin| (pin.upstream_tool.clone(), pin)));
            self.parts.kernel.availability().set(kept.availability());
        }
        drop(storing);
        if has_changed {
            self.tell_others().await;
        }
        Ok(true)
    }

    fn note(&self, key: &ServerKey, problems: Vec<ToolProblem>) {
        if let Some(kept) = self.table().get_mut(key) {
            kept.problems = problems;
        }
    }

    /// Which names something else has: another server's tool, one that did not come from this tool of this server, or one that
    /// another tool had formerly (an alias): what callers send there must not go to this server instead.
    fn taken_names(&self, kept: &KnownServer) -> impl Fn(&ToolId, &str) -> bool {
        let (tenant, server) = (kept.record.tenant.clone(), kept.record.name.clone());
        let others: Vec<ToolId> = {
            let servers = self.table();
            let others = servers.iter().filter(|((of, name), _)| *of == tenant && *name != server);
            others.flat_map(|(_, kept)| kept.pins.values().map(|pin| pin.tool.clone())).collect()
        };
        let registry = Arc::clone(&self.parts.kernel.registry().snapshot());
        move |id, upstream_tool| {
            let published = registry.tool(&tenant, id).is_some_and(|tool| {
                let ours = |execution: &Option<Execution>| {
                    matches!(execution, Some(Execution::Mcp { server: of, tool, .. }) if *of == server && tool == upstream_tool)
                };
                tool.tenant != tenant || !tool.versions().iter().all(|version| ours(&version.manifest.execution))
            });
            let leads_elsewhere = registry.alias(&tenant, id.as_str()).is_some_and(|owner| owner != id);
            published || leads_elsewhere || others.contains(id)
        }
    }

    /// The names of all other tools that callers of this server's tools see, as their own servers say them.
    fn foreign_names(&self, kept: &KnownServer) -> Vec<String> {
        let registry = self.parts.kernel.registry().snapshot();
        let name = |execution: &Option<Execution>, local: &str| match execution {
            Some(Execution::Mcp { server, .. }) if *server == kept.record.name => None,
            Some(Execution::Mcp { tool, .. }) => Some(tool.clone()),
            _ => Some(local.to_owned()),
        };
        registry
            .tools_of(&kept.record.tenant)
            .filter_map(|tool| name(&tool.versions().last()?.manifest.execution, tool.id.local()))
            .collect()
    }
}

/// Nothing is asked of a server that is switched off.
pub(super) fn switched_off(server: &str) -> Refusal {
    Refusal::new(ErrorCode::E3502, format!("the server `{}` is switched off", descriptor::shown(server)))
        .hint(format!("`gantry server edit {} --enable` switches it on", descriptor::shown(server)))
        .retryable(false)
}

fn round(changes: &[Change]) -> IntakeReport {
    let mut round = IntakeReport::default();
    for Change { outcome, pin } in changes {
        let list = match outcome {
            PinOutcome::Admit => &mut round.admitted,
            PinOutcome::Hold => &mut round.held,
            PinOutcome::Quarantine => &mut round.quarantined,
            PinOutcome::Release => &mut round.released,
            PinOutcome::Withdraw => &mut round.withdrawn,
            PinOutcome::Keep => continue,
        };
        list.push(pin.tool.clone());
    }
    round
}

fn gone(key: &ServerKey) -> Refusal {
    Refusal::new(ErrorCode::E3101, format!("the server `{}` was removed meanwhile", descriptor::shown(&key.1)))
        .hint("nothing of it is offered")
}

pub(super) fn outdated(server: &str) -> Refusal {
    let message = format!("what is known of the server `{}` changes all the time elsewhere", descriptor::shown(server));
    Refusal::new(ErrorCode::E3408, message).hint("nothing was kept; look again, and decide again")
}

fn unlooked(error: tokio::task::JoinError) -> Refusal {
    Refusal::new(ErrorCode::E3000, "what the server offers could not be looked at")
        .hint("look at the server's log")
        .caused_by(error)
}
