//! What follows from what a server says about a tool: the rules of pinning, without anything around them. (REG-023)
//!
//! ```text
//!  first seen ──▶ accepted ◀──────────── says the accepted again ─────────────┐
//!      │            │  says something else                                    │
//!      │ blocked    ▼                                                         │
//!      └──────▶ quarantined ──reject──▶ rejected ──says a third thing──▶ quarantined
//!                   │ accept                    any of them, not offered ──▶ withdrawn
//!                   ▼
//!                accepted
//! ```
//!
//! Invariants
//! - PIN-1: what is accepted changes by [`accept`] and at first sight, and never because of what a server says later.
//! - PIN-2: a tool is offered only while its server says exactly what was accepted.
//! - PIN-3: [`judge`] of the same word twice changes nothing the second time.
//!
//! Not here: asking servers, publishing, storing (`catalogue`).

use contract::canonical::Digest;
use kernel::WhyUnavailable;
use ports::upstream_store::{PinRecord, PinState, ToolDefinition};
use serde_json::{Map, Value};

/// What is pinned of a descriptor; everything else a server writes there may change freely, and what of it is shown to
/// clients stays as it was when the tool was accepted.
const PINNED_MEMBERS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// The pinned part of what a server says about a tool, and what is shown with it, which the digest leaves out.
pub fn definition(descriptor: &Value) -> ToolDefinition {
    let members = PINNED_MEMBERS.into_iter().chain(ToolDefinition::SHOWN_MEMBERS).filter_map(|name| {
        let value = descriptor.get(name).filter(|value| !value.is_null())?;
        Some((name.to_owned(), value.clone()))
    });
    ToolDefinition::new(Value::Object(members.collect::<Map<_, _>>()))
}

/// What a server says about one tool now.
#[derive(Debug, Clone, Copy)]
pub struct SeenTool<'a> {
    pub definition: &'a ToolDefinition,
    /// A scan found something in it, and is configured to stop such tools.
    pub blocked: bool,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinOutcome {
    /// Seen for the first time: accepted as it is.
    Admit,
    /// Seen for the first time, and stopped by the scan: somebody has to accept it.
    Hold,
    /// As it was: nothing to do.
    Keep,
    /// The server says again what was accepted.
    Release,
    /// The server says something nobody has accepted.
    Quarantine,
    /// The server does not offer it any more.
    Withdraw,
}

/// Judges what a server says (`None`: nothing) about a tool with this pin (`None`: never seen). Pure.
pub fn judge(pin: Option<&PinRecord>, seen: Option<SeenTool<'_>>) -> PinOutcome {
    let (pin, seen) = match (pin, seen) {
        (None, None) => return PinOutcome::Keep,
        (None, Some(seen)) if seen.blocked => return PinOutcome::Hold,
        (None, Some(_)) => return PinOutcome::Admit,
        (Some(pin), None) if pin.state == PinState::Withdrawn => return PinOutcome::Keep,
        (Some(_), None) => return PinOutcome::Withdraw,
        (Some(pin), Some(seen)) => (pin, seen),
    };
    let digest = |of: &Option<ToolDefinition>| of.as_ref().map(|definition| definition.digest);
    let word = Some(seen.definition.digest);
    match pin.state {
        PinState::Accepted if word == digest(&pin.accepted) => PinOutcome::Keep,
        _ if word == digest(&pin.accepted) => PinOutcome::Release,
        PinState::Quarantined | PinState::Rejected if word == digest(&pin.proposed) => PinOutcome::Keep,
        _ => PinOutcome::Quarantine,
    }
}

/// The pin after `outcome`; the same one for [`PinOutcome::Keep`]. Nothing but state, proposal and findings change (PIN-1).
pub fn follow(pin: &PinRecord, outcome: PinOutcome, seen: Option<&ToolDefinition>, findings: &[Value]) -> PinRecord {
    let pin = pin.clone();
    match outcome {
        PinOutcome::Keep | PinOutcome::Admit | PinOutcome::Hold => pin,
        PinOutcome::Release => {
            PinRecord { state: PinState::Accepted, proposed: None, findings: findings.to_vec(), ..pin }
        }
        PinOutcome::Quarantine => {
            PinRecord { state: PinState::Quarantined, proposed: seen.cloned(), findings: findings.to_vec(), ..pin }
        }
        PinOutcome::Withdraw => PinRecord { state: PinState::Withdrawn, ..pin },
    }
}

/// The digest of what could be accepted, if there is something to decide.
pub fn undecided(pin: &PinRecord) -> Option<Digest> {
    let open = matches!(pin.state, PinState::Quarantined | PinState::Rejected);
    pin.proposed.as_ref().filter(|_| open).map(|proposed| proposed.digest)
}

/// The pin after somebody has accepted what the server says; `None` if there is nothing to accept.
pub fn accept(pin: &PinRecord) -> Option<PinRecord> {
    undecided(pin)?;
    Some(PinRecord { state: PinState::Accepted, accepted: pin.proposed.clone(), proposed: None, ..pin.clone() })
}

/// The pin after somebody has refused it; `None` if there is nothing to refuse.
pub fn reject(pin: &PinRecord) -> Option<PinRecord> {
    undecided(pin)?;
    Some(PinRecord { state: PinState::Rejected, ..pin.clone() })
}

/// Why the tool of this pin cannot be called, if it cannot (PIN-2).
pub fn why_unavailable(pin: &PinRecord, server_answers: bool) -> Option<WhyUnavailable> {
    match pin.state {
        PinState::Quarantined | PinState::Rejected => Some(WhyUnavailable::Quarantined),
        PinState::Withdrawn => Some(WhyUnavailable::Withdrawn),
        PinState::Accepted if !server_answers => Some(WhyUnavailable::ServerUnavailable),
        PinState::Accepted => None,
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::TenantId;
    use ports::clock::UnixMillis;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn word(n: u8) -> ToolDefinition {
        definition(&json!({ "name": "read", "description": format!("word {n}"), "inputSchema": { "type": "object" } }))
    }

    fn pin(accepted: Option<u8>, proposed: Option<u8>, state: PinState) -> PinRecord {
        PinRecord {
            tenant: TenantId::home(),
            server: "files".into(),
            upstream_tool: "read".into(),
            tool: "files.read".parse().unwrap(),
            version: None,
            accepted: accepted.map(word),
            proposed: proposed.map(word),
            state,
            findings: Vec::new(),
            classification: None,
            seen_at: UnixMillis(0),
        }
    }

    #[test]
    fn only_what_a_model_or_a_caller_relies_on_is_pinned() {
        let said = json!({ "name": "a", "description": "b", "inputSchema": {}, "title": null });
        for (change, same) in [
            (json!({ "_meta": { "n": 1 } }), true),
            (json!({ "icons": [] }), true),
            (json!({ "execution": { "taskSupport": "optional" } }), true),
            (json!({ "description": "c" }), false),
            (json!({ "inputSchema": { "type": "object" } }), false),
            (json!({ "outputSchema": {} }), false),
            (json!({ "annotations": { "readOnlyHint": true } }), false),
            (json!({ "title": "x" }), false),
        ] {
            let mut other = said.clone();
            for (name, value) in change.as_object().unwrap() {
                other.as_object_mut().unwrap().insert(name.clone(), value.clone());
            }
            assert_eq!(definition(&said).digest == definition(&other).digest, same, "{change}");
        }
    }

    #[test]
    fn the_table_of_outcomes() {
        use PinOutcome::{Admit, Hold, Keep, Quarantine, Release, Withdraw};
        use PinState::{Accepted, Quarantined, Rejected, Withdrawn};
        for (pin, seen, blocked, expected) in [
            (None, Some(1), false, Admit),
            (None, Some(1), true, Hold),
            (None, None, false, Keep),
            (Some(pin(Some(1), None, Accepted)), Some(1), true, Keep),
            (Some(pin(Some(1), None, Accepted)), Some(2), false, Quarantine),
            (Some(pin(Some(1), None, Accepted)), None, false, Withdraw),
            (Some(pin(Some(1), Some(2), Quarantined)), Some(2), false, Keep),
            (Some(pin(Some(1), Some(2), Quarantined)), Some(3), false, Quarantine),
            (Some(pin(Some(1), Some(2), Quarantined)), Some(1), false, Release),
            (Some(pin(Some(1), Some(2), Quarantined)), None, false, Withdraw),
            (Some(pin(Some(1), Some(2), Rejected)), Some(2), false, Keep),
            (Some(pin(Some(1), Some(2), Rejected)), Some(3), false, Quarantine),
            (Some(pin(Some(1), Some(2), Rejected)), Some(1), false, Release),
            (Some(pin(Some(1), None, Withdrawn)), Some(1), false, Release),
            (Some(pin(Some(1), None, Withdrawn)), Some(2), false, Quarantine),
            (Some(pin(Some(1), Some(2), Withdrawn)), Some(2), false, Quarantine),
            (Some(pin(Some(1), None, Withdrawn)), None, false, Keep),
            (Some(pin(None, Some(1), Quarantined)), Some(1), false, Keep),
            (Some(pin(None, Some(1), Rejected)), Some(2), false, Quarantine),
        ] {
            let words = seen.map(word);
            let seen = words.as_ref().map(|definition| SeenTool { definition, blocked });
            assert_eq!(judge(pin.as_ref(), seen), expected, "{pin:?} {seen:?}");
        }
    }

    /// What can happen to a tool.
    #[derive(Debug, Clone)]
    enum Event {
        Says(u8, bool),
        Silent,
        Accept,
        Reject,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0u8..4, any::<bool>()).prop_map(|(n, blocked)| Event::Says(n, blocked)),
            1 => Just(Event::Silent),
            1 => Just(Event::Accept),
            1 => Just(Event::Reject),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn whatever_happens_only_what_was_accepted_is_offered(events in proptest::collection::vec(event(), 1..30)) {
            let mut now: Option<PinRecord> = None;
            let mut said: Option<ToolDefinition> = None;
            // What a person, or first sight, has agreed to.
            let mut agreed: Option<Digest> = None;
            for event in events {
                match event {
                    Event::Says(..) | Event::Silent => {
                        let blocked = matches!(event, Event::Says(_, true));
                        said = if let Event::Says(n, _) = event { Some(word(n)) } else { None };
                        let seen = said.as_ref().map(|definition| SeenTool { definition, blocked });
                        let outcome = judge(now.as_ref(), seen);
                        now = match (outcome, now) {
                            (PinOutcome::Admit, None) => {
                                agreed = said.as_ref().map(|said| said.digest);
                                Some(PinRecord { accepted: said.clone(), ..pin(None, None, PinState::Accepted) })
                            }
                            (PinOutcome::Hold, None) => {
                                Some(PinRecord { proposed: said.clone(), ..pin(None, None, PinState::Quarantined) })
                            }
                            (outcome, Some(before)) => Some(follow(&before, outcome, said.as_ref(), &[])),
                            (_, None) => None,
                        };
                        // PIN-3
                        if let Some(now) = &now {
                            prop_assert_eq!(judge(Some(now), seen), PinOutcome::Keep);
                        }
                    }
                    Event::Accept => {
                        if let Some(next) = now.as_ref().and_then(accept) {
                            agreed = next.accepted.as_ref().map(|accepted| accepted.digest);
                            now = Some(next);
                        }
                    }
                    Event::Reject => now = now.as_ref().and_then(reject).or(now),
                }
                let Some(now) = &now else { continue };
                // PIN-1, PIN-2
                prop_assert_eq!(now.accepted.as_ref().map(|accepted| accepted.digest), agreed);
                let offered = why_unavailable(now, true).is_none();
                let says_so = said.as_ref().map(|said| said.digest);
                prop_assert_eq!(offered, agreed.is_some() && says_so == agreed);
            }
        }
    }
}
