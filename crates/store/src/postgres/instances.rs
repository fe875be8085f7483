//! Who is alive: the leases of processes, by the server's clock. (LEDGER-4, JOB-4)
//!
//! One row for each owner, with a lease for its calls and one for its jobs. Anybody's lease is over when it is over, whether
//! or not its process noticed: what it wrote afterwards is held off by fences.
//!
//! Not here: what becomes of what a lapsed owner held (`ledger`, `jobs`).

use std::time::Duration;

use ports::ledger::OwnerId;

use super::PostgresStore;
use super::columns::{millis, with_clock};
use super::faults::Fault;
use super::statement::{boolean, int, text};
use super::transaction::Scope;

/// For how long a lapsed owner that holds nothing is remembered.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

impl PostgresStore {
    /// Makes the lease of an owner's calls last so long from now.
    pub(super) async fn renew_for_calls(&self, owner: OwnerId, lease: Duration) -> Result<(), Fault> {
        let statement = format!(
            "{} INSERT INTO instances (owner_id, ledger_until) SELECT $2, clock.now + $3 FROM clock
             ON CONFLICT (owner_id) DO UPDATE SET ledger_until = excluded.ledger_until",
            with_clock()
        );
        self.pool
            .execute(Scope::System, &statement, &[int(&self.now()), text(&owner.to_string()), int(&millis(lease))])
            .await?;
        Ok(())
    }

    /// Ends the lease of an owner's calls.
    pub(super) async fn retire_from_calls(&self, owner: OwnerId) -> Result<(), Fault> {
        let statement = "UPDATE instances SET ledger_until = 0 WHERE owner_id = $1";
        self.pool.execute(Scope::System, statement, &[text(&owner.to_string())]).await?;
        Ok(())
    }

    /// Ends the lease of an owner's jobs.
    pub(super) async fn retire_from_jobs(&self, owner: OwnerId) -> Result<(), Fault> {
        let statement = "UPDATE instances SET jobs_until = 0 WHERE owner_id = $1";
        self.pool.execute(Scope::System, statement, &[text(&owner.to_string())]).await?;
        Ok(())
    }

    /// Makes the lease of an owner's jobs last so long from now, whatever it was before; of an owner that is alone, the leases
    /// of all others end. Owners that were seen last a day ago and hold nothing are forgotten.
    pub(super) async fn enlist_for_jobs(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), Fault> {
        let statement = format!(
            "{}, others AS (
                 UPDATE instances SET jobs_until = clock.now FROM clock
                 WHERE $4 AND owner_id <> $2 AND jobs_until > clock.now
             ), gone AS (
                 DELETE FROM instances USING clock
                 WHERE greatest(ledger_until, jobs_until) < clock.now - $5 AND owner_id <> $2
                   AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND jobs.owner_id = instances.owner_id)
             )
             INSERT INTO instances (owner_id, jobs_until) SELECT $2, clock.now + $3 FROM clock
             ON CONFLICT (owner_id) DO UPDATE SET jobs_until = excluded.jobs_until",
            with_clock()
        );
        let (owner, kept) = (owner.to_string(), millis(KEPT_FOR));
        self.pool
            .execute(
                Scope::System,
                &statement,
                &[int(&self.now()), text(&owner), int(&millis(lease)), boolean(&alone), int(&kept)],
            )
            .await?;
        Ok(())
    }
}
