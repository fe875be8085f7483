//! Taking a key and writing the intent.
//!
//! ```text
//!  claim ─▶ one INSERT with others, that gives way to whoever has the id or the key       (nearly every call ends here)
//!    │
//!    ╰ something is in the way ─▶ the same alone, and what that is                         (held, other parameters, lapsed)
//!        │
//!        ╰ the key's former call is over or failed clean, or somebody was quicker and is not to be seen yet
//!          ─▶ lock both lines, give the key up or begin the line again, INSERT once more  (a transaction, tried anew a few times)
//! ```
//!
//! What `judge` answers from the first statement may be a moment old, but it was true while the caller waited. What changes a
//! line is only decided on locked ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base::SaturatingFrom as _;
use contract::ids::InvocationId;
use ports::clock::UnixMillis;
use ports::ledger::{BeginOutcome, EntryState, FencingToken, Intent, LedgerEntry};
use tokio_postgres::Row;

use super::groups::WaitingClaim;
use crate::postgres::PostgresStore;
use crate::postgres::columns::with_clock;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{Value, bytes, column, int, text};
use crate::postgres::transaction::{Scope, Transaction, in_transaction};
use crate::records::ledger::{COLUMNS, entry};
use crate::stored_row::StoredRow as _;
use crate::transfer::ENDED_WITHOUT_LINE;

/// So often a claim is tried anew because somebody else was quicker. Then the id counts as taken: it may be another tenant's,
/// whose lines are not to be seen here.
const CLAIM_TRIES: u32 = 4;

/// Numbers the claims of this process, and so, with its owner, every claim there is.
static CLAIMS: AtomicI64 = AtomicI64::new(1);

/// An intent with what the database knows it by.
#[derive(Debug)]
pub(in crate::postgres) struct Claim {
    pub(super) intent: Intent,
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) trace: String,
    pub(super) version: String,
    pub(super) digest: String,
    pub(super) owner: String,
    pub(super) window: i64,
}

/// A line that stands in the way of a claim.
struct Line {
    entry: LedgerEntry,
    holds_key: bool,
    keep_until: Option<UnixMillis>,
}

/// What is to be done about the lines in the way.
enum Verdict {
    Answer(BeginOutcome),
    /// The key's former call has no more right to it.
    GiveUp(InvocationId),
    /// The same call failed clean.
    BeginAgain(FencingToken),
    /// Nothing is in the way.
    Insert,
}

impl Claim {
    fn new(intent: Intent) -> Self {
        Self {
            number: CLAIMS.fetch_add(1, Ordering::Relaxed),
            id: intent.invocation.to_string(),
            trace: intent.trace.to_string(),
            version: intent.version.to_string(),
            digest: intent.parameters.to_string(),
            owner: intent.owner.to_string(),
            window: u32::saturating_from(intent.window.as_secs()).into(),
            intent,
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope::Tenant(self.intent.tenant.as_str())
    }
}

/// Runs `$work` with the values `$1` to `$17` of a claim, as [`INTENT`] numbers them; a statement need not use all. A macro,
/// because the values borrow from each other.
macro_rules! with_values {
    ($claim:expr, $now:expr, |$values:ident| $work:expr) => {{
        let (claim, now): (&Claim, Option<i64>) = ($claim, $now);
        let intent = &claim.intent;
        let (tenant, subject, tool) = (intent.tenant.as_str(), intent.caller.subject().as_str(), intent.tool.as_str());
        let delegators = intent.caller.delegators();
        let effects = intent.effects.as_str();
        let scope = intent.key.as_ref().map(|key| key.scope.as_bytes());
        let key = intent.key.as_ref().map(|key| key.key.as_bytes());
        let act = intent.queued_act.as_ref();
        let (kind, dedupe) = act.map(|act| (act.kind, act.dedupe_key.as_bytes())).unzip();
        let $values: [Value<'_>; 17] = [
            int(&now),
            text(&claim.id),
            text(&claim.trace),
            text(&tenant),
            text(&subject),
            text(&tool),
            text(&claim.version),
            text(&effects),
            bytes(&scope),
            bytes(&key),
            text(&claim.digest),
            int(&claim.window),
            text(&claim.owner),
            int(&claim.number),
            text(&delegators),
            text(&kind),
            bytes(&dedupe),
        ];
        $work
    }};
}
pub(super) use with_values;

/// The columns of an intent, and its values.
pub(super) const INTO: &str = "invocation_id, trace_id, tenant_id, subject, tool_id, tool_version, side_effect_policy, \
                               scope, key, parameters_digest, window_seconds, owner_id, claim, delegators";
pub(super) const INTENT: &str = "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15";
/// The line that has the key.
const BY_KEY: &str =
    "holds_key AND tenant_id = $4 AND tool_id = $6 AND sha256(scope) = sha256($9) AND sha256(key) = sha256($10)";
/// The job that is to do the act, or may have done it without a line here, if it is another one (LEDGER-5).
const QUEUED: &str = "SELECT id, digest, ended_at IS NOT NULL AS is_ended FROM jobs, clock \
                      WHERE tenant_id = $4 AND kind = $16 AND dedupe_key IS NOT NULL \
                      AND sha256(dedupe_key) = sha256($17) AND id <> $2";
/// Whether the owner's lease is good.
const ALIVE: &str = "EXISTS (SELECT 1 FROM instances, clock WHERE owner_id = $13 AND ledger_until > clock.now)";

pub(super) async fn begin(store: &PostgresStore, intent: Intent) -> Result<BeginOutcome, Fault> {
    let claim = Arc::new(Claim::new(intent));
    // Whoever is in doubt there is noted there.
    if store.claims.write(WaitingClaim { claim: Arc::clone(&claim), now: store.now() }).await? {
        return Ok(BeginOutcome::Fresh(FencingToken(1)));
    }
    let begun = begin_alone(store, &claim).await;
    if let Err(fault) = &begun
        && fault.leaves_doubt()
    {
        store.doubts.add(claim);
    }
    begun
}

async fn begin_alone(store: &PostgresStore, claim: &Claim) -> Result<BeginOutcome, Fault> {
    let statement = insertion();
    let rows = with_values!(claim, store.now(), |values| store.pool.query(claim.scope(), &statement, &values).await?);
    if let Verdict::Answer(begun) = answer(claim, &rows)? {
        return Ok(begun);
    }
    for _ in 0..CLAIM_TRIES {
        let now = store.now();
        match in_transaction!(store.pool, claim.scope(), |tx| claim_again(tx, claim, now).await) {
            Ok(Some(begun)) => return Ok(begun),
            Ok(None) => {}
            // Somebody has taken the key between our look and our write.
            Err(fault) if fault.is_duplicate() => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(BeginOutcome::IdTaken)
}

/// Writes the line of a new call if nothing is in its way, and answers with what is. The lines it answers with are those from
/// before the statement.
fn insertion() -> String {
    format!(
        "{clock}, owner AS MATERIALIZED (SELECT {ALIVE} AS is_alive),
         queued AS MATERIALIZED (
             {QUEUED} AND (ended_at IS NULL OR (dedupe_until > clock.now AND {ENDED_WITHOUT_LINE})) LIMIT 1
         ),
         new AS (
             INSERT INTO ledger ({INTO}, holds_key, fence, state, begun_at)
             SELECT {INTENT}, $10 IS NOT NULL, 1, 'in_flight', clock.now FROM clock, owner
             WHERE owner.is_alive AND NOT EXISTS (SELECT 1 FROM queued)
             ON CONFLICT DO NOTHING RETURNING 1
         )
         SELECT owner.is_alive, EXISTS (SELECT 1 FROM new) AS is_new, clock.now,
                (SELECT id FROM queued) AS job_id, (SELECT digest FROM queued) AS job_digest,
                (SELECT is_ended FROM queued) AS job_is_ended, line.*
         FROM owner CROSS JOIN clock LEFT JOIN LATERAL (
             SELECT {COLUMNS}, holds_key, keep_until FROM ledger WHERE invocation_id = $2
             UNION ALL
             SELECT {COLUMNS}, holds_key, keep_until FROM ledger WHERE {BY_KEY} AND invocation_id <> $2
         ) line ON true",
        clock = with_clock()
    )
}

/// What the rows of [`insertion`] say.
fn answer(claim: &Claim, rows: &[Row]) -> Result<Verdict, Fault> {
    let Some(first) = rows.first() else { return Ok(Verdict::Insert) };
    if !column::<bool>(first, "is_alive")? {
        return Ok(Verdict::Answer(BeginOutcome::OwnerLapsed));
    }
    if column(first, "is_new")? {
        return Ok(Verdict::Answer(BeginOutcome::Fresh(FencingToken(1))));
    }
    let now = first.time("now")?;
    let verdict = judge(&claim.intent, lines(rows)?, now);
    // Who has a line with the key comes before who is to get one.
    if let (false, Some(act), Some(digest)) =
        (matches!(verdict, Verdict::Answer(_)), &claim.intent.queued_act, column::<Option<&str>>(first, "job_digest")?)
    {
        let (job, same) = (first.word("job_id", &claim.id)?, digest == act.digest.to_string());
        let ended = column::<Option<bool>>(first, "job_is_ended")?.unwrap_or_default();
        return Ok(Verdict::Answer(BeginOutcome::Queued { job, same, ended }));
    }
    Ok(verdict)
}

/// The second way: on locked lines.
async fn claim_again(tx: &Transaction, claim: &Claim, now: Option<i64>) -> Result<Option<BeginOutcome>, Fault> {
    let locking = format!(
        "{} SELECT {COLUMNS}, holds_key, keep_until, clock.now FROM ledger, clock
         WHERE invocation_id = $2 OR ({BY_KEY}) ORDER BY invocation_id FOR UPDATE OF ledger",
        with_clock()
    );
    let rows = with_values!(claim, now, |values| tx.query(&locking, &values).await?);
    let mut verdict = match rows.first() {
        Some(row) => judge(&claim.intent, lines(&rows)?, row.time("now")?),
        None => Verdict::Insert,
    };
    if let Verdict::GiveUp(holder) = verdict {
        tx.execute("UPDATE ledger SET holds_key = false WHERE invocation_id = $1", &[text(&holder.to_string())])
            .await?;
        let former = lines(&rows)?.into_iter().filter(|line| line.entry.intent.invocation != holder).collect();
        verdict = judge(&claim.intent, former, UnixMillis::default());
    }
    match verdict {
        Verdict::Answer(begun) => Ok(Some(begun)),
        Verdict::BeginAgain(fence) => begin_again(tx, claim, fence, now).await.map(Some),
        Verdict::Insert | Verdict::GiveUp(_) => {
            let statement = insertion();
            let rows = with_values!(claim, now, |values| tx.query(&statement, &values).await?);
            match answer(claim, &rows)? {
                Verdict::Answer(begun) => Ok(Some(begun)),
                _ => Ok(None),
            }
        }
    }
}

async fn begin_again(
    tx: &Transaction,
    claim: &Claim,
    fence: FencingToken,
    now: Option<i64>,
) -> Result<BeginOutcome, Fault> {
    let next = FencingToken(fence.0.saturating_add(1));
    // The parameters and whose call it is are the same, or it would not be the same call.
    let statement = format!(
        "{} UPDATE ledger SET state = 'in_flight', settled_at = NULL, keep_until = NULL, outcome = NULL, trace_id = $3,
             tool_version = $7, side_effect_policy = $8, holds_key = $10 IS NOT NULL, window_seconds = $12, owner_id = $13,
             claim = $14, fence = fence + 1, begun_at = clock.now
         FROM clock
         WHERE invocation_id = $2 AND {ALIVE}",
        with_clock()
    );
    let begun = with_values!(claim, now, |values| tx.execute(&statement, &values).await?);
    Ok(if begun == 0 { BeginOutcome::OwnerLapsed } else { BeginOutcome::Fresh(next) })
}

fn lines(rows: &[Row]) -> Result<Vec<Line>, Fault> {
    let mut lines = Vec::new();
    for row in rows {
        if column::<Option<&str>>(row, "invocation_id")?.is_none() {
            continue;
        }
        lines.push(Line {
            entry: entry(row)?,
            holds_key: column(row, "holds_key")?,
            keep_until: row.opt_time("keep_until")?,
        });
    }
    Ok(lines)
}

/// Who has the key comes before who has the id.
fn judge(intent: &Intent, lines: Vec<Line>, now: UnixMillis) -> Verdict {
    let mut former = None;
    for line in lines {
        let of = &line.entry.intent;
        let is_own = of.invocation == intent.invocation;
        if line.holds_key
            && intent.key.is_some()
            && of.key == intent.key
            && of.tenant == intent.tenant
            && of.tool == intent.tool
        {
            let is_over = match line.entry.state {
                EntryState::InFlight | EntryState::Unknown => false,
                EntryState::Done => line.keep_until.is_none_or(|until| until <= now),
                EntryState::FailedClean => true,
            };
            if !is_over {
                let same = of.parameters == intent.parameters;
                let invocation = of.invocation;
                return Verdict::Answer(if same {
                    BeginOutcome::Held(Box::new(line.entry))
                } else {
                    BeginOutcome::OtherParameters { invocation }
                });
            }
            if !is_own {
                return Verdict::GiveUp(of.invocation);
            }
        }
        if is_own {
            former = Some(line.entry);
        }
    }
    match former {
        None => Verdict::Insert,
        Some(former) if !former.intent.is_same_call(intent) => Verdict::Answer(BeginOutcome::IdTaken),
        Some(former) if former.state == EntryState::FailedClean => Verdict::BeginAgain(former.fence),
        Some(former) => Verdict::Answer(BeginOutcome::Held(Box::new(former))),
    }
}
