//! Spaces: which models' vectors there are, and how wide they are.

use ports::vector_store::{SPACES_MAX, SpaceState, VectorSpace};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use super::width;
use crate::sqlite::columns::all;
use crate::sqlite::faults::Fault;
use crate::stored_row::{StoredRow as _, unreadable};

/// False if there are too many.
pub(super) fn open(connection: &Connection, space: &VectorSpace) -> Result<bool, Fault> {
    if find(connection, space)?.is_some() {
        return Ok(true);
    }
    let there: i64 = connection.query_row("SELECT count(*) FROM vector_spaces", [], |row| row.get(0))?;
    if usize::try_from(there).unwrap_or(usize::MAX) >= SPACES_MAX {
        return Ok(false);
    }
    connection
        .prepare_cached("INSERT INTO vector_spaces (model, width) VALUES (:model, :width)")?
        .execute(named_params! { ":model": space.model(), ":width": width(space) })?;
    Ok(true)
}

pub(super) fn list(connection: &Connection) -> Result<Vec<SpaceState>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT model, width, (SELECT count(*) FROM vectors WHERE vectors.space_key = vector_spaces.space_key) AS kept
         FROM vector_spaces ORDER BY model, width",
    )?;
    let state = |row: &Row<'_>| {
        let model = row.text("model")?;
        let space = VectorSpace::new(model, row.number("width", model)?).map_err(|_| unreadable("width", model))?;
        Ok(SpaceState { space, vectors: row.number("kept", model)? })
    };
    all(select.query([])?, state)
}

pub(super) fn drop(connection: &Connection, space: &VectorSpace) -> Result<bool, Fault> {
    let Some(key) = find(connection, space)? else { return Ok(false) };
    // Its vectors go with it.
    connection
        .prepare_cached("DELETE FROM vector_spaces WHERE space_key = :key")?
        .execute(named_params! { ":key": key })?;
    Ok(true)
}

/// The number of a space.
pub(super) fn find(connection: &Connection, space: &VectorSpace) -> Result<Option<i64>, Fault> {
    let key = connection
        .prepare_cached("SELECT space_key FROM vector_spaces WHERE model = :model AND width = :width")?
        .query_row(named_params! { ":model": space.model(), ":width": width(space) }, |row| row.get(0))
        .optional()?;
    Ok(key)
}
