//! `Ledger` on SQLite. Every method is one savepoint of the one writer, so what it reads cannot change before it writes.
//!
//! SQL-2 (one process writes a file) makes this process the only owner that can be alive: with its first lease all others
//! end.
//!
//! Not here: which end of a call is which state (`kernel::ledger`), taking a key (`claim`), how calls end (`ends`), looking at
//! them (`reads`).

mod claim;
mod ends;
mod reads;

use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::ledger::{
    BeginOutcome, EntryFilter, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, ResolveOutcome, SettleOutcome,
    Settlement,
};
use ports::registry_store::StoreError;
use rusqlite::{Connection, named_params};

use super::SqliteStore;
use super::faults::Fault;

pub(super) use claim::claimed;
#[cfg(feature = "measure")]
pub(super) use claim::insert;
#[cfg(feature = "measure")]
pub(super) use ends::{seconds, write_end};

#[async_trait]
impl Ledger for SqliteStore {
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError> {
        let until = self.time.now().plus(lease);
        self.writer()?.run(move |connection| renew(connection, owner, until)).await
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError> {
        let end = move |connection: &Connection| {
            connection.execute(
                "DELETE FROM ledger_owners WHERE owner_id = :owner",
                named_params! { ":owner": owner.to_string() },
            )?;
            Ok(())
        };
        self.writer()?.run(end).await
    }

    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError> {
        let now = self.time.now();
        self.writer()?.run(move |connection| claim::begin(connection, &intent, now)).await
    }

    async fn settle(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        settlement: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        let now = self.time.now();
        self.writer()?.run(move |connection| ends::settle(connection, invocation, fence, &settlement, now)).await
    }

    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let now = self.time.now();
        self.readers.run(move |connection| reads::lapsed(connection, most, now)).await
    }

    async fn find(&self, tenant: &TenantId, invocation: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| reads::find(connection, &tenant, invocation)).await
    }

    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let filter = filter.clone();
        self.readers.run(move |connection| reads::list(connection, &filter, most)).await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        settlement: Settlement,
    ) -> Result<ResolveOutcome, StoreError> {
        let (tenant, now) = (tenant.clone(), self.time.now());
        self.writer()?.run(move |connection| ends::resolve(connection, &tenant, invocation, &settlement, now)).await
    }

    async fn release(&self, tenant: &TenantId, invocation: InvocationId) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        self.writer()?.run(move |connection| ends::release(connection, &tenant, invocation)).await
    }

    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        let now = self.time.now();
        self.writer()?.run(move |connection| ends::prune(connection, most, now)).await
    }
}

fn renew(connection: &Connection, owner: OwnerId, until: UnixMillis) -> Result<(), Fault> {
    let owner = owner.to_string();
    let renewed = connection
        .prepare_cached("UPDATE ledger_owners SET lease_until = :until WHERE owner_id = :owner")?
        .execute(named_params! { ":owner": &owner, ":until": &until.to_string() })?;
    if renewed == 0 {
        connection.execute("DELETE FROM ledger_owners", [])?;
        connection.execute(
            "INSERT INTO ledger_owners (owner_id, lease_until) VALUES (:owner, :until)",
            named_params! { ":owner": &owner, ":until": &until.to_string() },
        )?;
    }
    Ok(())
}
