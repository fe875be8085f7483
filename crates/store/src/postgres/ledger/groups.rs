//! Claims and settlements of calls that come at the same time, in one transaction each.
//!
//! Together go the claims that nothing stands in the way of, and the settlements of calls that are in flight under their fence:
//! nearly all. What a statement here does not write is left as it was, and its caller asks alone (`claiming`, `ledger`).
//!
//! Claims of several tenants are several statements of one transaction, each of which sees its tenant's rows only (PG-3). The
//! rows of a claim are written in the order of their keys, so that instances which claim the same keys wait for each other and
//! do not stand in each other's way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::claim::{Claim, INTO};
use super::doubts::Doubts;
use crate::postgres::columns::with_clock;
use crate::postgres::faults::Fault;
use crate::postgres::grouped_writes::Kind;
use crate::postgres::pool::Pool;
use crate::postgres::statement::{Value, byte_strings, column, int, ints, text, texts};
use crate::postgres::transaction::Scope;

/// Claims.
#[derive(Debug)]
pub(in crate::postgres) struct Claims {
    pub(in crate::postgres) pool: Pool,
    pub(in crate::postgres) doubts: Arc<Doubts>,
}

/// A claim, and the present it is judged by.
#[derive(Debug)]
pub(in crate::postgres) struct WaitingClaim {
    pub(super) claim: Arc<Claim>,
    pub(super) now: Option<i64>,
}

/// Settlements.
#[derive(Debug)]
pub(in crate::postgres) struct Settlements {
    pub(in crate::postgres) pool: Pool,
}

/// How a call ended, in the words of the database.
#[derive(Debug, Clone)]
pub(in crate::postgres) struct WaitingSettlement {
    pub(super) now: Option<i64>,
    pub(super) id: String,
    pub(super) fence: i64,
    pub(super) state: &'static str,
    pub(super) outcome: Arc<str>,
}

/// The latest present that one of the group has: only tests have one that is not the server's.
fn latest(nows: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    nows.flatten().max()
}

// ----------------------------------------------------------------------------------------------------------- claims

#[async_trait]
impl Kind for Claims {
    type Job = WaitingClaim;

    async fn write(&self, jobs: &[WaitingClaim]) -> Result<Vec<bool>, Fault> {
        let now = latest(jobs.iter().map(|job| job.now));
        let mut tenants: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
        for job in jobs {
            tenants.entry(job.claim.intent.tenant.as_str()).or_default().push(&job.claim);
        }
        let groups: Vec<Group<'_>> =
            tenants.into_iter().map(|(tenant, claims)| Group::of(tenant, claims, now)).collect();
        let parts: Vec<(Scope<'_>, Vec<Value<'_>>)> =
            groups.iter().map(|group| (Scope::Tenant(group.tenant), group.values())).collect();
        let written = self.pool.query_each(&insertion(), &parts).await?;
        let fresh: BTreeSet<i64> = numbers(written.iter().flatten(), "claim")?;
        Ok(jobs.iter().map(|job| fresh.contains(&job.claim.number)).collect())
    }

    fn unheard(&self, job: WaitingClaim) {
        self.doubts.add(job.claim);
    }
}

/// Writes the lines of new calls as far as nothing is in their way; answers with the numbers of those claims.
fn insertion() -> String {
    format!(
        "{clock}
         INSERT INTO ledger ({INTO}, holds_key, fence, state, begun_at)
         SELECT id, trace, $2, subject, tool, version, effects, scope, key, digest, span, owner, claim, delegators,
                key IS NOT NULL, 1, 'in_flight', clock.now
         FROM clock, unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) WITH ORDINALITY
             AS given (id, trace, subject, tool, version, effects, scope, key, digest, span, owner, claim, delegators, kind, dedupe, place)
         WHERE EXISTS (SELECT 1 FROM instances WHERE owner_id = given.owner AND ledger_until > clock.now)
           AND (given.dedupe IS NULL OR NOT EXISTS (
                SELECT 1 FROM jobs
                WHERE jobs.tenant_id = $2 AND jobs.kind = given.kind AND jobs.dedupe_key IS NOT NULL
                  AND sha256(jobs.dedupe_key) = sha256(given.dedupe) AND jobs.ended_at IS NULL AND jobs.id <> given.id))
         ORDER BY place
         ON CONFLICT DO NOTHING RETURNING claim",
        clock = with_clock()
    )
}

/// Claims of one tenant as columns, in the order of their keys.
#[derive(Default)]
struct Group<'a> {
    now: Option<i64>,
    tenant: &'a str,
    ids: Vec<&'a str>,
    traces: Vec<&'a str>,
    subjects: Vec<&'a str>,
    tools: Vec<&'a str>,
    versions: Vec<&'a str>,
    effects: Vec<&'static str>,
    scopes: Vec<Option<&'a [u8]>>,
    keys: Vec<Option<&'a [u8]>>,
    digests: Vec<&'a str>,
    windows: Vec<i64>,
    owners: Vec<&'a str>,
    numbers: Vec<i64>,
    delegators: Vec<Option<&'a str>>,
    kinds: Vec<Option<&'static str>>,
    dedupes: Vec<Option<&'a [u8]>>,
}

impl<'a> Group<'a> {
    fn of(tenant: &'a str, mut claims: Vec<&'a Claim>, now: Option<i64>) -> Self {
        claims.sort_by_key(|claim| (&claim.intent.tool, &claim.intent.key, &claim.id));
        let mut columns = Self { now, tenant, ..Self::default() };
        for claim in claims {
            let intent = &claim.intent;
            columns.ids.push(&claim.id);
            columns.traces.push(&claim.trace);
            columns.subjects.push(intent.caller.subject().as_str());
            columns.tools.push(intent.tool.as_str());
            columns.versions.push(&claim.version);
            columns.effects.push(intent.effects.as_str());
            columns.scopes.push(intent.key.as_ref().map(|key| key.scope.as_bytes()));
            columns.keys.push(intent.key.as_ref().map(|key| key.key.as_bytes()));
            columns.digests.push(&claim.digest);
            columns.windows.push(claim.window);
            columns.owners.push(&claim.owner);
            columns.numbers.push(claim.number);
            columns.delegators.push(intent.caller.delegators());
            columns.kinds.push(intent.queued_act.as_ref().map(|act| act.kind));
            columns.dedupes.push(intent.queued_act.as_ref().map(|act| act.dedupe_key.as_bytes()));
        }
        columns
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            int(&self.now),
            text(&self.tenant),
            texts(&self.ids),
            texts(&self.traces),
            texts(&self.subjects),
            texts(&self.tools),
            texts(&self.versions),
            texts(&self.effects),
            byte_strings(&self.scopes),
            byte_strings(&self.keys),
            texts(&self.digests),
            ints(&self.windows),
            texts(&self.owners),
            ints(&self.numbers),
            texts(&self.delegators),
            texts(&self.kinds),
            byte_strings(&self.dedupes),
        ]
    }
}

// ------------------------------------------------------------------------------------------------------ settlements

#[async_trait]
impl Kind for Settlements {
    type Job = WaitingSettlement;

    async fn write(&self, jobs: &[WaitingSettlement]) -> Result<Vec<bool>, Fault> {
        let now = latest(jobs.iter().map(|job| job.now));
        // Locked in the order of the ids, as by everybody who locks more than one line.
        let mut sorted: Vec<(i64, &WaitingSettlement)> = (0..).zip(jobs).collect();
        sorted.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
        let places: Vec<i64> = sorted.iter().map(|(place, _)| *place).collect();
        let ids: Vec<&str> = sorted.iter().map(|(_, job)| job.id.as_str()).collect();
        let fences: Vec<i64> = sorted.iter().map(|(_, job)| job.fence).collect();
        let states: Vec<&str> = sorted.iter().map(|(_, job)| job.state).collect();
        let outcomes: Vec<&str> = sorted.iter().map(|(_, job)| &*job.outcome).collect();
        let values = [int(&now), ints(&places), texts(&ids), ints(&fences), texts(&states), texts(&outcomes)];
        // A call is known by its id alone, which is nobody else's.
        let rows = self.pool.query(Scope::System, &settling(), &values).await?;
        let kept: BTreeSet<i64> = numbers(rows.iter(), "place")?;
        Ok((0..).zip(jobs).map(|(place, _)| kept.contains(&place)).collect())
    }
}

/// Settles the calls that are in flight under their fence; answers with their places.
fn settling() -> String {
    format!(
        "{clock}
         UPDATE ledger SET state = given.state, settled_at = clock.now, outcome = given.outcome,
                           keep_until = clock.now + window_seconds * 1000
         FROM clock, unnest($2, $3, $4, $5, $6) AS given (place, id, fence, state, outcome)
         WHERE ledger.invocation_id = given.id AND ledger.fence = given.fence AND ledger.state = 'in_flight'
         RETURNING given.place",
        clock = with_clock()
    )
}

/// The numbers in a column.
fn numbers<'r>(rows: impl Iterator<Item = &'r Row>, name: &'static str) -> Result<BTreeSet<i64>, Fault> {
    rows.map(|row| column(row, name)).collect()
}
