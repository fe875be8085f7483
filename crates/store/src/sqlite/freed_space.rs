//! Space that the file has given up holds nothing: what was deleted or replaced cannot be read from the file's bytes.
//!
//! SQLite leaves the bytes of deleted rows where they were until something else needs the place. Of what stood in the store
//! in clear and was sealed, and of whatever retention has deleted, `strings gantry.db` would show the rest.
//!
//! Invariants
//! - FREED-1: the writer overwrites what it gives up ([`overwrite`]).
//! - FREED-2: a file that was written without that is written anew once, before anything else is done with it
//!   ([`clean_former`]). Should that fail, the next start tries again.
//!
//! Not here: emptying the log of writes after a seal (`SqliteStore::empty_log`).

use rusqlite::{Connection, named_params};

/// The number that says that the file has been written under FREED-1 only.
const OVERWRITTEN: &str = "freed_space_overwritten";

/// FREED-1, for this connection.
pub(super) fn overwrite(connection: &Connection) -> rusqlite::Result<()> {
    // The answer is the mode, which is always the one asked for.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))
}

/// FREED-2. `is_new`: nobody has written the file before.
pub(super) fn clean_former(connection: &Connection, is_new: bool) -> rusqlite::Result<()> {
    let known = "SELECT EXISTS (SELECT 1 FROM store_numbers WHERE name = :name)";
    if connection.query_row(known, named_params! { ":name": OVERWRITTEN }, |row| row.get(0))? {
        return Ok(());
    }
    if !is_new && let Err(error) = connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "deleted rows of before can still be read in the store's file: it could not be written anew. Free as much disk \
             space as the file has, there and where `TMPDIR` leads; the next start tries again"
        );
        return Ok(());
    }
    connection.execute(
        "INSERT INTO store_numbers (name, value) VALUES (:name, 1)",
        named_params! {
            ":name": OVERWRITTEN,
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sqlite::{SqliteOptions, SqliteStore};

    const PLANTED: &[u8] = b"planted-before-the-upgrade";

    fn is_in(file: &Path) -> bool {
        std::fs::read(file).unwrap().windows(PLANTED.len()).any(|window| window == PLANTED)
    }

    /// Rows of all sizes that come and go.
    fn plant(connection: &Connection) {
        connection.execute_batch("CREATE TABLE planted (text TEXT)").unwrap();
        let word = String::from_utf8(PLANTED.to_vec()).unwrap();
        for times in [1, 10, 1_000] {
            connection
                .execute("INSERT INTO planted VALUES (:text)", named_params! { ":text": word.repeat(times) })
                .unwrap();
        }
        connection.execute_batch("DELETE FROM planted WHERE rowid > 1; UPDATE planted SET text = 'x'").unwrap();
    }

    #[test]
    fn a_file_from_before_is_written_anew_once_and_what_is_deleted_later_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gantry.db");
        drop(SqliteStore::open(&file, &SqliteOptions::default()).unwrap());
        let former = Connection::open(&file).unwrap();
        former.pragma_update_and_check(None, "secure_delete", false, |_| Ok(())).unwrap();
        plant(&former);
        former.execute("DELETE FROM store_numbers WHERE name = :name", named_params! { ":name": OVERWRITTEN }).unwrap();
        drop(former);
        assert!(is_in(&file), "the file shows what was deleted, as it would after an upgrade");
        drop(SqliteStore::open(&file, &SqliteOptions::default()).unwrap());
        assert!(!is_in(&file));
        // From here on nothing is left in the first place.
        let writer = Connection::open(&file).unwrap();
        overwrite(&writer).unwrap();
        writer.execute_batch("DROP TABLE planted").unwrap();
        plant(&writer);
        drop(writer);
        assert!(!is_in(&file));
    }
}
