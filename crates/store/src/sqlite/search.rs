//! Asking the index: FTS5 finds and scores, the shared plan says what to look up. (REG-014, DESIGN §7)
//!
//! A query reaches FTS5 as quoted terms with `OR` between them. Terms have only letters and digits (WORD-1), so nothing a
//! caller types is ever syntax. Rows are sorted here and not by SQLite: it would have to look up the tool id of every row
//! that matches to order equal scores, we only do so for the best.

use rusqlite::{Connection, OptionalExtension, params};

use super::faults::Fault;
use crate::search::{FIELD_WEIGHTS, HITS_MAX, Plan, Ranking, Vocabulary, fuse};

/// Most terms that are looked at when a word is completed.
const COMPLETIONS_MAX: i64 = 64;
/// Most terms that are looked at when a word is corrected.
const CORRECTIONS_MAX: i64 = 50_000;
/// The best tools for a query with their scores, best first, equal scores by tool id.
pub(super) fn search(connection: &Connection, query: &str, limit: usize) -> Result<Vec<(String, f64)>, Fault> {
    let limit = limit.min(HITS_MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let plan = Plan::of(query, &Terms(connection))?;
    let rankings = plan.rankings.iter().map(|terms| rank(connection, terms)).collect::<Result<Vec<_>, Fault>>()?;
    let mut tool_id = connection.prepare_cached("SELECT tool_id FROM tool_definitions WHERE tool_key = ?1")?;
    let mut hits = fuse(rankings, limit)
        .into_iter()
        .map(|(key, score)| Ok((tool_id.query_row([key], |row| row.get(0))?, score)))
        .collect::<Result<Vec<(String, f64)>, Fault>>()?;
    hits.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    hits.truncate(limit);
    Ok(hits)
}

// --------------------------------------------------------------------------------------------------- private parts

/// All documents that have any of the terms, in no order.
fn rank(connection: &Connection, terms: &[String]) -> Result<Ranking<i64>, Fault> {
    let any = terms.iter().map(|term| format!("\"{term}\"")).collect::<Vec<_>>().join(" OR ");
    let [name, labels, description, parameter_names, parameter_descriptions] = FIELD_WEIGHTS;
    let ranking = connection
        .prepare_cached(
            "SELECT rowid, -bm25(tool_search, ?2, ?3, ?4, ?5, ?6) FROM tool_search WHERE tool_search MATCH ?1",
        )?
        .query_map(params![any, name, labels, description, parameter_names, parameter_descriptions], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(ranking)
}

/// The vocabulary as the tables have it.
struct Terms<'a>(&'a Connection);

impl Vocabulary for Terms<'_> {
    type Error = Fault;

    fn documents(&self) -> Result<u64, Fault> {
        let documents: i64 = self
            .0
            .prepare_cached("SELECT value FROM store_numbers WHERE name = 'search_documents'")?
            .query_row([], |row| row.get(0))?;
        Ok(u64::try_from(documents).unwrap_or(0))
    }

    fn frequency(&self, term: &str) -> Result<u64, Fault> {
        let documents: Option<i64> = self
            .0
            .prepare_cached("SELECT documents FROM search_terms WHERE term = ?1")?
            .query_row([term], |row| row.get(0))
            .optional()?;
        Ok(documents.and_then(|documents| u64::try_from(documents).ok()).unwrap_or(0))
    }

    fn beginning_with(&self, prefix: &str) -> Result<Vec<(String, u64)>, Fault> {
        let last = format!("{prefix}\u{10ffff}");
        let mut statement = self.0.prepare_cached(
            "SELECT term, documents FROM search_terms WHERE term BETWEEN ?1 AND ?2 ORDER BY term LIMIT ?3",
        )?;
        let terms = statement
            .query_map(params![prefix, last, COMPLETIONS_MAX], |row| {
                Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
            })?
            .collect::<rusqlite::Result<_>>()?;
        Ok(terms)
    }

    fn of_length(&self, min: usize, max: usize, visit: &mut dyn FnMut(&str, u64)) -> Result<(), Fault> {
        let mut statement = self.0.prepare_cached("SELECT term, documents FROM search_terms ORDER BY term LIMIT ?1")?;
        let mut rows = statement.query([CORRECTIONS_MAX])?;
        while let Some(row) = rows.next()? {
            let term = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            if (min..=max).contains(&term.chars().count()) {
                visit(term, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0));
            }
        }
        Ok(())
    }
}
