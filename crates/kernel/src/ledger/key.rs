//! Which key a call has, within what it is unique, and for how long it is remembered. (IDEM-001…007, X-06, X-07)

use std::time::Duration;

use contract::envelope::InvokeRequest;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::idempotency::{kept_key, scope_of, turn_key};
use contract::ids::{InvocationId, TenantId, ToolId};
use contract::manifest::{Manifest, SideEffectPolicy};
use policy::Caller;
use ports::ledger::IdempotencyKey;
use ports::redactor::Redactor;
use ports::tool_version::ToolVersion;
use serde_json::Value;

/// A key is remembered at least that long.
const WINDOW_MIN: Duration = Duration::from_secs(86_400);

/// What the caller said about which call this is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallKey {
    pub(crate) given: Option<String>,
    pub(crate) turn_group: Option<String>,
    pub(crate) session: Option<String>,
    /// Wait for a duplicate that runs, or be refused?
    pub(crate) wait: bool,
}

impl CallKey {
    /// Of a request, as it was made.
    pub(crate) fn of_request(request: &InvokeRequest) -> Self {
        let options = &request.execution_options;
        Self {
            given: options.idempotency_key.clone(),
            turn_group: options.turn_group_id.clone(),
            session: request.agent_context.as_ref().and_then(|context| context.session_id.clone()),
            wait: options.wait_for_duplicate.unwrap_or(true),
        }
    }

    /// Is there enough to tell a repeated call from a new one?
    pub(crate) fn is_there(&self) -> bool {
        self.given.is_some() || self.turn_group.is_some()
    }

    /// A key in which something stands that must not be seen is kept by its digest: the ledger compares keys and never
    /// needs to read one.
    pub(crate) fn hide(&mut self, redactor: &dyn Redactor) {
        if let Some(given) = &mut self.given
            && redactor.finds(given)
        {
            *given = kept_key(given);
        }
    }

    /// The key, if there is one. What the caller gave wins over what can be derived (IDEM-006).
    pub fn of(&self, caller: &Caller, tool: &ToolVersion, parameters: &Value) -> Option<IdempotencyKey> {
        let key = self.given.clone().or_else(|| {
            let fields = tool.manifest.idempotency.as_ref().map_or(&[][..], |spec| &spec.key_fields);
            self.turn_group.as_deref().map(|group| turn_key(tool.id.as_str(), fields, parameters, group))
        })?;
        Some(IdempotencyKey { scope: key_scope(caller, self.session.as_deref()), key })
    }
}

/// What the act of a call is known by in the queue: two jobs of one act are one. A call without effects has an act only if its
/// caller named it, because nothing keeps it from being done twice.
///
/// A digest, because it is only compared: what a caller calls its key may be something that must not be kept.
pub fn queue_key(caller: &Caller, tool: &ToolVersion, key: &CallKey, parameters: &Value) -> Option<String> {
    if key.given.is_none() && !tool.manifest.side_effect_policy.has_effects() {
        return None;
    }
    let IdempotencyKey { scope, key } = key.of(caller, tool, parameters)?;
    Some(scope_of(&["job", tool.tenant.as_str(), tool.id.as_str(), &scope, &key]))
}

/// Within what a caller's key is unique: its owner, which its token proves, and its session. The one answer for everything
/// that keeps keys: the ledger, what is remembered of calls without effects, the queue of jobs.
///
/// A session that only the body names divides the keys of its owner further, and never reaches those of another. The
/// token's session, if it has one, cannot be contradicted by the body.
pub(crate) fn key_scope(caller: &Caller, session_of_body: Option<&str>) -> String {
    let session = caller.session().or(session_of_body).unwrap_or_default();
    scope_of(&[caller.owner().as_str(), session])
}

/// The key that travels with a call to its tool, so that the tool, or a service behind it, can tell a repetition from a new
/// act. It is a digest, because what a caller calls its key is nobody else's business; with tenant and tool in it, because
/// callers who share a tool choose their keys without knowing of each other.
///
/// A call without a key of its caller is an act by itself: then it is the same for every attempt of this invocation.
pub(crate) fn act_key(tenant: &TenantId, tool: &ToolId, key: Option<&IdempotencyKey>, own: InvocationId) -> String {
    match key {
        Some(IdempotencyKey { scope, key }) => scope_of(&["act", tenant.as_str(), tool.as_str(), scope, key]),
        None => scope_of(&["act", tenant.as_str(), tool.as_str(), &own.to_string()]),
    }
}

/// IDEM-001: what must not happen twice cannot be called without a key.
pub(crate) fn demanded(tool: &ToolVersion, key: &CallKey) -> Result<(), Refusal> {
    let must = match tool.manifest.side_effect_policy {
        SideEffectPolicy::Compensatable | SideEffectPolicy::Irreversible => true,
        // Repeating an idempotent one is harmless, and callers of an unclassified one cannot know that they should.
        SideEffectPolicy::Pure | SideEffectPolicy::Idempotent | SideEffectPolicy::Unclassified => false,
    };
    if !must || key.is_there() {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::E3004,
        format!(
            "`{}` {} is {}: calls need an idempotency key",
            tool.id,
            tool.version,
            tool.manifest.side_effect_policy.as_str()
        ),
    )
    // Where a key goes depends on the door: those that have another place for it say so instead.
    .hint("set `execution_options.idempotency_key` to something that is the same whenever you mean the same act; nothing was run")
    .because(RefusalReason::MissingKey))
}

/// How long the outcome of a call is kept: never less than a day or twice what a call may take.
pub(super) fn window(manifest: &Manifest) -> Duration {
    let asked = manifest.idempotency.as_ref().map_or(0, |spec| u64::from(spec.window_seconds));
    let twice = Duration::from_millis(manifest.timeout_max_ms().saturating_mul(2));
    WINDOW_MIN.max(Duration::from_secs(asked)).max(twice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_asks_for_a_longer_window_and_never_gets_a_shorter_one_than_a_day() {
        let kept = |window_seconds: u32| {
            let document = json!({
                "tool_id": "pay", "version": "1.0.0", "name": "Pay", "description": "Pays what is due.", "provider": "T",
                "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
                "parameters": { "type": "object" }, "result_schema": { "type": "object" },
                "idempotency": { "key_fields": [], "window_seconds": window_seconds },
            });
            window(&Manifest::from_value(document).unwrap())
        };
        assert_eq!(kept(60), WINDOW_MIN);
        assert_eq!(kept(172_800), Duration::from_secs(172_800));
    }

    #[test]
    fn the_key_that_travels_is_the_same_for_one_act_and_another_for_every_other() {
        let (acme, other): (TenantId, TenantId) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let (pay, refund): (ToolId, ToolId) = ("bank.pay".parse().unwrap(), "bank.refund".parse().unwrap());
        let own = |n: u8| -> InvocationId { format!("00000000-0000-7000-8000-0000000000{n:02}").parse().unwrap() };
        let key = |scope: &str, key: &str| IdempotencyKey { scope: scope.into(), key: key.into() };
        let given = act_key(&acme, &pay, Some(&key("s", "order-7")), own(1));
        assert_eq!(given, act_key(&acme, &pay, Some(&key("s", "order-7")), own(2)), "another attempt of the same act");
        assert!(given.len() == 64 && !given.contains("order"), "{given}");
        for different in [
            act_key(&other, &pay, Some(&key("s", "order-7")), own(1)),
            act_key(&acme, &refund, Some(&key("s", "order-7")), own(1)),
            act_key(&acme, &pay, Some(&key("t", "order-7")), own(1)),
            act_key(&acme, &pay, Some(&key("s", "order-8")), own(1)),
            act_key(&acme, &pay, None, own(1)),
        ] {
            assert_ne!(given, different);
        }
        assert_eq!(act_key(&acme, &pay, None, own(1)), act_key(&acme, &pay, None, own(1)));
        assert_ne!(act_key(&acme, &pay, None, own(1)), act_key(&acme, &pay, None, own(2)));
    }
}
