//! Keeping the search index what the registry says, in the same transaction as each change. (REG-014)
//!
//! One document per tool: the version that stands for it. Beside the index is a count of documents per tenant and term,
//! which tells rare words from common ones without reading postings; it is changed by the difference of the old and new
//! vocabulary.
//!
//! Invariants
//! - INDEX-1: after every commit the index holds exactly the tools that have a searchable version.
//! - INDEX-2: `search_terms` and `registry_tenants.documents` count what the index holds of each tenant. Terms nobody has any more are deleted.

use contract::manifest::Manifest;
use rusqlite::{Connection, OptionalExtension, named_params};

use super::faults::Fault;
use super::registry;
use crate::search::{PIPELINE_VERSION, ToolDocument, newest_searchable};
use crate::stored_row::tag;

/// Makes the document of one tool what its versions say.
pub(super) fn refresh(connection: &Connection, tenant: &str, tool: &str) -> Result<(), Fault> {
    let Some(key) = registry::tool_key(connection, tenant, tool)? else { return Ok(()) };
    let newest = newest_searchable(registry::states(connection, tenant, tool)?);
    let manifest = newest.as_ref().map(|version| registry::manifest(connection, tenant, tool, version)).transpose()?;
    let text = newest.map(|version| version.to_string());
    if let Some(manifest) = &manifest {
        describe(connection, key, manifest)?;
    }
    connection
        .prepare_cached("UPDATE tool_definitions SET searchable_version = :text WHERE tool_key = :key")?
        .execute(named_params! { ":key": key, ":text": text })?;
    replace(connection, key, manifest.as_ref().map(ToolDocument::of).as_ref())
}

/// Builds the index anew if it was made by another text pipeline, or never.
pub(super) fn bring_up_to_date(connection: &Connection) -> Result<(), Fault> {
    let pipeline: i64 =
        connection.query_row("SELECT value FROM store_numbers WHERE name = 'search_pipeline'", [], |row| row.get(0))?;
    if pipeline == PIPELINE_VERSION {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(
        "DELETE FROM tool_search; DELETE FROM search_terms;
         UPDATE registry_tenants SET documents = 0;",
    )?;
    let tools: Vec<(String, String)> = transaction
        .prepare("SELECT tenant_id, tool_id FROM tool_definitions ORDER BY tenant_id, tool_id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (tenant, tool) in &tools {
        refresh(&transaction, tenant, tool)?;
    }
    transaction.execute(
        "UPDATE store_numbers SET value = :pipeline WHERE name = 'search_pipeline'",
        named_params! { ":pipeline": PIPELINE_VERSION },
    )?;
    transaction.commit()?;
    tracing::info!(tools = tools.len(), "search index built");
    Ok(())
}

// --------------------------------------------------------------------------------------------------- private parts

/// The tool is called what its newest searchable version calls it.
fn describe(connection: &Connection, key: i64, manifest: &Manifest) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE tool_definitions
             SET name = :name, description = :description, provider = :provider, protocol = :protocol
             WHERE tool_key = :key",
        )?
        .execute(named_params! {
            ":name": manifest.name,
            ":description": manifest.description,
            ":provider": manifest.provider,
            ":protocol": tag(manifest.protocol),
            ":key": key,
        })?;
    Ok(())
}

/// Puts `new` in the place of what the index has for this tool.
fn replace(connection: &Connection, key: i64, new: Option<&ToolDocument>) -> Result<(), Fault> {
    let old = indexed(connection, key)?;
    if old.as_ref() == new {
        return Ok(());
    }
    let tenant = key >> registry::TENANT_SHIFT;
    if let Some(old) = &old {
        connection
            .prepare_cached("DELETE FROM tool_search WHERE rowid = :key")?
            .execute(named_params! { ":key": key })?;
        let mut fewer = connection.prepare_cached(
            "UPDATE search_terms SET documents = documents - 1 WHERE tenant_key = :tenant_key AND term = :term",
        )?;
        let mut gone = connection.prepare_cached(
            "DELETE FROM search_terms WHERE tenant_key = :tenant_key AND term = :term AND documents = 0",
        )?;
        for term in old.vocabulary() {
            fewer.execute(named_params! { ":tenant_key": tenant, ":term": term })?;
            gone.execute(named_params! { ":tenant_key": tenant, ":term": term })?;
        }
    }
    if let Some(new) = new {
        let [name, labels, description, parameter_names, parameter_descriptions] = &new.fields;
        connection
            .prepare_cached(
                "INSERT INTO tool_search (rowid, name, labels, description, parameter_names, parameter_descriptions)
                 VALUES (:key, :name, :labels, :description, :parameter_names, :parameter_descriptions)",
            )?
            .execute(named_params! {
                ":key": key,
                ":name": name,
                ":labels": labels,
                ":description": description,
                ":parameter_names": parameter_names,
                ":parameter_descriptions": parameter_descriptions,
            })?;
        let mut more = connection.prepare_cached(
            "INSERT INTO search_terms (tenant_key, term, documents) VALUES (:tenant_id, :term, 1)
             ON CONFLICT (tenant_key, term) DO UPDATE SET documents = documents + 1",
        )?;
        for term in new.vocabulary() {
            more.execute(named_params! { ":tenant_id": tenant, ":term": term })?;
        }
    }
    let change = i64::from(new.is_some()) - i64::from(old.is_some());
    connection
        .prepare_cached("UPDATE registry_tenants SET documents = documents + :change WHERE tenant_key = :tenant_id")?
        .execute(named_params! { ":tenant_id": tenant, ":change": change })?;
    Ok(())
}

/// What the index has for this tool.
fn indexed(connection: &Connection, key: i64) -> Result<Option<ToolDocument>, Fault> {
    let document = connection
        .prepare_cached(
            "SELECT name, labels, description, parameter_names, parameter_descriptions
             FROM tool_search WHERE rowid = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(ToolDocument { fields: [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?] })
        })
        .optional()?;
    Ok(document)
}
