//! Reads lines of the ledger back from rows; what cannot be read is named in a fault.

use std::time::Duration;

use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use ports::ledger::{EntryState, FencingToken, IdempotencyKey, Intent, LedgerEntry, OwnerId};
use serde_json::Value;
use tokio_postgres::Row;

use crate::postgres::columns::{call_owner, number, opt_json, opt_text, opt_time, time};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{column, unreadable, word};

/// The columns that [`entry`] reads.
pub(super) const COLUMNS: &str = "invocation_id, trace_id, tenant_id, subject, delegators, tool_id, tool_version, \
                                  side_effect_policy, scope, key, parameters_digest, window_seconds, owner_id, fence, \
                                  state, begun_at, settled_at, outcome";

/// A line out of a row with [`COLUMNS`].
pub(super) fn entry(row: &Row) -> Result<LedgerEntry, Fault> {
    let of: &str = column(row, "invocation_id")?;
    let effects: String = column(row, "side_effect_policy")?;
    let (scope, key) = (opt_text(row, "scope", of)?, opt_text(row, "key", of)?);
    Ok(LedgerEntry {
        intent: Intent {
            invocation: word(row, "invocation_id", of)?,
            trace: word(row, "trace_id", of)?,
            tenant: word(row, "tenant_id", of)?,
            caller: call_owner(row, of)?,
            tool: word(row, "tool_id", of)?,
            version: Version::parse(column(row, "tool_version")?).map_err(|_| unreadable("tool_version", of))?,
            effects: serde_json::from_value::<SideEffectPolicy>(Value::String(effects))
                .map_err(|_| unreadable("side_effect_policy", of))?,
            key: scope.zip(key).map(|(scope, key)| IdempotencyKey { scope, key }),
            parameters: word(row, "parameters_digest", of)?,
            window: Duration::from_secs(number(row, "window_seconds", of)?),
            owner: OwnerId(word(row, "owner_id", of)?),
            queued_act: None,
        },
        state: EntryState::of_word(column(row, "state")?).ok_or_else(|| unreadable("state", of))?,
        fence: FencingToken(number(row, "fence", of)?),
        begun_at: time(row, "begun_at")?,
        settled_at: opt_time(row, "settled_at")?,
        outcome: opt_json(row, "outcome", of)?,
    })
}
