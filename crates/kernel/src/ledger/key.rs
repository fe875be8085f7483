//! Which key a call has, within what it is unique, and for how long it is remembered. (IDEM-001…007, X-06, X-07)

use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::idempotency::{kept_key, scope_of, turn_key};
use contract::manifest::{Manifest, SideEffectPolicy};
use policy::Caller;
use serde_json::{Value, json};

use crate::ports::ledger::IdempotencyKey;
use crate::ports::redactor::Redactor;
use crate::registry::ToolVersion;

/// What the details of a refusal say is missing where a key is.
pub const MISSING_KEY: &str = "idempotency_key";
/// A key is remembered at least that long.
const WINDOW_MIN: Duration = Duration::from_secs(86_400);

/// What the caller said about which call this is.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallKey {
    pub(crate) given: Option<String>,
    pub(crate) turn_group: Option<String>,
    pub(crate) session: Option<String>,
    /// Wait for a duplicate that runs, or be refused?
    pub(crate) wait: bool,
}

impl CallKey {
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
    pub(super) fn of(&self, caller: &Caller, tool: &ToolVersion, parameters: &Value) -> Option<IdempotencyKey> {
        let key = self.given.clone().or_else(|| {
            let fields = tool.manifest.idempotency.as_ref().map_or(&[][..], |spec| &spec.key_fields);
            self.turn_group.as_deref().map(|group| turn_key(tool.id.as_str(), fields, parameters, group))
        })?;
        // The token's session, if it has one, cannot be contradicted by the body.
        let session = caller.session().or(self.session.as_deref()).unwrap_or_default();
        Some(IdempotencyKey { scope: scope_of(&[caller.subject().as_str(), session]), key })
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
    .details(json!({ "missing": MISSING_KEY })))
}

/// How long the outcome of a call is kept: never less than a day or twice what a call may take.
pub(super) fn window(manifest: &Manifest) -> Duration {
    let asked = manifest.idempotency.as_ref().map_or(0, |spec| u64::from(spec.window_seconds));
    let twice = Duration::from_millis(manifest.timeout_max_ms().saturating_mul(2));
    WINDOW_MIN.max(Duration::from_secs(asked)).max(twice)
}
