//! What the role may do in the database, looked at before it is tried: a start that is refused says which rights are
//! missing and the statement that gives them, all at once.
//!
//! Not here: the walls between tenants (row level security, in the steps), the right to connect (the server says it).

use super::faults::Fault;
use super::migrations;
use super::open::PostgresOpenError;
use super::pool::Pool;
use super::statement::{boolean, column, texts};
use super::transaction::Scope;
use crate::transfer::{is_moved, list};

/// So many tables are named; of more, the number.
const NAMED_MAX: usize = 3;

/// Our tables that the role may not use, with names as statements need them.
const REFUSED: &str =
    "SELECT quote_ident(current_user) AS role, quote_ident(n.nspname) AS schema, c.relname::text AS name
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND c.relname = ANY ($1)
         AND NOT (has_table_privilege(c.oid, 'SELECT') AND (
             $2 OR c.relname = 'gantry_steps'
             OR (has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')
                 AND has_table_privilege(c.oid, 'DELETE'))))
     ORDER BY c.relname COLLATE \"C\"";

/// Where tables would be made, and whether the role may. There is no such schema if the role may use none.
const MAKING: &str =
    "SELECT quote_ident(current_user) AS role, quote_ident(coalesce(current_schema(), 'public')) AS schema,
     current_schema() IS NOT NULL AND has_schema_privilege(current_schema(), 'CREATE') AS may";

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Reading what is in a backup.
    Reading,
    /// Everything a server does.
    Serving,
}

/// Refuses tables that the role may not use. Where there are none yet, there is nothing to refuse.
pub(super) async fn refuse_too_few(pool: &Pool, purpose: Use) -> Result<(), PostgresOpenError> {
    let only_reads = purpose == Use::Reading;
    let ours = migrations::tables().filter(|name| !only_reads || is_moved(name)).chain(["gantry_steps"]);
    let ours: Vec<&str> = ours.collect();
    let rows = pool.query(Scope::System, REFUSED, &[texts(&ours), boolean(&only_reads)]).await?;
    let Some(first) = rows.first() else { return Ok(()) };
    let names = rows.iter().map(|row| column(row, "name")).collect::<Result<Vec<&str>, Fault>>()?;
    let (schema, role): (&str, &str) = (column(first, "schema")?, column(first, "role")?);
    let rights = if only_reads { "SELECT" } else { "SELECT, INSERT, UPDATE, DELETE" };
    Err(PostgresOpenError::Rights {
        role: role.to_owned(),
        tables: named(&names),
        grant: format!("GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {role}"),
    })
}

/// Refuses a database whose steps are not all taken, if the role may not take them.
pub(super) async fn refuse_if_steps_cannot_be_taken(pool: &Pool) -> Result<(), PostgresOpenError> {
    let rows = pool.query(Scope::System, MAKING, &[]).await?;
    let Some(row) = rows.first().filter(|row| !column(row, "may").unwrap_or(false)) else { return Ok(()) };
    if migrations::steps(pool).await?.missing() == 0 {
        return Ok(());
    }
    let (schema, role): (&str, &str) = (column(row, "schema")?, column(row, "role")?);
    Err(PostgresOpenError::MayNotMake {
        role: role.to_owned(),
        schema: schema.to_owned(),
        grant: format!("GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}"),
    })
}

/// The first of them, and how many more there are.
fn named(names: &[&str]) -> String {
    let first = list(names.iter().take(NAMED_MAX).map(|name| format!("`{name}`")));
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first} and {more} more tables"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_tables_are_named_and_the_others_counted() {
        assert_eq!(named(&["a"]), "`a`");
        assert_eq!(named(&["a", "b", "c", "d", "e"]), "`a`, `b`, `c` and 2 more tables");
    }
}
