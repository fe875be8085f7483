//! Keeping the search index what the registry says, in the same transaction as each change. (REG-014)
//!
//! One document per tool: the version that stands for it. Beside the postings is a count of documents per tenant and term,
//! which tells rare words from common ones without reading postings.
//!
//! Invariants
//! - INDEX-1: after every commit the index holds exactly the tools that have a searchable version.
//! - INDEX-2: `search_terms` and `search_corpora` count what the index holds of each tenant. Terms nobody has any more are
//!   deleted.
//! - INDEX-3: whoever changes the index of a tenant has that tenant's row in `search_corpora` first, so no two transactions
//!   wait for each other.

use std::collections::BTreeMap;

use contract::manifest::Manifest;
use ports::registry_store::StoredVersion;

use super::faults::Fault;
use super::pool::Pool;
use super::registry;
use super::statement::{column, int, ints, text, texts};
use super::stored_text::kept;
use super::transaction::{Scope, Transaction};
use crate::search::{PIPELINE_VERSION, ToolDocument, newest_searchable};
use crate::stored_row::tag;

/// Makes the document of one tool what its versions say. The tool's row is locked; `new` spares a look.
pub(super) async fn refresh(
    tx: &Transaction,
    key: i64,
    (tenant, tool): (&str, &str),
    new: Option<&StoredVersion>,
) -> Result<(), Fault> {
    let newest = newest_searchable(registry::states(tx, tenant, tool).await?);
    let known = new.filter(|new| newest.as_ref().is_some_and(|version| *version == new.version.without_build()));
    let manifest = match (&newest, known) {
        (None, _) => None,
        (Some(_), Some(new)) => Some(new.manifest.clone()),
        (Some(version), None) => Some(registry::manifest(tx, tenant, tool, version).await?),
    };
    let version = newest.map(|version| version.to_string());
    describe(tx, key, version.as_deref(), manifest.as_ref(), new).await?;
    replace(tx, key, (tenant, tool), manifest.as_ref().map(ToolDocument::of).as_ref()).await
}

/// Builds the index anew if it was made by an older text pipeline, or never. One by a newer one stays: instances of two
/// releases may run side by side for a while, and must not undo each other's work.
pub(super) async fn bring_up_to_date(pool: &Pool) -> Result<(), Fault> {
    let transaction = pool.begin(Scope::System).await?.patient();
    build(&transaction).await?;
    transaction.commit().await
}

// --------------------------------------------------------------------------------------------------- private parts

async fn build(tx: &Transaction) -> Result<(), Fault> {
    // Cheap when there is nothing to do, and then nobody waits.
    let select = "SELECT value FROM store_numbers WHERE name = 'search_pipeline' AND value < $1";
    if tx.query_opt(select, &[int(&PIPELINE_VERSION)]).await?.is_none() {
        return Ok(());
    }
    // It may take longer than a statement normally may; who publishes meanwhile waits for the row, or is seen below.
    tx.batch("SET LOCAL statement_timeout = 0; LOCK TABLE tool_definitions IN SHARE ROW EXCLUSIVE MODE").await?;
    if tx.query_opt(select, &[int(&PIPELINE_VERSION)]).await?.is_none() {
        return Ok(());
    }
    tx.batch("DELETE FROM search_documents; DELETE FROM search_terms; DELETE FROM search_corpora").await?;
    let tools = tx.query("SELECT tool_key, tenant_id, tool_id FROM tool_definitions ORDER BY tool_key", &[]).await?;
    for row in &tools {
        let names = (column(row, "tenant_id")?, column(row, "tool_id")?);
        refresh(tx, column(row, "tool_key")?, names, None).await?;
    }
    let raise = "UPDATE store_numbers SET value = $1 WHERE name = 'search_pipeline'";
    tx.execute(raise, &[int(&PIPELINE_VERSION)]).await?;
    tracing::info!(tools = tools.len(), "search index built");
    Ok(())
}

/// The tool is called what its newest searchable version calls it; without one it keeps its name.
async fn describe(
    tx: &Transaction,
    key: i64,
    version: Option<&str>,
    manifest: Option<&Manifest>,
    new: Option<&StoredVersion>,
) -> Result<(), Fault> {
    let name = manifest.map(|manifest| kept(&manifest.name));
    let description = manifest.map(|manifest| kept(&manifest.description));
    let provider = manifest.map(|manifest| kept(&manifest.provider));
    tx.execute(
        "UPDATE tool_definitions
         SET searchable_version = $2, name = coalesce($3, name), description = coalesce($4, description),
             provider = coalesce($5, provider), protocol = coalesce($6, protocol), updated_at = coalesce($7, updated_at)
         WHERE tool_key = $1",
        &[
            int(&key),
            text(&version),
            text(&name),
            text(&description),
            text(&provider),
            text(&manifest.map(|manifest| tag(manifest.protocol))),
            int(&new.map(|new| new.published_at.0)),
        ],
    )
    .await?;
    Ok(())
}

/// Puts `new` in the place of what the index has for this tool.
async fn replace(
    tx: &Transaction,
    key: i64,
    (tenant, tool): (&str, &str),
    new: Option<&ToolDocument>,
) -> Result<(), Fault> {
    // INDEX-3. Fresh from here on, because each statement sees what was committed before it.
    let lock = "INSERT INTO search_corpora AS there (tenant_id, documents, length) VALUES ($1, 0, 0)
                ON CONFLICT (tenant_id) DO UPDATE SET documents = there.documents";
    tx.execute(lock, &[text(&tenant)]).await?;
    let taken = tx
        .query_opt(
            "WITH gone AS (DELETE FROM search_documents WHERE tool_key = $1 RETURNING length, terms),
                  fewer AS (UPDATE search_terms SET documents = documents - 1
                            WHERE tenant_id = $2 AND term = ANY (SELECT unnest(terms) FROM gone)),
                  smaller AS (UPDATE search_corpora AS corpus
                              SET documents = corpus.documents - 1, length = corpus.length - gone.length
                              FROM gone WHERE corpus.tenant_id = $2)
             SELECT terms FROM gone",
            &[int(&key), text(&tenant)],
        )
        .await?;
    if let Some(new) = new {
        let postings = Postings::of(new);
        let [names, labels, descriptions, parameter_names, parameter_descriptions] = &postings.counts;
        tx.execute(
            "WITH document AS (INSERT INTO search_documents (tool_key, tenant_id, tool_id, length, terms)
                               VALUES ($1, $2, $3, $4, $5)),
                  more AS (INSERT INTO search_terms AS there (tenant_id, term, documents)
                           SELECT $2, term, 1 FROM unnest($5) AS given (term)
                           ON CONFLICT (tenant_id, term) DO UPDATE SET documents = there.documents + 1),
                  greater AS (UPDATE search_corpora SET documents = documents + 1, length = length + $4
                              WHERE tenant_id = $2)
             INSERT INTO search_postings (tenant_id, term, tool_key, in_name, in_labels, in_description,
                                          in_parameter_names, in_parameter_descriptions)
             SELECT $2, given.term, $1, given.name, given.labels, given.description, given.parameter_names,
                    given.parameter_descriptions
             FROM unnest($5, $6, $7, $8, $9, $10)
                  AS given (term, name, labels, description, parameter_names, parameter_descriptions)",
            &[
                int(&key),
                text(&tenant),
                text(&tool),
                int(&postings.length),
                texts(&postings.terms),
                ints(names),
                ints(labels),
                ints(descriptions),
                ints(parameter_names),
                ints(parameter_descriptions),
            ],
        )
        .await?;
    }
    if let Some(row) = taken {
        let terms: Vec<&str> = column(&row, "terms")?;
        let unused = "DELETE FROM search_terms WHERE tenant_id = $1 AND term = ANY ($2) AND documents = 0";
        tx.execute(unused, &[text(&tenant), texts(&terms)]).await?;
    }
    Ok(())
}

/// The terms of a document, each once, and how often each is in each field.
struct Postings<'a> {
    terms: Vec<&'a str>,
    counts: [Vec<i64>; 5],
    length: i64,
}

impl<'a> Postings<'a> {
    fn of(document: &'a ToolDocument) -> Self {
        let mut counted: BTreeMap<&str, [i64; 5]> = BTreeMap::new();
        let mut length = 0;
        for (field, text) in document.fields.iter().enumerate() {
            for term in text.split(' ').filter(|term| !term.is_empty()) {
                length += 1;
                if let Some(count) = counted.entry(term).or_default().get_mut(field) {
                    *count += 1;
                }
            }
        }
        let mut counts: [Vec<i64>; 5] = std::array::from_fn(|_| Vec::with_capacity(counted.len()));
        for of_term in counted.values() {
            for (column, count) in counts.iter_mut().zip(of_term) {
                column.push(*count);
            }
        }
        Self { terms: counted.into_keys().collect(), counts, length }
    }
}
