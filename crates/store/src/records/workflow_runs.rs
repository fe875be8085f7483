//! Runs of workflows out of rows.

use ports::workflow_runs::{RunRecord, RunState};

use crate::stored_row::{StoredRow, unreadable};

pub(crate) fn run<R: StoredRow>(row: &R) -> Result<RunRecord, R::Fault> {
    let of = row.text("id")?;
    let state = |word: &str| RunState::ALL.into_iter().find(|known| known.as_str() == word);
    Ok(RunRecord {
        tenant: row.word("tenant_id", of)?,
        id: row.word("id", of)?,
        workflow: row.opt_byte_text("workflow", of)?.ok_or_else(|| unreadable("workflow", of))?,
        state: row.one_of("state", of, state)?,
        input: row.opt_json("input", of)?,
        output: row.opt_json("output", of)?,
        error: row.opt_json("error", of)?,
        created_at: row.time("created_at")?,
        completed_at: row.opt_time("completed_at")?,
    })
}
