//! Asking the index: FTS5 finds and scores, the shared plan says what to look up. (REG-014, DESIGN §7)
//!
//! A query reaches FTS5 as quoted terms with `OR` between them. Terms have only letters and digits (WORD-1), so nothing a
//! caller types is ever syntax. Rows are sorted here and not by SQLite: it would have to look up the tool id of every row
//! that matches to order equal scores, we only do so for the best.
//!
//! Invariants
//! - FIND-1: only tools of the asking tenant and of the home tenant are found, and of two with the same id its own.
//! - FIND-2: words are completed, corrected and weighed against each other by the words of those two tenants. Only the
//!   scores of FTS5 count the documents of all tenants, which moves them together.

use std::collections::BTreeMap;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::tool_search::{SearchHit, ToolSearch};
use rusqlite::{Connection, OptionalExtension, named_params};

use super::SqliteStore;
use super::faults::Fault;
use super::registry::{self, TENANT_SHIFT};
use crate::search::{FIELD_WEIGHTS, HITS_MAX, Ranking, SearchPlan, TermIndex, fuse};
use crate::stored_row::unreadable;

/// Most terms that are looked at when a word is completed.
const COMPLETIONS_MAX: usize = 64;
/// Most terms of a tenant that are looked at when a word is corrected.
const CORRECTIONS_MAX: i64 = 50_000;
/// The number of the home tenant, as the first migration gives it.
const HOME_KEY: i64 = 0;

#[async_trait]
impl ToolSearch for SqliteStore {
    async fn search(&self, tenant: &TenantId, query: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        let (tenant, query) = (tenant.clone(), query.to_owned());
        let find = move |connection: &Connection| {
            let found = ranked(connection, tenant.as_str(), &query, limit)?;
            let hits = found.into_iter().map(|(tool, score)| match tool.parse() {
                Ok(tool) => Ok(SearchHit { tool, score }),
                Err(_) => Err(unreadable("tool_id", &tool).into()),
            });
            hits.collect::<Result<Vec<_>, Fault>>()
        };
        self.readers.run(find).await
    }
}

/// The best tools for a query with their scores, best first, equal scores by tool id.
fn ranked(connection: &Connection, tenant: &str, query: &str, limit: usize) -> Result<Vec<(String, f64)>, Fault> {
    let limit = limit.min(HITS_MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let own = registry::tenant_key(connection, tenant)?.filter(|key| *key != HOME_KEY);
    let plan = SearchPlan::of(query, &Terms { connection, own })?;
    let rankings = plan.rankings.iter().map(|terms| rank(connection, own, terms)).collect::<Result<Vec<_>, Fault>>()?;
    let mut tool_id = connection.prepare_cached(
        "SELECT tool_id FROM tool_definitions AS found WHERE tool_key = :key AND NOT EXISTS (
             SELECT 1 FROM tool_definitions AS own
             WHERE own.tenant_id = :tenant_id AND own.tool_id = found.tool_id AND own.tool_key <> found.tool_key)",
    )?;
    let mut hits: Vec<(String, f64)> = Vec::new();
    // Best first, until the limit is reached and what follows scores less.
    for (key, score) in fuse(rankings, usize::MAX) {
        if hits.len() >= limit && hits.last().is_none_or(|(_, worst)| score < *worst) {
            break;
        }
        let found: Option<String> =
            tool_id.query_row(named_params! { ":key": key, ":tenant_id": tenant }, |row| row.get(0)).optional()?;
        hits.extend(found.map(|tool| (tool, score)));
    }
    hits.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    hits.truncate(limit);
    Ok(hits)
}

// --------------------------------------------------------------------------------------------------- private parts

/// All documents the tenant can find that have any of the terms, in no order.
fn rank(connection: &Connection, own: Option<i64>, terms: &[String]) -> Result<Ranking<i64>, Fault> {
    let any = terms.iter().map(|term| format!("\"{term}\"")).collect::<Vec<_>>().join(" OR ");
    let [name, labels, description, parameter_names, parameter_descriptions] = FIELD_WEIGHTS;
    let ranking = connection
        .prepare_cached(
            "SELECT rowid, -bm25(tool_search, :name, :labels, :description, :parameter_names,
             :parameter_descriptions) FROM tool_search
             WHERE tool_search MATCH :terms AND (rowid >> :shift) IN (:home, :own)",
        )?
        .query_map(
            named_params! {
                ":terms": any,
                ":name": name,
                ":labels": labels,
                ":description": description,
                ":parameter_names": parameter_names,
                ":parameter_descriptions": parameter_descriptions,
                ":shift": TENANT_SHIFT,
                ":home": HOME_KEY,
                ":own": own.unwrap_or(HOME_KEY),
            },
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect::<rusqlite::Result<_>>()?;
    Ok(ranking)
}

/// The vocabulary of what a tenant can find, as the tables have it.
struct Terms<'a> {
    connection: &'a Connection,
    /// The tenant's number, if it is not the home tenant and has published something.
    own: Option<i64>,
}

impl Terms<'_> {
    fn tenants(&self) -> impl Iterator<Item = i64> {
        std::iter::once(HOME_KEY).chain(self.own)
    }
}

impl TermIndex for Terms<'_> {
    type Error = Fault;

    fn documents(&self) -> Result<u64, Fault> {
        let mut statement =
            self.connection.prepare_cached("SELECT documents FROM registry_tenants WHERE tenant_key = :tenant_id")?;
        let mut documents = 0;
        for tenant in self.tenants() {
            documents += count(statement.query_row(named_params! { ":tenant_id": tenant }, |row| row.get(0))?);
        }
        Ok(documents)
    }

    fn frequency(&self, term: &str) -> Result<u64, Fault> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT documents FROM search_terms WHERE tenant_key = :tenant_id AND term = :term")?;
        let mut documents = 0;
        for tenant in self.tenants() {
            documents += statement
                .query_row(named_params! { ":tenant_id": tenant, ":term": term }, |row| row.get(0))
                .optional()?
                .map_or(0, count);
        }
        Ok(documents)
    }

    fn beginning_with(&self, prefix: &str) -> Result<Vec<(String, u64)>, Fault> {
        let last = format!("{prefix}\u{10ffff}");
        let mut statement = self.connection.prepare_cached(
            "SELECT term, documents FROM search_terms WHERE tenant_key = :tenant_id AND term BETWEEN :prefix AND :last
             ORDER BY term LIMIT :most",
        )?;
        // The first ones of all are among the first ones of each.
        let mut terms: BTreeMap<String, u64> = BTreeMap::new();
        for tenant in self.tenants() {
            let mut rows = statement.query(named_params! {
                ":tenant_id": tenant,
                ":prefix": prefix,
                ":last": last,
                ":most": i64::try_from(COMPLETIONS_MAX).unwrap_or(0),
            })?;
            while let Some(row) = rows.next()? {
                *terms.entry(row.get(0)?).or_default() += count(row.get(1)?);
            }
        }
        Ok(terms.into_iter().take(COMPLETIONS_MAX).collect())
    }

    fn of_length(&self, min: usize, max: usize, visit: &mut dyn FnMut(&str, u64)) -> Result<(), Fault> {
        let mut statement = self.connection.prepare_cached(
            "SELECT term, documents FROM search_terms WHERE tenant_key = :tenant_id ORDER BY term LIMIT :most",
        )?;
        let mut each = |tenant: i64, see: &mut dyn FnMut(&str, u64)| -> Result<(), Fault> {
            let mut rows = statement.query(named_params! { ":tenant_id": tenant, ":most": CORRECTIONS_MAX })?;
            while let Some(row) = rows.next()? {
                let term = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                if (min..=max).contains(&term.chars().count()) {
                    see(term, count(row.get(1)?));
                }
            }
            Ok(())
        };
        // Each term is shown once, so the tenant's own are kept until it is known which of them are shared too.
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        if let Some(tenant) = self.own {
            each(tenant, &mut |term, documents| {
                own.insert(term.to_owned(), documents);
            })?;
        }
        each(HOME_KEY, &mut |term, documents| visit(term, documents + own.remove(term).unwrap_or(0)))?;
        own.iter().for_each(|(term, documents)| visit(term, *documents));
        Ok(())
    }
}

/// A number that the tables keep from being negative.
fn count(stored: i64) -> u64 {
    u64::saturating_from(stored)
}
