//! Spaces and their indexes: one HNSW index for each, over its rows of the one table.
//!
//! An index is made together with its space, while that is empty, so nobody waits for it. Making it needs the owner of the
//! tables; a server whose role is not the owner opens spaces all the same and measures every vector, and the log has the
//! statement for the owner to run.

use base::SaturatingFrom as _;
use ports::vector_store::{SPACES_MAX, SpaceState, VectorError, VectorSpace};

use super::{stored, width};
use crate::postgres::faults::Fault;
use crate::postgres::pool::Pool;
use crate::postgres::statement::{column, int, text};
use crate::postgres::transaction::{Scope, Transaction, in_transaction};
use crate::stored_row::{StoredRow as _, unreadable};

/// "GNTV": the server's lock under which spaces come and go.
const LOCK: i64 = 0x474e_5456;
/// Links of each element of an index; pgvector's default.
const LINKS: u32 = 16;
/// Elements that are looked at when one is added: twice pgvector's default, for fewer misses at some cost of writing.
const EF_CONSTRUCTION: u32 = 128;

/// What became of an opening.
enum Opened {
    Open,
    /// Somebody else has to run this.
    WithoutIndex(String),
    TooMany,
}

pub(super) async fn open(pool: &Pool, space: &VectorSpace) -> Result<(), VectorError> {
    // Mostly it is there, and then nobody has to wait for a lock.
    if let Some((_, true)) = find(pool, space).await.map_err(stored)? {
        return Ok(());
    }
    let opened = in_transaction!(pool, Scope::System, |tx| make(tx, space).await).map_err(stored)?;
    match opened {
        Opened::Open => Ok(()),
        Opened::WithoutIndex(statement) => {
            tracing::warn!(
                model = space.model(),
                width = space.width(),
                statement,
                "the space for vectors has no index, and every search measures all of them: run the statement as the owner of the tables"
            );
            Ok(())
        }
        Opened::TooMany => Err(VectorError::TooManySpaces),
    }
}

pub(super) async fn list(pool: &Pool) -> Result<Vec<SpaceState>, Fault> {
    let select = "SELECT model, width, (SELECT count(*) FROM vectors WHERE vectors.space_key = space.space_key) AS kept
                  FROM vector_spaces AS space ORDER BY model, width";
    let rows = pool.query(Scope::System, select, &[]).await?;
    let state = |row| {
        let model: &str = column(row, "model")?;
        let space = VectorSpace::new(model, row.number("width", model)?).map_err(|_| unreadable("width", model))?;
        Ok(SpaceState { space, vectors: row.number("kept", model)? })
    };
    rows.iter().map(state).collect()
}

pub(super) async fn drop(pool: &Pool, space: &VectorSpace) -> Result<bool, Fault> {
    in_transaction!(pool, Scope::System, |tx| unmake(tx, space).await)
}

// --------------------------------------------------------------------------------------------------- private parts

const FIND: &str = "SELECT space_key, to_regclass('vectors_of_space_' || space_key) IS NOT NULL AS is_indexed
                    FROM vector_spaces WHERE model = $1 AND width = $2";

/// The number of a space, and whether it has its index.
async fn find(pool: &Pool, space: &VectorSpace) -> Result<Option<(i64, bool)>, Fault> {
    let rows = pool.query(Scope::System, FIND, &[text(&space.model()), int(&width(space))]).await?;
    rows.first().map(|row| Ok((column(row, "space_key")?, column(row, "is_indexed")?))).transpose()
}

async fn make(tx: &Transaction, space: &VectorSpace) -> Result<Opened, Fault> {
    tx.query("SELECT pg_advisory_xact_lock($1)", &[int(&LOCK)]).await?;
    let (model, width) = (space.model(), width(space));
    let (key, is_new) = match tx.query_opt(FIND, &[text(&model), int(&width)]).await? {
        Some(row) if column(&row, "is_indexed")? => return Ok(Opened::Open),
        Some(row) => (column::<i64>(&row, "space_key")?, false),
        None => {
            let insert = "INSERT INTO vector_spaces (model, width)
                          SELECT $1, $2 WHERE (SELECT count(*) FROM vector_spaces) < $3 RETURNING space_key";
            let most = i64::saturating_from(SPACES_MAX);
            match tx.query_opt(insert, &[text(&model), int(&width), int(&most)]).await? {
                Some(row) => (column(&row, "space_key")?, true),
                None => return Ok(Opened::TooMany),
            }
        }
    };
    let statement = format!(
        "CREATE INDEX vectors_of_space_{key} ON vectors USING hnsw ((embedding::vector({width})) vector_cosine_ops) \
         WITH (m = {LINKS}, ef_construction = {EF_CONSTRUCTION}) WHERE space_key = {key}"
    );
    // Over vectors that are there already it may take minutes, in which nobody could write: for a person to choose when.
    if !is_new || !may_shape(tx).await? {
        return Ok(Opened::WithoutIndex(statement));
    }
    tx.batch(&statement).await?;
    Ok(Opened::Open)
}

async fn unmake(tx: &Transaction, space: &VectorSpace) -> Result<bool, Fault> {
    tx.query("SELECT pg_advisory_xact_lock($1)", &[int(&LOCK)]).await?;
    let Some(row) = tx.query_opt(FIND, &[text(&space.model()), int(&width(space))]).await? else { return Ok(false) };
    let key: i64 = column(&row, "space_key")?;
    // Before the rows, so that they need not be taken out of it one by one. An index nobody may drop is empty afterwards,
    // and its number is never used again.
    if may_shape(tx).await? {
        tx.batch(&format!("DROP INDEX IF EXISTS vectors_of_space_{key}")).await?;
    }
    tx.execute("DELETE FROM vector_spaces WHERE space_key = $1", &[int(&key)]).await?;
    Ok(true)
}

/// May this role make and drop indexes of the table?
async fn may_shape(tx: &Transaction) -> Result<bool, Fault> {
    let ask = "SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE') AS may
               FROM pg_class WHERE oid = 'vectors'::regclass";
    tx.query_opt(ask, &[]).await?.map_or(Ok(false), |row| column(&row, "may"))
}
