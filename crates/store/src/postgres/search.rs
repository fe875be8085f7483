//! `ToolSearch` on PostgreSQL: the server finds and scores, the shared plan says what to look up. (REG-014, DESIGN §7)
//!
//! The plan asks its vocabulary one word at a time, and here every question would be a round trip. So it is made more than
//! once: a vocabulary that does not know an answer notes the question, all open questions are asked at once, and the plan
//! is made again. A query of known words costs two statements, one for the vocabulary and one for the ranking; only a
//! word that nobody has costs more.
//!
//! Invariants
//! - FIND-1: only tools of the asking tenant and of the home tenant are found, and of two with the same id its own. Row
//!   level security holds every statement here to those two.
//! - FIND-2: scores are sums in the order of the terms, so that equal documents have equal scores to the last bit.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::{HOME_TENANT, TenantId};
use ports::registry_store::StoreError;
use ports::tool_search::{SearchHit, ToolSearch};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::faults::Fault;
use super::pool::Pool;
use super::statement::{column, int, ints, real, text, texts};
use super::transaction::Scope;
use crate::search::{FIELD_WEIGHTS, HITS_MAX, Ranking, SearchPlan, TermIndex, fuse};
use crate::stored_row::unreadable;

/// Saturation of repeated terms, as in FTS5.
const K1: f64 = 1.2;
/// How much long documents are held back, as in FTS5.
const B: f64 = 0.75;
/// A term that nearly all documents have still says a little.
const RARITY_MIN: f64 = 1e-6;
/// Most terms that are looked at when a word is completed.
const COMPLETIONS_MAX: i64 = 64;
/// Most terms of a tenant that are looked at when a word is corrected.
const CORRECTIONS_MAX: i64 = 50_000;
/// So often a plan is made: with nothing known, with frequencies, with completions, with corrections.
const ROUNDS_MAX: usize = 4;

#[async_trait]
impl ToolSearch for PostgresStore {
    async fn search(&self, tenant: &TenantId, query: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        let limit = limit.min(HITS_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut known = Known::default();
        let mut plan = SearchPlan::default();
        for _ in 0..ROUNDS_MAX {
            let (next, open) = known.plan(query);
            plan = next;
            if open.is_answered() {
                break;
            }
            known.ask(&self.pool, tenant.as_str(), &open).await?;
        }
        let rows = rank(&self.pool, tenant.as_str(), &plan, &known, limit).await?;
        Ok(hits(&rows, plan.rankings.len(), limit)?)
    }
}

fn hits(rows: &[Row], rankings: usize, limit: usize) -> Result<Vec<SearchHit>, Fault> {
    let mut ranked: Vec<Ranking<&str>> = vec![Vec::new(); rankings];
    for row in rows {
        let ranking = usize::try_from(column::<i64>(row, "ranking")?).unwrap_or(usize::MAX);
        if let Some(ranking) = ranked.get_mut(ranking) {
            ranking.push((column(row, "tool_id")?, column(row, "score")?));
        }
    }
    // INVARIANT: fuse orders equal scores by its key, which is the tool id.
    let mut fused = fuse(ranked, limit);
    fused.truncate(limit);
    let hit = |(tool, score): (&str, f64)| match tool.parse() {
        Ok(tool) => Ok(SearchHit { tool, score }),
        Err(_) => Err(unreadable("tool_id", tool).into()),
    };
    fused.into_iter().map(hit).collect()
}

/// The documents that have any of the terms, by ranking.
#[expect(clippy::cast_precision_loss, reason = "counts of documents and words are far below 2^52")]
async fn rank(pool: &Pool, tenant: &str, plan: &SearchPlan, known: &Known, limit: usize) -> Result<Vec<Row>, Fault> {
    if plan.rankings.is_empty() || known.documents == 0 {
        return Ok(Vec::new());
    }
    let (mut rankings, mut terms, mut rarities) = (Vec::new(), Vec::new(), Vec::new());
    let total = known.documents as f64;
    for (ranking, of_ranking) in (0_i64..).zip(&plan.rankings) {
        for term in of_ranking {
            let with = known.frequencies.get(term).copied().unwrap_or(0) as f64;
            rankings.push(ranking);
            terms.push(term.as_str());
            rarities.push(((total - with + 0.5) / (with + 0.5)).ln().max(RARITY_MIN));
        }
    }
    // Several rankings are fused, and for that all of them is needed; the plan bounds how much that is (PLAN-2).
    let limit = if plan.rankings.len() == 1 { i64::saturating_from(limit) } else { i64::MAX };
    let average = (known.length as f64 / total).max(1.0);
    let [name, labels, description, parameter_names, parameter_descriptions] = FIELD_WEIGHTS;
    let statement = "
        WITH scored AS (
            SELECT asked.ranking, asked.place, asked.rarity, document.tool_id,
                   posting.in_name * $5 + posting.in_labels * $6 + posting.in_description * $7
                   + posting.in_parameter_names * $8 + posting.in_parameter_descriptions * $9 AS weight,
                   1 - $11 + $11 * document.length / $12 AS stretch
            FROM unnest($2, $3, $4) WITH ORDINALITY AS asked (ranking, term, rarity, place)
            JOIN search_postings AS posting ON posting.tenant_id IN ($1, $14) AND posting.term = asked.term
            JOIN search_documents AS document ON document.tool_key = posting.tool_key
            WHERE document.tenant_id = $1 OR NOT EXISTS (
                SELECT FROM tool_definitions AS own WHERE own.tenant_id = $1 AND own.tool_id = document.tool_id))
        SELECT ranking, tool_id, sum(rarity * weight * ($10 + 1) / (weight + $10 * stretch) ORDER BY place) AS score
        FROM scored GROUP BY ranking, tool_id
        ORDER BY score DESC, tool_id LIMIT $13";
    let values = [
        text(&tenant),
        ints(&rankings),
        texts(&terms),
        (&rarities as _, Type::FLOAT8_ARRAY),
        real(&name),
        real(&labels),
        real(&description),
        real(&parameter_names),
        real(&parameter_descriptions),
        real(&K1),
        real(&B),
        real(&average),
        int(&limit),
        text(&HOME_TENANT),
    ];
    pool.query(Scope::Tenant(tenant), statement, &values).await
}

// ------------------------------------------------------------------------------------------------------- vocabulary

/// What has been asked so far of the vocabulary of a tenant and the home tenant.
#[derive(Debug, Default)]
struct Known {
    documents: u64,
    length: u64,
    /// Of terms that were asked for or are in an answer; 0 if nobody has it.
    frequencies: HashMap<String, u64>,
    beginning: HashMap<String, Vec<(String, u64)>>,
    of_length: HashMap<(usize, usize), Vec<(String, u64)>>,
}

/// Questions without an answer so far.
#[derive(Debug, Default)]
struct Open {
    terms: BTreeSet<String>,
    beginnings: BTreeSet<String>,
    lengths: BTreeSet<(usize, usize)>,
}

impl Open {
    fn is_answered(&self) -> bool {
        self.terms.is_empty() && self.beginnings.is_empty() && self.lengths.is_empty()
    }
}

impl Known {
    /// The plan as far as it can be made, and what has to be known to make it.
    fn plan(&self, query: &str) -> (SearchPlan, Open) {
        let terms = Terms { known: self, open: RefCell::default() };
        let Ok(plan) = SearchPlan::of(query, &terms);
        (plan, terms.open.into_inner())
    }

    async fn ask(&mut self, pool: &Pool, tenant: &str, open: &Open) -> Result<(), Fault> {
        let scope = Scope::Tenant(tenant);
        if !open.terms.is_empty() {
            let terms: Vec<&str> = open.terms.iter().map(String::as_str).collect();
            let statement = "
                SELECT NULL AS term, coalesce(sum(documents), 0)::bigint AS documents,
                       coalesce(sum(length), 0)::bigint AS length
                FROM search_corpora WHERE tenant_id IN ($1, $2)
                UNION ALL
                SELECT term, sum(documents)::bigint, 0 FROM search_terms
                WHERE tenant_id IN ($1, $2) AND term = ANY ($3) GROUP BY term";
            let rows = pool.query(scope, statement, &[text(&tenant), text(&HOME_TENANT), texts(&terms)]).await?;
            self.frequencies.extend(open.terms.iter().map(|term| (term.clone(), 0)));
            for row in &rows {
                match column::<Option<String>>(row, "term")? {
                    Some(term) => drop(self.frequencies.insert(term, count(row, "documents")?)),
                    None => (self.documents, self.length) = (count(row, "documents")?, count(row, "length")?),
                }
            }
        }
        for beginning in &open.beginnings {
            let last = format!("{beginning}\u{10ffff}");
            let statement = "
                SELECT term, sum(documents)::bigint AS documents FROM search_terms
                WHERE tenant_id IN ($1, $2) AND term BETWEEN $3 AND $4 GROUP BY term ORDER BY term LIMIT $5";
            let values = [text(&tenant), text(&HOME_TENANT), text(beginning), text(&last), int(&COMPLETIONS_MAX)];
            let found = self.learn(&pool.query(scope, statement, &values).await?)?;
            self.beginning.insert(beginning.clone(), found);
        }
        for (min, max) in &open.lengths {
            let (least, most) = (i64::saturating_from(*min), i64::saturating_from(*max));
            let statement = "
                SELECT term, sum(documents)::bigint AS documents FROM search_terms
                WHERE tenant_id IN ($1, $2) AND characters BETWEEN $3 AND $4
                GROUP BY term ORDER BY term LIMIT $5";
            let values = [text(&tenant), text(&HOME_TENANT), int(&least), int(&most), int(&CORRECTIONS_MAX)];
            let found = self.learn(&pool.query(scope, statement, &values).await?)?;
            self.of_length.insert((*min, *max), found);
        }
        Ok(())
    }

    fn learn(&mut self, rows: &[Row]) -> Result<Vec<(String, u64)>, Fault> {
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let (term, documents): (String, u64) = (column(row, "term")?, count(row, "documents")?);
            self.frequencies.insert(term.clone(), documents);
            found.push((term, documents));
        }
        Ok(found)
    }
}

/// A vocabulary that notes what it does not know, and answers "nothing" meanwhile.
struct Terms<'a> {
    known: &'a Known,
    open: RefCell<Open>,
}

impl TermIndex for Terms<'_> {
    type Error = std::convert::Infallible;

    fn documents(&self) -> Result<u64, Self::Error> {
        Ok(self.known.documents)
    }

    fn frequency(&self, term: &str) -> Result<u64, Self::Error> {
        let known = self.known.frequencies.get(term).copied();
        if known.is_none() {
            self.open.borrow_mut().terms.insert(term.to_owned());
        }
        Ok(known.unwrap_or(0))
    }

    fn beginning_with(&self, prefix: &str) -> Result<Vec<(String, u64)>, Self::Error> {
        let known = self.known.beginning.get(prefix);
        let mut open = self.open.borrow_mut();
        // Whether it has to be asked at all is only known when all frequencies are.
        if known.is_none() && open.terms.is_empty() {
            open.beginnings.insert(prefix.to_owned());
        }
        Ok(known.cloned().unwrap_or_default())
    }

    fn of_length(&self, min: usize, max: usize, visit: &mut dyn FnMut(&str, u64)) -> Result<(), Self::Error> {
        let Some(known) = self.known.of_length.get(&(min, max)) else {
            let mut open = self.open.borrow_mut();
            if open.terms.is_empty() && open.beginnings.is_empty() {
                open.lengths.insert((min, max));
            }
            return Ok(());
        };
        known.iter().for_each(|(term, documents)| visit(term, *documents));
        Ok(())
    }
}

/// A number that the tables keep from being negative.
fn count(row: &Row, name: &'static str) -> Result<u64, Fault> {
    Ok(u64::saturating_from(column::<i64>(row, name)?))
}
