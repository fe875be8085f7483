//! What stands between a process and the store: every question takes a while each way, some fail, and those of a process
//! that is dead or stopped are never or late answered. So a crash can fall on either side of every durable step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::ids::{InvocationId, TenantId};
use ports::clock::Clock as _;
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, EnqueueOutcome, FoundResult, JobCounts, JobDetail, JobEvent, JobFilter,
    JobKey, JobPage, JobStore, NewJob, RenewOutcome, TakeOutcome, TakeRules, TakenJob, WriteOutcome,
};
use ports::ledger::{
    BeginOutcome, EntryFilter, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, ResolveOutcome, SettleOutcome,
    Settlement,
};
use ports::registry_store::StoreError;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::world::World;

/// Of a hundred questions to the store, so many fail.
const FAILING: u64 = 2;
/// A question takes up to so many milliseconds, each way.
const LATENCY: u64 = 30;

/// One process, as the faults see it.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) dead: CancellationToken,
    /// Stopped until this millisecond.
    stopped_until: AtomicU64,
    pub(crate) dice: Dice,
    pub(crate) world: Arc<World>,
    /// No more faults: the history comes to its end.
    pub(crate) calm: CancellationToken,
}

impl Life {
    pub(crate) fn new(world: Arc<World>, dice: Dice, calm: CancellationToken) -> Arc<Self> {
        Arc::new(Self { dead: CancellationToken::new(), stopped_until: AtomicU64::new(0), dice, world, calm })
    }

    pub(crate) fn stop_for(&self, span: Duration) {
        let until = self.world.clock.monotonic() + span;
        self.stopped_until.store(u64::try_from(until.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Lets time pass for this process: longer if it is stopped, for ever if it is dead.
    pub(crate) async fn takes(&self, span: Duration) {
        self.world.clock.sleep(span).await;
        loop {
            let now = u64::try_from(self.world.clock.monotonic().as_millis()).unwrap();
            let left = self.stopped_until.load(Ordering::SeqCst).saturating_sub(now);
            if left == 0 {
                break;
            }
            self.world.clock.sleep(Duration::from_millis(left)).await;
        }
        if self.dead.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

/// The store as one process reaches it.
#[derive(Debug)]
pub(crate) struct Wire(pub(crate) Arc<Life>);

impl Wire {
    async fn there(&self) -> Result<(), StoreError> {
        self.0.takes(self.0.dice.millis(LATENCY)).await;
        if self.0.dice.percent(FAILING) && !self.0.calm.is_cancelled() {
            return Err(StoreError::Unavailable("the disk is full".into()));
        }
        Ok(())
    }

    async fn back<T>(&self, answer: T) -> T {
        self.0.takes(self.0.dice.millis(LATENCY)).await;
        answer
    }
}

/// Asks the store behind the wire.
macro_rules! ask {
    ($wire:ident, $port:ident, $question:ident ( $($argument:expr),* )) => {{
        $wire.there().await?;
        let answer = <store::memory::MemoryStore as $port>::$question(&$wire.0.world.store, $($argument),*).await;
        $wire.back(answer).await
    }};
}

#[async_trait::async_trait]
impl Ledger for Wire {
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError> {
        ask!(self, Ledger, renew(owner, lease))
    }
    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError> {
        ask!(self, Ledger, retire(owner))
    }
    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError> {
        ask!(self, Ledger, begin(intent))
    }
    async fn settle(
        &self,
        id: InvocationId,
        fence: FencingToken,
        end: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        ask!(self, Ledger, settle(id, fence, end))
    }
    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        ask!(self, Ledger, lapsed(most))
    }
    async fn find(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        ask!(self, Ledger, find(tenant, id))
    }
    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        ask!(self, Ledger, list(filter, most))
    }
    async fn resolve(
        &self,
        tenant: &TenantId,
        id: InvocationId,
        end: Settlement,
    ) -> Result<ResolveOutcome, StoreError> {
        ask!(self, Ledger, resolve(tenant, id, end))
    }
    async fn release(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError> {
        ask!(self, Ledger, release(tenant, id))
    }
    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        ask!(self, Ledger, prune(most))
    }
}

#[async_trait::async_trait]
impl JobStore for Wire {
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError> {
        ask!(self, JobStore, enlist(owner, lease, alone))
    }
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError> {
        ask!(self, JobStore, renew(owner, lease))
    }
    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError> {
        ask!(self, JobStore, resign(owner))
    }
    async fn enqueue(&self, job: NewJob) -> Result<EnqueueOutcome, StoreError> {
        ask!(self, JobStore, enqueue(job))
    }
    async fn adopt(&self, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
        ask!(self, JobStore, adopt(job, owner))
    }
    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError> {
        ask!(self, JobStore, take(owner, rules))
    }
    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError> {
        ask!(self, JobStore, take_over(owner, most))
    }
    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        ask!(self, JobStore, report(key, fence, percent, phase))
    }
    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError> {
        ask!(self, JobStore, finish(key, fence, end))
    }
    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError> {
        ask!(self, JobStore, resolve(key, was, found))
    }
    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError> {
        ask!(self, JobStore, ask_cancel(key, reason, error))
    }
    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError> {
        ask!(self, JobStore, release_key(key))
    }
    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError> {
        ask!(self, JobStore, hasten(key))
    }
    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
        ask!(self, JobStore, find(key))
    }
    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError> {
        ask!(self, JobStore, list(filter, before, most))
    }
    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError> {
        ask!(self, JobStore, events(key, after, most))
    }
    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
        ask!(self, JobStore, rewrite_payload(key, payload))
    }
    async fn counts(&self) -> Result<JobCounts, StoreError> {
        ask!(self, JobStore, counts())
    }
    async fn prune(&self, retention: Duration, dead: Duration, most: usize) -> Result<u64, StoreError> {
        ask!(self, JobStore, prune(retention, dead, most))
    }
}
