//! `VectorStore` on PostgreSQL: pgvector measures, by an HNSW index of the space where there are many vectors. (STORE-002)
//!
//! Few vectors are all measured, which is exact and cheap; "few" is judged by what the asking tenant can see, because an
//! index over everybody's vectors is slow to find those of a small tenant among them. Only above [`EXACT_MAX`] the index is
//! asked. If it runs dry, because what it finds first is not for this tenant, all are measured after all.
//!
//! Invariants
//! - NEAR-1: who asks sees own and shared tools only. The statements say so, and row level security holds them to it; the
//!   order of an index is not a condition, so that does not keep it from being used.
//! - NEAR-2: settings of a search are those of its transaction and do not outlive it (PG-2).
//!
//! Not here: making and dropping spaces and their indexes (`spaces`).

mod spaces;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::ids::{HOME_TENANT, TenantId, ToolId};
use ports::vector_store::{
    Embedding, NearestQuery, Neighbour, NeighbourScope, SpaceState, VectorError, VectorRecord, VectorSpace,
    VectorStore, batch, check_nearest, check_tools, ranked,
};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{column, int, text, texts};
use super::transaction::{Scope, Transaction, in_transaction};
use crate::stored_row::{StoredRow as _, unreadable};

/// So many vectors are measured one by one; above, the index is asked.
const EXACT_MAX: i64 = 1000;
/// So many candidates more than were asked for: distances in 32 bits can change places with their neighbours, and an
/// index does not put equal ones into an order.
const CANDIDATES_MORE: usize = 16;
/// How many elements the index looks at before it answers, at least; pgvector's own default is 40.
const EF_SEARCH_MIN: usize = 120;
/// At least twice what is wanted; pgvector's own bound is 1000.
const EF_SEARCH_MAX: usize = 1000;
/// The release of pgvector whose index goes on when its first answer was filtered away.
const ITERATIVE_SINCE: (u32, u32) = (0, 8);

#[async_trait]
impl VectorStore for PostgresStore {
    async fn open_space(&self, space: &VectorSpace) -> Result<(), VectorError> {
        spaces::open(&self.pool, space).await
    }

    async fn spaces(&self) -> Result<Vec<SpaceState>, VectorError> {
        Ok(spaces::list(&self.pool).await.map_err(stored)?)
    }

    async fn drop_space(&self, space: &VectorSpace) -> Result<bool, VectorError> {
        Ok(spaces::drop(&self.pool, space).await.map_err(stored)?)
    }

    async fn put(&self, space: &VectorSpace, tenant: &TenantId, records: &[VectorRecord]) -> Result<(), VectorError> {
        put(self, space, tenant, records).await
    }

    async fn remove(&self, tenant: &TenantId, tools: &[ToolId]) -> Result<u64, VectorError> {
        check_tools(tools.len())?;
        let tools: Vec<&str> = tools.iter().map(ToolId::as_str).collect();
        let statement = "DELETE FROM vectors WHERE tenant_id = $1 AND tool_id = ANY ($2)";
        let owner = tenant.as_str();
        let values = [text(&owner), texts(&tools)];
        self.pool.execute(Scope::Tenant(owner), statement, &values).await.map_err(stored)
    }

    async fn missing(
        &self,
        space: &VectorSpace,
        tenant: &TenantId,
        wanted: &[(ToolId, Digest)],
    ) -> Result<Vec<ToolId>, VectorError> {
        missing(self, space, tenant, wanted).await
    }

    async fn nearest(&self, space: &VectorSpace, asked: NearestQuery<'_>) -> Result<Vec<Neighbour>, VectorError> {
        check_nearest(space, &asked)?;
        let scope = Scope::Tenant(asked.tenant.as_str());
        let found = in_transaction!(self.pool, scope, |tx| candidates(tx, space, &asked).await).map_err(stored)?;
        let rows = found.ok_or_else(|| space.missing())?;
        let candidates = rows.iter().map(|row| candidate(row, space.width())).collect::<Result<Vec<_>, Fault>>();
        Ok(ranked(&asked, candidates.map_err(stored)?))
    }
}

// --------------------------------------------------------------------------------------------------- private parts

async fn put(
    store: &PostgresStore,
    space: &VectorSpace,
    tenant: &TenantId,
    records: &[VectorRecord],
) -> Result<(), VectorError> {
    // Ordered by tool: two batches that meet take the rows in the same order.
    let records = batch(space, records)?;
    let tools: Vec<&str> = records.keys().map(|tool| tool.as_str()).collect();
    let digests: Vec<String> = records.values().map(|record| record.digest.to_string()).collect();
    let numbers: Vec<f32> = records.values().flat_map(|record| record.embedding.numbers()).copied().collect();
    // All numbers are one array, of which each row takes its part. A row that is as it was is not written again: the
    // index would have it twice until it is cleaned.
    let statement = "
        WITH space AS (SELECT space_key FROM vector_spaces WHERE model = $1 AND width = $2 FOR KEY SHARE),
             written AS (
                 INSERT INTO vectors AS there (space_key, tenant_id, tool_id, digest, embedding)
                 SELECT space.space_key, $3, given.tool, given.digest,
                        ($6)[(given.place - 1) * $2 + 1 : given.place * $2]::vector
                 FROM space, unnest($4, $5) WITH ORDINALITY AS given (tool, digest, place)
                 ORDER BY given.place
                 ON CONFLICT (space_key, tenant_id, tool_id) DO UPDATE
                 SET digest = excluded.digest, embedding = excluded.embedding
                 WHERE there.digest <> excluded.digest OR there.embedding <> excluded.embedding)
        SELECT space_key FROM space";
    let (model, width, owner) = (space.model(), width(space), tenant.as_str());
    let values =
        [text(&model), int(&width), text(&owner), texts(&tools), texts(&digests), (&numbers as _, Type::FLOAT4_ARRAY)];
    match store.pool.query(Scope::Tenant(owner), statement, &values).await {
        Ok(rows) if rows.is_empty() => Err(space.missing()),
        Ok(_) => Ok(()),
        // It was dropped in between.
        Err(Fault::Postgres(error)) if error.code() == Some(&SqlState::FOREIGN_KEY_VIOLATION) => Err(space.missing()),
        Err(fault) => Err(stored(fault)),
    }
}

async fn missing(
    store: &PostgresStore,
    space: &VectorSpace,
    tenant: &TenantId,
    wanted: &[(ToolId, Digest)],
) -> Result<Vec<ToolId>, VectorError> {
    check_tools(wanted.len())?;
    let tools: Vec<&str> = wanted.iter().map(|(tool, _)| tool.as_str()).collect();
    let digests: Vec<String> = wanted.iter().map(|(_, digest)| digest.to_string()).collect();
    let statement = "
        SELECT coalesce(array_agg(given.place - 1 ORDER BY given.place) FILTER (WHERE NOT EXISTS (
                   SELECT FROM vectors AS there
                   WHERE there.space_key = space.space_key AND there.tenant_id = $3 AND there.tool_id = given.tool
                     AND there.digest = given.digest) AND given.place IS NOT NULL), '{}') AS places
        FROM vector_spaces AS space
        LEFT JOIN unnest($4, $5) WITH ORDINALITY AS given (tool, digest, place) ON true
        WHERE space.model = $1 AND space.width = $2 GROUP BY space.space_key";
    let (model, width, owner) = (space.model(), width(space), tenant.as_str());
    let values = [text(&model), int(&width), text(&owner), texts(&tools), texts(&digests)];
    let rows = store.pool.query(Scope::Tenant(owner), statement, &values).await.map_err(stored)?;
    let row = rows.first().ok_or_else(|| space.missing())?;
    let places: Vec<i64> = column(row, "places").map_err(stored)?;
    let tool = |place: i64| usize::try_from(place).ok().and_then(|place| wanted.get(place));
    Ok(places.into_iter().filter_map(tool).map(|(tool, _)| tool.clone()).collect())
}

/// What is visible to `$2`, with `$1` to measure by; `$3` is the home tenant.
const VISIBLE: &str = "found.tenant_id IN ($2, $3) AND (found.tenant_id = $2 OR NOT EXISTS (
    SELECT FROM tool_definitions AS own WHERE own.tenant_id = $2 AND own.tool_id = found.tool_id))";

/// The best by the server's own measure; `None` if the space is not there.
async fn candidates(
    tx: &Transaction,
    space: &VectorSpace,
    asked: &NearestQuery<'_>,
) -> Result<Option<Vec<Row>>, Fault> {
    let (model, width) = (space.model(), width(space));
    let (tenant, home) = (asked.tenant.as_str(), HOME_TENANT);
    let look = "
        SELECT space_key, (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS release,
               (SELECT count(*) FROM (
                   SELECT FROM vectors WHERE vectors.space_key = space.space_key AND tenant_id IN ($3, $4)
                   LIMIT $5) AS visible) AS seen
        FROM vector_spaces AS space WHERE model = $1 AND width = $2";
    let bound = EXACT_MAX + 1;
    let values = [text(&model), int(&width), text(&tenant), text(&home), int(&bound)];
    let Some(row) = tx.query_opt(look, &values).await? else { return Ok(None) };
    let key: i64 = column(&row, "space_key")?;
    if asked.among == NeighbourScope::Visible && column::<i64>(&row, "seen")? > EXACT_MAX {
        let release: Option<&str> = column(&row, "release")?;
        let rows = by_index(tx, (key, space.width()), asked, release.unwrap_or_default()).await?;
        if rows.len() >= asked.limit {
            return Ok(Some(rows));
        }
    }
    by_measuring(tx, key, asked).await.map(Some)
}

/// By the index of the space. May find fewer than there are.
async fn by_index(
    tx: &Transaction,
    (key, width): (i64, usize),
    asked: &NearestQuery<'_>,
    release: &str,
) -> Result<Vec<Row>, Fault> {
    let most = asked.limit.saturating_add(CANDIDATES_MORE);
    let ef_search = (most * 2).clamp(EF_SEARCH_MIN, EF_SEARCH_MAX);
    let mut settings = format!("SET LOCAL hnsw.ef_search = {ef_search}");
    if release_of(release) >= ITERATIVE_SINCE {
        // The order is made here in any case.
        settings.push_str("; SET LOCAL hnsw.iterative_scan = relaxed_order");
    }
    tx.batch(&settings).await?;
    // Numbers of ours, written out: the index is of one space and one width, and only a statement that has them as they
    // are in its definition can use it.
    let statement = format!(
        "SELECT found.tenant_id, found.tool_id, found.embedding::real[] AS numbers FROM vectors AS found
         WHERE found.space_key = {key} AND {VISIBLE}
         ORDER BY found.embedding::vector({width}) <=> ($1::vector({width})) LIMIT {most}"
    );
    let (numbers, tenant, home) = (asked.to.numbers(), asked.tenant.as_str(), HOME_TENANT);
    tx.query(&statement, &[(&numbers as _, Type::FLOAT4_ARRAY), text(&tenant), text(&home)]).await
}

/// By measuring every vector that is visible.
async fn by_measuring(tx: &Transaction, key: i64, asked: &NearestQuery<'_>) -> Result<Vec<Row>, Fault> {
    let most = asked.limit.saturating_add(CANDIDATES_MORE);
    // Without the width, so that no index fits.
    let statement = format!(
        "SELECT found.tenant_id, found.tool_id, found.embedding::real[] AS numbers FROM vectors AS found
         WHERE found.space_key = {key} AND {VISIBLE} AND ($4 IS NULL OR found.tool_id = ANY ($4))
         ORDER BY found.embedding <=> $1::vector, found.tool_id LIMIT {most}"
    );
    let (numbers, tenant, home) = (asked.to.numbers(), asked.tenant.as_str(), HOME_TENANT);
    let tools: Option<Vec<&str>> = match asked.among {
        NeighbourScope::Visible => None,
        NeighbourScope::Tools(tools) => Some(tools.iter().map(ToolId::as_str).collect()),
    };
    tx.query(&statement, &[(&numbers as _, Type::FLOAT4_ARRAY), text(&tenant), text(&home), texts(&tools)]).await
}

fn candidate(row: &Row, width: usize) -> Result<(TenantId, ToolId, Embedding), Fault> {
    let of: &str = column(row, "tool_id")?;
    let numbers: Vec<f32> = column(row, "numbers")?;
    let embedding = Embedding::new(&numbers).map_err(|_| unreadable("embedding", of))?;
    if numbers.len() != width {
        return Err(unreadable("embedding", of).into());
    }
    Ok((row.word("tenant_id", of)?, row.word("tool_id", of)?, embedding))
}

/// The first two numbers of a release; what is none is older than all.
fn release_of(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn width(space: &VectorSpace) -> i64 {
    i64::saturating_from(space.width())
}

fn stored(fault: Fault) -> VectorError {
    VectorError::Store(fault.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (text, goes_on) in
            [("0.8.5", true), ("0.8.0", true), ("0.10", true), ("1.0", true), ("0.7.4", false), ("", false)]
        {
            assert_eq!(release_of(text) >= ITERATIVE_SINCE, goes_on, "{text}");
        }
    }
}
