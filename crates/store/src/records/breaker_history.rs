//! Transitions of circuit breakers out of rows.

use base::SaturatingFrom as _;
use ports::resilience::BreakerMode;
use ports::shared_state::{BreakerTransition, PastTransition};

use crate::stored_row::StoredRow;

pub(crate) fn transition<R: StoredRow>(row: &R) -> Result<BreakerTransition, R::Fault> {
    let of = row.text("breaker")?;
    let mode = |column| row.one_of(column, of, |word| BreakerMode::ALL.into_iter().find(|mode| mode.as_str() == word));
    let change = PastTransition {
        at_ms: u64::saturating_from(row.int("at")?),
        from: mode("from_state")?,
        to: mode("to_state")?,
        reason: row.json("reason", of)?,
        epoch: u64::saturating_from(row.int("epoch")?),
    };
    Ok(BreakerTransition { key: row.word("breaker", of)?, change })
}
