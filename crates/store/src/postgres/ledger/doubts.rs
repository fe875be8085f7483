//! Claims whose answer was lost: the server may have committed them, or may yet.
//!
//! Whoever asked was refused, so nothing has happened and nothing will; but the line, if it is there, would hold its key for as
//! long as this process lives. So it is written down as failed clean with the next sign that the server answers. If there is
//! no line yet, one is written that failed clean, which a claim still on its way gives way to.
//!
//! Invariants
//! - DOUBT-1: only the very claim is withdrawn, known by its number: the same call may have begun again meanwhile.
//! - DOUBT-2: what is remembered is bounded. What is forgotten stays in flight until this process ends, and recovery decides.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;

use super::claim::{Claim, INTENT, INTO, with_values};
use crate::postgres::PostgresStore;
use crate::postgres::columns::with_clock;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{Value, bytes, int, text};
use crate::postgres::transaction::Scope;

/// Most claims in doubt that are remembered.
const DOUBTS_MAX: usize = 4_096;
/// Most of them that are withdrawn at a time.
const WITHDRAWN_AT_ONCE: usize = 256;

/// The claims of this process that are in doubt.
#[derive(Debug, Default)]
pub(in crate::postgres) struct Doubts(Mutex<VecDeque<Arc<Claim>>>);

impl Doubts {
    pub(super) fn add(&self, claim: Arc<Claim>) {
        let mut claims = self.claims();
        if claims.len() >= DOUBTS_MAX {
            tracing::error!(invocation = %claim.intent.invocation, "too many claims are in doubt: one stays in flight");
            return;
        }
        claims.push_back(claim);
    }

    fn claims(&self) -> MutexGuard<'_, VecDeque<Arc<Claim>>> {
        self.0.lock_unpoisoned()
    }
}

impl PostgresStore {
    /// Withdraws what is in doubt, as far as the server answers.
    pub(super) async fn withdraw_doubtful(&self) {
        for _ in 0..WITHDRAWN_AT_ONCE {
            let Some(claim) = self.doubts.claims().pop_front() else { return };
            if let Err(fault) = self.withdraw(&claim).await {
                tracing::warn!(error = &fault as &dyn std::error::Error, "a claim stays in doubt");
                self.doubts.add(claim);
                return;
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Fault> {
        let statement = format!(
            "{} INSERT INTO ledger ({INTO}, holds_key, fence, state, begun_at, settled_at, keep_until)
             SELECT {INTENT}, false, 1, 'failed_clean', clock.now, clock.now, clock.now + $12 * 1000 FROM clock
             ON CONFLICT (invocation_id) DO UPDATE
                 SET state = 'failed_clean', settled_at = excluded.settled_at, keep_until = excluded.keep_until
                 WHERE ledger.owner_id = excluded.owner_id AND ledger.claim = excluded.claim AND ledger.state = 'in_flight'",
            with_clock()
        );
        let scope = Scope::Tenant(claim.intent.tenant.as_str());
        with_values!(claim, self.now(), |values| self.pool.execute(scope, &statement, &values).await?);
        Ok(())
    }
}
