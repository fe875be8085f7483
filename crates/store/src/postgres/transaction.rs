//! Running statements: alone, or several in one transaction.
//!
//! Every transaction begins by saying whose rows it may see (PG-3) and how long a statement may take. The tenant goes into
//! a setting of the transaction, which the policies of the tables read; nothing of it outlives the transaction, so a
//! pooler may give the connection to anybody afterwards.
//!
//! Not here: which faults are tried again (`faults`), the values of statements (`statement`).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base::backoff::doubled;
use tokio_postgres::Row;

use super::faults::{Busy, Fault};
use super::pool::{Lease, Pool};
use super::statement::Value;

/// So often a transaction that lost a race, or met a server that is no primary, is tried in all.
const TRIES_MAX: u32 = 6;
/// The first pause; each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest; so many tries do not come to it.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// What an answer may take beyond the statement's own time before the server counts as gone.
const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// How long a statement may take that changes the shape of the database, or waits for another instance that does.
const PATIENCE_MAX: Duration = Duration::from_secs(30 * 60);

/// Whose rows a transaction may see and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// One tenant's.
    Tenant(&'a str),
    /// Everybody's: loading what all calls need, taking work from the queue, cleaning up.
    System,
}

impl Scope<'_> {
    /// What the policies of the tables read, as it stands between quotes.
    fn word(self) -> String {
        match self {
            // The word for everybody is no tenant's name: one that is called so gets nothing rather than everything.
            Self::Tenant("*") => String::new(),
            // Names may have quotes; with each written twice, it is still one string.
            Self::Tenant(tenant) => tenant.replace('\'', "''"),
            Self::System => "*".to_owned(),
        }
    }
}

/// An open transaction. Dropped without [`commit`](Self::commit), the server undoes it.
pub(super) struct Transaction {
    lease: Lease,
    answer_max: Duration,
}

impl Pool {
    /// Begins a transaction.
    pub(super) async fn begin(&self, scope: Scope<'_>) -> Result<Transaction, Fault> {
        let lease = self.take().await?;
        let answer_max = self.statement_max() + ANSWER_GRACE;
        let begun = in_time(answer_max, lease.client()?.batch_execute(&self.beginning(scope))).await;
        begun.map(|()| Transaction { lease, answer_max })
    }

    /// One statement in a transaction of its own, in one round trip; its rows.
    pub(super) async fn query(
        &self,
        scope: Scope<'_>,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let (beginning, mut tries) = (self.beginning(scope), Tries::default());
        loop {
            match self.query_once(&beginning, statement, values).await {
                Err(fault) if tries.again_after(&fault).await => {}
                other => return other,
            }
        }
    }

    /// The same under a lock of the whole database, which is taken before: the statement sees what everybody who held the
    /// lock before has done. Still one round trip, so that a process that is stopped in the middle holds the lock no longer.
    pub(super) async fn query_alone(
        &self,
        scope: Scope<'_>,
        lock: i64,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let beginning = format!("{}; SELECT pg_advisory_xact_lock({lock})", self.beginning(scope));
        let mut tries = Tries::default();
        loop {
            match self.query_once(&beginning, statement, values).await {
                Err(fault) if tries.again_after(&fault).await => {}
                other => return other,
            }
        }
    }

    /// One statement for several scopes, each with values of its own, in one transaction and one round trip; the rows of each.
    pub(super) async fn query_each(
        &self,
        statement: &str,
        parts: &[(Scope<'_>, Vec<Value<'_>>)],
    ) -> Result<Vec<Vec<Row>>, Fault> {
        let mut tries = Tries::default();
        loop {
            match self.query_each_once(statement, parts).await {
                Err(fault) if tries.again_after(&fault).await => {}
                other => return other,
            }
        }
    }

    /// One statement in a transaction of its own, in one round trip; how many rows it changed.
    pub(super) async fn execute(&self, scope: Scope<'_>, statement: &str, values: &[Value<'_>]) -> Result<u64, Fault> {
        let mut tries = Tries::default();
        loop {
            match self.execute_once(scope, statement, values).await {
                Err(fault) if tries.again_after(&fault).await => {}
                other => return other,
            }
        }
    }

    async fn query_once(&self, beginning: &str, statement: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Fault> {
        let lease = self.take().await?;
        let client = lease.client()?;
        // Polled in this order, so sent in this order, without waiting for answers in between. If the statement fails, the
        // server answers the COMMIT by rolling back.
        let all = async {
            let work = client.query_typed(statement, values);
            tokio::join!(biased; client.batch_execute(beginning), work, client.batch_execute("COMMIT"))
        };
        let done = tokio::time::timeout(self.statement_max() + ANSWER_GRACE, all).await;
        let (begun, rows, committed) = done.map_err(|_| Busy::NoAnswer)?;
        finish(lease, begun.and(rows).and_then(|rows| committed.map(|()| rows)))
    }

    async fn query_each_once(
        &self,
        statement: &str,
        parts: &[(Scope<'_>, Vec<Value<'_>>)],
    ) -> Result<Vec<Vec<Row>>, Fault> {
        let Some(((scope, values), rest)) = parts.split_first() else { return Ok(Vec::new()) };
        let lease = self.take().await?;
        let (client, beginning) = (lease.client()?, self.beginning(*scope));
        // As above: each is sent when it is first polled.
        let mut steps = InOrder::default();
        steps.add(async { client.batch_execute(&beginning).await.map(|()| None) });
        steps.add(async { client.query_typed(statement, values).await.map(Some) });
        for (scope, values) in rest {
            let change = format!("SET LOCAL gantry.tenant = '{}'", scope.word());
            steps.add(async move { client.batch_execute(&change).await.map(|()| None) });
            steps.add(async { client.query_typed(statement, values).await.map(Some) });
        }
        steps.add(async { client.batch_execute("COMMIT").await.map(|()| None) });
        let done =
            tokio::time::timeout(self.statement_max() + ANSWER_GRACE, steps).await.map_err(|_| Busy::NoAnswer)?;
        finish(lease, done.into_iter().filter_map(Result::transpose).collect())
    }

    async fn execute_once(&self, scope: Scope<'_>, statement: &str, values: &[Value<'_>]) -> Result<u64, Fault> {
        let lease = self.take().await?;
        let (client, beginning) = (lease.client()?, self.beginning(scope));
        let all = async {
            let work = client.execute_typed(statement, values);
            tokio::join!(biased; client.batch_execute(&beginning), work, client.batch_execute("COMMIT"))
        };
        let done = tokio::time::timeout(self.statement_max() + ANSWER_GRACE, all).await;
        let (begun, changed, committed) = done.map_err(|_| Busy::NoAnswer)?;
        finish(lease, begun.and(changed).and_then(|changed| committed.map(|()| changed)))
    }

    fn beginning(&self, scope: Scope<'_>) -> String {
        let tenant = scope.word();
        let milliseconds = self.statement_max().as_millis();
        let idle = milliseconds.div_ceil(2);
        // A process that is stopped in the middle of a transaction must not keep its locks for ever.
        format!(
            "BEGIN; SET LOCAL gantry.tenant = '{tenant}'; SET LOCAL statement_timeout = {milliseconds}; \
             SET LOCAL idle_in_transaction_session_timeout = {idle}"
        )
    }
}

impl Transaction {
    /// From here on the statements see one moment, and write nothing. Before the first of them.
    pub(super) async fn as_of_one_moment(&self) -> Result<(), Fault> {
        self.batch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    /// The same transaction, whose statements may take long: steps of the schema, and waiting for another's.
    pub(super) fn patient(mut self) -> Self {
        self.answer_max = PATIENCE_MAX;
        self
    }

    /// The rows of a statement.
    pub(super) async fn query(&self, statement: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Fault> {
        in_time(self.answer_max, self.lease.client()?.query_typed(statement, values)).await
    }

    /// The only row of a statement, if there is one.
    pub(super) async fn query_opt(&self, statement: &str, values: &[Value<'_>]) -> Result<Option<Row>, Fault> {
        Ok(self.query(statement, values).await?.into_iter().next())
    }

    /// How many rows a statement changed.
    pub(super) async fn execute(&self, statement: &str, values: &[Value<'_>]) -> Result<u64, Fault> {
        in_time(self.answer_max, self.lease.client()?.execute_typed(statement, values)).await
    }

    /// Several statements without values.
    pub(super) async fn batch(&self, statements: &str) -> Result<(), Fault> {
        in_time(self.answer_max, self.lease.client()?.batch_execute(statements)).await
    }

    /// Makes everything durable, or nothing.
    pub(super) async fn commit(self) -> Result<(), Fault> {
        in_time(self.answer_max, self.lease.client()?.batch_execute("COMMIT")).await?;
        self.lease.give_back();
        Ok(())
    }

    /// Undoes everything, and saves the connection if it is still good.
    pub(super) async fn undo(self, fault: &Fault) {
        if fault.is_not_the_primary() {
            self.lease.forget_idle();
        }
        if fault.spoils_connection() {
            return;
        }
        if let Ok(client) = self.lease.client()
            && in_time(self.answer_max, client.batch_execute("ROLLBACK")).await.is_ok()
        {
            self.lease.give_back();
        }
    }
}

/// Runs `$work`, an expression that uses the transaction `$tx` and gives a `Result<T, Fault>`, in a transaction, again when
/// it lost a race; then the whole is `Result<T, Fault>`. A macro, because a closure cannot say that the future it makes
/// may borrow its arguments and be sent to another thread.
macro_rules! in_transaction {
    ($pool:expr, $scope:expr, |$tx:ident| $work:expr) => {{
        let mut tries = $crate::postgres::transaction::Tries::default();
        loop {
            let outcome = match $pool.begin($scope).await {
                Err(fault) => Err(fault),
                Ok(transaction) => {
                    let $tx = &transaction;
                    match $work {
                        Ok(value) => transaction.commit().await.map(|()| value),
                        Err(fault) => {
                            transaction.undo(&fault).await;
                            Err(fault)
                        }
                    }
                }
            };
            match outcome {
                Err(fault) if tries.again_after(&fault).await => {}
                other => break other,
            }
        }
    }};
}
pub(super) use in_transaction;

/// How often something was tried.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// Waits a moment and says yes if the fault is one that trying again may mend.
    pub(super) async fn again_after(&mut self, fault: &Fault) -> bool {
        self.0 += 1;
        if self.0 >= TRIES_MAX || !(fault.is_lost_race() || fault.is_not_the_primary()) {
            return false;
        }
        tokio::time::sleep(doubled(PAUSE, self.0, PAUSE_MAX)).await;
        true
    }
}

/// Steps on one connection: polled in their order, so sent in it, without waiting for answers in between.
struct InOrder<'a, T>(Vec<Step<'a, T>>);

enum Step<'a, T> {
    Under(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
    Done(Option<T>),
}

impl<'a, T> InOrder<'a, T> {
    fn add(&mut self, step: impl Future<Output = T> + Send + 'a) {
        self.0.push(Step::Under(Box::pin(step)));
    }
}

impl<T> Default for InOrder<'_, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Unpin> Future for InOrder<'_, T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<T>> {
        let mut all = true;
        for step in &mut self.0 {
            if let Step::Under(future) = step {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *step = Step::Done(Some(value)),
                    Poll::Pending => all = false,
                }
            }
        }
        if !all {
            return Poll::Pending;
        }
        let take = |step: &mut Step<'_, T>| if let Step::Done(value) = step { value.take() } else { None };
        Poll::Ready(self.0.iter_mut().filter_map(take).collect())
    }
}

fn finish<T>(lease: Lease, outcome: Result<T, tokio_postgres::Error>) -> Result<T, Fault> {
    match outcome {
        Ok(value) => {
            lease.give_back();
            Ok(value)
        }
        Err(error) => {
            let fault = Fault::from(error);
            if fault.is_not_the_primary() {
                lease.forget_idle();
            }
            // The COMMIT that followed has ended the transaction.
            if !fault.spoils_connection() {
                lease.give_back();
            }
            Err(fault)
        }
    }
}

async fn in_time<T>(max: Duration, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Fault> {
    match tokio::time::timeout(max, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Busy::NoAnswer.into()),
    }
}
