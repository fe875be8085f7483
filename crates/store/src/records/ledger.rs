//! Lines of the ledger out of rows.

use std::time::Duration;

use ports::ledger::{EntryState, FencingToken, IdempotencyKey, Intent, LedgerEntry, OwnerId};

use crate::stored_row::StoredRow;

/// The columns that [`entry`] reads.
pub(crate) const COLUMNS: &str = "invocation_id, trace_id, tenant_id, subject, delegators, tool_id, tool_version, \
                                  side_effect_policy, scope, key, parameters_digest, window_seconds, owner_id, fence, \
                                  state, begun_at, settled_at, outcome";

/// A line out of a row with [`COLUMNS`].
pub(crate) fn entry<R: StoredRow>(row: &R) -> Result<LedgerEntry, R::Fault> {
    let of = row.text("invocation_id")?;
    let (scope, key) = (row.opt_byte_text("scope", of)?, row.opt_byte_text("key", of)?);
    Ok(LedgerEntry {
        intent: Intent {
            invocation: row.word("invocation_id", of)?,
            trace: row.word("trace_id", of)?,
            tenant: row.word("tenant_id", of)?,
            caller: row.call_owner(of)?,
            tool: row.word("tool_id", of)?,
            version: row.word("tool_version", of)?,
            effects: row.tagged("side_effect_policy", of)?,
            key: scope.zip(key).map(|(scope, key)| IdempotencyKey { scope, key }),
            parameters: row.word("parameters_digest", of)?,
            window: Duration::from_secs(row.number("window_seconds", of)?),
            owner: OwnerId(row.word("owner_id", of)?),
            queued_act: None,
        },
        state: row.one_of("state", of, EntryState::of_word)?,
        fence: FencingToken(row.number("fence", of)?),
        begun_at: row.moment("begun_at", of)?,
        settled_at: row.opt_moment("settled_at", of)?,
        outcome: row.opt_json("outcome", of)?,
    })
}
