//! `VectorStore` on SQLite: sqlite-vec measures every vector the tenant can see. Exact, and quick enough for one machine.
//!
//! SQLite ranks by 32-bit distances and hands out a few candidates more than were asked for; the port's own distance
//! decides between them (VEC-2).
//!
//! Not here: making and dropping spaces (`spaces`), the functions that measure (`vector_functions`).

mod spaces;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::ids::{HOME_TENANT, TenantId, ToolId};
use ports::vector_store::{
    Embedding, NearestQuery, Neighbour, NeighbourScope, SpaceState, VectorError, VectorRecord, VectorSpace,
    VectorStore, batch, check_nearest, check_tools, ranked,
};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use super::SqliteStore;
use super::columns::all;
use super::faults::Fault;
use crate::stored_row::{StoredRow as _, unreadable};

/// So many candidates more than were asked for: distances in 32 bits can change places with their neighbours.
const CANDIDATES_MORE: usize = 16;

/// A tool that may be among the nearest.
type Candidate = (TenantId, ToolId, Embedding);

#[async_trait]
impl VectorStore for SqliteStore {
    async fn open_space(&self, space: &VectorSpace) -> Result<(), VectorError> {
        let of = space.clone();
        let is_open = self.writer()?.run(move |connection| spaces::open(connection, &of)).await?;
        if is_open { Ok(()) } else { Err(VectorError::TooManySpaces) }
    }

    async fn spaces(&self) -> Result<Vec<SpaceState>, VectorError> {
        Ok(self.readers.run(spaces::list).await?)
    }

    async fn drop_space(&self, space: &VectorSpace) -> Result<bool, VectorError> {
        let of = space.clone();
        Ok(self.writer()?.run(move |connection| spaces::drop(connection, &of)).await?)
    }

    async fn put(&self, space: &VectorSpace, tenant: &TenantId, records: &[VectorRecord]) -> Result<(), VectorError> {
        // Before the queue, so that the writer thread only writes.
        let rows: Vec<(String, String, Vec<u8>)> = batch(space, records)?
            .into_iter()
            .map(|(tool, record)| (tool.to_string(), record.digest.to_string(), bytes(&record.embedding)))
            .collect();
        let (of, tenant) = (space.clone(), tenant.clone());
        let is_there = self.writer()?.run(move |connection| put(connection, &of, &tenant, &rows)).await?;
        if is_there { Ok(()) } else { Err(space.missing()) }
    }

    async fn remove(&self, tenant: &TenantId, tools: &[ToolId]) -> Result<u64, VectorError> {
        check_tools(tools.len())?;
        let (tenant, tools) = (tenant.clone(), tools.to_vec());
        let removing = move |connection: &Connection| {
            let mut remove =
                connection.prepare_cached("DELETE FROM vectors WHERE tenant_id = :tenant_id AND tool_id = :tool_id")?;
            let mut removed = 0;
            for tool in &tools {
                removed +=
                    remove.execute(named_params! { ":tenant_id": tenant.as_str(), ":tool_id": tool.as_str() })?;
            }
            Ok(u64::saturating_from(removed))
        };
        Ok(self.writer()?.run(removing).await?)
    }

    async fn missing(
        &self,
        space: &VectorSpace,
        tenant: &TenantId,
        wanted: &[(ToolId, Digest)],
    ) -> Result<Vec<ToolId>, VectorError> {
        check_tools(wanted.len())?;
        let (of, tenant, wanted) = (space.clone(), tenant.clone(), wanted.to_vec());
        let found = self.readers.run(move |connection| missing(connection, &of, &tenant, wanted)).await?;
        found.ok_or_else(|| space.missing())
    }

    async fn nearest(&self, space: &VectorSpace, asked: NearestQuery<'_>) -> Result<Vec<Neighbour>, VectorError> {
        check_nearest(space, &asked)?;
        let (of, tenant, query) = (space.clone(), asked.tenant.clone(), bytes(asked.to));
        // A list is one JSON value: its length is not part of the statement.
        let tools = match asked.among {
            NeighbourScope::Visible => None,
            NeighbourScope::Tools(tools) => {
                let names = tools.iter().map(|tool| tool.as_str().into()).collect();
                Some(serde_json::Value::Array(names).to_string())
            }
        };
        let most = i64::saturating_from(asked.limit.saturating_add(CANDIDATES_MORE));
        let find = move |connection: &Connection| {
            let Some(key) = spaces::find(connection, &of)? else { return Ok(None) };
            candidates(connection, (key, of.width()), &tenant, &query, tools.as_deref(), most).map(Some)
        };
        let found = self.readers.run(find).await?.ok_or_else(|| space.missing())?;
        Ok(ranked(&asked, found))
    }
}

/// False if the space is not there.
fn put(
    connection: &Connection,
    space: &VectorSpace,
    tenant: &TenantId,
    rows: &[(String, String, Vec<u8>)],
) -> Result<bool, Fault> {
    let Some(key) = spaces::find(connection, space)? else { return Ok(false) };
    let mut put = connection.prepare_cached(
        "INSERT INTO vectors (space_key, tenant_id, tool_id, digest, embedding)
         VALUES (:key, :tenant_id, :tool_id, :digest, :embedding)
         ON CONFLICT (space_key, tenant_id, tool_id) DO UPDATE
         SET digest = excluded.digest, embedding = excluded.embedding",
    )?;
    for (tool, digest, embedding) in rows {
        put.execute(named_params! {
            ":key": key,
            ":tenant_id": tenant.as_str(),
            ":tool_id": tool,
            ":digest": digest,
            ":embedding": embedding,
        })?;
    }
    Ok(true)
}

/// `None` if the space is not there.
fn missing(
    connection: &Connection,
    space: &VectorSpace,
    tenant: &TenantId,
    mut wanted: Vec<(ToolId, Digest)>,
) -> Result<Option<Vec<ToolId>>, Fault> {
    let Some(key) = spaces::find(connection, space)? else { return Ok(None) };
    let mut select = connection.prepare_cached(
        "SELECT digest FROM vectors WHERE space_key = :key AND tenant_id = :tenant_id AND tool_id = :tool_id",
    )?;
    let mut missing = Vec::new();
    for (tool, digest) in wanted.drain(..) {
        let there: Option<String> = select
            .query_row(
                named_params! {
                    ":key": key,
                    ":tenant_id": tenant.as_str(),
                    ":tool_id": tool.as_str(),
                },
                |row| row.get(0),
            )
            .optional()?;
        if there.is_none_or(|there| there != digest.to_string()) {
            missing.push(tool);
        }
    }
    Ok(Some(missing))
}

/// The best by SQLite's own measure, in no order.
fn candidates(
    connection: &Connection,
    (key, width): (i64, usize),
    tenant: &TenantId,
    query: &[u8],
    tools: Option<&str>,
    most: i64,
) -> Result<Vec<Candidate>, Fault> {
    // Sorted by key, and the vectors of the best looked up after: a sorter that carries vectors would write files.
    let mut select = connection.prepare_cached(
        "WITH best AS MATERIALIZED (
             SELECT vector_key FROM vectors AS found
             WHERE space_key = :key AND tenant_id IN (:tenant_id, :home)
               AND (:tools IS NULL OR tool_id IN (SELECT value FROM json_each(:tools)))
               AND (tenant_id = :tenant_id OR NOT EXISTS (
                   SELECT 1 FROM tool_definitions AS own WHERE own.tenant_id = :tenant_id
                   AND own.tool_id = found.tool_id))
             ORDER BY vec_distance_cosine(embedding, :query), tool_id LIMIT :most)
         SELECT tenant_id, tool_id, embedding FROM vectors WHERE vector_key IN (SELECT vector_key FROM best)",
    )?;
    let rows = select.query(named_params! {
        ":key": key,
        ":tenant_id": tenant.as_str(),
        ":home": HOME_TENANT,
        ":query": query,
        ":tools": tools,
        ":most": most,
    })?;
    all(rows, |row| candidate(row, width))
}

fn candidate(row: &Row<'_>, width: usize) -> Result<Candidate, Fault> {
    let of = row.text("tool_id")?;
    let stored = row.bytes("embedding")?;
    let (numbers, rest) = stored.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    if !rest.is_empty() || numbers.len() != width {
        return Err(unreadable("embedding", of).into());
    }
    let embedding = Embedding::new(&numbers).map_err(|_| unreadable("embedding", of))?;
    Ok((row.word("tenant_id", of)?, row.word("tool_id", of)?, embedding))
}

fn width(space: &VectorSpace) -> i64 {
    i64::saturating_from(space.width())
}

/// As the column and sqlite-vec have them.
fn bytes(embedding: &Embedding) -> Vec<u8> {
    embedding.numbers().iter().flat_map(|number| number.to_le_bytes()).collect()
}
