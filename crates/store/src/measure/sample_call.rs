//! A call with effects as the ledger sees it, for measuring: the size and the order of what the gateway writes.

use std::time::Duration;

use contract::canonical;
use contract::ids::{InvocationId, TraceId};
use contract::manifest::SideEffectPolicy;
use ports::ledger::{EntryState, IdempotencyKey, Intent, OwnerId, Settlement};
use serde_json::json;
use uuid::Uuid;

use super::StoreMeasureError;

/// The process that makes all of them.
pub(crate) const OWNER: OwnerId = OwnerId(Uuid::from_u128(1));
/// For how long their ends are kept.
const WINDOW: Duration = Duration::from_hours(24);

/// The call of a number. Ids grow with the number and have noise at their end, as those of the kernel do.
pub(crate) fn intent(number: u64) -> Result<Intent, StoreMeasureError> {
    let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let id = (u128::from(number) << 80) | (7 << 76) | (2 << 62) | u128::from(noise >> 2);
    Ok(Intent {
        invocation: InvocationId(Uuid::from_u128(id)),
        trace: TraceId::from_bytes((u128::from(noise) << 64 | u128::from(number)).to_be_bytes()),
        tenant: "local".parse()?,
        caller: "bench-agent".parse()?,
        tool: "bench.note".parse()?,
        version: "1.0.0".parse()?,
        effects: SideEffectPolicy::Idempotent,
        key: Some(IdempotencyKey { scope: "bench-agent".into(), key: format!("bench-{number:012}") }),
        parameters: canonical::digest(&json!({ "expression": format!("1 + {number}") })),
        window: WINDOW,
        owner: OWNER,
        queued_act: None,
    })
}

/// How it ends.
pub(crate) fn settlement() -> Settlement {
    let outcome = json!({ "success": {
        "result": { "expression": "sqrt(16) + 2^3", "result": 12, "resultType": "integer" }, "truncation": null,
        "usage": { "cpu_used_millicore_seconds": 0, "memory_peak_mb": 0, "network_bytes_sent": 0, "network_bytes_received": 0 },
        "started_at": "2027-01-15T08:00:00.000Z", "completed_at": "2027-01-15T08:00:00.001Z", "duration_ms": 1,
    } });
    Settlement { state: EntryState::Done, outcome }
}
